package workspace

import (
	"crypto/rand"
	"strings"
)

// Unfinished files have random names, so no other process can take one first. Lists
// leave them out.
const (
	tempPrefix = ".pk-"
	tempSuffix = ".tmp"
	tempRandom = 26 // what rand.Text returns, 130 bits
)

func newTemp() string { return tempPrefix + rand.Text() + tempSuffix }

// errReserved refuses to make a file of such a name: it would be swept.
var errReserved = &Error{Err: ErrInvalid, Detail: "the name is reserved for unfinished files"}

// isTemp reports whether a name is that of an unfinished file.
func isTemp(name string) bool {
	if len(name) != len(tempPrefix)+tempRandom+len(tempSuffix) || !strings.HasPrefix(name, tempPrefix) {
		return false
	}
	middle, ok := strings.CutSuffix(name[len(tempPrefix):], tempSuffix)
	return ok && strings.Trim(middle, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// newForeignTemp is a name for a workspace of another kind, which may refuse a
// reserved name.
func newForeignTemp() string { return ".tmp-" + rand.Text() }
