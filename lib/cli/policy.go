package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
)

// maxPolicy bounds a policy file, which is written by hand.
const maxPolicy = 1 << 20

// policy is a file that options were read from.
type policy struct {
	name  string // as it was given
	trail confine.Trail
}

// WithPolicy returns options and one more, --policy, which takes them from a
// file: its lines stand for options in the place of --policy itself. Leave out of
// options all that concerns one call only.
func (w *WorkspaceFlags) WithPolicy(options []Option) []Option {
	read := func(name string) error { return w.readPolicy(name, options) }
	return append(options, Func(read, "policy", "").Path())
}

func (w *WorkspaceFlags) readPolicy(name string, options []Option) error {
	p, text, err := loadPolicy(name)
	if err != nil {
		return fmt.Errorf("cannot read policy %q: %w", name, err)
	}
	w.policies = append(w.policies, p)
	defer func() { w.source = "" }()
	n := 0
	for line := range strings.Lines(text) {
		n++
		w.source = fmt.Sprintf("%q, line %d", name, n)
		if err := p.apply(strings.TrimSuffix(line, "\n"), options); err != nil {
			return fmt.Errorf("%s: %w", w.source, err)
		}
	}
	return nil
}

// loadPolicy reads the file that name leads to, and no other that may have come
// in its place since.
func loadPolicy(name string) (policy, string, error) {
	trail, err := confine.Follow(name)
	if err != nil {
		return policy{}, "", err
	}
	p := policy{name, trail}
	fd, err := unix.Open(p.place(), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return p, "", err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return p, "", errors.Join(err, errors.New("it is not a file"))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxPolicy+1))
	if len(text) > maxPolicy {
		err = fmt.Errorf("it is longer than %d bytes", maxPolicy)
	}
	return p, string(text), err
}

// place is the file's location, every link followed.
func (p policy) place() string { return p.trail.Place }

// apply sets the option of one line.
func (p policy) apply(line string, options []Option) error {
	line = strings.Trim(line, " \t")
	if line == "" || line[0] == '#' {
		return nil
	}
	if i := strings.IndexAny(line, "\r\x00"); i >= 0 {
		return fmt.Errorf("it holds the byte %q", line[i])
	}
	name, value := line, ""
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		name, value = line[:i], strings.TrimLeft(line[i:], " \t")
	}
	unrecorded := Func(func(string) error { return nil }, "audit", "") // pk-resolve changes nothing
	for _, o := range append(slices.Concat(options, SandboxOnly()), unrecorded) {
		if o.Long == name {
			return p.set(o, value)
		}
	}
	err := fmt.Errorf("%q is not an option that a policy can give", name)
	if meant := similar(name, options); meant != "" {
		err = WithHint(err, "did you mean %s?", meant)
	}
	return err
}

// SandboxOnly returns the options of lib/cli/sandboxflags that affect only the sandbox, not
// the workspace. A policy is one file for all commands, so the commands without a sandbox
// skip these options. protect is not in the list: a command that writes files and does not
// know protect must not skip it.
func SandboxOnly() []Option {
	var list []Option
	skip := func(string) error { return nil }
	for _, name := range []string{
		"overlay", "overlay-from", "net", "allow-host", "allow-host-from", "publish", "connect", "pass-env", "setenv",
		"require", "memory", "pids", "cpu-time", "file-size", "bwrap",
	} {
		list = append(list, Func(skip, name, ""))
	}
	for _, name := range []string{"trial", "no-toolchains", "env-inherit", "allow-nested"} {
		list = append(list, Switch(new(bool), name, ""))
	}
	return list
}

func (p policy) set(o Option, value string) error {
	switch {
	case o.Value && value == "":
		return fmt.Errorf("option %q needs a value", o.Long)
	case !o.Value && value != "":
		return fmt.Errorf("option %q takes no value", o.Long)
	case o.path == isPathOrIn && value == "-":
	case o.path != notPath && value[0] != '/':
		value = path.Dir(p.place()) + "/" + value
	}
	if err := o.set(value); err != nil {
		return fmt.Errorf("option %q: %w", o.Long, err)
	}
	return nil
}

// check refuses a policy that a command in the workspace could write or replace.
func (p policy) check(roots []confine.Root) error {
	root, ok := p.trail.LiesIn(confine.WritablePaths(roots))
	if !ok {
		return nil
	}
	err := fmt.Errorf("cannot use policy %q: it is in the writable root %q", p.name, root)
	return WithHint(err, "keep it where nobody in the workspace can write")
}
