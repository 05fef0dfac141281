package gitplace

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName applies git's rules for one name of a path in a tree or an index, with
// core.protectHFS and core.protectNTFS on.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("empty name")
	case name == "." || name == "..":
		return fmt.Errorf("name %q", name)
	case strings.ContainsAny(name, "/\x00"):
		return errors.New("slash or NUL in a name")
	case isDotGit(name):
		return errors.New("name is .git, or a file system takes it for .git")
	}
	return nil
}

// isDotGit reports whether a file system takes a name for ".git". NTFS also knows
// backslashes as separators.
func isDotGit(name string) bool {
	if plain(name) {
		return false
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

// IsGitFile reports whether a file system takes a name for "."+file, such as
// .gitmodules. short is the beginning of the name that NTFS may give it.
func IsGitFile(name, file, short string) bool {
	if plain(name) {
		return false
	}
	if foldsHFS(name, "."+file) {
		return true
	}
	for part := range strings.SplitSeq(name, `\`) {
		if rest, ok := cutFold(part, "."+file); ok && endsNTFS(rest) {
			return true
		}
		if rest, ok := cutFold(part, file[:6]+"~"); ok && rest != "" && rest[0] >= '1' && rest[0] <= '4' && endsNTFS(rest[1:]) {
			return true
		}
		if rest, ok := cutShort(part, short); ok && endsNTFS(rest) {
			return true
		}
	}
	return false
}

// plain spares most names the slow comparisons: it is ASCII and has none of the
// characters that begin or mark a disguise.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || c == '~' || c == '\\' || c == '.' && i == 0 {
			return false
		}
	}
	return true
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

// CheckRef returns the reason why git accepts no ref of this name: it has to begin with
// refs/ and follow git-check-ref-format(1).
func CheckRef(name string) error {
	if !strings.HasPrefix(name, "refs/") {
		return errors.New("the name does not begin with refs/")
	}
	for component := range strings.SplitSeq(name, "/") {
		switch {
		case component == "":
			return errors.New("a part of the name is empty")
		case component[0] == '.', strings.HasSuffix(component, ".lock"),
			strings.Contains(component, ".."), strings.Contains(component, "@{"),
			strings.ContainsFunc(component, forbiddenInRef):
			return errors.New("git accepts no ref of this name")
		}
	}
	if strings.HasSuffix(name, ".") {
		return errors.New("the name ends in a dot")
	}
	return nil
}

func forbiddenInRef(r rune) bool {
	return r < 0x20 || r == 0x7f || strings.ContainsRune(" ~^:?[\\*", r)
}

// Quoted are the characters that a shell takes for itself unless they are quoted (2.2 of the Shell Command Language in
// POSIX).
const Quoted = "|&;<>()$`\\\"' \t\n"

// IsPlain reports whether a name can be shown: prompts of shells and makefiles run parts of the names that git prints.
func IsPlain(name string) bool { return !strings.ContainsAny(name, Quoted) && IsSeen(name) }

// IsSeen reports whether a terminal shows each character of a name, and obeys none. Joiners are part of how some
// languages are written, and bytes that are not UTF-8 may be Latin-1.
func IsSeen(name string) bool {
	const nonJoiner, joiner, blankBraille = 0x200c, 0x200d, 0x2800
	for i, r := range name {
		_, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			if name[i] < 0xa0 { // C1, for an old terminal
				return false
			}
		case r == nonJoiner || r == joiner:
		case r == blankBraille || unicode.In(r, unicode.C, unicode.Z, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			return false
		}
	}
	return true
}

// IsBranch reports whether a branch can have this name, as git-branch(1) takes it:
// not "@", and no dash at the beginning.
func IsBranch(name string) bool {
	const longest = 1024
	return len(name) <= longest && name != "@" && !strings.HasPrefix(name, "-") && CheckRef("refs/heads/"+name) == nil
}
