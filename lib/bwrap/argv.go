package bwrap

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rendering turns a plan into options of bwrap. Content that pk makes up, and
// small files, travel on descriptors; the printed form cannot carry those, so
// it binds the files and leaves the made-up ones out.
type rendering struct {
	args    []string
	staging string                                             // where a stage shows what bwrap cannot mount; "": there is none
	staged  int                                                // what the stage has been given to do so far
	rootfs  []bool                                             // what the stage shows at /, as one
	shownAt func(Mount) string                                 // where a session shows an overlay, or ""
	job     []string                                           // of the stage
	file    func(name string, data []byte) (fd int, err error) // nil: printed
	held    func(m Mount) (fd int, err error)                  // nil: bwrap takes no descriptor to bind, or printed
	failure error
}

// Printable returns the whole command line of bwrap for argv. Run with an empty
// environment it shows the same files. What only descriptors and this process can
// carry is missing: the synthetic /etc/passwd and /etc/group, the system call
// filter, the Landlock scope, the keyring, limits.
func (p *Plan) Printable(bwrap Binary, argv []string) ([]string, error) {
	r := &rendering{staging: p.staging(bwrap)}
	r.add("--clearenv")
	r.env(p.Env)
	r.plan(p)
	line := append([]string{bwrap.Path}, r.args...)
	if len(argv) > 0 {
		line = append(append(line, "--"), argv...)
	}
	if r.staging != "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		line = stageLine(r.staging, self, nobody, r.job, line)
	}
	return p.asOwner(line)
}

// asOwner puts before a line what makes root the project's owner, where this
// process became that: the plan is the owner's, and not safe for root.
func (p *Plan) asOwner(line []string) ([]string, error) {
	if p.RunAs == 0 {
		return line, nil
	}
	setpriv := findTrusted("setpriv")
	if setpriv == "" {
		return nil, &Refusal{
			Reason: fmt.Sprintf("cannot print a line that becomes uid %d, to whom the project belongs: setpriv is missing", p.RunAs),
			Advice: "install util-linux, or run as that user",
		}
	}
	return append([]string{setpriv, fmt.Sprintf("--reuid=%d", p.RunAs), fmt.Sprintf("--regid=%d", os.Getegid()), "--clear-groups", "--"}, line...), nil
}

func (r *rendering) add(args ...string) { r.args = append(r.args, args...) }

func (r *rendering) env(list []string) {
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		r.add("--setenv", name, value)
	}
}

// plan renders everything but the environment.
//
// --unshare-user is said apart from --unshare-all, which only tries: as root on
// a machine without user namespaces it would run with every capability.
// --die-with-parent ends what a command left behind; --new-session keeps it
// from typing into the caller's terminal (TIOCSTI) and from signalling the
// caller's process group.
func (r *rendering) plan(p *Plan) {
	r.add("--unshare-user", "--unshare-all")
	if p.Net {
		r.add("--share-net")
	}
	if !p.AllowNested {
		r.add("--disable-userns")
	}
	r.add("--die-with-parent", "--new-session", "--cap-drop", "ALL")
	r.shownAt = p.shownAt
	if r.staging != "" || p.Joined != nil { // the stage is uid 0 of its namespace; map back
		r.add("--uid", strconv.Itoa(os.Geteuid()), "--gid", strconv.Itoa(os.Getegid()))
	}
	if r.staging != "" {
		// One mount: for each that it makes, bwrap reads its mount table again. All
		// but the devices in it has been mounted so that it shows none.
		r.rootfs = p.rootfs()
		if slices.Contains(r.rootfs, true) {
			r.job = p.rootfsJob(r.rootfs, r.staging)
			r.add("--dev-bind", stagedAt(r.staging, 0), "/")
			r.staged++
		}
	}
	for i, m := range p.Mounts {
		if r.staging == "" || !r.stage(p, i) {
			r.mount(m)
		}
	}
	r.add("--remount-ro", "/", "--chdir", p.Chdir)
}

// stage renders what the stage prepares for bwrap, and reports whether mount i
// is of that kind.
func (r *rendering) stage(p *Plan, i int) bool {
	m := p.Mounts[i]
	switch {
	case m.Held && p.tops[i] != i || r.rootfs[i]:
		return true // it is in the tree of another
	case m.Op == OpOverlay && p.shownAt(m) != "":
		return false
	case m.Held:
		r.job = append(r.job, p.job(i)...)
	case m.Op == OpOverlay:
		r.job = append(r.job, jobOverlay, m.Source)
	default:
		return false
	}
	// What is read-only the stage has made so: --ro-bind would take the writing
	// from what is held in the tree too.
	r.add("--bind", stagedAt(r.staging, r.staged), m.Dest)
	r.staged++
	return true
}

func (r *rendering) mount(m Mount) {
	switch m.Op {
	case OpReadOnly, OpProtect:
		r.bind("--ro-bind", m)
	case OpWritable, OpPin:
		r.bind("--bind", m)
	case OpOverlay:
		if at := r.shownAt(m); at != "" {
			r.add("--bind", at, m.Dest)
			return
		}
		r.add("--overlay-src", m.Source, "--tmp-overlay", m.Dest, "--chmod", m.Perms, m.Dest)
	case OpLink:
		r.add("--symlink", m.Source, m.Dest)
	case OpProc:
		r.add("--proc", m.Dest)
	case OpDev:
		r.dev(m)
	case OpEmpty:
		r.add("--perms", m.Perms, "--size", strconv.FormatInt(m.Size, 10), "--tmpfs", m.Dest)
	case OpMask:
		r.mask(m)
	case OpCopy, OpData:
		r.content(m)
	}
}

// bind names what is held by a descriptor, where bwrap takes one.
func (r *rendering) bind(option string, m Mount) {
	if !m.Held || r.held == nil {
		r.add(option, m.Source, m.Dest)
		return
	}
	fd, err := r.held(m)
	if err != nil && r.failure == nil {
		r.failure = &Refusal{Reason: fmt.Sprintf("cannot show %q (%s): %v", m.Dest, m.Rule, err), Advice: "try again"}
	}
	r.add(option+"-fd", strconv.Itoa(fd), m.Dest)
}

// mask hides a file behind /dev/null, which cannot be read here, as the mount
// allows no devices; and a directory behind an empty one. A blank one is an empty
// file that can be read, but not where the plan is printed: there is no
// descriptor then.
func (r *rendering) mask(m Mount) {
	if m.Dir {
		r.add("--perms", "0555", "--tmpfs", m.Dest, "--remount-ro", m.Dest)
		return
	}
	if m.Blank && r.file != nil {
		fd, err := r.file(m.Dest, nil)
		if err != nil && r.failure == nil {
			r.failure = err
		}
		r.add("--perms", "0444", "--ro-bind-data", strconv.Itoa(fd), m.Dest)
		return
	}
	r.add("--ro-bind", "/dev/null", m.Dest)
}

// dev keeps the directory of devices from being a place in memory without a
// bound: only shm can be written, up to its size.
func (r *rendering) dev(m Mount) {
	shm := m.Dest + "/shm"
	r.add("--dev", m.Dest, "--perms", "1777", "--size", strconv.FormatInt(m.Size, 10), "--tmpfs", shm, "--remount-ro", m.Dest)
}

func (r *rendering) content(m Mount) {
	if r.file == nil {
		if m.Op == OpCopy {
			r.add("--ro-bind", m.Source, m.Dest)
		}
		return
	}
	data, err := m.Data, error(nil)
	if m.Op == OpCopy {
		data, err = os.ReadFile(m.Source)
	}
	fd := -1
	if err == nil {
		fd, err = r.file(m.Dest, data)
	}
	if err != nil && r.failure == nil {
		r.failure = err
	}
	r.add("--perms", m.Perms, "--file", strconv.Itoa(fd), m.Dest)
}

// memFile returns a descriptor from which data can be read. It is closed when
// another program is started, unless it is handed on by name.
func memFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("pk"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
