package gitplace

import "strings"

// MaxPointer bounds the small files of git's that hold a name: PATH_MAX and the text
// around it.
const MaxPointer = 4096 + 64

// GitFile returns the git directory that the content of a .git file names.
func GitFile(text []byte) (string, bool) {
	name, ok := strings.CutPrefix(string(text), "gitdir: ")
	name = CString(strings.TrimRight(name, "\r\n"))
	return name, ok && name != ""
}

// Pointer returns the name in a commondir, or in the gitdir of a worktree.
func Pointer(text []byte) string { return CString(strings.TrimRight(string(text), " \t\r\n")) }

// Head reports whether git accepts the content of a HEAD, and returns its ref, if it is
// not detached.
func Head(text []byte) (ref string, ok bool) {
	if rest, symbolic := strings.CutPrefix(string(text), "ref:"); symbolic {
		ref = strings.Trim(rest, " \t\r\n\v\f")
		return ref, strings.HasPrefix(ref, "refs/")
	}
	return "", len(text) >= 40 && strings.Trim(strings.ToLower(string(text[:40])), "0123456789abcdef") == ""
}

// CString ends a text at a NUL byte, as C does.
func CString(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}
