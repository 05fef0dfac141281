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
	"pikuri/lib/passwd"
)

const (
	// maxPolicy bounds a policy file, which is written by hand.
	maxPolicy = 1 << 20

	// maxIncludes bounds the depth of includes.
	maxIncludes = 8

	// maxPolicies bounds the files read: ten includes in each, eight deep, would be 10^8.
	maxPolicies = 256
)

// policy is a file that options were read from.
type policy struct {
	name  string // as it was given
	level level
	trail confine.Trail
}

// PolicyLine is an option that a policy gave.
type PolicyLine struct{ Text, Source string }

// PolicyLines are the lines of policies that concern this command, in the order in which
// they were read.
func (w *WorkspaceFlags) PolicyLines() []PolicyLine { return w.lines }

// WithPolicy returns options and one more, --policy, which takes them from a
// file: its lines stand for options in the place of --policy itself. Leave out of
// options all that concerns one call only. The policies of the machine and of the
// project can give the same options.
func (w *WorkspaceFlags) WithPolicy(options []Option) []Option {
	w.lasting = options
	return append(options, Func(w.readPolicy, "policy", "").Path())
}

func (w *WorkspaceFlags) readPolicy(name string) error { return w.reader(users).file(name) }

// reader reads policies of one level.
type reader struct {
	*WorkspaceFlags
	level   level
	options []Option
	within  []string // places of the file that is being read, and of the files that include it
}

func (w *WorkspaceFlags) reader(l level) *reader {
	return &reader{w, l, slices.Concat(w.lasting, w.elsewhere()), nil}
}

func (r *reader) file(name string) error {
	p, text, err := loadPolicy(name, r.level)
	switch {
	case err != nil:
	case slices.Contains(r.within, p.place()):
		err = errors.New("it includes itself")
	case len(r.within) > maxIncludes:
		err = fmt.Errorf("more than %d policies include each other", maxIncludes)
	case len(r.policies) >= maxPolicies:
		err = fmt.Errorf("there are more than %d policies", maxPolicies)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = WithHint(err, "name a file with one; pk-policy(5) tells what it holds")
	}
	if err != nil {
		return fmt.Errorf("cannot read policy %q: %w", name, err)
	}
	r.policies = append(r.policies, p)
	r.within = append(r.within, p.place())
	defer func() { r.within = r.within[:len(r.within)-1] }()
	return r.read(p, text)
}

func (r *reader) read(p policy, text string) error {
	defer func(outer string) { r.source = outer }(r.source)
	n := 0
	for line := range strings.Lines(text) {
		n++
		here := fmt.Sprintf("%q, line %d", p.name, n)
		r.source = here
		if err := r.line(p, strings.Trim(strings.TrimSuffix(line, "\n"), " \t")); err != nil {
			return fmt.Errorf("%s: %w", here, err)
		}
	}
	return nil
}

// loadPolicy reads the file that name leads to, and no other that may have come
// in its place since.
func loadPolicy(name string, l level) (policy, string, error) {
	trail, err := confine.Follow(name)
	if err != nil {
		return policy{}, "", err
	}
	p := policy{name, l, trail}
	fd, err := unix.Open(p.place(), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return p, "", err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return p, "", errors.Join(err, errors.New("it is not a file"))
	}
	if l == machines {
		if err := checkMachine(file, p.place()); err != nil {
			return p, "", err
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxPolicy+1))
	if len(text) > maxPolicy {
		err = fmt.Errorf("it is longer than %d bytes", maxPolicy)
	}
	return p, string(text), err
}

// place is the file's location, every link followed.
func (p policy) place() string { return p.trail.Place }

// line applies one line.
func (r *reader) line(p policy, line string) error {
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
	for _, o := range slices.Concat(r.keywords(p), r.options) {
		if o.Long == name {
			return r.set(p, o, value)
		}
	}
	err := fmt.Errorf("%q is not an option that a policy can give", name)
	if meant := similar(name, r.options); meant != "" {
		err = WithHint(err, "did you mean %s?", meant)
	}
	return err
}

// keywords are the lines that are no options.
func (r *reader) keywords(p policy) []Option {
	include := Func(r.file, includes, "").Path()
	switch r.level {
	case machines:
		return []Option{include, {Long: "mandatory", set: r.setMandatory}, Func(r.reopen, "user-may", "")}
	case users:
		return []Option{include}
	}
	return nil // only the project's policy itself is trusted, by its content
}

// includes is the keyword that reads another policy in the place of its line.
const includes = "include"

func (r *reader) set(p policy, o Option, value string) error {
	switch {
	case o.Value && value == "":
		return fmt.Errorf("option %q needs a value", o.Long)
	case !o.Value && value != "":
		return fmt.Errorf("option %q takes no value", o.Long)
	}
	err := r.permit(r.level, o, value)
	given := value
	if err == nil && o.path != notPath && (o.path != isPathOrIn || value != "-") {
		value, err = p.path(value)
	}
	if err == nil {
		err = o.set(value)
	}
	if err != nil && o.Long != includes {
		err = fmt.Errorf("option %q: %w", o.Long, err)
	}
	if err == nil && slices.ContainsFunc(r.lasting, func(l Option) bool { return l.Long == o.Long }) {
		if o.Long == "setenv" { // the value may be a secret
			given, _, _ = strings.Cut(given, "=")
		}
		r.lines = append(r.lines, PolicyLine{strings.TrimSpace(o.Long + " " + given), r.source})
	}
	if r.level == machines {
		r.machine.gave = append(r.machine.gave, o.Long)
	}
	return err
}

// path is a value that names a file: it begins at the home, or at the policy's directory.
func (p policy) path(value string) (string, error) {
	first, rest, _ := strings.Cut(value, "/")
	switch {
	case first == "~" || first == "$HOME":
		home := p.home()
		if !path.IsAbs(home) {
			return "", fmt.Errorf("%q: the home is not known", value)
		}
		if rest == "" {
			return home, nil
		}
		return home + "/" + rest, nil
	case strings.HasPrefix(value, "~") || strings.HasPrefix(value, "$"):
		err := fmt.Errorf("%q: only ~/ and $HOME/ have a meaning here", value)
		return "", WithHint(err, "for a file of that name: ./%s", value)
	case path.IsAbs(value):
		return value, nil
	}
	return path.Dir(p.place()) + "/" + value, nil
}

// home is the caller's. A machine's policy does not believe the environment.
func (p policy) home() string {
	home := os.Getenv("HOME")
	if p.level == machines || !path.IsAbs(home) {
		home = passwd.Find(passwd.Users, os.Getuid()).Home
	}
	return home
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

// elsewhere returns the options that other commands take from a policy. A policy is one
// file for all commands, so this one skips them.
func (w *WorkspaceFlags) elsewhere() []Option {
	protect := Func(func(v string) error {
		w.rules.Protect = append(w.rules.Protect, confine.Protected{Path: v, Source: w.source})
		return nil
	}, "protect", "").Path()
	unrecorded := Func(func(string) error { return nil }, "audit", "") // pk-resolve changes nothing
	net := Func(func(v string) error {
		if w.OfflineBy = w.source; v == "host" {
			w.OfflineBy = ""
		}
		return nil
	}, "net", "").Tightens(func(v string) bool { return v == "none" })
	trial := Option{Long: "trial", set: func(string) error { w.TrialBy = w.source; return nil }}
	return slices.Concat([]Option{net, trial, protect, unrecorded, Switch(new(bool), "allow-all", "")}, SandboxOnly())
}

// SandboxOnly returns the options of lib/cli/sandboxflags that affect only the sandbox, not
// the workspace. protect is not in the list: commands without a sandbox heed it too.
func SandboxOnly() []Option {
	var list []Option
	skip := func(string) error { return nil }
	for _, name := range []string{
		"overlay", "overlay-from", "net", "allow-host", "allow-host-from", "publish", "connect", "pass-env", "setenv",
		"require", "memory", "pids", "cpu-time", "file-size", "bwrap",
	} {
		list = append(list, Func(skip, name, ""))
	}
	for _, name := range []string{"trial", "no-toolchains", "env-inherit", "allow-nested", "trace"} {
		list = append(list, Switch(new(bool), name, ""))
	}
	return list
}
