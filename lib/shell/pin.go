package shell

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/passwd"
)

// Pin limits answers for a user to one source. The zero value allows any.
type Pin struct {
	Terminal bool   // the user at the terminal
	Program  string // that program, an absolute path; "" for none
	Source   string // the file with this rule
}

// Set tells whether there is a pin at all.
func (p Pin) Set() bool { return p.Terminal || p.Program != "" }

// String is the pin as a message shows it.
func (p Pin) String() string {
	if p.Program != "" {
		return fmt.Sprintf("the program %q", p.Program)
	}
	return "the terminal"
}

// pinName is the file in a configuration directory.
const pinName = "pikuri/confirm"

// PinFiles lists the files that can hold a pin. An agent may choose the environment:
// it can add a file to the list and take none away, since the home of the password
// file counts too.
func PinFiles(getenv func(string) string) []string {
	files := []string{"/etc/" + pinName}
	add := func(dir string, more string) {
		if filepath.IsAbs(dir) {
			files = append(files, filepath.Join(dir, more, pinName))
		}
	}
	add(passwd.Find(passwd.Users, os.Getuid()).Home, ".config")
	add(getenv("HOME"), ".config")
	add(getenv("XDG_CONFIG_HOME"), "")
	return files
}

// ReadPin reads those of files that exist. They have to agree, to belong to the
// user or to root, and to be closed to all others. A file that cannot be read or
// understood is an error: it was meant to prevent something.
func ReadPin(files []string) (Pin, error) {
	var found Pin
	for _, file := range files {
		p, err := readPin(file)
		switch {
		case err != nil:
			return Pin{}, fmt.Errorf("cannot use %q: %w", file, err)
		case !p.Set() || p.Terminal == found.Terminal && p.Program == found.Program:
		case found.Set():
			return Pin{}, fmt.Errorf("%q and %q do not agree on who may answer", found.Source, file)
		default:
			found = p
		}
	}
	return found, nil
}

func readPin(file string) (Pin, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return Pin{}, nil
	}
	if err != nil {
		return Pin{}, err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Pin{}, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return Pin{}, errors.New("it is not a file")
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return Pin{}, fmt.Errorf("it belongs to user %d", st.Uid)
	case st.Uid != 0 && st.Mode&0o077 != 0, st.Mode&0o022 != 0:
		return Pin{}, fmt.Errorf("it is open to others (mode %04o)", st.Mode&0o7777)
	}
	pin := Pin{Source: file}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if err := pin.parse(lines.Text()); err != nil {
			return Pin{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Pin{}, err
	}
	if !pin.Set() {
		return Pin{}, errors.New(`it names nobody: write "require terminal", or "require command PROGRAM"`)
	}
	return pin, nil
}

// parse takes one line: require terminal, require command PROGRAM, or a comment.
func (p *Pin) parse(line string) error {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return nil
	}
	if p.Set() {
		return errors.New("one line says who may answer, and there is one already")
	}
	program, isCommand := strings.CutPrefix(line, "require command ")
	program = strings.TrimSpace(program)
	switch {
	case line == "require terminal":
		p.Terminal = true
	case isCommand && filepath.IsAbs(program):
		p.Program = program
	case isCommand:
		return fmt.Errorf("%q is not an absolute path", program)
	default:
		return fmt.Errorf(`%q is neither "require terminal" nor "require command PROGRAM"`, line)
	}
	return nil
}
