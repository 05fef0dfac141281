package gitland

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"pikuri/lib/internal/fsat"
)

// landed is one landing.
type landed struct {
	record
	told  *[]string
	notes *int
	keep  []string // paths below the upper layer that stay for the next command
	hold  []string // further paths for which the time of the mount still holds
	left  []string // paths of references and files that did not land
	said  []string // lines that this landing would tell, whether an earlier one has or not
	last  bool     // the command has ended
	once  bool     // the layer ends with the command
}

func (o *landed) tell(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(*o.told, line) {
		*o.told = append(*o.told, line)
	}
}

// retell is tell, and takes back the line of an earlier landing of the command with the same beginning.
func (o *landed) retell(beginning, format string, args ...any) {
	*o.told = slices.DeleteFunc(*o.told, func(line string) bool { return strings.HasPrefix(line, beginning) })
	o.tell("%s"+format, append([]any{beginning}, args...)...)
}

// note reports a change that landed.
func (o *landed) note(format string, args ...any) {
	before := len(*o.told)
	o.tell(format, args...)
	*o.notes += len(*o.told) - before
}

// vital are files and directories without which, or with bad ones, git sees no repository
// in a directory, or always fails.
var vital = []string{"HEAD", "refs", "heads", "packed-refs", "shallow", "objects", "commondir", "index"}

// stay leaves a file for the next command, and reports once in the life of a layer why it
// does not land. While the command runs, it may still land.
func (o *landed) stay(rel, format string, args ...any) {
	if o.once || !slices.Contains(vital, path.Base(rel)) {
		o.wait(rel, format, args...)
		return
	}
	o.left = append(o.left, rel) // git would not start with a bad one
	o.drop(format, args...)
}

// wait is stay for a file that is good, and can land later.
func (o *landed) wait(rel, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if o.leave(rel); o.once {
		line += "; it is dropped, since another command ran at the same time"
	} else {
		line += stays
	}
	o.refused(line)
}

// leave is wait without a report.
func (o *landed) leave(rel string) {
	if o.left = append(o.left, rel); !o.once {
		o.keep = append(o.keep, rel)
	}
}

// Ends of lines.
const (
	dropped = "; it is dropped"
	stays   = "; it stays in the sandbox"
)

// drop reports once that a file without which git works is not there for the next command.
func (o *landed) drop(format string, args ...any) { o.refused(fmt.Sprintf(format, args...) + dropped) }

func (o *landed) refused(line string) {
	o.said = append(o.said, line)
	if o.last && !slices.Contains(o.Told, line) {
		o.Told = append(o.Told, line)
		o.tell("%s", line)
	}
}

func quoted(names []string) string {
	all := fmt.Sprintf("%q", names)
	return strings.ReplaceAll(all[1:len(all)-1], `" "`, `", "`)
}

func (o *landed) keeps(rel string) bool {
	return slices.ContainsFunc(o.keep, func(kept string) bool { return fsat.Within(rel, kept) })
}

func (o *landed) keepsBelow(rel string) bool {
	return slices.ContainsFunc(o.keep, func(kept string) bool { return kept != rel && fsat.Within(kept, rel) })
}

// maxTold bounds the objects that are named.
const maxTold = 10

// advice is the command that gives a user the value of a kept reference, or "".
func advice(name, kept string) string {
	switch branch, is := strings.CutPrefix(name, "refs/heads/"); {
	case is && inShell(branch) && inShell(kept):
		return "; git checkout " + branch + " && git merge --autostash " + kept
	case name == "refs/stash" && inShell(kept):
		return "; git stash apply " + kept
	}
	return ""
}

// adviceToMake is advice if the host has removed the reference.
func adviceToMake(name, kept string) string {
	if branch, is := strings.CutPrefix(name, "refs/heads/"); is && inShell(branch) && inShell(kept) {
		return "; git branch " + branch + " " + kept
	}
	return ""
}

// inShell reports whether a name is safe in a shell. A command in the sandbox may have chosen it.
func inShell(name string) bool {
	return !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./+", r))
	})
}

// short is an ID, or a branch to which HEAD leads, in messages.
func short(value string) string {
	if target, ok := strings.CutPrefix(value, "ref: "); ok {
		return strconv.Quote(target)
	}
	return value[:min(len(value), 10)]
}

// staysAt tells of a reference whose new value does not land.
func staysAt(old string) string {
	if old == "" {
		return "does not land"
	}
	return "stays at " + short(old)
}

// toType is a command line for the layer's sandbox.
func (l *Layer) toType(command string) string {
	if l.shared {
		return command + ", in the session"
	}
	return "pk-bash '" + command + "'"
}
