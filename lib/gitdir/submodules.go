package gitdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Make makes the directory of a submodule if it is missing, as git does. A missing one
// cannot be a mount point, so a command could make it. Make follows no link. A command may
// have closed a directory above: Make opens one of the user's for the moment.
func (u Unpopulated) Make() error {
	l := &List{fd: -1}
	defer l.shut()
	dir, err := fsat.Kernel().Open(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	for name := range strings.SplitSeq(u.Dir[1:], "/") {
		if err != nil {
			break
		}
		above := dir
		if dir, err = openOrMake(above, name); err == unix.EACCES && l.allow(above) == nil {
			dir, err = openOrMake(above, name)
		}
		unix.Close(above)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: u.Dir, Err: err}
	}
	return unix.Close(dir)
}

func openOrMake(above int, name string) (int, error) {
	dir, err := fsat.Kernel().Open(above, name, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	if err == unix.ENOENT {
		if err = unix.Mkdirat(above, name, 0o777); err == nil || err == unix.EEXIST {
			dir, err = fsat.Kernel().Open(above, name, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
		}
	}
	return dir, err
}

// layersOver identifies the directories of submodules, over which the layers lie.
func layersOver(unpopulated []Unpopulated) (places []place) {
	for _, u := range unpopulated {
		p := place{name: submodule}
		if _, err := identify(unix.AT_FDCWD, u.Dir, &p.id); err == nil {
			places = append(places, p)
		}
	}
	return places
}

// in reports whether a name lies in a submodule.
func (n Inert) in(u Unpopulated) bool { return fsat.Within(n.Dir, u.Dir) }

// NoteSubmodule notes the place of a new submodule in a commit that lands.
func NoteSubmodule(state, dir string) error {
	line := strconv.Quote(dir) + "\n"
	text, err := os.ReadFile(filepath.Join(state, submodulesFile))
	switch {
	case err == nil && strings.Contains("\n"+string(text), "\n"+line):
		return nil
	case len(text) > maxNoted:
		return errors.New("there are too many")
	}
	f, err := os.OpenFile(filepath.Join(state, submodulesFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// NoteSubmodules notes the places of submodules in a repository that is to become the host's, for its
// work tree: those in the commits of its references and its HEAD, and those where a command has made a
// repository, which older commits may have. The caller holds the lock of the state directory.
func NoteSubmodules(state, gitDir, workTree string) error {
	records, err := recordsIn(state)
	if err != nil {
		return err
	}
	for _, n := range records {
		if dir := n.Repository(); dir != workTree && fsat.Within(dir, workTree) {
			if err := NoteSubmodule(state, dir); err != nil {
				return err
			}
		}
	}
	format, _, err := objects.FormatOf(gitDir)
	if err != nil {
		return err
	}
	db, err := objects.Open(filepath.Join(gitDir, "objects"), format)
	if err != nil {
		return err
	}
	defer db.Close()
	seen, left := map[string]bool{}, maxTreeEntries
	ids, _ := refs.Tips(refs.Host{Common: gitDir, Git: gitDir, HexLen: 2 * format.Size()}, nil)
	for _, id := range ids {
		err = errors.Join(err, eachGitlink(db, treeOf(db, id), workTree, seen, &left, func(dir string) error { return NoteSubmodule(state, dir) }))
	}
	return err
}

// maxTreeEntries bounds the entries of trees that NoteSubmodules reads: some seconds.
const maxTreeEntries = 4_000_000

// eachGitlink calls fn with the places of submodules in a tree at a path. seen has the trees at their paths.
func eachGitlink(db *objects.Database, tree, dir string, seen map[string]bool, left *int, fn func(dir string) error) error {
	if seen[tree+dir] || len(dir) > unix.PathMax { // git cannot make longer paths
		return nil
	}
	seen[tree+dir] = true
	entries, err := db.Tree(tree)
	if err != nil {
		return nil // git cannot check it out either
	}
	if *left -= len(entries); *left < 0 {
		return errors.New("its branches have too many files to look for submodules")
	}
	for _, e := range entries {
		switch e.Mode {
		case index.ModeGitlink:
			err = fn(dir + "/" + e.Name)
		case unix.S_IFDIR:
			err = eachGitlink(db, e.ID, dir+"/"+e.Name, seen, left, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// submodulesFile has the places of NoteSubmodule.
const (
	submodulesFile = "submodules"
	maxNoted       = 4 << 20
)

// recordedIn returns the records of repositories at noted places.
func recordedIn(state string, records []Inert) []Inert {
	if len(records) == 0 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(state, submodulesFile))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(records), func(n Inert) bool {
		return !strings.Contains("\n"+string(text), "\n"+strconv.Quote(n.Repository())+"\n")
	})
}

// recorded lists the places of fenced repositories at which a commit that has landed has a submodule,
// and the index none: git enters a repository there once the user has checked that out.
func recorded(repos []Repo, records []Inert) (list []Unpopulated) {
	for _, r := range repos {
		var places []string
		for _, n := range records {
			if dir := n.Repository(); r.WorkTree != "" && r.GitDir != "" && dir != r.WorkTree && fsat.Within(dir, r.WorkTree) && !slices.Contains(places, dir) {
				places = append(places, dir)
			}
		}
		if len(places) == 0 {
			continue
		}
		format, _, err := objects.FormatOf(r.CommonDir)
		if err != nil {
			continue // git fails too
		}
		db, err := objects.Open(filepath.Join(r.CommonDir, "objects"), format)
		if err != nil {
			continue
		}
		ids, _ := refs.Tips(refs.Host{Common: r.CommonDir, Git: r.CommonDir, HexLen: 2 * format.Size()}, nil)
		for _, id := range ids[:min(len(ids), maxTips)] {
			tree := treeOf(db, id)
			places = slices.DeleteFunc(places, func(dir string) bool {
				is := hasGitlink(db, tree, strings.TrimPrefix(dir, r.WorkTree+"/"))
				if is {
					list = append(list, Unpopulated{dir, r.GitDir})
				}
				return is
			})
		}
		db.Close()
	}
	return list
}

// maxTips bounds the commits that are looked at.
const maxTips = 10_000

// treeOf returns the tree of a commit, or of a tag of one, or "".
func treeOf(db *objects.Database, id string) string {
	for range 10 { // tags of tags
		kind, text, err := db.Read(id)
		if err != nil {
			return ""
		}
		line, _, _ := strings.Cut(string(text), "\n")
		switch kind {
		case "tree":
			return id
		case "commit":
			return strings.TrimPrefix(line, "tree ")
		}
		id = strings.TrimPrefix(line, "object ")
	}
	return ""
}

// hasGitlink reports whether a tree has a submodule at a path.
func hasGitlink(db *objects.Database, tree, path string) bool {
	mode := uint32(unix.S_IFDIR)
	for name := range strings.SplitSeq(path, "/") {
		entries, err := db.Tree(tree)
		i := slices.IndexFunc(entries, func(e objects.Entry) bool { return e.Name == name })
		if err != nil || i < 0 || mode != unix.S_IFDIR {
			return false
		}
		mode, tree = entries[i].Mode, entries[i].ID
	}
	return mode == index.ModeGitlink
}

// GiveBack restores the names of repositories in a directory in the upper layer of an overlay on
// it. It returns the last error.
func GiveBack(dir, upper string, withheld []Inert) (err error) {
	for _, n := range withheld {
		if fsat.Within(n.Dir, dir) {
			n.Dir = fencedPath(n.Dir, withheld)
			if gerr := n.giveIn(upper, strings.TrimPrefix(n.Dir[len(dir):], "/")); gerr != nil && !fsat.Absent(gerr) {
				err = fmt.Errorf("cannot give the repository %q its %s back: %w", n.Repository(), n.Name, gerr)
			}
		}
	}
	return err
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
