package workspace

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// Unfinished files have random names, so no other process can take one first. Lists
// leave them out.
const (
	tempPrefix = ".pk-"
	tempSuffix = ".tmp"
	tempRandom = 26 // the length of rand.Text, 130 bits
)

func newTemp() string { return tempPrefix + rand.Text() + tempSuffix }

// errReserved refuses to make a file of such a name: a sweep would remove it.
var errReserved = &Error{Err: ErrInvalid, Detail: "the name is reserved for unfinished files"}

// isTemp reports whether a name is that of an unfinished file.
func isTemp(name string) bool {
	if len(name) != len(tempPrefix)+tempRandom+len(tempSuffix) || !strings.HasPrefix(name, tempPrefix) {
		return false
	}
	middle, ok := strings.CutSuffix(name[len(tempPrefix):], tempSuffix)
	return ok && isRandom(middle)
}

func isRandom(text string) bool { return strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" }

// A swap name is for an entry that is being exchanged: ".pk-", 26 random characters, a
// digest of the old and one of the new entry, each as long, "-", the name that the entry
// is for, cut to fit, ".swap". Some file systems limit names to 143 bytes.
const (
	swapSuffix = ".swap"
	swapFor    = len(tempPrefix) + 3*tempRandom + len("-")
	maxSwapFor = 48
)

func swapName(name string, old, next Entry) string {
	if len(name) > maxSwapFor {
		end := maxSwapFor
		for end > 0 && !utf8.RuneStart(name[end]) {
			end--
		}
		name = name[:end]
	}
	return tempPrefix + rand.Text() + old.digest() + next.digest() + "-" + name + swapSuffix
}

// digest identifies an entry in a swap name.
func (e Entry) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %o %s %q", e.Kind, e.Perm, e.Hash, e.Target))
	return base32.StdEncoding.EncodeToString(sum[:])[:tempRandom]
}

// parseSwapName takes a swap name apart: the digests, and the name that it is for.
func parseSwapName(name string) (old, next, target string, ok bool) {
	if len(name) < swapFor+len(swapSuffix) || !strings.HasPrefix(name, tempPrefix) || name[swapFor-1] != '-' {
		return "", "", "", false
	}
	digests := name[len(tempPrefix) : swapFor-1]
	target, ok = strings.CutSuffix(name[swapFor:], swapSuffix)
	return digests[tempRandom : 2*tempRandom], digests[2*tempRandom:], target, ok && isRandom(digests)
}

func isSwapName(name string) bool {
	_, _, _, ok := parseSwapName(name)
	return ok
}

// isReserved reports whether a name is that of an unfinished entry.
func isReserved(name string) bool { return isTemp(name) || isSwapName(name) }

// isHidden reports whether lists leave an entry out. They show every directory.
func isHidden(name string, kind fs.FileMode) bool {
	return isTemp(name) && kind == 0 || isSwapName(name) && !kind.IsDir()
}

// newForeignTemp is a name for a workspace of another kind, which may refuse a
// reserved name.
func newForeignTemp() string { return ".tmp-" + rand.Text() }
