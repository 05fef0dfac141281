package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/mountinfo"
)

// host has the facts about the machine that decide whether a cgroup can be made.
// Tests make one up.
type host struct {
	proc      string                     // "/proc"
	systemd   bool                       // systemd manages the machine, and so the cgroups
	delegated func(dir string) bool      // systemd has delegated the unit
	writable  func(path string) error    // this user may write to it
	scope     func(like scopeLike) error // moves this process into a scope of its own
	swap      bool                       // there is swap to escape into
}

func thisHost() host {
	_, err := os.Stat("/run/systemd/system") // sd_booted(3) looks at the same directory
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // it cannot fail
	return host{
		proc:      "/proc",
		systemd:   err == nil,
		delegated: func(dir string) bool { return dir == granted || delegated(dir) },
		writable:  func(path string) error { return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) },
		scope:     newScope,
		swap:      info.Totalswap > 0,
	}
}

// delegated reads the mark that systemd leaves on units with Delegate=yes. A
// user's own systemd leaves none before 254; a scope, which is as good, is then
// requested.
func delegated(dir string) bool {
	var value [8]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// place is the position of this process in the tree of cgroups.
type place struct {
	mount string // where cgroup2 is mounted
	path  string // own cgroup below it: "/" or "/a/b"
}

func (p place) dir() string { return filepath.Join(p.mount, p.path) }

// where finds the cgroup of this process.
func (h host) where() (place, error) {
	own, err := h.ownPath()
	if err != nil {
		return place{}, err
	}
	mounts, err := mountinfo.Read(filepath.Join(h.proc, "self/mountinfo"))
	if err != nil {
		return place{}, fmt.Errorf("cannot read the mount table: %w", err)
	}
	found := place{}
	for _, m := range mounts {
		if m.Type != "cgroup2" {
			continue
		}
		// A mount shows the tree from its own root on.
		if rel, err := filepath.Rel(m.Root, own); err == nil && filepath.IsLocal(rel) {
			found = place{m.Point, filepath.Join("/", rel)} // the last one covers the others
		}
	}
	if found.mount == "" {
		return place{}, &Refusal{
			Reason: "cgroup v2 is not mounted here, or without the cgroup of this process",
			Advice: "in a container, give it a cgroup namespace (docker run --cgroupns=private); elsewhere: mount -t cgroup2 none /sys/fs/cgroup",
		}
	}
	return found, nil
}

// ownPath is the cgroup of this process in the version 2 hierarchy.
func (h host) ownPath() (string, error) {
	list, err := os.ReadFile(filepath.Join(h.proc, "self/cgroup"))
	if err != nil {
		return "", fmt.Errorf("cannot read the own cgroup: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, nil
		}
	}
	return "", &Refusal{Reason: "this kernel has no cgroup v2", Advice: unified}
}

// unified is the advice for a machine where controllers belong to version 1.
const unified = "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line, or without systemd with cgroup_no_v1=memory,pids"

// missing explains why the mounted tree does not have a controller.
func (h host) missing(controller string) error {
	list, _ := os.ReadFile(filepath.Join(h.proc, "self/cgroup")) // reach has just read it
	for line := range strings.Lines(string(list)) {
		if fields := strings.SplitN(line, ":", 3); len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), controller) {
			return &Refusal{Reason: fmt.Sprintf("the %s controller belongs to cgroup v1 here", controller), Advice: unified}
		}
	}
	kernel, _ := os.ReadFile(filepath.Join(h.proc, "cgroups")) // absent if the kernel is built without version 1
	for line := range strings.Lines(string(kernel)) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == controller && fields[3] == "0" {
			return &Refusal{
				Reason: fmt.Sprintf("the kernel has the %s controller switched off", controller),
				Advice: "boot with cgroup_enable=" + controller + " on the kernel's command line",
			}
		}
	}
	return &Refusal{
		Reason: fmt.Sprintf("the %s controller is not available to this part of the cgroup tree", controller),
		Advice: "enable it for this container or unit from outside, or in the kernel's configuration",
	}
}

// room is a cgroup below which cgroups with limits can be made.
type room struct {
	dir    string
	enable bool // it does not pass the controllers on yet
	leave  bool // this process is in it, alone, and has to leave before it can
}

// reach returns this process's cgroup, if the tree has the controllers.
func (h host) reach(controllers []string) (place, error) {
	here, err := h.where()
	if err != nil {
		return place{}, err
	}
	for _, c := range controllers {
		if !slices.Contains(words(here.mount, "cgroup.controllers"), c) {
			return place{}, h.missing(c)
		}
	}
	return here, nil
}

// find returns a room, or a refusal about the nearest cgroup. It changes
// nothing. It prefers a cgroup that already passes the controllers on.
func (h host) find(here place, controllers []string) (room, error) {
	candidates, err := h.candidates(here)
	if err != nil {
		return room{}, err
	}
	var second *room
	var first error
	for _, dir := range candidates {
		r, err := h.usable(dir, here.dir(), controllers)
		switch {
		case err == nil && !r.enable:
			return r, nil
		case err == nil && second == nil:
			second = &r
		case err != nil && first == nil:
			first = err
		}
	}
	if second != nil {
		return *second, nil
	}
	return room{}, first
}

// room finds a room or has systemd make one.
func (h host) room(controllers []string) (room, error) {
	here, err := h.reach(controllers)
	if err != nil {
		return room{}, err
	}
	r, no := h.find(here, controllers)
	if no == nil {
		return r, nil
	}
	like, err := h.scopeLike(here)
	if err != nil {
		return room{}, err
	}
	if err := h.scope(like); err != nil {
		return room{}, besides(no, err)
	}
	moved, err := h.where()
	if err != nil {
		return room{}, err
	}
	if moved == here || filepath.Ext(moved.path) != ".scope" {
		return room{}, fmt.Errorf("systemd has made a scope, and this process is in %q", moved.path)
	}
	return h.usable(moved.dir(), moved.dir(), controllers)
}

// besides adds to a refusal that systemd made no scope either.
func besides(no, err error) error {
	refusal, ok := errors.AsType[*Refusal](no)
	if !ok {
		return no
	}
	return &Refusal{Reason: refusal.Reason + "; " + err.Error(), Advice: refusal.Advice}
}

// candidates lists the cgroup of this process and those above it, up to the
// first that is systemd's: only systemd makes cgroups where it has not
// delegated. Without systemd the file's modes decide.
func (h host) candidates(here place) ([]string, error) {
	var dirs []string
	for path := here.path; ; path = filepath.Dir(path) {
		dir := filepath.Join(here.mount, path)
		dirs = append(dirs, dir)
		switch {
		case isUnit(path) && h.delegated(dir):
			return dirs, nil
		case isUnit(path) && h.systemd || h.systemd && path == "/":
			return nil, &Refusal{
				Reason: fmt.Sprintf("systemd has not delegated the cgroup of this process, %q", here.path),
				Advice: "log in so that systemd has a user manager for you (loginctl enable-linger), or start this with systemd-run --user --scope -p Delegate=yes",
			}
		case path == "/":
			return dirs, nil
		}
	}
}

// isUnit tells the cgroup of a unit from one made below it.
func isUnit(path string) bool {
	switch filepath.Ext(path) {
	case ".scope", ".service", ".slice":
		return true
	}
	return false
}

// usable reports how dir can be a room for a process in own, dir itself or
// below it.
func (h host) usable(dir, own string, controllers []string) (room, error) {
	for _, path := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
		if err := h.writable(path); err != nil {
			return room{}, notWritable(dir, err)
		}
	}
	if kind := words(dir, "cgroup.type"); len(kind) > 0 && (len(kind) > 1 || kind[0] != "domain") {
		return room{}, &Refusal{Reason: fmt.Sprintf("the cgroup %q is threaded, which excludes limits of memory", dir), Advice: "start this from another cgroup"}
	}
	if err := lost(limitsBetween(own, dir), "a cgroup of its own"); err != nil {
		return room{}, err
	}
	if !slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(words(dir, "cgroup.subtree_control"), c) }) {
		return room{dir: dir}, nil
	}
	for _, c := range controllers {
		if !slices.Contains(words(dir, "cgroup.controllers"), c) {
			return room{}, &Refusal{
				Reason: fmt.Sprintf("the cgroup %q was not given the %s controller", dir, c),
				Advice: fmt.Sprintf("as root: echo +%s > %s", c, filepath.Join(filepath.Dir(dir), "cgroup.subtree_control")),
			}
		}
	}
	return h.enableable(dir, own, controllers)
}

// enableable decides on a cgroup that has the controllers and does not pass
// them on. The kernel refuses to pass them on (EBUSY) while there are processes
// in it, except in the machine's root, which pk does not change.
func (h host) enableable(dir, own string, controllers []string) (room, error) {
	control := filepath.Join(dir, "cgroup.subtree_control")
	line := fmt.Sprintf("echo %s > %s", plus(controllers), control)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return room{}, &Refusal{Reason: "the root cgroup does not pass the controllers on: " + strings.Join(controllers, ", "), Advice: "as root: " + line}
	}
	if err := h.writable(control); err != nil {
		return room{}, notWritable(dir, err)
	}
	procs := words(dir, "cgroup.procs")
	switch {
	case len(procs) == 0:
		return room{dir: dir, enable: true}, nil
	case dir == own && len(procs) == 1 && procs[0] == strconv.Itoa(os.Getpid()):
		return room{dir: dir, enable: true, leave: true}, nil
	}
	leaf := filepath.Join(dir, "main")
	return room{}, &Refusal{
		Reason: fmt.Sprintf("the cgroup %q has processes in it, and so cannot pass the controllers on", dir),
		Advice: fmt.Sprintf("move them down first: mkdir -p %s && for p in $(cat %s/cgroup.procs); do echo $p > %s/cgroup.procs; done; %s", leaf, dir, leaf, line),
	}
}

func notWritable(dir string, err error) error {
	no := &Refusal{
		Reason: fmt.Sprintf("the cgroup %q is not this user's: %v", dir, err),
		Advice: "as root: systemd-run with -p Delegate=yes and -p User=, or chown the cgroup, its cgroup.procs and its cgroup.subtree_control",
	}
	if errors.Is(err, unix.EROFS) {
		no.Reason = fmt.Sprintf("the cgroup %q is mounted read-only", dir)
		no.Advice = "start the container with a writable cgroup file system: podman run --cgroups=split, or docker run --privileged --cgroupns=private"
	}
	return no
}

// bounds are the files of a cgroup that limit it, with their content when there
// is no limit.
var bounds = map[string]string{
	"memory.max": "max", "memory.high": "max", "memory.swap.max": "max", "cpu.max": "max", "cpuset.cpus": "", pidsMax: "max",
}

const pidsMax = "pids.max"

// limitsBetween finds the limits of own and of the cgroups above it, below dir:
// a process that moved to a child of dir would escape them. The lowest level
// counts.
func limitsBetween(own, dir string) map[string]limitAt {
	found := map[string]limitAt{}
	for ; own != dir && own != "/"; own = filepath.Dir(own) {
		for name, none := range bounds {
			value := words(own, name)
			if _, ok := found[name]; !ok && len(value) > 0 && value[0] != none {
				found[name] = limitAt{own, value[0]}
			}
		}
	}
	return found
}

// limitAt is the value of a limit, and the cgroup that has it.
type limitAt struct{ dir, value string }

// lost names one of the limits.
func lost(limits map[string]limitAt, who string) error {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		return &Refusal{
			Reason: fmt.Sprintf("this process has limits that %s would leave: %s of %q", who, name, limits[name].dir),
			Advice: "put those limits on a cgroup above (in systemd, a slice), or start this where it may divide its cgroup: systemd-run --user --scope -p Delegate=yes",
		}
	}
	return nil
}

// scopeLike has the properties that a new scope takes from the cgroup that this
// process leaves.
type scopeLike struct {
	slice string // "": systemd chooses
	tasks uint64 // TasksMax; 0: systemd chooses
}

// scopeLike finds the slice, if it is one of the user manager's, since slices
// have limits that must stay in force. Limits below the slice would be lost, so
// scopeLike refuses them. The exception is the number of tasks, which systemd
// usually limits in each scope: the new scope gets the same.
func (h host) scopeLike(here place) (scopeLike, error) {
	var like scopeLike
	at := here.path
	for at != "/" && filepath.Ext(at) != ".slice" {
		at = filepath.Dir(at)
	}
	limits := limitsBetween(here.dir(), filepath.Join(here.mount, at))
	if n, err := strconv.ParseUint(limits[pidsMax].value, 10, 64); err == nil {
		like.tasks = n
		delete(limits, pidsMax)
	}
	if err := lost(limits, "a scope of its own"); err != nil {
		return scopeLike{}, err
	}
	if at != "/" && (os.Geteuid() == 0 || strings.Contains(at, fmt.Sprintf("/user@%d.service/", os.Geteuid()))) {
		like.slice = filepath.Base(at)
	}
	return like, nil
}

// words reads a file of a cgroup; a file that cannot be read has no words.
func words(dir, name string) []string {
	text, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.Fields(string(text))
}

// plus formats the line that enables controllers.
func plus(controllers []string) string { return "+" + strings.Join(controllers, " +") }
