package gitland

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// FileChange is a file or directory beside objects and references that would land, or
// that landing would refuse. Before and After are SHA-256 of the content, of a directory
// a hash of its whole content, or "" if there is none.
type FileChange struct {
	Name          string // below the git directory: "config", "index", "rebase-merge", "worktrees/w/MERGE_HEAD"
	Before, After string
	Err           error // one of them cannot be read
}

// Remark reports whether git writes the file with almost any command, for the user's
// convenience: without it nothing is lost.
func (c FileChange) Remark() bool { return slices.Contains(remarks, path.Base(c.Name)) }

// Changes lists the changes that would land from a layer which is not open, with those of
// its linked worktrees and submodules: of references, and of configuration, indexes and
// states of work under way. An index is one only if its entries differ from the host's, a
// configuration only if a part of it would land. All names are below the git directory:
// "HEAD", "worktrees/w/HEAD", "modules/m/refs/heads/b".
func (l *Layer) Changes() ([]refs.Change, []FileChange, error) {
	if _, err := os.Stat(l.GitDir); errors.Is(err, os.ErrNotExist) || l.Plain != nil {
		return nil, nil, nil
	}
	upper, err := l.openUpper()
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(upper)
	if entries, err := fsat.Next(upper); err != nil || len(entries) == 0 {
		return nil, nil, err
	}
	s, err := l.load()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	l.lander.layer, l.lander.repos = l, map[string]*repository{}
	defer func() {
		for _, r := range l.lander.repos {
			r.objects.Close()
		}
	}()
	f := &found{lander: &l.lander, out: &landed{record: s}}
	err = f.repository(upper, "")
	return f.refs, f.files, err
}

// found are the results of one call of Changes, for the names that a lander lands.
type found struct {
	*lander
	out   *landed // its record, which is not saved
	refs  []refs.Change
	files []FileChange
}

func (f *found) repository(upper int, rel string) error {
	r, err := f.open(rel)
	if err != nil {
		return err
	}
	if err := f.references(r, rel, upper); err != nil {
		return err
	}
	// Without HEAD nothing lands, but a sweep must not remove the commits.
	if st, err := fsat.Lstat(upper, "HEAD"); err == nil && overlay.IsWhiteout(st) {
		return nil
	}
	if err := f.gitDir(r, rel, upper); err != nil {
		return err
	}
	if err := f.config(r, upper); err != nil {
		return err
	}
	if err := f.shallow(r, upper); err != nil {
		return err
	}
	err = f.each(upper, "worktrees", rel, func(sub int, name string) error {
		return errors.Join(f.references(r, name, upper), f.gitDir(r, name, sub), f.modules(sub, "modules", name, f.repository))
	})
	return errors.Join(err, f.modules(upper, "modules", rel, f.repository))
}

// references lists the references of a git directory, or those that a linked worktree
// shares with no other. upper is the layer of the git directory.
func (f *found) references(r *repository, rel string, upper int) error {
	git := filepath.Join(f.layer.GitDir, rel)
	o := f.refOptions(r, f.out)
	o.Landed, o.Held = f.out.refs(rel), map[string]time.Time{}
	for held := range f.out.Held {
		name, _ := filepath.Rel(rel, held) // of another git directory: no reference has that name
		o.Held[name] = time.Unix(0, f.out.since(held))
	}
	list, _, err := refs.Changes(r.refs(git), upper, o)
	for _, c := range list {
		lands := git == r.host
		if refs.PerWorktree(c.Name) {
			lands = slices.Contains(f.layer.GitDirs, git)
		}
		if lands {
			c.Name = path.Join(rel, c.Name)
			f.refs = append(f.refs, c)
		}
	}
	return err
}

// gitDir lists the index and the states of a git directory, or of a linked worktree's.
func (f *found) gitDir(r *repository, rel string, up int) error {
	git := filepath.Join(f.layer.GitDir, rel)
	n, err := f.landing(r, git, -1, up, f.out)
	if err != nil || !n.own() {
		return err
	}
	switch x := n.indexes(); {
	case x == nil:
	case x.err != nil:
		return x.err
	case x.invalid != nil:
		f.files = append(f.files, FileChange{Name: path.Join(rel, indexFile), Err: x.invalid})
	default:
		after := digestOf(x.data)
		if same, _ := x.reveal(git, r, nil); same {
			break
		}
		before, err := os.ReadFile(filepath.Join(git, indexFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f.files = append(f.files, FileChange{Name: path.Join(rel, indexFile), Before: digestOrNone(before), After: after})
	}
	states, err := state.Differences(git, up, state.Options{HexLen: r.hexLen(), Landed: f.out.marks(rel)})
	for _, d := range states {
		f.files = append(f.files, FileChange{path.Join(rel, d.Name), d.Before, d.After, d.Err})
	}
	return err
}

func (f *found) shallow(r *repository, upper int) error {
	st, err := fsat.Lstat(upper, shallowFile)
	if err != nil {
		return nil
	}
	var after []byte
	if !overlay.IsWhiteout(st) {
		after, _, err = overlay.ReadFile(upper, shallowFile, unix.O_NOFOLLOW, maxShallow)
	}
	rel := path.Join(r.rel, shallowFile)
	if err != nil {
		f.files = append(f.files, FileChange{Name: rel, Err: err})
		return nil
	}
	before, err := os.ReadFile(filepath.Join(r.host, shallowFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !bytes.Equal(before, after) {
		f.files = append(f.files, FileChange{Name: rel, Before: digestOrNone(before), After: digestOrNone(after)})
	}
	return nil
}

func (f *found) config(r *repository, upper int) error {
	text, _, err := overlay.ReadFile(upper, "config", unix.O_NOFOLLOW, objects.MaxConfig)
	rel := path.Join(r.rel, "config")
	if err != nil || f.out.Files[rel] == digestOf(text) {
		return nil // as landConfig
	}
	var base []byte
	if r.rel == "" {
		base = f.out.Base
	}
	before, after, err := gitconfig.PreviewRemotes(filepath.Join(r.host, "config"), base, text)
	switch {
	case err != nil:
		f.files = append(f.files, FileChange{Name: rel, Err: err})
	case !bytes.Equal(before, after):
		f.files = append(f.files, FileChange{Name: rel, Before: digestOrNone(before), After: digestOf(after)})
	}
	return nil
}

// digestOrNone is "" for a missing file: an empty one is neither an index nor a
// repository's configuration.
func digestOrNone(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return digestOf(data)
}

// Drop discards the content of a layer that no command uses: nothing of it lands.
func (l *Layer) Drop() error {
	if err := l.OpenLock(); err != nil {
		return err
	}
	defer l.CloseLock()
	if err := l.Alone(); err != nil {
		return err
	}
	if err := l.empty(); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(l.Dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
