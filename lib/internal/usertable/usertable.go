// Package usertable reads the tables that a user keeps for pk: text files in
// ~/.config/pikuri, one row a line, with a tab between columns.
package usertable

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxSize bounds a table: it is read at every start.
const MaxSize = 256 << 10

// Path is the file with this name, or "" if the home is unknown.
func Path(home string, getenv func(string) string, name string) string {
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pikuri", name)
	}
	if filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "pikuri", name)
	}
	return ""
}

// Read returns the text of a file that only its user can have written; "" if there
// is no file.
func Read(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	// In a directory that the caller may not enter he keeps no file: $HOME is another
	// user's.
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
		return "", fmt.Errorf("cannot use %q: it belongs to another user", file)
	case st.Mode&0o022 != 0:
		return "", fmt.Errorf("cannot use %q: others may write to it", file)
	case st.Size > MaxSize:
		return "", fmt.Errorf("cannot use %q: it is larger than %d bytes", file, MaxSize)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize))
	return string(text), err
}

// Rows returns the rows of a text by the number of their line. It skips empty lines and
// lines that begin with "#".
func Rows(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' {
				continue
			}
			if !yield(number, line) {
				return
			}
		}
	}
}
