package workspace

import (
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/pattern"
)

// caseFold makes names equal that differ only in case: each character becomes the first
// of its forms. Bytes that are not UTF-8 all become the same character, so a rule that
// denies may cover too much.
func caseFold(text string) string {
	return strings.Map(func(r rune) rune {
		first := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			first = min(first, other)
		}
		return first
	}, text)
}

// caseFold returns the rules in one case. The syntax of patterns has no letters.
func (r rules) caseFold() rules {
	var folded rules
	for _, p := range r {
		if f, err := pattern.Compile(caseFold(p.String())); err == nil {
			folded = append(folded, f)
		} else {
			folded = append(folded, everything) // an odd range, such as [Z-a]
		}
	}
	return folded
}

var everything = func() *pattern.Pattern {
	p, err := pattern.Compile("**")
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return p
}()

// caseless are file systems that may ignore case. Some have an option against it.
var caseless = map[int64]string{
	0x4d44:     "vfat",
	0x2011bab0: "exfat",
	0x5346544e: "ntfs",
	0x7366746e: "ntfs3",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x482b:     "hfsplus",
	0x01021997: "9p",
	0x786f4256: "vboxsf",
}

// casefoldFlag is set for directories of ext4 and f2fs that ignore case.
const casefoldFlag = 0x40000000

// ignoresCase reports whether the file system of the root ignores case. A directory
// below may be on another file system, or have another setting.
func (w *LocalWorkspace) ignoresCase() bool {
	if w.tree == nil || w.tree.use() != nil {
		return false
	}
	defer w.tree.release()
	var st unix.Statfs_t
	if unix.Fstatfs(w.tree.fd, &st) == nil && caseless[int64(uint32(st.Type))] != "" {
		return true
	}
	fd, err := fsat.Reopen(w.tree.fd, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	return err == nil && flags&casefoldFlag != 0
}
