package gitsync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/workspace"
)

// tree is a directory of the workspace, held open. Nothing here follows a link in
// it, and nothing asks the policy by itself.
type tree struct {
	files *workspace.LocalWorkspace
	dir   *os.File        // the same
	ask   workspace.Guard // the policy
}

func openTree(ctx context.Context, ws *workspace.LocalWorkspace, dir string) (*tree, error) {
	files, ask, err := ws.Unguarded(ctx, dir, workspace.WithoutSymlinks())
	if err != nil {
		return nil, err
	}
	root, err := files.OpenRoot()
	if err != nil {
		files.Close()
		return nil, err
	}
	return &tree{files, root, ask}, nil
}

func (t *tree) close() {
	t.files.Close()
	t.dir.Close()
}

// at calls do with the directory that name is in, and its last name.
func (t *tree) at(name string, do func(dir int, name string) error) error {
	dir, err := fsat.Kernel().Open(int(t.dir.Fd()), path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return do(dir, path.Base(name))
}

func (t *tree) lstat(name string) (st *unix.Stat_t, err error) {
	err = t.at(name, func(dir int, name string) error {
		st, err = fsat.Lstat(dir, name)
		return err
	})
	return st, err
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// add copies a file or a link of the host to a name that is missing, with its
// permissions. For a directory it makes one.
func (t *tree) add(ctx context.Context, from, to string, kind fs.FileMode) error {
	switch {
	case kind.IsDir():
		return t.files.Mkdir(ctx, to)
	case kind&fs.ModeSymlink != 0:
		return t.link(ctx, from, to)
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	return t.write(ctx, from, to, workspace.WriteOptions{Exclusive: true, Perm: info.Mode().Perm()})
}

// write copies a file of the host.
func (t *tree) write(ctx context.Context, from, to string, opts workspace.WriteOptions) error {
	out, err := t.files.Create(ctx, to, opts)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := copyFrom(from, out); err != nil {
		return err
	}
	return out.Close()
}

func copyFrom(host string, out io.Writer) error {
	in, err := os.Open(host)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	return err
}

// link copies a link of the host. The same link may be there already.
func (t *tree) link(ctx context.Context, from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := t.files.Mkdir(ctx, path.Dir(to)); err != nil {
		return err
	}
	return t.at(to, func(dir int, name string) error {
		err := unix.Symlinkat(target, dir, name)
		if err == unix.EEXIST {
			if there, _ := fsat.ReadLink(dir, name); there == target {
				return nil
			}
		}
		return err
	})
}

// same reports whether a file of the tree and one of the host are the same: both
// missing, equal links, or regular files of equal content.
func (t *tree) same(ctx context.Context, name, host string) (bool, error) {
	want, err := os.Lstat(host)
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
	if err != nil && !missing {
		return false, err
	}
	same := false
	err = t.at(name, func(dir int, base string) error {
		st, err := fsat.Lstat(dir, base)
		if err != nil || missing {
			return err
		}
		switch kind := st.Mode & unix.S_IFMT; {
		case kind == unix.S_IFLNK && want.Mode()&fs.ModeSymlink != 0:
			same, err = sameLink(dir, base, host)
		case kind == unix.S_IFREG && want.Mode().IsRegular() && st.Size == want.Size():
			same, err = t.sameContent(ctx, name, host)
		}
		return err
	})
	if err == unix.ENOENT {
		return missing, nil
	}
	return same, err
}

func sameLink(dir int, name, host string) (bool, error) {
	there, err := fsat.ReadLink(dir, name)
	if err != nil {
		return false, err
	}
	want, err := os.Readlink(host)
	return there == want, err
}

func (t *tree) sameContent(ctx context.Context, name, host string) (bool, error) {
	there, err := workspace.Hash(ctx, t.files, name)
	if err != nil {
		return false, err
	}
	want, err := hashOf(host)
	return there == want, err
}

// hashOf is workspace.Hash for a file of the host.
func hashOf(host string) (string, error) {
	sum := sha256.New()
	err := copyFrom(host, sum)
	return hex.EncodeToString(sum.Sum(nil)), err
}
