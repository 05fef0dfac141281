package workspace

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// dirent is an entry of a directory. kind may be DT_UNKNOWN.
type dirent struct {
	name string
	kind byte
}

// direntBufs are the buffers that getdents64(2) fills.
var direntBufs = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// eachEntry calls fn for each entry of an open directory. The package os is of no
// use here: it looks files up by the name that their directory once had.
func eachEntry(dir int, fn func(dirent) error) error {
	buf := direntBufs.Get().(*[32 << 10]byte)
	defer direntBufs.Put(buf)
	for {
		n, err := again(func() (int, error) { return unix.ReadDirent(dir, buf[:]) })
		if err != nil || n <= 0 {
			return err
		}
		for rest := buf[:n]; ; {
			entry, size := nextDirent(rest)
			if size == 0 {
				break
			}
			rest = rest[size:]
			if entry.name == "." || entry.name == ".." {
				continue
			}
			if err := fn(entry); err != nil {
				return err
			}
		}
	}
}

// nextDirent reads one entry; size is 0 at the end.
func nextDirent(buf []byte) (entry dirent, size int) {
	const (
		lenAt  = 16 // after d_ino and d_off
		kindAt = 18
		nameAt = 19
	)
	if len(buf) <= nameAt {
		return dirent{}, 0
	}
	size = int(binary.NativeEndian.Uint16(buf[lenAt:]))
	if size <= nameAt || size > len(buf) {
		return dirent{}, 0 // never seen: the kernel fills whole entries
	}
	name, _, _ := bytes.Cut(buf[nameAt:size], []byte{0})
	return dirent{string(name), buf[kindAt]}, size
}

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
	if int(entry.kind) < len(direntKinds) && direntKinds[entry.kind] != fs.ModeIrregular {
		return direntKinds[entry.kind], nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, entry.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	return fileMode(st.Mode).Type(), nil
}
