package objects

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// CheckName checks one name of a tree, as git fsck and git's verify_path do: it is
// not empty, no "." or "..", holds no slash, and no file system takes it for
// ".git".
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("empty name")
	case name == "." || name == "..":
		return errors.New("name is \".\" or \"..\"")
	case strings.ContainsAny(name, "/\x00"):
		return errors.New("slash in a name")
	}
	if plainName(name) {
		return nil
	}
	if hfsName(name, "git") {
		return errors.New("name is .git in disguise")
	}
	for part := range backslashParts(name) {
		if ntfsDotGit(part) {
			return errors.New("name is .git in disguise")
		}
	}
	return nil
}

// plainName spares most names the slow comparisons: it is ASCII and has none of
// the characters that begin or mark a disguise.
func plainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || c == '~' || c == '\\' || c == '.' && i == 0 {
			return false
		}
	}
	return true
}

// backslashParts yields the name and what follows each of its backslashes: they
// separate directories on Windows.
func backslashParts(name string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for yield(name) {
			i := strings.IndexByte(name, '\\')
			if i < 0 {
				return
			}
			name = name[i+1:]
		}
	}
}

// special reports whether some file system takes name for "."+plain. short is the
// beginning of the name that NTFS may give it.
func special(name, plain, short string) bool {
	if hfsName(name, plain) {
		return true
	}
	for part := range backslashParts(name) {
		if ntfsName(part, plain, short) {
			return true
		}
	}
	return false
}

// hfsName compares as HFS+ does: without case, and without the characters that it
// ignores. Like git it takes malformed UTF-8 for the end of the name.
func hfsName(name, plain string) bool {
	want := "." + plain
	for _, r := range name {
		if hfsIgnored(r) {
			continue
		}
		if r == utf8.RuneError || r == '\\' {
			break
		}
		if want == "" || r > 127 || lower(byte(r)) != want[0] {
			return false
		}
		want = want[1:]
	}
	return want == ""
}

func hfsIgnored(r rune) bool {
	return 0x200c <= r && r <= 0x200f || 0x202a <= r && r <= 0x202e || 0x206a <= r && r <= 0x206f || r == 0xfeff
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// ntfsDotGit also knows the short name that NTFS gives to .git.
func ntfsDotGit(name string) bool {
	for _, git := range []string{".git", "git~1"} {
		if len(name) >= len(git) && strings.EqualFold(name[:len(git)], git) {
			rest := strings.TrimLeft(name[len(git):], ". ")
			return rest == "" || strings.ContainsRune(`\/:`, rune(rest[0]))
		}
	}
	return false
}

func ntfsName(name, plain, short string) bool {
	if len(name) > len(plain) && name[0] == '.' && strings.EqualFold(name[1:len(plain)+1], plain) {
		return ntfsEnd(name[len(plain)+1:])
	}
	if len(name) >= 8 && strings.EqualFold(name[:6], plain[:6]) && name[6] == '~' && '1' <= name[7] && name[7] <= '4' {
		return ntfsEnd(name[8:])
	}
	if len(name) < 8 {
		return false
	}
	tilde := strings.IndexByte(name[:8], '~')
	if tilde < 0 || tilde > 6 || !strings.EqualFold(name[:tilde], short[:tilde]) {
		return false
	}
	for i, c := range []byte(name[tilde+1 : 8]) {
		if c < '0' || c > '9' || i == 0 && c == '0' {
			return false
		}
	}
	return ntfsEnd(name[8:])
}

// ntfsEnd reports whether NTFS ignores the rest of a name: it drops spaces and
// dots at the end, and a colon begins the name of a stream.
func ntfsEnd(rest string) bool {
	rest = strings.TrimLeft(rest, " .")
	return rest == "" || rest[0] == ':'
}
