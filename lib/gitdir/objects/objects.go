// Package objects reads git object databases, and lands objects from the upper layer of
// an overlay in the database below it.
//
// The host's database is trusted. The layer is not: a command made it, and may change it
// while it is read. No file of a layer is published unchanged. Each object is inflated,
// checked against its name and its format, compressed again and written under a temporary
// name first. So the host's git never inflates a stream that a command made.
package objects

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// Format is the hash function of a repository.
type Format int

const (
	SHA1 Format = iota
	SHA256
)

// Size is the length of a binary ID.
func (f Format) Size() int {
	if f == SHA256 {
		return sha256.Size
	}
	return sha1.Size
}

// New returns the hash function.
func (f Format) New() hash.Hash {
	if f == SHA256 {
		return sha256.New()
	}
	return sha1.New()
}

// Limits. A repository within git's own defaults stays below them: git keeps a
// file over 512 MiB as a plain blob and stores no differences of it.
const (
	// MaxObject is the inflated size of the largest object that lands. A blob of that size is
	// never held in memory.
	MaxObject = 4 << 30

	// maxHeld is the inflated size of the largest object that is held in memory: commits,
	// trees and tags, and blobs that a pack stores as the difference to another one.
	maxHeld = 256 << 20

	// maxDepth is the longest chain of differences that git itself writes.
	maxDepth = 4095
)

// ErrNotFound is an object that a database does not have.
var ErrNotFound = errors.New("no such object")

// ErrTooLarge is an object over the limit of the reader.
var ErrTooLarge = errors.New("object too large")

// oid is a binary ID. The ID of a SHA-1 object is padded with zeros.
type oid [sha256.Size]byte

// parseID reads an ID in lower-case hexadecimal digits.
func (f Format) parseID(s string) (id oid, ok bool) {
	if len(s) != 2*f.Size() || strings.ToLower(s) != s {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil
}

func (f Format) hex(id oid) string { return hex.EncodeToString(id[:f.Size()]) }

func (f Format) oid(b []byte) (id oid) {
	copy(id[:f.Size()], b)
	return id
}

// kind is an object's type, by its number in packs.
type kind byte

const (
	noKind kind = iota
	commit
	tree
	blob
	tag
	offsetDelta kind = 6
	refDelta    kind = 7
)

var kindNames = [...]string{commit: "commit", tree: "tree", blob: "blob", tag: "tag"}

func (k kind) valid() bool { return commit <= k && k <= tag }

func (k kind) String() string {
	if !k.valid() {
		return "nothing"
	}
	return kindNames[k]
}

func kindOf(name string) kind {
	for k := commit; k <= tag; k++ {
		if kindNames[k] == name {
			return k
		}
	}
	return noKind
}

// header is the text before the content that is hashed, and stored in a loose object.
func header(k kind, size uint64) []byte { return fmt.Appendf(nil, "%s %d\x00", k, size) }

// name hashes an object.
func (f Format) name(k kind, data []byte) oid {
	h := f.New()
	h.Write(header(k, uint64(len(data))))
	h.Write(data)
	return f.oid(h.Sum(nil))
}
