package gitland

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/overlay"
)

const (
	shallowFile = "shallow"
	maxShallow  = 16 << 20 // usually it has 41 bytes for each branch
)

// ends are the commits at which the history of a repository ends for git, with any
// parents. Git's gc drops the commits below them.
//
// So a commit of the host's never becomes one, and a new commit only if a parent of it is
// missing. The host's file names it before it lands: at no time, and after no refusal, has
// the host a commit without its parents.
type ends struct {
	host   map[string]bool // by the host's file
	layer  map[string]bool // by the layer's; nil if it has none that is valid
	fresh  map[string]bool // those of the layer's that the host did not have
	change []byte          // the host's file, as landing wrote it
	whole  bool            // the host had no file
}

// readEnds reads the file of the host, and that of the layer, which decides all that this
// landing does.
func (r *repository) readEnds(upper int, out *landed) error {
	host, err := os.ReadFile(filepath.Join(r.host, shallowFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.ends.host, r.ends.layer, r.ends.whole = map[string]bool{}, nil, len(host) == 0
	for _, id := range strings.Fields(string(host)) {
		r.ends.host[id] = true
	}
	st, err := fsat.Lstat(upper, shallowFile)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return err
	case overlay.IsWhiteout(st):
		r.ends.layer = map[string]bool{}
		return nil
	}
	data, _, err := overlay.ReadFile(upper, shallowFile, unix.O_NOFOLLOW, maxShallow)
	if errors.Is(err, unix.EACCES) {
		return err
	}
	if err == nil {
		r.ends.layer, err = r.parseEnds(string(data))
	}
	if err != nil {
		out.stay(path.Join(r.rel, shallowFile), "%q: %v", shallowFile, err)
		return nil
	}
	for id := range r.ends.layer {
		if !r.objects.Has(id) {
			r.ends.fresh[id] = true
		}
	}
	return nil
}

// parseEnds reads a file as git writes it.
func (r *repository) parseEnds(text string) (map[string]bool, error) {
	if text == "" {
		return nil, errors.New("it is empty") // to git a shallow repository without end
	}
	ids := map[string]bool{}
	for line := range strings.Lines(text) {
		id, whole := strings.CutSuffix(line, "\n")
		if !whole || len(id) != r.hexLen() || strings.Trim(id, "0123456789abcdef") != "" {
			return nil, fmt.Errorf("no object ID: %.80q", line)
		}
		ids[id] = true
	}
	return ids, nil
}

// mayEnd reports whether the history may end at a commit that the host does not have.
func (r *repository) mayEnd(id string) bool { return r.ends.host[id] || r.ends.layer[id] }

// cut adds commits to the host's file, before they land.
func (r *repository) cut(commits []string) error {
	if !slices.ContainsFunc(commits, func(id string) bool { return !r.ends.host[id] }) {
		return nil
	}
	return r.changeEnds(func(ids map[string]bool) {
		for _, id := range commits {
			ids[id], r.ends.host[id] = true, true
		}
	})
}

// changeEnds changes the host's file.
func (r *repository) changeEnds(change func(ids map[string]bool)) error {
	file := filepath.Join(r.host, shallowFile)
	lock, err := gitlock.Acquire(file, time.Now().Add(lockWait))
	if err != nil {
		return err
	}
	lock.Sharing = r.sharing
	text, err := os.ReadFile(file)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		ids := map[string]bool{}
		for _, id := range strings.Fields(string(text)) {
			ids[id] = true
		}
		change(ids)
		text = []byte{}
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			text = append(text, id+"\n"...)
		}
		if len(text) > 0 {
			err = lock.Replace(text, time.Time{})
		} else {
			gitlock.Step("unlink")
			err = os.Remove(file)
		}
		r.ends.change = text
	}
	return errors.Join(err, lock.Release())
}

// landEnds lands the command's removals from the file: at these commits the history
// goes on, once it is on the host. That has to be clean then: as long as it was missing,
// nothing could judge it. It comes after the objects.
func (l *lander) landEnds(r *repository, out *landed) error {
	rel := path.Join(r.rel, shallowFile)
	if r.ends.change != nil {
		out.Files[rel+"@host"] = digestOf(r.ends.change)
	}
	if r.ends.whole && len(r.ends.host) > 0 {
		out.note("the repository is a shallow one now, as after git fetch --depth: the history ends at %s%s", short(slices.Sorted(maps.Keys(r.ends.host))[0]), andMore(len(r.ends.host)-1))
	}
	if r.ends.layer == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.ends.layer)) {
		switch {
		case r.ends.host[id] || r.ends.fresh[id] && r.objects.Has(id):
		case r.ends.fresh[id]:
			out.stay(rel, "%q: the host has no object %s", shallowFile, id)
		default:
			out.stay(rel, "%q: it would hide history of the host below %s", shallowFile, id)
		}
	}
	var open []string
	for id := range r.ends.host {
		if !r.ends.layer[id] {
			open = append(open, id)
		}
	}
	if len(open) == 0 {
		return nil
	}
	slices.Sort(open)
	if r.endsChanged(rel, out) {
		out.stay(rel, "%q: the host changed it meanwhile", shallowFile)
		return nil
	}
	err := r.complete(open)
	for i := 0; i < len(open) && err == nil; i++ {
		var end dated
		if end, err = r.look(open[i]); err == nil {
			err = l.cleanAbove(r, end)
		}
	}
	if err != nil {
		out.stay(rel, "%q: %v", shallowFile, err)
		return nil
	}
	err = r.changeEnds(func(ids map[string]bool) {
		for _, id := range open {
			delete(ids, id)
			delete(r.ends.host, id)
		}
	})
	out.Files[rel+"@host"] = digestOf(r.ends.change)
	return err
}

// cleanAbove reports a parent of a commit that git on the host must not check out.
func (l *lander) cleanAbove(r *repository, end dated) error {
	budget := l.guard(r).budget // all of it may be needed here, and again by references
	defer func() { l.guard(r).budget = budget }()
	for _, parent := range end.up {
		if why, err := l.guard(r).commit(parent); err != nil || why != "" {
			return cmp.Or(err, fmt.Errorf("%s; git fetch on the host makes it deeper", why))
		}
	}
	return nil
}

// endsChanged reports whether the host's file is neither the one with which the command
// began nor the one that landing wrote.
func (r *repository) endsChanged(rel string, out *landed) bool {
	file := filepath.Join(r.host, shallowFile)
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil || st.Ctim.Nano() < out.since(rel) {
		return err != nil
	}
	text, err := os.ReadFile(file)
	return err != nil || r.ends.change == nil && out.Files[rel+"@host"] != digestOf(text) || r.ends.change != nil && string(r.ends.change) != string(text)
}

// maxDeeper bounds the commits that are visited when a repository becomes deeper.
const maxDeeper = 1 << 20

// complete checks that the history below commits is on the host, down to other ends.
func (r *repository) complete(commits []string) error {
	seen := map[string]bool{}
	for _, id := range commits {
		seen[id] = true
	}
	for open := slices.Clone(commits); len(open) > 0; {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		d, err := r.look(id)
		if err == nil && !r.objects.Has(d.tree) {
			err = fmt.Errorf("its tree %s is missing", d.tree)
		}
		if err != nil {
			return fmt.Errorf("the history is not complete: commit %s: %w", id, err)
		}
		for _, parent := range d.up {
			switch {
			case seen[parent]:
			case !r.ends.host[parent]:
				open = append(open, parent)
			case !r.objects.Has(parent):
				return fmt.Errorf("the history is not complete: commit %s is missing", parent)
			}
			seen[parent] = true
		}
		if len(seen) > maxDeeper {
			return errors.New("the history is too long to be checked")
		}
	}
	return nil
}
