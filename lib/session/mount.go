package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/mountinfo"
	"pikuri/lib/overlay"
)

// Names below the directory of a session's overlays. Each overlay has a
// directory with the last three and the one of overlay.NameUpper.
const (
	memory = "memory" // a tmpfs, if the disk cannot hold an upper layer
	work   = "work"
	merged = "merged"
	none   = "none" // the lower layer of a directory that does not exist
)

// dirName returns the name of an overlay's directory.
func dirName(lower string) string { return overlay.DirName(filepath.Base(lower), lower) }

// answer is the result for one overlay.
type answer struct {
	Memory  bool   `json:"memory,omitempty"`  // changes end with the keeper
	Refused string `json:"refused,omitempty"` // the reason why it cannot be mounted
}

// Descriptors of a process that mounts. 3 and 4 are the namespaces, and two more are
// locks, which it holds as long as it lives.
const mountSelfFD = 5

// Layered is an overlay with layers of its own, and its path in the keeper's namespace.
type Layered struct {
	Lower  string         `json:"lower"` // absolute, without links
	Point  string         `json:"point"`
	Layers overlay.Layers `json:"layers"`
}

func (l Layered) mount() error {
	return l.Layers.MountAt(l.Point, func() (int, error) {
		return fsat.Kernel().Open(unix.AT_FDCWD, l.Lower, unix.O_PATH|unix.O_DIRECTORY, 0, fsat.NoLinks)
	})
}

// mountAll mounts, in the namespaces of the keeper, the overlays that are not mounted
// there yet. args: the directory of the overlays, their marker, and the directories to
// overlay, or Layered as JSON. It answers for each, as an array of JSON.
func mountAll(args []string, out io.Writer) error {
	if len(args) < 3 || !mapped() {
		return hidden.ErrOwnUse
	}
	if err := AssumeGroup(); err != nil {
		return err
	}
	unix.Umask(0o077)
	m := &mounter{marker: args[1], mounted: map[string]bool{}}
	var err error
	if m.dir, err = unix.Open(args[0], pathOnly, 0); err != nil {
		return fmt.Errorf("cannot open %q: %w", args[0], err)
	}
	for _, at := range mountsOf("/proc/self/mountinfo", m.marker) {
		m.mounted[layer(at.Point)] = at.Type == "overlay" || at.Type == "tmpfs"
	}
	m.path = args[0]
	// Paths are as short as possible: they appear in the mount tables that every bwrap of the
	// session reads, again and again.
	if err := os.Chdir("/proc/self/fd"); err != nil {
		return err
	}
	answers := make([]answer, len(args)-2)
	for i, lower := range args[2:] {
		var l Layered
		if strings.HasPrefix(lower, "/") {
			answers[i] = m.overlay(lower)
		} else if err := bytejson.Unmarshal([]byte(lower), &l); err != nil {
			return hidden.ErrOwnUse
		} else if err := l.mount(); err != nil {
			answers[i].Refused = err.Error()
		}
	}
	return json.NewEncoder(out).Encode(answers)
}

const pathOnly = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

type mounter struct {
	path    string // of the directory of all overlays
	dir     int    // the same, open
	marker  string
	mounted map[string]bool
}

// overlay mounts one overlay, unless it is there. If the disk cannot hold its upper
// layer, memory may.
func (m *mounter) overlay(lower string) answer {
	for _, in := range []string{"", memory} {
		if m.mounted[filepath.Join(in, dirName(lower), merged)] {
			return answer{Memory: in == memory}
		}
	}
	onDisk := m.lay(m.dir, lower)
	if onDisk == nil {
		return answer{}
	}
	if dir, err := m.inMemory(); err == nil {
		defer unix.Close(dir)
		if m.lay(dir, lower) == nil {
			return answer{Memory: true}
		}
	}
	return answer{Refused: reason(lower, onDisk)}
}

// reason is more specific than the kernel's error, which is mostly EINVAL.
func reason(lower string, err error) string {
	var fs unix.Statfs_t
	switch {
	case !errors.Is(err, unix.EINVAL):
		return err.Error()
	case unix.Statfs(lower, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC:
		return "it lies on an overlay already, which cannot carry a further one"
	}
	return "the kernel mounts no overlay over it: something is mounted below it, its file system is not fit, or Linux is older than 5.11"
}

// inMemory opens the tmpfs for layers, and mounts a missing one. It ends with the keeper.
func (m *mounter) inMemory() (int, error) {
	at, err := openMade(m.dir, memory)
	if err != nil {
		return -1, err
	}
	if !m.mounted[memory] {
		err = unix.Mount(m.marker, fsat.Path(at), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700")
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		m.mounted[memory] = true
		at, err = unix.Openat(m.dir, memory, pathOnly, 0) // the mount, not the directory below it
	}
	return at, err
}

// lay mounts an overlay over lower with layers in the directory in. It names all by
// descriptors: a path in a mount option may contain escapes, and is limited to a page.
func (m *mounter) lay(in int, lower string) error {
	home, err := openMade(in, dirName(lower))
	if err != nil {
		return err
	}
	defer unix.Close(home)
	low, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		low, err = openMade(home, none)
	}
	if err != nil {
		return err
	}
	defer unix.Close(low)
	var st unix.Stat_t
	if err := unix.Fstat(low, &st); err != nil {
		return err
	}
	upper, err := overlay.NameUpper(fsat.Path(home))
	if err != nil {
		return err
	}
	fds := map[string]int{}
	for _, name := range []string{upper, work, merged} {
		made := unix.Mkdirat(home, name, 0o700) == nil
		if fds[name], err = unix.Openat(home, name, pathOnly, 0); err != nil {
			return err
		}
		defer unix.Close(fds[name])
		if made && name == upper { // the merged directory has the mode of the upper layer
			if err := unix.Chmod(fsat.Path(fds[name]), st.Mode&0o777); err != nil {
				return err
			}
		}
	}
	options := fmt.Sprintf("userxattr,lowerdir=%d,upperdir=%d,workdir=%d", low, fds[upper], fds[work])
	return unix.Mount(m.marker, fsat.Path(fds[merged]), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// openMade opens a directory of the user's own, and makes a missing one.
func openMade(in int, name string) (int, error) {
	if err := unix.Mkdirat(in, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return unix.Openat(in, name, pathOnly, 0)
}

// shown is the path of the keeper's overlay of lower, if it has one.
func shown(mounts []mountinfo.Mount, lower string) (path string, inMemory, ok bool) {
	for _, in := range []string{"", memory} {
		for _, m := range mounts {
			if layer(m.Point) == filepath.Join(in, dirName(lower), merged) && m.Type == "overlay" {
				return m.Point, in == memory, true
			}
		}
	}
	return "", false, false
}

// layer is a mount point relative to the directory of the overlays. The session directory
// itself can have several paths, by bind mounts, and the mounts of a session have the one
// by which they were made.
func layer(point string) string {
	_, below, _ := lastCut(point, "/"+OverlayDir+"/")
	return below
}

func lastCut(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
