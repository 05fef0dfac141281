package gitland

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/overlay"
)

func layerName(gitDir string, plain []string) string {
	if plain != nil {
		return LayerName(gitDir + "/submodules")
	}
	return LayerName(gitDir)
}

// Submodule makes the directories of a submodule's overlay and returns their paths, as
// Upper, Work and Merged. A repository that an earlier command made there, before it was
// a submodule of the host's, is a repository in the upper layer.
func (l *Layer) Submodule(dir string, withheld []gitdir.Inert) (upper, work, merged string, err error) {
	name := LayerName(dir)
	upper, work, merged = filepath.Join(l.Upper(), name), filepath.Join(l.Work(), name), filepath.Join(l.Merged(), name)
	for _, made := range []string{upper, work, merged} {
		if merr := os.Mkdir(made, 0o755); merr != nil && !errors.Is(merr, os.ErrExist) {
			err = merr
		}
	}
	if err == nil && l.Fresh() { // no process may write to the upper layer of a mounted overlay
		err = gitdir.GiveBack(dir, upper, withheld)
	}
	return upper, work, merged, err
}

// keepPlain leaves all files written to submodules for the next command, and reports that
// once.
func (l *Layer) keepPlain(last bool) error {
	if !last {
		return nil
	}
	if err := l.Wait(overlay.Landing, unix.F_WRLCK); err != nil {
		return err
	}
	defer func() { _ = l.Try(overlay.Landing, unix.F_UNLCK) }()
	r, err := l.load()
	if err != nil {
		return err
	}
	out := &landed{record: r, told: &l.lander.told, notes: &l.lander.notes}
	for _, dir := range l.Plain {
		entries, err := os.ReadDir(filepath.Join(l.Upper(), LayerName(dir)))
		advice := ""
		if files, _ := os.ReadDir(dir); len(files) > 0 { // of the command that has added it
			advice = "move it away, and "
		}
		line := fmt.Sprintf("the submodule %q is populated in the sandbox alone, and so is what commands write there; on the host: %sgit submodule update --init", dir, advice)
		switch {
		case err == nil && len(entries) == 0:
		case l.Once:
			out.tell("what was written to the submodule %q is gone, since another command uses it: name a session", dir)
		case !slices.Contains(out.Told, line):
			out.Told = append(out.Told, line)
			out.tell("%s", line)
		}
	}
	if l.Once {
		return os.RemoveAll(l.Dir)
	}
	return l.save(out.record)
}

// newGitlinks lists the submodules among the changed entries of an index, unless old
// shows that the host's has one there.
func newGitlinks(changed, old []index.Entry) []string {
	known := map[string]bool{}
	for _, e := range old {
		known[e.Path] = e.Mode == index.ModeGitlink
	}
	var links []string
	for _, e := range changed {
		if e.Mode == index.ModeGitlink && !known[e.Path] {
			links = append(links, e.Path)
		}
	}
	return links
}

// alone keeps commands from beginning until unlock, and reports whether none runs that
// can make a repository at one of these paths of the work tree: its plan covers only the
// submodules in the host's index at its start. Without paths it keeps none. quiet reports that
// the command has ended, and that no other one runs in the work tree.
func (l *lander) alone(git string, links []string) (unlock func(), alone, quiet bool, err error) {
	if !l.last || l.layer.State == "" {
		return func() {}, l.last || len(links) == 0, l.last, nil
	}
	running, unlock, err := gitdir.Hold(l.layer.State)
	if err != nil {
		return nil, false, false, err
	}
	if len(links) == 0 {
		unlock()
		unlock = func() {}
	}
	tree := filepath.Dir(git)
	alone = !slices.ContainsFunc(links, func(link string) bool { return running(filepath.Join(tree, link)) })
	return unlock, alone, !running(l.workTree(git)), nil
}
