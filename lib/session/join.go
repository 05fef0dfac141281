package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/mountinfo"
)

// Joined is a keeper that has been found, with what it shows.
type Joined struct {
	Pid    int
	User   *os.File          // its user namespace
	Mount  *os.File          // its mount namespace
	Lock   *os.File          // by which it is told that it still is the keeper
	Shown  map[string]string // an overlaid directory -> where it is in the mount namespace
	Memory []string          // those of them that do not outlast the keeper

	// Refused says why something asked for could not be overlaid.
	Refused map[string]string

	around []mountinfo.Mount // what else is mounted in its mount namespace
}

// Root leads from this process's view of the files to the keeper's.
func (s *Joined) Root() string { return fmt.Sprintf("/proc/%d/root", s.Pid) }

// Close gives the namespaces back.
func (s *Joined) Close() error {
	err := errors.Join(s.User.Close(), s.Mount.Close())
	if s.Lock != nil {
		err = errors.Join(err, s.Lock.Close())
	}
	return err
}

// JoinOptions is how to join.
type JoinOptions struct {
	Nsenter string        // nsenter(1) of util-linux
	Idle    time.Duration // of a named session; 0 stands for Idle
}

// Line is what enters a session's namespaces, given as descriptors, and becomes
// another program there. It has to be nsenter: no program with several threads,
// as those in Go are, may change its user namespace.
func Line(nsenter string, user, mnt int) []string {
	return []string{nsenter, "--preserve-credentials", "--user=" + fdPath(user), "--mount=" + fdPath(mnt), "--"}
}

// Join finds the keeper of the session directory, or starts it, and has it show an
// overlay of each of the directories. The caller holds the session directory; the keeper
// stays as long as somebody does.
//
// What is asked for must be a directory of the host's own view: it is laid over
// what the keeper sees there, and Same says whether that is the same.
func Join(u *Dir, lowers []string, o JoinOptions) (*Joined, error) {
	if o.Idle == 0 {
		o.Idle = Idle
	}
	if !u.Named() {
		o.Idle = 0
	}
	dir, err := u.Overlays()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	path, err := filepath.EvalSymlinks(dir.Name())
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	j := &join{JoinOptions: o, u: u, dir: path, lowers: lowers}
	s, err := j.find()
	if err == nil && s != nil && j.complete(s) {
		return s, u.Touch()
	}
	if s != nil {
		s.Close()
	}
	if err != nil {
		return nil, err
	}
	return j.prepare()
}

type join struct {
	JoinOptions
	u      *Dir
	dir    string // of the overlays, without links
	lowers []string
}

// find returns the running keeper, or nil.
func (j *join) find() (*Joined, error) {
	pid, err := j.u.Keeper()
	if err != nil || pid == 0 {
		return nil, err
	}
	s, err := open(pid)
	if err != nil {
		return nil, nil // it has just ended
	}
	s.Shown, s.Refused = map[string]string{}, map[string]string{}
	mounts, around := split(fmt.Sprintf("/proc/%d/mountinfo", pid), j.u.Marker())
	s.around = around
	// The lock is the keeper's still, so all that was read was its own.
	if s.Lock, err = j.u.KeeperLock(); err != nil {
		s.Close()
		return nil, err
	}
	for limit := time.Now().Add(stragglers); !asleep(pid) && IsKeeper(s.Lock, pid) && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	if !IsKeeper(s.Lock, pid) {
		s.Close()
		return nil, nil
	}
	for _, lower := range j.lowers {
		if at, inMemory, ok := shown(j.dir, mounts, lower); ok {
			s.Shown[lower] = at
			if inMemory {
				s.Memory = append(s.Memory, lower)
			}
		}
	}
	return s, nil
}

// asleep reports whether a process does what a keeper nearly always does, and has
// not been killed. kill(2) returns before the killed one has noticed; and between
// noticing and leaving, it is awake, and nothing else tells.
func asleep(pid int) bool {
	// proc_pid_stat(5), counted from the state.
	const state, flags, pending = 0, 6, 28
	const exiting, killed = 4, 1 << (unix.SIGKILL - 1) // PF_EXITING; the main thread is told of every SIGKILL
	fields := stat(pid)
	if len(fields) <= pending || !strings.ContainsAny(fields[state], "SDTt") {
		return false
	}
	f, ferr := strconv.ParseUint(fields[flags], 10, 64)
	p, perr := strconv.ParseUint(fields[pending], 10, 64)
	return ferr == nil && perr == nil && f&exiting == 0 && p&killed == 0
}

// open opens the namespaces of a process, if they are such as a keeper has.
func open(pid int) (*Joined, error) {
	s := &Joined{Pid: pid}
	var err error
	if s.User, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid)); err != nil {
		return nil, err
	}
	if s.Mount, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil {
		s.User.Close()
		return nil, err
	}
	if !ours(s.User) {
		s.Close()
		return nil, fmt.Errorf("process %d is in a namespace that is no keeper's", pid)
	}
	return s, nil
}

// ours reports whether a user namespace was made by this user from the one that
// this process is in. A command in a sandbox may make some too, with
// --allow-nested, but only further inside; joining such a one would run bwrap in
// whatever the command has mounted there.
func ours(user *os.File) bool {
	up, err := unix.IoctlRetInt(int(user.Fd()), unix.NS_GET_PARENT)
	if err != nil {
		return false
	}
	defer unix.Close(up)
	var parent, own unix.Stat_t
	return unix.Fstat(up, &parent) == nil && unix.Stat("/proc/self/ns/user", &own) == nil &&
		parent.Dev == own.Dev && parent.Ino == own.Ino
}

func (j *join) complete(s *Joined) bool { return len(s.Shown) == len(j.lowers) }

// prepare starts the keeper and mounts what is missing, one process at a time.
func (j *join) prepare() (*Joined, error) {
	lock, err := j.u.Mounting()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	s, err := j.find()
	if err != nil {
		return nil, err
	}
	if s == nil {
		if err := j.start(lock); err != nil {
			return nil, fmt.Errorf("cannot start the keeper of session directory %q: %w", j.u.Path(), err)
		}
		if s, err = j.find(); err == nil && s == nil {
			err = fmt.Errorf("the keeper of session directory %q has ended at once", j.u.Path())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := errors.Join(j.mount(s, lock), j.u.Touch()); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// mount has missing overlays mounted in the keeper's namespaces.
func (j *join) mount(s *Joined, lock *os.File) error {
	var missing []string
	for _, lower := range j.lowers {
		if s.Shown[lower] == "" {
			missing = append(missing, lower)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	used, err := j.u.Lock() // the keeper must stay though this process is killed
	if err != nil {
		return err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	line := append(Line(j.Nsenter, 3, 4), fdPath(mountSelfFD), mountOption, j.dir, j.u.Marker())
	var said bytes.Buffer
	cmd := &exec.Cmd{
		Path: line[0], Args: append(line, missing...), Dir: "/", Env: []string{},
		ExtraFiles: []*os.File{s.User, s.Mount, self, lock, used},
		Stderr:     &said,
	}
	out, err := cmd.Output()
	var answers []answer
	if err == nil {
		err = json.Unmarshal(out, &answers)
	}
	if err != nil || len(answers) != len(missing) {
		return fmt.Errorf("cannot mount the overlays of session directory %q: %v: %s", j.u.Path(), err, firstLine(said.String()))
	}
	for i, lower := range missing {
		switch a := answers[i]; {
		case a.Refused != "":
			s.Refused[lower] = a.Refused
		case a.Memory:
			s.Memory = append(s.Memory, lower)
			s.Shown[lower] = filepath.Join(j.dir, memory, slug(lower), merged)
		default:
			s.Shown[lower] = filepath.Join(j.dir, slug(lower), merged)
		}
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// start starts the keeper: in new namespaces, or, when a killed one has left
// commands running, in those that they keep alive. Their overlays are mounted
// there, and must not be mounted a second time.
func (j *join) start(lock *os.File) error {
	left, err := j.survivor()
	if err != nil {
		return err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	said, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	base := filepath.Dir(filepath.Dir(j.dir))
	files, enter := []*os.File{tell, self, lock}, ""
	if left != nil {
		defer left.Close()
		files = append(files, left.User, left.Mount)
		words, err := json.Marshal(append(Line(j.Nsenter, userFD, mntFD), fdPath(selfFD)))
		if err != nil {
			return err
		}
		enter = string(words)
	}
	cmd := &exec.Cmd{
		Path: fdPath(selfFD), Dir: "/", Env: []string{}, ExtraFiles: files,
		Args: []string{"pk-keeper: starting", startOption, enter, base, j.u.Name(), j.Idle.String()},
	}
	var problem bytes.Buffer
	cmd.Stderr = &problem
	err = cmd.Run()
	tell.Close()
	if err != nil {
		return fmt.Errorf("%w: %s", err, firstLine(problem.String()))
	}
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(said); err != nil {
		return err
	}
	if answer.String() != ready {
		return errors.New(firstLine(answer.String()))
	}
	return nil
}

// stragglers bounds the wait for what a killed keeper's last command left.
const stragglers = 5 * time.Second

// survivor returns the namespaces of a keeper that was killed, if commands are
// still in them, or nil once nothing of it is mounted any more. What is on its
// way out is waited for.
func (j *join) survivor() (*Joined, error) {
	if !j.u.Mounted() {
		return nil, nil
	}
	marker := j.u.Marker()
	for limit := time.Now().Add(stragglers); ; time.Sleep(stragglerPause / 10) {
		pids := Seen(marker)
		late := time.Now().After(limit)
		if len(pids) == 0 && (late || !Leaving()) {
			return nil, nil
		}
		for _, pid := range pids {
			if s := j.member(pid); s != nil {
				return s, nil
			}
		}
		for _, pid := range pids {
			End(pid, marker) // in a sandbox that nobody watches over
		}
		if late {
			return nil, fmt.Errorf("its keeper was killed, and a command of it is still there: process %d", pids[0])
		}
	}
}

// member returns the namespaces of a process if it is in those of the keeper,
// and not in a sandbox: there, the overlays are where the keeper has them.
func (j *join) member(pid int) *Joined {
	s, err := open(pid)
	if err != nil {
		return nil
	}
	for _, m := range mountsOf(fmt.Sprintf("/proc/%d/mountinfo", pid), j.u.Marker()) {
		if filepath.Base(m.Point) == merged && strings.HasPrefix(m.Point, j.dir+"/") {
			return s
		}
	}
	s.Close()
	return nil
}

// Agrees reports whether a table of mounts is the keeper's, too, but for what the
// session mounts. Then every path is the same to both, and Same need not be asked.
func (s *Joined) Agrees(table []mountinfo.Mount) bool {
	return slices.Equal(chains(s.around), chains(table))
}

// chains names each mount of a table with all that it lies in: what covers what
// is not to be seen from places alone. They are sorted.
func chains(table []mountinfo.Mount) []string {
	byID := map[string]mountinfo.Mount{}
	for _, m := range table {
		byID[m.ID] = m
	}
	list := make([]string, len(table))
	for i, m := range table {
		var chain strings.Builder
		for known, depth := true, 0; known && depth < len(table); depth++ {
			chain.WriteString(m.Device + "\x00" + m.Root + "\x00" + m.Point + "\x00" + m.Type + "\x00")
			m, known = byID[m.Parent]
		}
		list[i] = chain.String()
	}
	slices.Sort(list)
	return list
}

// Same reports whether a path leads to the same file for the keeper as for this
// process. It does not when something was mounted since, and this machine's
// mounts are not shared; a sandbox made from there would show what is below.
func (s *Joined) Same(path string) bool {
	var here, there unix.Stat_t
	err := unix.Stat(path, &here)
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)
	}
	return unix.Stat(s.Root()+path, &there) == nil && here.Dev == there.Dev && here.Ino == there.Ino
}
