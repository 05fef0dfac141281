package gitland

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
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

// module is a new submodule that is to land in a work tree of the host's.
type module struct {
	repo      *repository
	git, path string
}

// maxModules bounds the new submodules of one landing.
const maxModules = 1000

// newModule returns why a submodule must not land at a path of a work tree, or "": the host's git
// enters a repository there, and a command that runs could make one. The plan of a command covers
// only the submodules that there are at its start. settle asks again.
func (l *lander) newModule(r *repository, git, path string) (why string, err error) {
	if !l.last {
		return fmt.Sprintf("%q %s", path, besides), nil
	}
	if l.running == nil {
		unlock, err := l.hold()
		if err != nil {
			return "", err
		}
		unlock()
	}
	tree := l.workTree(git)
	if tree == "" || l.running(filepath.Join(tree, path)) || !l.inert(git, path) {
		return fmt.Sprintf("%q %s", path, besides), nil
	}
	m := module{r, git, path}
	if !slices.Contains(l.news, m) {
		l.news = append(l.news, m)
	}
	if len(l.news) > maxModules {
		return "there are too many new submodules", nil
	}
	return "", nil
}

// hold keeps commands from beginning until unlock, and asks which run.
func (l *lander) hold() (unlock func(), err error) {
	switch {
	case l.held:
		return func() {}, nil
	case l.layer.State == "":
		l.running = func(string) bool { return false }
		return func() {}, nil
	}
	running, release, err := gitdir.Hold(l.layer.State)
	if err != nil {
		return nil, err
	}
	l.running, l.held = running, true
	return func() { l.held = false; release() }, nil
}

// settle notes the new submodules, and keeps commands from beginning until unlock, if there are any. It
// returns why they must not land, or "".
func (l *lander) settle() (unlock func(), why string, err error) {
	all := l.news
	if len(all) == 0 {
		return func() {}, "", nil
	}
	if unlock, err = l.hold(); err != nil {
		return nil, "", err
	}
	paths := map[*repository][]string{}
	for _, m := range all {
		if why == "" && err == nil {
			why, err = l.newModule(m.repo, m.git, m.path)
		}
		paths[m.repo] = append(paths[m.repo], m.path)
	}
	l.news = nil
	for r, list := range paths {
		if why != "" || err != nil || l.layer.State == "" {
			break
		}
		if nerr := gitdir.NoteSubmodules(l.layer.State, r.host, list); nerr != nil {
			why = fmt.Sprintf("the submodule %q cannot be noted: %v", list[0], nerr)
		}
	}
	if why != "" || err != nil {
		unlock()
		return func() {}, why, err
	}
	return unlock, "", nil
}

// quiet reports whether the command has ended, and no other one runs in the work tree.
func (l *lander) quiet(git string) (bool, error) {
	if !l.last || l.layer.State == "" {
		return l.last, nil
	}
	unlock, err := l.hold()
	if err != nil {
		return false, err
	}
	defer unlock()
	return !l.running(l.workTree(git)), nil
}
