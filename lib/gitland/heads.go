package gitland

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// before returns a HEAD of the host before the landing.
func (g *guard) before(git string) head {
	if i := slices.IndexFunc(g.tops, func(h head) bool { return h.git == git }); i >= 0 {
		return g.tops[i]
	}
	return head{}
}

// headNow returns the commit of the host's HEAD.
func headNow(host refs.Host) string {
	id, _, _ := leads(host)
	return id
}

// headLanded returns the commit of the host's HEAD after it has moved: git reset --soft moves it on without the
// lock of the index.
func (n *landing) headLanded() string {
	if n.moved != "" {
		return n.moved
	}
	return headNow(n.host)
}

// valueAt returns the value of the host's HEAD before the commands began.
func (r *repository) valueAt(host refs.Host, rel string, out *landed) string {
	id, branch, _ := refs.Value(host, "HEAD")
	return out.beginning(rel, "HEAD", valueOf(id, branch))
}

// beganAt returns the commit of the host's HEAD before the commands began.
func (r *repository) beganAt(host refs.Host, rel string, out *landed) string {
	id := r.valueAt(host, rel, out)
	if branch, is := strings.CutPrefix(id, "ref: "); is {
		id, _, _ = refs.Value(host, branch)
		id = out.beginning(r.rel, branch, id)
	}
	return id
}

// readSmall reads a small file that a command may have made, such as HEAD.
func readSmall(dir int, name string, flags int) ([]byte, error) {
	text, _, err := overlay.ReadFile(dir, name, flags, gitplace.MaxPointer)
	return text, err
}

// leads follows the host's HEAD, through branches that lead to others, as far as git does.
func leads(host refs.Host) (id, branch string, others []string) {
	id, branch, _ = refs.Value(host, "HEAD")
	for at := branch; at != "" && len(others) < 5; {
		if id, at, _ = refs.Value(host, at); at != "" {
			others = append(others, at)
		}
	}
	return id, branch, others
}

// isValue reports whether git reads an ID in a file of a reference, if there is one: without
// a HEAD it finds no repository.
func (r *repository) isValue(dir int, name string) bool {
	if st, err := fsat.Lstat(dir, name); err == nil && overlay.IsWhiteout(st) {
		return name != "HEAD"
	}
	text, err := readSmall(dir, name, unix.O_NOFOLLOW)
	id := bytes.TrimSpace(text)
	_, bad := hex.DecodeString(string(id))
	return errors.Is(err, os.ErrNotExist) || err == nil && bad == nil && len(id) == r.hexLen()
}

// headOf returns the branch to which HEAD leads in a directory of the upper layer, or on
// the host if that has none, and "" if it is detached.
func headOf(up int, host refs.Host) string {
	text, err := readSmall(up, "HEAD", unix.O_NOFOLLOW)
	if err != nil {
		_, target, _ := refs.Value(host, "HEAD")
		return target
	}
	target, symbolic := strings.CutPrefix(string(text), "ref:")
	if target = strings.TrimSpace(target); !symbolic || refs.CheckName(target) != nil {
		return ""
	}
	return target
}

// headID returns the commit of HEAD in a directory of the upper layer, or on the host if the
// layer has none; "" if it is not clear.
func headID(up, upper int, host refs.Host) string {
	name, dir := headOf(up, host), upper
	if name == "" {
		name, dir = "HEAD", up
	}
	text, err := readSmall(dir, name, unix.O_NOFOLLOW)
	if err == nil {
		return strings.TrimSpace(string(text))
	}
	if _, err := fsat.Lstat(upper, "packed-refs"); err == nil {
		return ""
	}
	id, _, _ := refs.Value(host, name)
	return id
}

// sameHead reports whether the host has the HEAD of a directory of the upper layer. If that
// has none, it is the host's branch with which the commands began: the user may have switched to
// another one since.
func (l *Layer) sameHead(up int, git string) bool {
	seen, err := readSmall(up, "HEAD", unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		began := filepath.Join(l.Base(), l.rel(git))
		return !exists(filepath.Join(began, "HEAD")) || branchOf(began) == branchOf(git)
	}
	has, err := os.ReadFile(filepath.Join(git, "HEAD"))
	return err == nil && strings.TrimSpace(string(has)) == strings.TrimSpace(string(seen))
}

// seen is a HEAD as commands see it.
type seen struct {
	branch string // "" if it is detached
	id     string // "" if the branch is not there yet
	known  bool
	moved  bool // the host may have moved the branch since commands read it, and id is from the host
}

// headSeen returns the HEAD to which the index belongs in a directory of the upper layer, which was mounted at a
// time.
func (l *Layer) headSeen(up, upper int, host refs.Host, since int64) seen {
	branch, began, known := l.began(host.Git)
	at := seen{branch: branch, id: began, known: known}
	if id, target, changed := refs.InLayer(up, host.HexLen, "HEAD"); changed {
		at = seen{branch: target, id: id, known: true}
	} else if !known {
		return seen{}
	}
	if at.branch == "" {
		return at
	}
	id, target, changed := refs.InLayer(upper, host.HexLen, at.branch)
	switch {
	case target != "":
		return seen{branch: at.branch}
	case changed:
		at.id = id
	case at.branch == branch:
		at.id = began
	default: // it is as the host had it then
		at.id = refs.CheckedOut(up, host.HexLen, at.branch)
		if at.id == "" {
			then := false
			at.id, then = refs.Then(host, at.branch, time.Unix(0, since), l.packedThen(host.Common))
			at.moved = !then
		}
	}
	return at
}
