package refs

import (
	"errors"
	"fmt"
	"strings"

	"pikuri/lib/internal/gitplace"
)

const (
	heads   = "refs/heads/"
	tags    = "refs/tags/"
	remotes = "refs/remotes/"
	ours    = "refs/pk/"
	stash   = "refs/stash"
	head    = "HEAD"

	stashLog = "logs/refs/stash"
	headLog  = "logs/HEAD"

	packedRefs = "packed-refs"
)

// unquoted replaces the characters that a shell takes for itself.
func unquoted(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(gitplace.Quoted, r) {
			return '_'
		}
		return r
	}, name)
}

// CheckName returns the reason why a ref of a command may not have a name on the host.
// The name has to follow git-check-ref-format(1) and to begin with refs/, but not with
// refs/pk/. A branch or tag also needs a name that git-branch(1) or git-tag(1) accepts:
// scripts read the name "-x" as an option. Git prints names as they are, so none may have characters
// that a terminal obeys or does not show.
func CheckName(name string) error {
	if err := gitplace.CheckRef(name); err != nil {
		return err
	}
	if !gitplace.IsSeen(name) {
		return errors.New("it has characters that cannot be seen")
	}
	if name == "refs/pk" || strings.HasPrefix(name, ours) {
		return fmt.Errorf("refs/pk/ belongs to pk")
	}
	if strings.HasPrefix(name, "refs/replace/") {
		return fmt.Errorf("it would replace an object of the host's")
	}
	if strings.HasPrefix(name, "refs/notes/textconv/") { // git shows these instead of files (diff.*.cachetextconv)
		return fmt.Errorf("git on the host would show its notes in the place of files")
	}
	if strings.Count(name, "/") == 1 && name != stash { // refs/HEAD makes HEAD ambiguous
		return fmt.Errorf("it lies directly in refs/")
	}
	for _, space := range []string{heads, tags} {
		short, ok := strings.CutPrefix(name, space)
		if ok && (short == head || strings.HasPrefix(short, "-")) {
			return fmt.Errorf("git accepts no branch or tag of this name")
		}
	}
	if parts := strings.SplitN(name, "/", 3); len(parts) == 3 && strings.HasPrefix(parts[2], "-") {
		return fmt.Errorf("programs take its name for an option")
	}
	return nil
}

// PerWorktree reports whether each worktree has its own ref of this name.
func PerWorktree(name string) bool {
	for _, dir := range ownDirs {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return name == head
}

var ownDirs = []string{"refs/bisect", "refs/rewritten", "refs/worktree"}

// remoteHead reports whether a ref is refs/remotes/NAME/HEAD, the only one beside
// HEAD that may be symbolic, and returns the prefix of its targets.
func remoteHead(name string) (string, bool) {
	prefix, ok := strings.CutSuffix(name, head)
	return prefix, ok && strings.HasPrefix(name, remotes) && strings.HasSuffix(prefix, "/") && len(prefix) > len(remotes)
}

// checkTarget refuses targets that a symbolic ref of a command may not have.
func checkTarget(name, target string) error {
	prefix, ok := remoteHead(name)
	if name == head {
		prefix, ok = heads, true
	}
	switch {
	case !ok:
		return fmt.Errorf("only HEAD and refs/remotes/*/HEAD may be symbolic")
	case !strings.HasPrefix(target, prefix) || target == name:
		return fmt.Errorf("it leads to %q, which is not below %s", target, prefix)
	}
	return CheckName(target)
}

// space is white space to git.
const space = " \t\n\r"

// parseValue reads a file of a loose ref as git does, but accepts only white space after
// the value.
func parseValue(data string, hexLen int) (value, error) {
	data = strings.TrimRight(data, space)
	if target, ok := strings.CutPrefix(data, "ref:"); ok {
		target = strings.TrimLeft(target, space)
		return value{target: target}, gitplace.CheckRef(target)
	}
	id, ok := parseID(data, hexLen)
	if !ok || id == zero(hexLen) {
		return value{}, fmt.Errorf("it holds no object ID")
	}
	return value{id: id}, nil
}

// parseID returns an object ID in lower case. The null ID is one.
func parseID(s string, hexLen int) (string, bool) {
	if len(s) != hexLen {
		return "", false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return "", false
		}
	}
	return strings.ToLower(s), true
}

func zero(hexLen int) string { return strings.Repeat("0", hexLen) }
