package gitsync

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/workspace"
)

func (c *Client) clone(ctx context.Context, ws *workspace.LocalWorkspace, url, dest string) error {
	s, err := newScratch(c.conf, ws.Root())
	if err != nil {
		return err
	}
	defer s.close()
	if err := checkURL(url, s.conf.Protocols); err != nil {
		return err
	}
	// A refusal comes before the network is used.
	d, err := openDestination(ctx, ws, dest)
	if err != nil {
		return err
	}
	d.close()
	_, err = s.run(ctx, call{args: []string{
		"clone", "--quiet", "--no-local", "--no-hardlinks", "--no-recurse-submodules", "--template=", "--", url, s.path("repo"),
	}})
	if err != nil {
		return err
	}
	d, err = openDestination(ctx, ws, dest)
	if err != nil {
		return err
	}
	defer d.close()
	return d.moveIn(ctx, s.path("repo"))
}

// destination is the place of a new directory: a path below the last directory on
// the way that exists.
type destination struct {
	*tree
	path string
}

// openDestination refuses a place that is taken, or that may not be written.
func openDestination(ctx context.Context, ws *workspace.LocalWorkspace, dest string) (*destination, error) {
	rel, err := workspace.Clean(dest)
	if err == nil && rel == "." {
		err = &workspace.Error{Err: workspace.ErrAccessDenied, Detail: "it is the root of the workspace"}
	}
	if err != nil {
		return nil, err
	}
	dir, below := path.Dir(rel), path.Base(rel)
	t, err := openTree(ctx, ws, dir)
	for errors.Is(err, workspace.ErrNotFound) && dir != "." {
		dir, below = path.Dir(dir), path.Join(path.Base(dir), below)
		t, err = openTree(ctx, ws, dir)
	}
	if err != nil {
		return nil, err
	}
	d := &destination{t, below}
	err = d.ask(workspace.Access{Path: d.path, Write: true})
	if err == nil {
		err = d.vacant()
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// vacant wants the place to be missing or an empty directory.
func (d *destination) vacant() error {
	err := d.at(d.path, func(dir int, name string) error {
		st, err := fsat.Lstat(dir, name)
		switch {
		case err != nil:
			return err
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			return &workspace.Error{Err: workspace.ErrPathTraversal, Detail: "a symbolic link"}
		case !isDir(st):
			return workspace.ErrExist
		}
		fd, err := fsat.Kernel().Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return fsat.Each(fd, func(fsat.Entry) error { return workspace.ErrExist })
	})
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// moveIn moves a directory of the host, which no other user can reach, to the
// place: in one step on the same file system, else as a copy.
func (d *destination) moveIn(ctx context.Context, from string) error {
	if err := d.askAll(from); err != nil {
		return err
	}
	if err := d.files.Mkdir(ctx, path.Dir(d.path)); err != nil {
		return err
	}
	return d.at(d.path, func(dir int, name string) error {
		// An empty directory is replaced, a full one is not.
		err := unix.Renameat(unix.AT_FDCWD, from, dir, name)
		if err == unix.EXDEV {
			err = d.copyIn(ctx, from, dir, name)
		}
		if err == unix.ENOTEMPTY || err == unix.ENOTDIR {
			err = workspace.ErrExist
		}
		if err == nil && d.files.Capabilities().DurableOnWrite {
			err = syncAll(dir)
		}
		return err
	})
}

// syncAll puts the file system of a directory on stable storage.
func syncAll(dir int) error {
	fd, err := fsat.Reopen(dir, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// askAll asks the policy about everything that will be in the directory, except for
// .git.
func (d *destination) askAll(from string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name == filepath.Join(from, ".git") {
			return fs.SkipDir
		}
		return d.ask(workspace.Access{Path: path.Join(d.path, strings.TrimPrefix(name, from)), Write: true})
	})
}

// copyIn copies a directory of the host beside its place, and puts it there.
func (d *destination) copyIn(ctx context.Context, from string, dir int, name string) (err error) {
	temp := ".pk-clone-" + rand.Text()
	beside := path.Join(path.Dir(d.path), temp)
	defer func() {
		if err != nil {
			_ = d.files.RemoveAll(context.WithoutCancel(ctx), beside)
		}
	}()
	err = filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return d.add(ctx, name, path.Join(beside, strings.TrimPrefix(name, from)), entry.Type())
	})
	if err != nil {
		return err
	}
	return unix.Renameat(dir, temp, dir, name)
}
