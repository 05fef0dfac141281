package index

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Check reports the first entry that the host's git must not see: a path that git
// itself would not add, an unknown mode, a sparse directory, or an entry below
// another one that is a file, link or gitlink.
func (x *Index) Check() error {
	var above []*entry // those whose path is a prefix of the current one, if only by bytes
	for i := range x.entries {
		e := &x.entries[i]
		if err := checkEntry(e); err != nil {
			return fmt.Errorf("%q: %w", e.path, err)
		}
		for len(above) > 0 && !strings.HasPrefix(e.path, above[len(above)-1].path) {
			above = above[:len(above)-1]
		}
		for _, parent := range above {
			if len(parent.path) < len(e.path) && e.path[len(parent.path)] == '/' && collide(parent, e) {
				return fmt.Errorf("%q: %q is not a directory", e.path, parent.path)
			}
		}
		above = append(above, e)
	}
	return nil
}

// collide reports whether an entry may not be above another one. Git allows a file
// at another stage: a conflict between a file and a directory.
func collide(parent, e *entry) bool {
	return parent.stage == e.stage || parent.mode == ModeLink || parent.mode == ModeGitlink
}

func checkEntry(e *entry) error {
	if e.mode == modeDirectory {
		return errors.New("a sparse index cannot be checked")
	}
	if !slices.Contains([]uint32{ModeFile, ModeExecutable, ModeLink, ModeGitlink}, e.mode) {
		return fmt.Errorf("unknown mode %o", e.mode)
	}
	return CheckPath(e.path, e.mode)
}

// CheckPath applies git's rules for a path in an index, with core.protectHFS and
// core.protectNTFS on.
func CheckPath(path string, mode uint32) error {
	if strings.IndexByte(path, 0) >= 0 {
		return errors.New("a NUL in the path")
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "":
			return errors.New("an empty name in the path")
		case name == "." || name == "..":
			return fmt.Errorf("%q in the path", name)
		case isDotGit(name):
			return errors.New("it is in a git directory")
		case mode == ModeLink && isDotGitmodules(name):
			return errors.New(".gitmodules cannot be a link")
		}
	}
	return nil
}

// isDotGit reports whether a file system takes a name for ".git". NTFS also knows
// backslashes as separators.
func isDotGit(name string) bool {
	if c := lower(name[0]); c != '.' && c != 'g' && c < utf8.RuneSelf && !strings.Contains(name, `\`) {
		return false // most names
	}
	if foldsHFS(name, ".git") {
		return true
	}
	for part := range strings.SplitSeq(name, `\`) {
		for _, git := range []string{".git", "git~1"} {
			if rest, ok := cutFold(part, git); ok && endsNTFS(rest) {
				return true
			}
		}
	}
	return false
}

func isDotGitmodules(name string) bool {
	if foldsHFS(name, ".gitmodules") {
		return true
	}
	for part := range strings.SplitSeq(name, `\`) {
		if rest, ok := cutFold(part, ".gitmodules"); ok && endsNTFS(rest) {
			return true
		}
		if rest, ok := cutFold(part, "gitmod~"); ok && rest != "" && rest[0] >= '1' && rest[0] <= '4' && endsNTFS(rest[1:]) {
			return true
		}
		if rest, ok := cutShort(part, "gi7eba"); ok && endsNTFS(rest) {
			return true
		}
	}
	return false
}

// endsNTFS reports whether NTFS ignores the rest of a name: spaces, periods, and the
// name of a stream.
func endsNTFS(rest string) bool {
	rest = strings.TrimLeft(rest, " .")
	return rest == "" || rest[0] == ':'
}

// cutShort removes a short name of NTFS in its last form: up to six characters of
// the hashed prefix, a tilde and a number, eight characters in all.
func cutShort(name, prefix string) (string, bool) {
	if len(name) < 8 {
		return "", false
	}
	start, number, ok := strings.Cut(name[:8], "~")
	if _, match := cutFold(prefix, start); !ok || !match || number == "" || number[0] == '0' || strings.Trim(number, "0123456789") != "" {
		return "", false
	}
	return name[8:], true
}

// cutFold removes a prefix in any case; all are ASCII.
func cutFold(name, prefix string) (string, bool) {
	if len(name) < len(prefix) || !equalFold(name[:len(prefix)], prefix) {
		return "", false
	}
	return name[len(prefix):], true
}

// equalFold ignores the case of ASCII letters only. strings.EqualFold would take the
// Kelvin sign for a k.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// foldsHFS reports whether HFS+ takes a name for another one: it ignores case, and
// some code points wholly.
func foldsHFS(name, want string) bool {
	if len(name) < len(want) {
		return false
	}
	for name != "" {
		r, size := utf8.DecodeRuneInString(name)
		name = name[size:]
		switch {
		case r == utf8.RuneError && size == 1, r == 0xfffe, r == 0xffff:
			return want == "" // git takes wrong UTF-8 for the end
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			continue
		case want == "" || r > 127 || lower(byte(r)) != want[0]:
			return false
		}
		want = want[1:]
	}
	return want == ""
}
