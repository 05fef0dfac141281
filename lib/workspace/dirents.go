package workspace

import (
	"io/fs"

	"pikuri/lib/internal/fsat"
)

// dirent is an entry of a directory.
type dirent = fsat.Entry

// eachEntry calls fn for each entry of an open directory.
func eachEntry(dir int, fn func(dirent) error) error { return fsat.Each(dir, fn) }

// kindOf returns the type of an entry. It looks the entry up if the directory does not
// have its type.
func kindOf(dir int, entry dirent) (fs.FileMode, error) {
	// The types of directory entries are those of st_mode, 12 bits down.
	if kind, known := kinds[uint32(entry.Type)<<12]; known {
		return kind, nil
	}
	st, err := fsat.Lstat(dir, entry.Name)
	if err != nil {
		return 0, err
	}
	return fileMode(st.Mode).Type(), nil
}
