package gitdir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/bytejson"
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

// SubmodulesPrefix begins the names of the lists of NoteSubmodules.
const SubmodulesPrefix = "submodules-"

// noted are the paths of a repository at which a commit that has landed has got a submodule.
type noted struct {
	Common string   `json:"common"` // the repository's git directory
	Paths  []string `json:"paths"`  // below each of its work trees
}

// maxNoted bounds the bytes of a list.
const maxNoted = 4 << 20

func notedFile(state, common string) string {
	return ListFile(state, fmt.Sprintf(SubmodulesPrefix+"%x", sha256.Sum256([]byte(common))))
}

// NoteSubmodules notes paths of new submodules before they land: from then on, a command gets back no
// repository of an earlier one there but in a layer, as git enters it once the user has checked it out.
func NoteSubmodules(state, common string, paths []string) error {
	file := notedFile(state, common)
	n := readNoted(file)
	n.Common = common
	before := len(n.Paths)
	n.Paths = append(n.Paths, paths...)
	slices.Sort(n.Paths)
	if n.Paths = slices.Compact(n.Paths); len(n.Paths) == before {
		return nil
	}
	text, err := bytejson.Marshal(&n)
	switch {
	case err != nil:
		return err
	case len(text) > maxNoted:
		return errors.New("there are too many")
	}
	return SaveList(file, text)
}

// readNoted reads a list, which is empty if it is missing.
func readNoted(file string) (n noted) {
	text, _ := os.ReadFile(file)
	_ = bytejson.Unmarshal(text, &n)
	return n
}

// NoteAdopted is NoteSubmodules for a repository that is to become the host's at common, with all that the
// commits of its references and its HEAD have, and with places where a command has made a repository, which
// older commits may have. The caller holds the lock of the state directory.
func NoteAdopted(state, gitDir, common, workTree string) error {
	records, err := recordsIn(state)
	if err != nil {
		return err
	}
	var paths []string
	for _, n := range records {
		if dir := n.Repository(); dir != workTree && fsat.Within(dir, workTree) {
			paths = append(paths, strings.TrimPrefix(dir, workTree+"/"))
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
		if err := eachGitlink(db, treeOf(db, id), "", seen, &left, func(path string) { paths = append(paths, path) }); err != nil {
			return err
		}
	}
	return NoteSubmodules(state, common, paths)
}

// maxTreeEntries bounds the entries of trees that NoteAdopted reads: some seconds.
const maxTreeEntries = 4_000_000

// eachGitlink calls fn with the paths of submodules in a tree at a path that is "" or ends in "/". seen has the
// trees at their paths.
func eachGitlink(db *objects.Database, tree, dir string, seen map[string]bool, left *int, fn func(path string)) error {
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
			fn(dir + e.Name)
		case unix.S_IFDIR:
			err = eachGitlink(db, e.ID, dir+e.Name+"/", seen, left, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// atNoted lists the places of fenced repositories where a repository has noted a submodule.
func (l *List) atNoted(repos []Repo) (list []Unpopulated) {
	for _, r := range repos {
		var paths []string
		for _, n := range l.records {
			if dir := n.Repository(); r.WorkTree != "" && r.GitDir != "" && dir != r.WorkTree && fsat.Within(dir, r.WorkTree) {
				if paths == nil {
					paths = append([]string{""}, readNoted(notedFile(filepath.Dir(filepath.Dir(l.file)), r.CommonDir)).Paths...)
				}
				if slices.Contains(paths, strings.TrimPrefix(dir, r.WorkTree+"/")) {
					list = append(list, Unpopulated{dir, r.GitDir})
				}
			}
		}
	}
	return list
}

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
