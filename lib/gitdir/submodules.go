package gitdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Make makes the directory of a submodule if it is missing, as git does. A missing one
// cannot be a mount point, so a command could make it. Make follows no link.
func (u Unpopulated) Make() error {
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	for name := range strings.SplitSeq(u.Dir[1:], "/") {
		if err != nil {
			break
		}
		above := dir
		dir, err = fsat.Kernel().Open(above, name, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
		if err == unix.ENOENT {
			if err = unix.Mkdirat(above, name, 0o777); err == nil || err == unix.EEXIST {
				dir, err = fsat.Kernel().Open(above, name, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
			}
		}
		unix.Close(above)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: u.Dir, Err: err}
	}
	return unix.Close(dir)
}

func layerName(gitDir string, plain []string) string {
	if plain != nil {
		return LayerName(gitDir + "/submodules")
	}
	return LayerName(gitDir)
}

// in reports whether a name lies in a submodule.
func (n Inert) in(u Unpopulated) bool { return fsat.Within(n.Dir, u.Dir) }

// Submodule makes the directories of a submodule's overlay and returns their paths, as
// Upper, Work and Merged. A repository that an earlier command made there, before it was
// a submodule of the host's, is a repository in the upper layer.
func (l *Layer) Submodule(dir string, withheld []Inert) (upper, work, merged string, err error) {
	name := LayerName(dir)
	upper, work, merged = filepath.Join(l.Upper(), name), filepath.Join(l.Work(), name), filepath.Join(l.Merged(), name)
	for _, made := range []string{upper, work, merged} {
		if merr := os.Mkdir(made, 0o755); merr != nil && !errors.Is(merr, os.ErrExist) {
			err = merr
		}
	}
	if err != nil || !l.Fresh() { // no process may write to the upper layer of a mounted overlay
		return upper, work, merged, err
	}
	for _, n := range withheld {
		if fsat.Within(n.Dir, dir) {
			n.Dir = fencedPath(n.Dir, withheld)
			if gerr := n.giveIn(upper, strings.TrimPrefix(n.Dir[len(dir):], "/")); gerr != nil && !absent(gerr) {
				err = fmt.Errorf("cannot give the repository %q its %s back: %w", n.Repository(), n.Name, gerr)
			}
		}
	}
	return upper, work, merged, err
}

// fencedPath is the path of a directory while names on the way are fenced.
func fencedPath(dir string, withheld []Inert) string {
	was, is := "", ""
	for name := range strings.SplitSeq(dir[1:], "/") {
		was, is = was+"/"+name, is+"/"+name
		for _, n := range withheld {
			if n.Dir+"/"+n.Name == was {
				is = filepath.Dir(is) + "/" + n.Fenced
			}
		}
	}
	return is
}

// giveIn restores a name in an upper layer, at a path below it. In place of a directory
// it writes a file that leads to the fenced one. Commands have written to the layer, and
// may have used the name.
func (n Inert) giveIn(upper, rel string) error {
	host, err := fsat.Kernel().Open(unix.AT_FDCWD, n.Dir, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err != nil {
		return err
	}
	defer unix.Close(host)
	st, err := fsat.Lstat(host, n.Fenced)
	if err != nil || st.Ino != n.ino {
		return err
	}
	dir, err := openLayerDir(upper, rel)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if _, err := fsat.Lstat(dir, n.Name); err == nil {
		return nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		_ = unix.Mknodat(dir, n.Fenced, unix.S_IFCHR, 0) // a whiteout: git status does not show it as new
	}
	text := []byte("gitdir: " + n.Fenced + "\n")
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		target, err := fsat.ReadLink(host, n.Fenced)
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, dir, n.Name)
	default:
		if text, _, err = overlay.ReadFile(host, n.Fenced, unix.O_NOFOLLOW, maxPointerFile); err != nil {
			return nil // git ignores it
		}
	}
	return makeFile(dir, n.Name, text)
}

// maxPointerFile bounds a .git file, and HEAD.
const maxPointerFile = 64 << 10

// openLayerDir opens a directory below an upper layer, and makes it if it is missing: the
// merged view also shows the lower one's entries. It follows no link.
func openLayerDir(upper, rel string) (int, error) {
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, upper, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	for name := range strings.FieldsFuncSeq(rel, func(c rune) bool { return c == '/' }) {
		if err != nil {
			break
		}
		above := dir
		if err = unix.Mkdirat(above, name, 0o755); err == nil || err == unix.EEXIST {
			dir, err = fsat.Openat(above, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		}
		unix.Close(above)
	}
	return dir, err
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
	unlock, err = lock(l.layer.State)
	if absent(err) { // no command has begun there
		return func() {}, true, true, nil
	}
	if err != nil {
		return nil, false, false, err
	}
	running, err := notesIn(l.layer.State)
	if err != nil || len(links) == 0 {
		unlock()
		unlock = func() {}
	}
	tree := filepath.Dir(git)
	return unlock, !slices.ContainsFunc(links, func(link string) bool { return running.running(filepath.Join(tree, link)) }), !running.running(l.workTree(git)), err
}
