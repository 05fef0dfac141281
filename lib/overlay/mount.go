package overlay

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Layers are the layers of an overlay on disk.
type Layers struct {
	Upper  string `json:"upper"`
	Base   string `json:"base,omitempty"` // between the upper and the lower one, or ""
	Work   string `json:"work"`
	Source string `json:"source,omitempty"` // of the mount: the session's keeper recognizes it by that
	Fresh  bool   `json:"fresh,omitempty"`  // no command uses the overlay: one that is mounted is stale

	// Volatile says that a loss of power may take the last seconds of the upper layer. Without
	// it, the kernel syncs the layer's whole file system when the overlay is unmounted, and a
	// command waits for the writes of all other programs.
	Volatile bool `json:"volatile,omitempty"`
}

// Mount is Mount with these layers. They are named by descriptors, since a path may
// contain escapes.
func (l *Layers) Mount(lower int) (int, error) {
	upper, err := fsat.Kernel().Open(unix.AT_FDCWD, l.Upper, unix.O_PATH, 0, fsat.NoLinks)
	if err != nil {
		return -1, err
	}
	defer unix.Close(upper)
	work, err := fsat.Kernel().Open(unix.AT_FDCWD, l.Work, unix.O_PATH, 0, fsat.NoLinks)
	if err != nil {
		return -1, err
	}
	defer unix.Close(work)
	if err := unmark(work); err != nil { // a set-up program was killed before Unmark
		return -1, err
	}
	lowers := fsat.Path(lower)
	if l.Base != "" {
		base, err := fsat.Kernel().Open(unix.AT_FDCWD, l.Base, unix.O_PATH, 0, fsat.NoLinks)
		if err != nil {
			return -1, err
		}
		defer unix.Close(base)
		lowers = fsat.Path(base) + ":" + lowers
	}
	return Mount(lowers, fsat.Path(upper), fsat.Path(work), l.Source, l.Volatile)
}

// Mount makes an overlay over directories, as a detached mount. The paths of its layers
// hold no character that the options know an escape for.
func Mount(lowers, upper, work, source string, volatile bool) (int, error) {
	options := [][2]string{
		{"source", cmp.Or(source, "pk")}, {"userxattr"}, {"lowerdir", lowers}, {"upperdir", upper}, {"workdir", work},
	}
	if volatile {
		options = append(options, [2]string{"volatile"})
	}
	return fsat.NewMount("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options)
}

// Unmark removes the mark that the kernel makes in the work directory of a volatile
// overlay that it mounts. With the mark, it would refuse the next one. The mark is in
// directories without permissions, which rm(1) cannot remove.
func (l *Layers) Unmark() {
	if work, err := fsat.Kernel().Open(unix.AT_FDCWD, l.Work, unix.O_PATH, 0, fsat.NoLinks); err == nil {
		_ = unmark(work) // Mount tries again
		unix.Close(work)
	}
}

func unmark(work int) error {
	const mark = "work/incompat/volatile"
	err := unix.Unlinkat(work, mark+"/dirty", 0)
	for _, dir := range []string{mark, filepath.Dir(mark)} {
		if err == nil || err == unix.ENOENT {
			err = unix.Unlinkat(work, dir, unix.AT_REMOVEDIR)
		}
	}
	if err == unix.ENOENT {
		return nil
	}
	return os.NewSyscallError("unlinkat", err)
}

// ErrElsewhere says that an overlay is in use, and not mounted where it should be: a
// keeper that was killed had it mounted. A second mount would corrupt it.
var ErrElsewhere = errors.New("its overlay is in use outside of the session's mounts")

// MountAt mounts the overlay at a directory, unless it is mounted there. An overlay that
// stays mounted does not show the host's later changes of the lower layer, so a stale
// one is mounted anew. lower opens the lower directory.
func (l *Layers) MountAt(point string, lower func() (int, error)) error {
	mounted, err := isMount(point)
	if err == nil && mounted && l.Fresh {
		mounted, err = false, os.NewSyscallError("umount", unix.Unmount(point, unix.UMOUNT_NOFOLLOW))
	}
	if err != nil || mounted {
		return err
	}
	if !l.Fresh {
		return ErrElsewhere
	}
	low, err := lower()
	if err != nil {
		return err
	}
	defer unix.Close(low)
	mount, err := l.Mount(low)
	if err != nil {
		return err
	}
	return fsat.Attach(mount, point)
}

// isMount reports whether something is mounted on a directory.
func isMount(path string) (bool, error) {
	var own, above unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &own)
	if err == nil {
		err = unix.Statx(unix.AT_FDCWD, filepath.Dir(path), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &above)
	}
	return own.Mnt_id != above.Mnt_id, os.NewSyscallError("statx", err)
}
