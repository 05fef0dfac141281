package workspace

import (
	"crypto/rand"
	"strings"
)

// Unfinished files have a name of their own, which lists leave out. Nobody can
// foresee it, so nothing can be put in its place.
const (
	tempPrefix = ".pk-"
	tempSuffix = ".tmp"
	tempRandom = 26 // what rand.Text returns, 130 bits
)

func newTemp() string { return tempPrefix + rand.Text() + tempSuffix }

// errReserved is for who wants to make a file of such a name: it would be swept.
var errReserved = &Error{Err: ErrInvalid, Detail: "the name is reserved for unfinished files"}

// isTemp tells whether a name is one of those.
func isTemp(name string) bool {
	if len(name) != len(tempPrefix)+tempRandom+len(tempSuffix) || !strings.HasPrefix(name, tempPrefix) {
		return false
	}
	middle, ok := strings.CutSuffix(name[len(tempPrefix):], tempSuffix)
	return ok && strings.Trim(middle, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// newForeignTemp is a name for a workspace that may not know what is reserved,
// or may know, and refuse it.
func newForeignTemp() string { return ".tmp-" + rand.Text() }
