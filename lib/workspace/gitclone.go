package workspace

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// GitClone clones the repository at url into dest, which must be missing or an
// empty directory; missing directories on the way to it are made. Git works
// outside the workspace, and dest is there as a whole or not at all. No submodule
// is cloned, and no hook comes along.
func (w *LocalWorkspace) GitClone(ctx context.Context, url, dest string) error {
	return failed("clone into", dest, w.gitClone(ctx, url, dest))
}

func (w *LocalWorkspace) gitClone(ctx context.Context, url, dest string) error {
	s, err := w.gitScratch()
	if err != nil {
		return err
	}
	defer s.close()
	if err := checkURL(url, s.conf.Protocols); err != nil {
		return err
	}
	if err := w.vacant(ctx, dest); err != nil {
		return err
	}
	_, _, err = s.run(ctx, gitCall{args: []string{
		"clone", "--quiet", "--no-local", "--no-hardlinks", "--no-recurse-submodules", "--template=", "--", url, s.path("repo"),
	}})
	if err != nil {
		return err
	}
	return w.do(ctx, dest, func(rel string) error { return w.moveIn(ctx, s.path("repo"), rel) })
}

// vacant refuses a place that is taken, or may not be written, before anything
// is fetched.
func (w *LocalWorkspace) vacant(ctx context.Context, dest string) error {
	return w.do(ctx, dest, func(rel string) error {
		p, err := w.locate(rel, true, true)
		if err != nil {
			return err
		}
		defer p.close()
		if err := w.ask(Access{Path: p.path, Write: true}); err != nil {
			return err
		}
		return w.vacantPlace(p)
	})
}

func (w *LocalWorkspace) vacantPlace(p *place) error {
	if p.name == "." {
		return errRoot
	}
	fd, err := w.openPlace(p, unix.O_RDONLY|unix.O_DIRECTORY)
	switch err {
	case nil:
	case unix.ENOENT:
		return nil
	case unix.ENOTDIR:
		return ErrExist
	default:
		return err
	}
	defer unix.Close(fd)
	return eachEntry(fd, func(dirent) error { return ErrExist })
}

// moveIn moves a directory of the host, which nobody else can reach, into the
// workspace: in one step where it can, as a copy where it has to.
func (w *LocalWorkspace) moveIn(ctx context.Context, from, rel string) error {
	p, err := w.locate(rel, true, true)
	if err != nil {
		return err
	}
	defer func() { p.close() }()
	if err := w.askTree(from, p.path); err != nil {
		return err
	}
	if err := w.vacantPlace(p); err != nil {
		return err
	}
	if err := w.makeParents(p, w.conf.sync); err != nil {
		return err
	}
	// An empty directory is replaced, a full one is not.
	err = unix.Renameat(unix.AT_FDCWD, from, p.dir, p.name)
	if err == unix.EXDEV {
		err = w.copyIn(ctx, from, p)
	}
	if err == unix.ENOTEMPTY || err == unix.ENOTDIR {
		err = ErrExist
	}
	if err == nil && w.conf.sync {
		err = syncDir(p.dir)
	}
	return err
}

// askTree asks about everything that will be in a directory, but for what is
// git's own.
func (w *LocalWorkspace) askTree(from, to string) error {
	if len(w.guards) == 0 {
		return nil
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path == filepath.Join(from, ".git") {
			return fs.SkipDir
		}
		below := strings.TrimPrefix(strings.TrimPrefix(path, from), "/")
		if below == "" {
			below = "."
		}
		return w.ask(Access{Path: join(to, below), Write: true})
	})
}

// copyIn copies a directory of the host beside its place, and puts it there.
func (w *LocalWorkspace) copyIn(ctx context.Context, from string, p *place) (err error) {
	temp := newTemp()
	if err := unix.Mkdirat(p.dir, temp, uint32(w.conf.dirPerm)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.removeTemp(p, temp)
		}
	}()
	dir, err := w.openBelow(p.dir, temp, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	err = w.copyDir(ctx, from, dir)
	unix.Close(dir)
	if err != nil {
		return err
	}
	return unix.Renameat(p.dir, temp, p.dir, p.name)
}

// removeTemp removes a directory that was not finished. Whoever can write beside
// it can have put something else in its place, inside the workspace like it.
func (w *LocalWorkspace) removeTemp(p *place, temp string) {
	view := *w
	view.guards = nil
	e := eraser{w: &view, ctx: context.Background(), root: &place{dir: p.dir, name: temp, path: join(parent(p.path), temp)}}
	_ = e.removeAll()
}

// copyDir fills a directory that is open. Each name in it is made anew, in a
// directory that is held: nobody can lead it elsewhere.
func (w *LocalWorkspace) copyDir(ctx context.Context, from string, to int) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.copyEntry(ctx, filepath.Join(from, e.Name()), e, to); err != nil {
			return err
		}
	}
	return nil
}

func (w *LocalWorkspace) copyEntry(ctx context.Context, from string, e fs.DirEntry, to int) error {
	switch {
	case e.IsDir():
		if err := unix.Mkdirat(to, e.Name(), uint32(w.conf.dirPerm)); err != nil {
			return err
		}
		dir, err := w.openBelow(to, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return surveyError(err)
		}
		defer unix.Close(dir)
		return w.copyDir(ctx, from, dir)
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, to, e.Name())
	}
	return copyFile(from, to, e.Name())
}

// copyFile makes a file in a directory, with the content and the permissions of
// one of the host.
func copyFile(from string, dir int, name string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(info.Mode().Perm()))
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name)
	if _, err := out.ReadFrom(in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
