package workspace

import (
	"io/fs"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// dirent is an entry of a directory.
type dirent = fsat.Entry

// eachEntry calls fn for each entry of an open directory.
func eachEntry(dir int, fn func(dirent) error) error { return fsat.Each(dir, fn) }

// direntKinds are the types that a directory tells of its entries.
var direntKinds = [...]fs.FileMode{
	unix.DT_UNKNOWN: fs.ModeIrregular,
	unix.DT_REG:     0,
	unix.DT_DIR:     fs.ModeDir,
	unix.DT_LNK:     fs.ModeSymlink,
	unix.DT_FIFO:    fs.ModeNamedPipe,
	unix.DT_SOCK:    fs.ModeSocket,
	unix.DT_CHR:     fs.ModeDevice | fs.ModeCharDevice,
	unix.DT_BLK:     fs.ModeDevice,

	// Types that no kernel has told so far.
	3: fs.ModeIrregular, 5: fs.ModeIrregular, 7: fs.ModeIrregular, 9: fs.ModeIrregular, 11: fs.ModeIrregular,
}

// kindOf is the type of an entry; a directory that does not tell has it looked
// up.
func kindOf(dir int, entry dirent) (fs.FileMode, error) {
	if int(entry.Type) < len(direntKinds) && direntKinds[entry.Type] != fs.ModeIrregular {
		return direntKinds[entry.Type], nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, entry.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	return fileMode(st.Mode).Type(), nil
}
