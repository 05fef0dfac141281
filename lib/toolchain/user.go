package toolchain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// maxUserFile bounds the user's own table: it is read at every start.
const maxUserFile = 256 << 10

// UserFile is where the user's own rows are, or "" where that cannot be told.
func UserFile(h Host) string {
	if dir := h.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pikuri", "toolchains.tsv")
	}
	if filepath.IsAbs(h.Home) {
		return filepath.Join(h.Home, ".config", "pikuri", "toolchains.tsv")
	}
	return ""
}

// LoadFor returns the built-in table with the rows that the user has in
// UserFile: one for the same kind and path takes the place of the built-in one,
// the others follow. A file that somebody else could have written is refused,
// and so is a row that would show what no row may.
func LoadFor(h Host) (Table, error) {
	t, err := Load()
	if err != nil {
		return Table{}, fmt.Errorf("internal error: %w", err)
	}
	file := UserFile(h)
	text, err := readOwn(file)
	if err != nil || text == "" {
		return t, err
	}
	own, err := Parse(fmt.Sprintf("%q", file), text)
	if err != nil {
		return Table{}, err
	}
	for _, r := range own.rows {
		r.File, r.user = file, true
		if pattern, missing := spell(r.Path, h); missing == "" {
			if why := newDenylist(t, h).danger(pattern, false); why != "" {
				return Table{}, fmt.Errorf("%q: line %d: cannot show %q: %s", file, r.Line, r.Path, why)
			}
		}
		t.put(r)
	}
	return t, nil
}

// put adds a row, or puts it in the place of another.
func (t *Table) put(r Row) {
	i := slices.IndexFunc(t.rows, func(o Row) bool { return o.Kind == r.Kind && o.Path == r.Path })
	if i < 0 {
		t.rows = append(t.rows, r)
		return
	}
	t.replaced = append(t.replaced, t.rows[i])
	t.rows[i] = r
}

// known are all rows that say something about credentials.
func (t Table) known() []Row { return append(slices.Clip(t.rows), t.replaced...) }

// readOwn reads a file that only its user can have written. One that does not
// exist is empty.
func readOwn(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	// A directory that the caller may not enter is not where he keeps anything:
	// $HOME is somebody else's.
	if _, err := os.Lstat(file); os.IsNotExist(err) || os.IsPermission(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return "", nil
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("cannot look at %q: %w", file, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("cannot use %q: it is no plain file", file)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("cannot use %q: it belongs to somebody else", file)
	case st.Mode&0o022 != 0:
		return "", fmt.Errorf("cannot use %q: others may write to it", file)
	case st.Size > maxUserFile:
		return "", fmt.Errorf("cannot use %q: it is larger than %d bytes", file, maxUserFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxUserFile))
	return string(text), err
}
