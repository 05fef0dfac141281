package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"pikuri/lib/internal/shellword"
)

// level is the source of an option: it decides which options count.
type level int

const (
	machines level = iota // the machine's policy may say anything
	users                 // the command line, and the policies that it names
	projects              // the policy of the project may only tighten
)

// machineFile is the policy of the machine.
var machineFile = "/etc/pikuri/policy"

// The options of all commands, by their effect on the permissions of a command. An option
// in none of the lists counts as a widening one.
const (
	// A tightening option takes permissions away, by the values that Option.Tightens names.
	tightening = `allow-write cpu-time deny deny-read file-size memory net no-toolchains pids protect require trial`

	// A widening option may allow more than a call without it, or has pk itself run a
	// program, or write a file, anywhere.
	widening = `allow-all allow-host allow-host-from allow-nested audit bwrap confirm-command connect env-inherit links log
		no-protect no-sandbox overlay overlay-from pass-env pass-fd protocol publish readable readable-from setenv temp
		violations wrap writable writable-from`

	// A neutral option gives a task, and no permission; Option.Tightens names the values
	// that tighten. A value in the machine's policy counts.
	neutral = `absent after all ask atomic audit-check base before check command context describe description
		background discard dry-run exclusive existing explain files-only fixed follow force from glob head help host
		if-unchanged ignore-case json keep-background kill-after limit lines loop name-only new new-from no
		no-alias-tmp no-keep-background no-follow no-log no-pager number old old-from older-than overwrite patch
		physical policy print project project-root quiet raw read recursive redo session stat state status-fd stdin
		sync tail timeout tool trace trust-project undo verbose version write yes zero`
)

// environment in user-may means the variables and files of the user that widen.
const environment = "environment"

func among(list, name string) bool { return slices.Contains(strings.Fields(list), name) }

// Classes returns the lists that have the long name of an option; tests demand one.
func Classes(name string) []string {
	var found []string
	for _, c := range []struct{ name, list string }{{"tightening", tightening}, {"widening", widening}, {"neutral", neutral}} {
		if among(c.list, name) {
			found = append(found, c.name)
		}
	}
	return found
}

// machine holds the machine's rules about options from elsewhere.
type machine struct {
	mandatory string   // the line that makes it mandatory, or ""
	may       []string // options that users may give all the same
	gave      []string // its own options
}

func (r *reader) setMandatory(string) error { r.machine.mandatory = r.source; return nil }

// reopen lets users give options that a mandatory policy would refuse.
func (r *reader) reopen(names string) error {
	for _, name := range strings.Fields(names) {
		if name != environment && len(Classes(name)) == 0 {
			return fmt.Errorf("%q is not an option", name)
		}
		r.machine.may = append(r.machine.may, name)
	}
	return nil
}

// permit refuses an option that would widen the permissions of an outer policy.
func (w *WorkspaceFlags) permit(by level, o Option, value string) error {
	m := w.machine
	free := by == users && (m.mandatory == "" || slices.Contains(m.may, o.Long))
	switch {
	case by == machines, free, o.Long == includes:
		return nil
	case among(tightening, o.Long) && o.Narrower(value):
		return nil
	case by == projects:
		return fmt.Errorf("the policy of a project may only tighten")
	case among(neutral, o.Long) && o.Narrower(value) && !slices.Contains(m.gave, o.Long):
		return nil
	}
	err := fmt.Errorf("the machine's policy is mandatory (%s), and only options that tighten it can be used", m.mandatory)
	return WithHint(err, "its administrator can allow this one there: user-may %s", o.Long)
}

// Pinned reports whether variables and files of the user may show nothing more.
func (w *WorkspaceFlags) Pinned() bool {
	return w.machine.mandatory != "" && !slices.Contains(w.machine.may, environment)
}

// Closed reports whether the machine's policy refuses an option, named long, that users
// give to widen its permissions.
func (w *WorkspaceFlags) Closed(name string) bool {
	return w.machine.mandatory != "" && among(widening, name) && !slices.Contains(w.machine.may, name)
}

// readMachine reads the machine's policy, if there is one.
func (w *WorkspaceFlags) readMachine() error {
	if _, err := os.Lstat(machineFile); os.IsNotExist(err) {
		return nil
	}
	err := w.reader(machines).file(machineFile)
	w.narrowed = len(w.rules.AllowWrite) > 0
	return err
}

// checkMachine refuses a policy of the machine that another user than root could have written.
func checkMachine(file *os.File, place string) error {
	dir, err := os.Stat(filepath.Dir(place))
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	for _, at := range []struct {
		name string
		os.FileInfo
	}{{place, info}, {filepath.Dir(place), dir}} {
		if uid := at.Sys().(*syscall.Stat_t).Uid; uid != 0 || at.Mode().Perm()&0o022 != 0 {
			err := fmt.Errorf("%q is not root's alone (owner %d, mode %04o)", at.name, uid, at.Mode().Perm())
			return WithHint(err, "chown root %[1]s; chmod go-w %[1]s", shellword.Word(at.name))
		}
	}
	return nil
}
