package gitdir

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
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// RefChanges lists the changes of the git directory's references, HEAD first, that would
// land from a layer which is not open. It leaves out those of its submodules.
func (l *Layer) RefChanges() ([]refs.Change, error) {
	if _, err := os.Stat(l.GitDir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	upper, err := l.openUpper()
	if err != nil {
		return nil, err
	}
	defer unix.Close(upper)
	s, err := l.load()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l.lander.layer, l.lander.repos = l, map[string]*repository{}
	r, err := l.lander.open("")
	if err != nil {
		return nil, err
	}
	defer r.objects.Close()
	held := map[string]time.Time{}
	for name, since := range s.Held {
		held[name] = time.Unix(0, since)
	}
	landed := s.Refs[""]
	if landed == nil {
		landed = map[string]string{}
	}
	o := refs.Options{
		Session: l.Session, Since: time.Unix(0, s.Since), Held: held, Landed: landed,
		Kind: func(string) (string, error) { return "commit", nil }, // its objects have not landed
	}
	changes, _, err := refs.Changes(refs.Host{Common: r.host, Git: r.host, HexLen: r.hexLen()}, upper, o)
	return changes, err
}

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

// FileChanges lists the changes of configuration, indexes and states of work under way
// that a layer which is not open holds, with those of its worktrees and submodules. An
// index is one only if its entries differ from the host's, a configuration only if a part
// of it would land.
func (l *Layer) FileChanges() ([]FileChange, error) {
	if _, err := os.Stat(l.GitDir); errors.Is(err, os.ErrNotExist) || l.Plain != nil {
		return nil, nil
	}
	upper, err := l.openUpper()
	if err != nil {
		return nil, err
	}
	defer unix.Close(upper)
	if entries, err := fsat.Next(upper); err != nil || len(entries) == 0 {
		return nil, err
	}
	s, err := l.load()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l.lander.layer, l.lander.repos = l, map[string]*repository{}
	defer func() {
		for _, r := range l.lander.repos {
			r.objects.Close()
		}
	}()
	f := &fileChanges{lander: &l.lander, out: &landed{record: s}}
	err = f.repository(upper, "")
	return f.list, err
}

// fileChanges is one call of FileChanges, for the names that a lander lands.
type fileChanges struct {
	*lander
	out  *landed // its record, which is not saved
	list []FileChange
}

func (f *fileChanges) repository(upper int, rel string) error {
	if st, err := fsat.Lstat(upper, "HEAD"); err == nil && overlay.IsWhiteout(st) {
		return nil
	}
	r, err := f.open(rel)
	if err != nil {
		return err
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
		return errors.Join(f.gitDir(r, name, sub), f.modules(sub, "modules", name, f.repository))
	})
	return errors.Join(err, f.modules(upper, "modules", rel, f.repository))
}

// gitDir lists the index and the states of a git directory, or of a linked worktree's.
func (f *fileChanges) gitDir(r *repository, rel string, up int) error {
	git := filepath.Join(f.layer.GitDir, rel)
	if !slices.Contains(f.layer.GitDirs, git) {
		return nil
	}
	switch x := f.readIndexes(r, git, rel, up, f.out)(); {
	case x == nil:
	case x.err != nil:
		return x.err
	case x.invalid != nil:
		f.list = append(f.list, FileChange{Name: path.Join(rel, indexFile), Err: x.invalid})
	default:
		after := digestOf(x.data)
		if same, _ := x.reveal(git, r); same {
			break
		}
		before, err := os.ReadFile(filepath.Join(git, indexFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f.list = append(f.list, FileChange{Name: path.Join(rel, indexFile), Before: digestOrNone(before), After: after})
	}
	states, err := state.Differences(git, up, state.Options{HexLen: r.hexLen(), Landed: f.out.marks(rel)})
	for _, d := range states {
		f.list = append(f.list, FileChange{path.Join(rel, d.Name), d.Before, d.After, d.Err})
	}
	return err
}

func (f *fileChanges) shallow(r *repository, upper int) error {
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
		f.list = append(f.list, FileChange{Name: rel, Err: err})
		return nil
	}
	before, err := os.ReadFile(filepath.Join(r.host, shallowFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !bytes.Equal(before, after) {
		f.list = append(f.list, FileChange{Name: rel, Before: digestOrNone(before), After: digestOrNone(after)})
	}
	return nil
}

func (f *fileChanges) config(r *repository, upper int) error {
	text, _, err := overlay.ReadFile(upper, "config", unix.O_NOFOLLOW, maxConfig)
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
		f.list = append(f.list, FileChange{Name: rel, Err: err})
	case !bytes.Equal(before, after):
		f.list = append(f.list, FileChange{Name: rel, Before: digestOrNone(before), After: digestOf(after)})
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
