package cli

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/shellword"
	"pikuri/lib/internal/usertable"
)

// projectFile is the policy of a project, below its root.
const projectFile = ".pk/policy"

// project is a project's policy, and the row that trusts it.
type project struct {
	policy
	text string
	path string // of the project root, every link followed
	row  string // path, device and inode of the project root, SHA-256 of the text
}

// owns reports whether a row of the table is this project's: of any version of its policy.
func (p *project) owns(row string) bool { return strings.HasPrefix(row, fmt.Sprintf("%q\t", p.path)) }

// loadProject reads the policy of the project. Without one, the path is "".
func (w *WorkspaceFlags) loadProject() (project, error) {
	root, err := confine.Follow(w.Project())
	if err != nil {
		return project{}, nil // Open reports it
	}
	var st unix.Stat_t
	name := filepath.Join(root.Place, projectFile)
	if _, err := os.Lstat(name); os.IsNotExist(err) || unix.Stat(root.Place, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return project{}, nil
	}
	p, text, err := loadPolicy(name, projects)
	row := fmt.Sprintf("%q\t%d:%d\t%x", root.Place, st.Dev, st.Ino, sha256.Sum256([]byte(text)))
	return project{p, text, root.Place, row}, err
}

// trusted is the table of policies that the user trusts.
func trusted() string { return usertable.Path(os.Getenv("HOME"), os.Getenv, "trusted-projects") }

// readProject reads the policy of the project if the user trusts it.
func (w *WorkspaceFlags) readProject(ctx *Context) error {
	p, unfit := w.loadProject()
	if p.path == "" || w.Trusting {
		return nil
	}
	table, err := usertable.Read(trusted())
	if err != nil {
		return err
	}
	last := "" // an earlier pk kept the versions before it too
	for _, row := range usertable.Rows(table) {
		if p.owns(row) {
			last = row
		}
	}
	switch {
	case last == p.row && unfit == nil:
		return w.useProject(p)
	case last != "":
		err := fmt.Errorf("the project's policy %q has changed since you trusted it", filepath.Join(p.path, projectFile))
		if unfit != nil {
			err = fmt.Errorf("%w: %w", err, unfit)
		}
		return WithHint(err, "read it, then pk-bwrap -C %s --trust-project", shellword.Word(p.path))
	case unfit != nil:
		ctx.Warn("the project's policy is not used: %v", unfit)
	case p.text != "":
		ctx.Warn("the project's policy is not used, since you have not trusted it: read %q, then pk-bwrap --trust-project", p.name)
	}
	return nil
}

// useProject takes the options of a project's policy. It lies in a writable root, but the
// table of trusted content must not.
func (w *WorkspaceFlags) useProject(p project) error {
	if file := trusted(); file != "" {
		trail, _ := confine.Follow(file)
		w.policies = append(w.policies, policy{name: file, trail: trail})
	}
	w.narrowed = len(w.rules.AllowWrite) > 0
	return w.reader(projects).read(p.policy, p.text)
}

// TrustProject makes the user trust the policy of the project, and prints it.
func (w *WorkspaceFlags) TrustProject(ctx *Context) error {
	p, err := w.loadProject()
	if err == nil && p.text == "" {
		err = fmt.Errorf("there is no %q in %q", projectFile, w.Project())
	}
	before := len(w.lines)
	if err == nil {
		err = w.useProject(p)
	}
	if err != nil {
		return Invalid(fmt.Errorf("cannot trust the project's policy: %w", err))
	}
	for _, line := range w.lines[before:] {
		if err := WriteRecord(ctx.Stdout, line.Text, false, true); err != nil {
			return err
		}
	}
	if err := p.trust(trusted()); err != nil {
		return fmt.Errorf("cannot record that you trust the project's policy: %w", err)
	}
	return nil
}

// trust puts the row of the project into the table, in the place of those of other versions
// of its policy: otherwise the command could restore a version that was less strict.
func (p *project) trust(file string) error {
	if file == "" {
		return errors.New("the home is not known: set HOME")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	table, file, err := lockTable(file)
	if err != nil {
		return err
	}
	defer table.Close()
	text, err := usertable.Read(file)
	if err != nil {
		return err
	}
	var rows strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); !p.owns(line) {
			rows.WriteString(line + "\n")
		}
	}
	rows.WriteString(p.row + "\n")
	return fsat.WriteFile(file, []byte(rows.String()))
}

// lockTable locks a file that is replaced as a whole, until table is closed. It returns the
// real path, since a user may keep the file elsewhere behind a link.
func lockTable(file string) (table *os.File, real string, err error) {
	for {
		if table, err = os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600); err != nil {
			return nil, "", err
		}
		_, err = fsat.Again(func() (int, error) { return 0, unix.Flock(int(table.Fd()), unix.LOCK_EX) })
		if err == nil {
			real, err = filepath.EvalSymlinks(file)
		}
		var locked, now unix.Stat_t
		if err == nil {
			err = errors.Join(unix.Fstat(int(table.Fd()), &locked), unix.Lstat(real, &now))
		}
		if err == nil && fsat.SameInode(&locked, &now) {
			return table, real, nil
		}
		table.Close() // the last holder of the lock has replaced it
		if err != nil {
			return nil, "", err
		}
	}
}
