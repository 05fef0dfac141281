package gitland

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// tidy removes files that have landed from an upper layer that no command uses, so that
// the next command sees the host's, and those that hide files of the host. The rest stays
// for the next command.
type tidy struct {
	host   string
	out    *landed
	eraser fsat.Eraser
	stays  []string // names that the host's git never sees
	bad    []string // removed, since git could not read them
	back   []string // of linked work trees: the command has removed it, and the host has it
	err    error
}

// landedNames are the names in a git directory that land. The next command does not see
// one that did not land, unless landed.keep has it.
var landedNames = append([]string{"objects", "refs", "logs", "HEAD", "packed-refs", "index", "config", shallowFile, "commondir", "gitdir", "gc.log", "gc.pid",
	"COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG"}, state.Names...)

func (t *tidy) upper(dir int) error {
	t.repository(dir, "")
	return t.err
}

// repository tidies the layer of a git directory, or of a linked worktree's.
func (t *tidy) repository(dir int, rel string) {
	defer t.objects(dir, rel)
	t.each(dir, func(e fsat.Entry, whiteout bool) {
		name := path.Join(rel, e.Name)
		switch {
		case t.keeps(dir, e.Name, name):
		case e.Name == "objects" && !whiteout:
		case whiteout && (e.Name == "locked" || e.Name == "worktrees"):
			t.giveBack(dir, e.Name, name)
		case whiteout || slices.Contains(landedNames, e.Name) || strings.HasSuffix(e.Name, ".lock"):
			if t.out.keepsBelow(name) {
				t.prune(dir, e.Name, name)
			} else {
				t.remove(dir, e.Name)
			}
		case e.Name == "modules" || e.Name == "worktrees":
			t.below(dir, e.Name, name)
		case e.Name == "info":
			t.in(dir, e.Name, name, func(info int) { t.remove(info, "refs") })
			t.stay(dir, e.Name, name)
		case e.Name == worktreeConfig && t.unusable(dir, rel):
			t.bad = append(t.bad, name)
			t.remove(dir, e.Name)
		case strings.HasPrefix(e.Name, "sharedindex.") && !t.out.keeps(path.Join(rel, indexFile)):
			t.remove(dir, e.Name) // git sets the time of a file that it reads, so the overlay has copied the host's here
		case e.Name == "lfs":
			t.in(dir, e.Name, name, func(lfs int) {
				if objects := path.Join(rel, lfsDir); t.out.keepsBelow(objects) {
					t.prune(lfs, path.Base(objects), objects)
				} else {
					t.remove(lfs, path.Base(objects))
				}
				t.remove(lfs, "tmp")
			})
			if t.sift(dir, e.Name, name, maxOpenUp) {
				_ = unix.Unlinkat(dir, e.Name, unix.AT_REMOVEDIR) // logs and caches stay
			}
		default:
			t.stay(dir, e.Name, name)
		}
	})
}

// objects removes the objects of a git directory, which have landed, unless something stays
// that refers to them: nothing on the host may, and git gc there would drop them.
func (t *tidy) objects(dir int, git string) {
	rel := path.Join(git, "objects")
	needs := func(name string) bool {
		base := path.Base(name)
		return fsat.Within(name, path.Dir(rel)) && (base == "HEAD" || base == indexFile || slices.Contains(state.Names, base) ||
			strings.Contains("/"+name, "/refs/") || strings.Contains("/"+name, "/worktrees/"))
	}
	switch {
	case slices.ContainsFunc(t.out.keep, needs) || slices.ContainsFunc(t.stays, needs) || t.out.keeps(rel):
		t.sift(dir, "objects", rel, maxOpenUp)
	case t.out.keepsBelow(rel):
		t.prune(dir, path.Base(rel), rel)
	default:
		t.remove(dir, path.Base(rel))
	}
}

// keeps reports whether a name stays for the next command. A link does not: git would
// follow it.
func (t *tidy) keeps(dir int, name, rel string) bool {
	if !t.out.keeps(rel) {
		return false
	}
	st, err := fsat.Lstat(dir, name)
	return err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK && t.sift(dir, name, rel, maxOpenUp)
}

// sift removes a file for which git would wait for ever, or that it could not read for its
// size, and all such files below a directory. It reports whether the name is still there.
func (t *tidy) sift(dir int, name, rel string, depth int) bool {
	st, err := fsat.Lstat(dir, name)
	if err != nil {
		return false
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth == 0 {
		if depth > 0 && readable(st, rel) {
			return true
		}
		t.bad = append(t.bad, rel)
		t.remove(dir, name)
		return false
	}
	t.in(dir, name, rel, func(sub int) {
		t.each(sub, func(e fsat.Entry, _ bool) {
			if e.Type != unix.DT_REG || !isStored(rel) {
				t.sift(sub, e.Name, path.Join(rel, e.Name), depth-1)
			}
		})
	})
	return true
}

// maxRead bounds a file that git reads as a whole and that is neither an index nor an object.
const maxRead = 64 << 20

// readable reports whether git can read a file that stays, or does not read it.
func readable(st *unix.Stat_t, rel string) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return isStored(rel) && !slices.Contains(strings.Split(rel, "/"), "objects")
	case unix.S_IFREG:
		limit := int64(maxRead)
		switch base := path.Base(rel); {
		case isStored(rel):
			return true
		case base == indexFile || strings.HasPrefix(base, "sharedindex."):
			limit = index.MaxSize
		}
		return st.Size <= limit
	}
	return overlay.IsWhiteout(st)
}

// isStored reports whether a path is one of an object or a file that git does not read: one of
// LFS, a hook, or one at a name that it does not know.
func isStored(rel string) bool {
	parts := strings.Split(rel, "/")
	in := func(names ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(names, part) })
	}
	if in("objects", "lfs", "hooks") {
		return !strings.Contains(rel+"/", "objects/info/")
	}
	return !in("modules", "worktrees", "info", worktreeConfig) && !in(landedNames...)
}

// worktreeConfig is a part of the configuration if that says so.
const worktreeConfig = "config.worktree"

// unusable reports whether git would fail with the layer's config.worktree of a git directory,
// or find no repository.
func (t *tidy) unusable(dir int, rel string) bool {
	text, _, err := overlay.ReadFile(dir, worktreeConfig, unix.O_NOFOLLOW, objects.MaxConfig)
	if err != nil {
		st, err := fsat.Lstat(dir, worktreeConfig)
		return err != nil || !overlay.IsWhiteout(st)
	}
	entries, err := gitconfig.Parse(worktreeConfig, text)
	if err != nil {
		return true
	}
	host, _ := os.ReadFile(path.Join(t.host, rel, worktreeConfig))
	has, _ := gitconfig.Parse(worktreeConfig, host)
	return slices.ContainsFunc(entries, func(e gitconfig.Entry) bool {
		return decidesRepository(e.Key) && !slices.ContainsFunc(has, func(h gitconfig.Entry) bool { return h.Key == e.Key && h.Value == e.Value })
	})
}

// below tidies the directories of git directories that the host has too.
func (t *tidy) below(dir int, name, rel string) {
	t.in(dir, name, rel, func(sub int) {
		t.each(sub, func(e fsat.Entry, whiteout bool) {
			below := path.Join(rel, e.Name)
			switch {
			case whiteout:
				t.giveBack(sub, e.Name, below)
			case exists(path.Join(t.host, below, "HEAD")):
				t.in(sub, e.Name, below, func(repo int) { t.repository(repo, below) })
			case exists(path.Join(t.host, below)):
				t.below(sub, e.Name, below) // a submodule with a slash in its name
			default:
				t.stay(sub, e.Name, below)
			}
		})
	})
}

// giveBack removes a whiteout, and tells it of a linked work tree: git worktree prune and unlock do not land.
func (t *tidy) giveBack(dir int, name, rel string) {
	if fsat.Within(rel, "worktrees") && exists(path.Join(t.host, rel)) {
		t.back = append(t.back, rel)
	}
	t.remove(dir, name)
}

// prune removes all entries from a directory that are not kept.
func (t *tidy) prune(dir int, name, rel string) {
	t.in(dir, name, rel, func(sub int) {
		t.each(sub, func(e fsat.Entry, _ bool) {
			below := path.Join(rel, e.Name)
			switch {
			case t.keeps(sub, e.Name, below):
			case t.out.keepsBelow(below):
				t.prune(sub, e.Name, below)
			default:
				t.remove(sub, e.Name)
			}
		})
	})
}

// stay leaves a name for the next command. An empty directory is not a change.
func (t *tidy) stay(dir int, name, rel string) {
	if t.sift(dir, name, rel, maxOpenUp) && unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) != nil {
		t.stays = append(t.stays, rel)
	}
}

func (t *tidy) remove(dir int, name string) {
	if err := t.eraser.Remove(dir, name); err != nil && !errors.Is(err, unix.ENOENT) {
		t.err = errors.Join(t.err, err)
	}
}

func (t *tidy) in(dir int, name, rel string, do func(sub int)) {
	sub, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP { // it hides a directory of the host's
		t.bad = append(t.bad, rel)
		t.remove(dir, name)
	}
	if err != nil {
		return
	}
	defer unix.Close(sub)
	do(sub)
}

// each lists a directory before any of its entries is removed.
func (t *tidy) each(dir int, do func(e fsat.Entry, whiteout bool)) {
	var entries []fsat.Entry
	t.err = errors.Join(t.err, fsat.Each(dir, func(e fsat.Entry) error {
		entries = append(entries, e)
		return nil
	}))
	for _, e := range entries {
		st, err := fsat.Lstat(dir, e.Name)
		do(e, err == nil && overlay.IsWhiteout(st))
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
