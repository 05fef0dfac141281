package gitdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/overlay"
)

const (
	indexFile = "index"
	lockWait  = time.Second // for a lock of the host's git
)

// landIndex lands the index in the directory up of the upper layer, as that of the
// host's directory git.
func (l *lander) landIndex(r *repository, git, rel string, up int, out *landed) error {
	data, written, err := readIndex(up)
	if err != nil && !errors.Is(err, overlay.ErrTooLarge) {
		return nil // the command has not written one, or only a whiteout
	}
	rel = path.Join(rel, indexFile)
	digest := digestOf(data)
	if err == nil && out.Files[rel] == digest {
		return nil
	}
	var x *index.Index
	if err == nil {
		x, err = index.Parse(data, r.hexLen())
	}
	if err == nil {
		err = x.Check()
	}
	if err != nil {
		out.stay(rel, "the index: %v", err)
		return nil
	}
	host, err := l.hostIndex(r, git, rel, x, out)
	if err != nil {
		return err
	}
	if host == nil {
		out.tell("the host has staged other changes meanwhile: its index stays, and `git status` there shows the difference")
		return nil
	}
	links := newGitlinks(x, host.Index)
	unlock, alone, err := l.alone(git, links)
	if err != nil {
		return err
	}
	defer unlock()
	if !alone {
		if l.last {
			out.stay(rel, "the index: %q is a new submodule, and another command runs", links[0])
		}
		return nil
	}
	if why := l.unsafe(r, git, x, host); why != "" {
		out.stay(rel, "the index: %s", why)
		return nil
	}
	for _, id := range x.Trees() {
		if !r.objects.Has(id) {
			x.DropTrees()
			break
		}
	}
	text := x.Encode()
	if err := host.replace(filepath.Join(git, indexFile), text, written); err != nil {
		return fmt.Errorf("cannot land the index: %w", err)
	}
	out.Files[rel] = digest
	out.Files[rel+"@host"] = digestOf(text)
	return nil
}

// readIndex also returns when the index was written. An index that is newer than a
// change of a file hides that change from git, if the size stays.
func readIndex(up int) (data []byte, written time.Time, err error) {
	data, st, err := overlay.ReadFile(up, indexFile, unix.O_NOFOLLOW, maxIndex)
	if err != nil {
		return nil, written, err
	}
	written = time.Unix(st.Mtim.Unix())
	if now := time.Now(); written.After(now) {
		written = now
	}
	return data, written, nil
}

// hostIndex is the host's index, as it was before it is replaced.
type hostIndex struct {
	*index.Index
	stat unix.Stat_t // zero if there is none
}

// same reports whether the host's index still is the file that was read.
func (h *hostIndex) same(path string) bool {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err == unix.ENOENT && h.stat.Ino == 0
	}
	return sameVersion(&st, &h.stat)
}

func sameVersion(a, b *unix.Stat_t) bool {
	return fsat.SameInode(a, b) && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// hostIndex reads the host's index, or returns nil if the host has staged something
// since the command started. Writing anew what the files look like is nothing: an
// editor has that done every few seconds.
func (l *lander) hostIndex(r *repository, git, rel string, x *index.Index, out *landed) (*hostIndex, error) {
	path := filepath.Join(git, indexFile)
	h := &hostIndex{Index: new(index.Index)}
	if err := unix.Lstat(path, &h.stat); err == unix.ENOENT {
		return h, nil
	}
	data, err := os.ReadFile(path)
	if err == nil {
		h.Index, err = index.Parse(data, r.hexLen())
	}
	if split := new(index.SplitError); errors.As(err, &split) {
		h.Index, err = new(index.Index), nil // each entry that lands is a new one then
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the host's index: %w", err)
	}
	if h.stat.Ctim.Nano() <= out.since(rel) || out.Files[rel+"@host"] == digestOf(data) {
		return h, nil
	}
	before, err := os.ReadFile(l.layer.baseIndex(git))
	if err != nil {
		return nil, nil
	}
	if bytes.Equal(before, data) {
		return h, nil
	}
	base, err := index.Parse(before, r.hexLen())
	if err != nil || !includes(x, base, h.Index) {
		return nil, nil
	}
	return h, nil
}

// includes reports whether an index has all that the host has changed since a base.
func includes(x, base, host *index.Index) bool {
	lost := map[string]bool{} // paths at which x is not as the host's
	for _, e := range x.Changed(host) {
		lost[e.Path] = true
	}
	for _, e := range host.Changed(x) {
		lost[e.Path] = true
	}
	for _, e := range append(host.Changed(base), base.Changed(host)...) {
		if lost[e.Path] {
			return false
		}
	}
	return true
}

// unsafe says what of an index the host must not see, or "": an entry without its
// object, or a gitlink that leads to a repository which is not covered.
func (l *lander) unsafe(r *repository, git string, x *index.Index, host *hostIndex) string {
	for _, e := range x.Changed(host.Index) {
		switch {
		case e.Mode == index.ModeGitlink:
			if !l.inert(git, e.Path) {
				return fmt.Sprintf("%q is a repository of its own", e.Path)
			}
		case e.IntentToAdd:
		case !r.objects.Has(e.ID):
			return fmt.Sprintf("object %s of %q is missing", e.ID, e.Path)
		}
	}
	return ""
}

// inert reports whether the host's git finds no repository of a command's making at a
// path of the work tree: there is none, one without HEAD, or one of the host's.
func (l *lander) inert(git, path string) bool {
	if filepath.Base(git) != ".git" {
		return false // where the work tree is, is not known
	}
	place := filepath.Join(filepath.Dir(git), path)
	if slices.Contains(l.layer.WorkTrees, place) {
		return true
	}
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, place, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer unix.Close(dir)
	dotGit, err := fsat.Openat(dir, ".git", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer unix.Close(dotGit)
	_, err = fsat.Lstat(dotGit, "HEAD")
	return errors.Is(err, unix.ENOENT)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// replace replaces the host's index under git's lock, if it still is as it was.
func (h *hostIndex) replace(path string, data []byte, written time.Time) error {
	lock, err := gitlock.Acquire(path, time.Now().Add(lockWait))
	if err != nil {
		return err
	}
	if h.same(path) {
		err = lock.Replace(data, written)
	} else {
		err = errors.New("it has changed meanwhile")
	}
	return errors.Join(err, lock.Release())
}
