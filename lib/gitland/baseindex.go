package gitland

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/internal/fsat"
)

// keepIndexes gives the host's indexes another name, under which they stay when the
// host's git replaces them: landing compares the command's index with that base. It keeps
// the name of an index that has one already: each new name changes the ctime of the
// index, and lists of repositories rely on that.
//
// An index in the upper layer keeps the base of the mount in which it was copied up. With
// a newer base, a later change staged by the host would look like one that the command
// had removed.
//
// An index that is not needed any more gets another name, until Started: its removal
// takes a millisecond.
//
// It also returns the branch of each HEAD with which the index in the upper layer began, or will
// begin. before are those of the last mount.
func (l *Layer) keepIndexes(before map[string]string) (heads map[string]string, err error) {
	gitDirs := l.gitDirs()
	kept := map[string]bool{}
	heads = map[string]string{}
	for _, git := range gitDirs {
		copied, err := l.hasIndex(git)
		if err != nil {
			return nil, err
		}
		kept[l.baseIndex(git)] = copied || sameFile(filepath.Join(git, indexFile), l.baseIndex(git))
		if branch, known := before[git]; copied && known {
			heads[git] = branch
		} else {
			heads[git] = branchOf(git)
		}
	}
	if old, err := os.ReadDir(l.Dir); err == nil {
		for _, e := range old {
			name := filepath.Join(l.Dir, e.Name())
			if !strings.HasPrefix(e.Name(), baseIndex) || kept[name] {
				continue
			}
			if err := os.Rename(name, filepath.Join(l.Dir, oldIndex+e.Name())); err != nil {
				return nil, err
			}
		}
	}
	for _, git := range gitDirs {
		if kept[l.baseIndex(git)] {
			continue
		}
		err := linkIndex(git, l.baseIndex(git))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return nil, err
		}
	}
	return heads, nil
}

// branchOf returns the branch to which the host's HEAD leads, or "".
func branchOf(git string) string {
	text, _ := os.ReadFile(filepath.Join(git, "HEAD"))
	if branch, symbolic := strings.CutPrefix(string(text), "ref:"); symbolic {
		return strings.TrimSpace(branch)
	}
	return ""
}

// linkIndex gives the host's index another name.
func linkIndex(git, name string) error {
	err := os.Link(filepath.Join(git, indexFile), name)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	data, err := os.ReadFile(filepath.Join(git, indexFile)) // another file system, or another owner
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	return err
}

// gitDirs lists the git directory and those of its linked worktrees and submodules.
func (l *Layer) gitDirs() []string {
	list := []string{l.GitDir}
	worktrees, _ := os.ReadDir(filepath.Join(l.GitDir, "worktrees"))
	for _, e := range worktrees {
		list = append(list, filepath.Join(l.GitDir, "worktrees", e.Name()))
	}
	return append(list, Submodules(l.GitDir)...)
}

// Started is called once the sandbox is made.
func (l *Layer) Started() {
	l.Layer.Started()
	go func() {
		entries, _ := os.ReadDir(l.Dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), oldIndex) {
				_ = os.Remove(filepath.Join(l.Dir, e.Name())) // or the next command does
			}
		}
	}()
}

// hasIndex reports whether the upper layer, which no command uses, has an index of a git
// directory, or a whiteout in its place. It removes an index in which no command has
// staged anything if the host's has changed since: the next command sees the host's.
func (l *Layer) hasIndex(git string) (bool, error) {
	rel, err := filepath.Rel(l.GitDir, git)
	if err != nil {
		return false, err
	}
	upper, err := l.openUpper()
	if err != nil {
		return false, err
	}
	defer unix.Close(upper)
	dir, err := fsat.Kernel().Open(upper, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err == nil {
		defer unix.Close(dir)
		_, err = fsat.Lstat(dir, indexFile)
	}
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return false, nil
	case errors.Is(err, unix.EACCES): // the command has closed the directory
		return true, nil
	case err != nil:
		return false, err
	}
	if sameFile(filepath.Join(git, indexFile), l.baseIndex(git)) || hasOperation(dir) || !l.refreshed(dir, git) {
		return true, nil
	}
	return false, unix.Unlinkat(dir, indexFile, 0)
}

// hasOperation reports whether a directory of the upper layer has a state that includes its
// index.
func hasOperation(dir int) bool {
	return slices.ContainsFunc(operations, func(name string) bool { _, err := fsat.Lstat(dir, name); return err == nil })
}

// refreshed reports whether the index in a directory of the upper layer differs from its
// base only in stat data, and the host's index has changed since.
func (l *Layer) refreshed(dir int, git string) bool {
	format, _, err := objects.FormatOf(l.GitDir)
	if err != nil {
		return false
	}
	text := l.readBase(git)
	base, err := index.ParseHost(text, 2*format.Size())
	if err != nil {
		return false
	}
	if host, err := os.ReadFile(filepath.Join(git, indexFile)); err == nil && bytes.Equal(text, host) || err != nil && !errors.Is(err, os.ErrNotExist) {
		return false
	}
	data, _, err := readIndexOfLayer(dir)
	if err != nil {
		return false
	}
	own, err := index.Parse(data, 2*format.Size(), nil)
	return err == nil && index.SameContent(base, own)
}

// readBase returns nil if there was no index.
func (l *Layer) readBase(git string) []byte {
	data, _ := os.ReadFile(l.baseIndex(git))
	return data
}

// setBase makes an index that has landed the base of what the command stages from then on: the
// host's, whose lock the caller has, or own if the host's has other changes too. Without a base
// pk takes all that the host has for its changes.
func (l *Layer) setBase(git string, own []byte) error {
	next := l.baseIndex(git) + ".new"
	err := os.Remove(next)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	switch {
	case err != nil:
	case own == nil:
		err = linkIndex(git, next)
	default:
		err = os.WriteFile(next, own, 0o600)
	}
	if err == nil {
		err = os.Rename(next, l.baseIndex(git))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(l.baseIndex(git)))
	}
	return err
}

// isBase reports whether the host's index is still its base. The new name of the base
// has changed its ctime.
func (l *Layer) isBase(git string, st *unix.Stat_t, since int64) bool {
	return st.Ctim.Nano() <= since || st.Mtim.Nano() <= since && sameFile(filepath.Join(git, indexFile), l.baseIndex(git))
}

// sameFile reports whether two names are of one inode.
func sameFile(a, b string) bool {
	var one, other unix.Stat_t
	return unix.Lstat(a, &one) == nil && unix.Lstat(b, &other) == nil && fsat.SameInode(&one, &other)
}

func (l *Layer) baseIndex(git string) string {
	return filepath.Join(l.Dir, baseIndex+digestOf([]byte(git))[:16])
}

// IndexLinks counts the links to indexes of the host's in the directories of layers, by device and inode.
func IndexLinks(layers []string) map[[2]uint64]uint64 {
	links := map[[2]uint64]uint64{}
	for ; len(layers) > 0; layers = layers[1:] {
		entries, _ := os.ReadDir(layers[0])
		for _, e := range entries {
			name := filepath.Join(layers[0], e.Name())
			switch {
			case strings.HasPrefix(e.Name(), onceDir):
				layers = append(layers, name)
			case strings.HasPrefix(e.Name(), baseIndex), strings.HasPrefix(e.Name(), oldIndex):
				var st unix.Stat_t
				if unix.Lstat(name, &st) == nil {
					links[[2]uint64{st.Dev, st.Ino}]++
				}
			}
		}
	}
	return links
}
