package bwrap

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// controlSockets of container engines and virtual machines. A process that can
// connect to one of them can start a container that shows the host's root. So a root
// that shows one is refused, whether or not the daemon runs.
var controlSockets = []string{
	"/run/docker.sock",
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/podman/podman.sock",
	"/run/buildkit/buildkitd.sock",
	"/run/libvirt/libvirt-sock",
	"/run/k3s/containerd/containerd.sock",
	"/var/lib/lxd/unix.socket",
	"/var/lib/incus/unix.socket",
	"/var/snap/lxd/common/lxd/unix.socket",
}

// userSockets are the same for engines that run without root, below the runtime
// directory.
var userSockets = []string{"docker.sock", "podman/podman.sock", "containerd/containerd.sock", "buildkit/buildkitd.sock"}

// homeSockets hold sockets below the home directory; they are refused if they exist, so
// that a home without them can be shown.
var homeSockets = []string{".docker/run", ".docker/desktop", ".colima", ".rd", ".lima"}

// guard lists the control sockets, under every name they have.
type guard struct {
	crowded []string             // directories that hold sockets by design
	sockets []string             // as listed, and with their links resolved
	inodes  map[[2]uint64]string // device and inode of those that exist
	links   resolver
}

func newGuard(home string, getenv func(string) string, links resolver) *guard {
	g := &guard{inodes: map[[2]uint64]string{}, links: links}
	runtime := []string{fmt.Sprintf("/run/user/%d", os.Getuid())}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		runtime = append(runtime, filepath.Clean(dir))
	}
	for _, dir := range append([]string{"/run", "/var/run", "/run/user"}, runtime...) {
		g.crowded = append(g.crowded, dir, g.links.canonical(dir))
	}
	listed := slices.Clone(controlSockets)
	if g.links.canonical("/var/run") == "/var/run" { // on most machines it is a link to /run
		for _, socket := range controlSockets {
			listed = append(listed, "/var"+socket)
		}
	}
	for _, dir := range runtime {
		for _, name := range userSockets {
			listed = append(listed, filepath.Join(dir, name))
		}
	}
	for _, name := range homeSockets {
		if path := filepath.Join(home, name); exists(path) {
			listed = append(listed, path)
		}
	}
	for _, socket := range listed {
		g.know(socket)
	}
	return g
}

func (g *guard) know(socket string) {
	g.sockets = append(g.sockets, socket)
	// A missing socket may appear later; the link above it exists now.
	g.sockets = append(g.sockets, g.links.canonical(socket))
	real, err := g.links.real(socket)
	var st unix.Stat_t
	if err != nil || unix.Stat(real, &st) != nil {
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		g.inodes[[2]uint64{st.Dev, st.Ino}] = socket
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// CheckRoot refuses a root that would show a control socket.
func CheckRoot(root, home string, getenv func(string) string) error {
	return newGuard(home, getenv, resolver{}).refuse(root)
}

// refuse refuses a root that would show a control socket: because it is one,
// lies above one, or holds a hard link to one.
func (g *guard) refuse(root string) error {
	if slices.Contains(g.crowded, root) {
		return socketRefusal(root, "it holds the sockets of running services")
	}
	for _, socket := range g.sockets {
		if fsat.Within(socket, root) {
			return socketRefusal(root, fmt.Sprintf("it would show the control socket %q", socket))
		}
	}
	if len(g.inodes) == 0 {
		return nil
	}
	return g.refuseLinked(root)
}

func socketRefusal(root, why string) error {
	return &Refusal{
		Reason: fmt.Sprintf("cannot show %q: %s", root, why),
		Advice: "name a narrower directory",
	}
}

// refuseLinked finds another name of a control socket: the root itself, or an entry
// directly in it. It does not search for hard links deeper down.
func (g *guard) refuseLinked(root string) error {
	names := []string{root}
	entries, _ := os.ReadDir(root) // a file has no entries
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 {
			names = append(names, filepath.Join(root, e.Name()))
		}
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil {
			continue
		}
		if socket, ok := g.inodes[[2]uint64{st.Dev, st.Ino}]; ok {
			return socketRefusal(root, fmt.Sprintf("%q is the control socket %q", name, socket))
		}
	}
	return nil
}

// maxListed bounds the search for sockets: --explain must not walk through a whole disk.
const maxListed = 100_000

// Sockets lists the sockets that lie in the roots and overlays. The command can connect
// to them even if it may not write there: the listener is outside. --explain lists them;
// a start does not search. complete is false if there were too many names.
func (p *Plan) Sockets() (found []string, complete bool) {
	left := maxListed
	for _, m := range p.Mounts {
		if m.Op != OpWritable && m.Op != OpOverlay && m.Op != OpReadOnly || fsat.Within(m.Source, "/usr") || fsat.Within(m.Source, "/etc") || fsat.Within(m.Source, "/proc") {
			continue
		}
		_ = filepath.WalkDir(m.Source, func(path string, d fs.DirEntry, err error) error {
			if left--; left < 0 {
				return fs.SkipAll
			}
			if err != nil {
				return fs.SkipDir
			}
			if dest := m.Dest + path[len(m.Source):]; d.Type()&fs.ModeSocket != 0 && p.seen(path, dest) {
				found = append(found, dest)
			}
			return nil
		})
	}
	slices.Sort(found)
	return slices.Compact(found), left >= 0
}
