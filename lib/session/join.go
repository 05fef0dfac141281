package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/rlimit"
)

// mountingWait bounds the wait for other commands that mount: each needs some
// milliseconds, and dozens may have been started at once on a busy machine.
const mountingWait = 60 * time.Second

// Joined is a session whose keeper runs, with the overlays that it shows.
type Joined struct {
	Pid    int
	User   *os.File          // its user namespace
	Mount  *os.File          // its mount namespace
	Lock   *os.File          // for IsKeeper
	Shown  map[string]string // an overlaid directory -> its path in the mount namespace
	Memory []string          // those of them that end with the keeper

	Overlays string // directory of the overlays' layers, without links

	// Refused has the reason for each directory that could not be overlaid.
	Refused map[string]string
}

// Root is the path at which this process sees the keeper's files.
func (s *Joined) Root() string { return fmt.Sprintf("/proc/%d/root", s.Pid) }

// Close closes the namespaces.
func (s *Joined) Close() error {
	var errs []error
	for _, f := range []*os.File{s.User, s.Mount, s.Lock} {
		if f == nil {
			continue
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) { // a monitor closes some
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// JoinOptions are the options of Join.
type JoinOptions struct {
	Nsenter string        // nsenter(1) of util-linux
	Idle    time.Duration // of a named session; 0 stands for Idle
}

// Line enters a session's namespaces, given as descriptors, and becomes another program
// there. A program with several threads, as those in Go are, cannot change its user
// namespace; nsenter(1) can.
func Line(nsenter string, user, mnt int) []string {
	return []string{nsenter, "--preserve-credentials", "--user=" + fsat.Path(user), "--mount=" + fsat.Path(mnt), "--"}
}

// Join finds or starts the keeper of the session, and has it show an overlay of each of
// the directories; a missing directory is overlaid as an empty one. The caller holds d;
// the keeper stays as long as any process does.
func Join(d *Dir, lowers []string, o JoinOptions) (*Joined, error) {
	switch {
	case !d.Named():
		o.Idle = 0
	case o.Idle == 0:
		o.Idle = Idle
	}
	if err := MakeDir(fd(d.dir), OverlayDir); err != nil {
		return nil, fmt.Errorf("cannot make %q: %w", filepath.Join(d.Path(), OverlayDir), err)
	}
	path, err := filepath.EvalSymlinks(filepath.Join(d.Path(), OverlayDir))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	j := &join{JoinOptions: o, d: d, dir: path, lowers: lowers}
	s, err := j.find()
	if err == nil && s == nil || err == nil && !j.complete(s) {
		s.close()
		s, err = j.prepare()
	}
	if err != nil {
		return nil, err
	}
	s.Overlays = path
	// The keeper counts its idle time from here.
	if err := unix.UtimesNanoAt(fd(d.dir), keeperFile, nil, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Joined) close() {
	if s != nil {
		s.Close()
	}
}

type join struct {
	JoinOptions
	d      *Dir
	dir    string // of the overlays, without links
	lowers []string
}

// find returns the running keeper, or nil.
func (j *join) find() (*Joined, error) {
	pid, err := j.d.Keeper()
	if err != nil || pid == 0 {
		return nil, err
	}
	s, err := open(pid)
	if err != nil {
		return nil, nil // it has just ended
	}
	s.Shown, s.Refused = map[string]string{}, map[string]string{}
	mounts := mountsOf(fmt.Sprintf("/proc/%d/mountinfo", pid), j.d.Marker())
	if s.Lock, err = j.d.KeeperLock(); err != nil {
		s.Close()
		return nil, err
	}
	if !IsKeeper(s.Lock, pid) { // still: then all of it was the keeper's own
		s.Close()
		return nil, nil
	}
	for _, lower := range j.lowers {
		if at, inMemory, ok := shown(mounts, lower); ok {
			s.Shown[lower] = at
			if inMemory {
				s.Memory = append(s.Memory, lower)
			}
		}
	}
	return s, nil
}

// open opens the namespaces of a process, if they are as a keeper's.
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

// ours reports whether a user namespace was made by this user from the one of this
// process. A command in a sandbox with --allow-nested may make some too, but only further
// inside. To join one of those would run bwrap among mounts that the command has made.
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

// startTries bounds the starts of a keeper that is killed at once.
const startTries = 10

var errKilled = errors.New("its keeper was killed as soon as it was started")

// prepare starts the keeper and mounts the missing overlays, one process at a time.
func (j *join) prepare() (*Joined, error) {
	failed := func(err error) error {
		return fmt.Errorf("cannot prepare session directory %q: %w", j.d.Path(), err)
	}
	lock, err := openOwn(j.d.dir, mountingFile, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, failed(err)
	}
	defer lock.Close() // a child that inherited it makes others wait longer
	if err := lockWithin(lock, unix.LOCK_EX, mountingWait); err != nil {
		return nil, failed(err)
	}
	var s *Joined
	for range startTries {
		if s, err = j.find(); err != nil || s != nil {
			break
		}
		if err = j.start(lock); err != nil && !errors.Is(err, errKilled) {
			return nil, fmt.Errorf("cannot start the keeper of session directory %q: %w", j.d.Path(), err)
		}
	}
	if err == nil && s == nil {
		err = errKilled
	}
	if err != nil {
		return nil, failed(err)
	}
	if err := j.mount(s, lock); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// mount has missing overlays mounted in the keeper's namespaces. The process that does it
// keeps the session in use, even if this one is killed.
func (j *join) mount(s *Joined, lock *os.File) error {
	var missing []string
	for _, lower := range j.lowers {
		if s.Shown[lower] == "" {
			missing = append(missing, lower)
		}
	}
	answers, err := j.ask(s, missing, lock)
	if err != nil {
		return err
	}
	for i, lower := range missing {
		switch a := answers[i]; {
		case a.Refused != "":
			s.Refused[lower] = a.Refused
		case a.Memory:
			s.Memory = append(s.Memory, lower)
			s.Shown[lower] = filepath.Join(j.dir, memory, dirName(lower), merged)
		default:
			s.Shown[lower] = filepath.Join(j.dir, dirName(lower), merged)
		}
	}
	return nil
}

// Lay has overlays with layers of their own mounted in the keeper's namespaces. The
// caller holds the locks of the layers.
func (s *Joined) Lay(d *Dir, nsenter string, list []Layered) error {
	words := make([]string, len(list))
	for i, l := range list {
		text, err := bytejson.Marshal(&l)
		if err != nil {
			return fmt.Errorf("internal error: %w", err)
		}
		words[i] = string(text)
	}
	j := &join{JoinOptions: JoinOptions{Nsenter: nsenter}, d: d, dir: s.Overlays}
	answers, err := j.ask(s, words, s.Lock)
	if err != nil {
		return err
	}
	for i, a := range answers {
		if a.Refused != "" {
			return fmt.Errorf("cannot mount the overlay of %q: %s", list[i].Lower, a.Refused)
		}
	}
	return nil
}

// ask runs the helper that mounts overlays. The helper holds a lock until it has ended.
func (j *join) ask(s *Joined, words []string, lock *os.File) ([]answer, error) {
	if len(words) == 0 {
		return nil, nil
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	line := append(Line(j.Nsenter, 3, 4), fsat.Path(mountSelfFD), mountOption, j.dir, j.d.Marker())
	var said bytes.Buffer
	cmd := &exec.Cmd{
		Path: line[0], Args: append(line, words...), Dir: "/", Env: []string{},
		ExtraFiles: []*os.File{s.User, s.Mount, self, lock, j.d.Locked()},
		Stderr:     &said, SysProcAttr: apart,
	}
	out, err := cmd.Output()
	var answers []answer
	if err == nil {
		err = json.Unmarshal(out, &answers)
	}
	if err == nil && len(answers) != len(words) {
		err = errors.New("internal error: there is not an answer for each")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot mount the overlays of session directory %q: %w", j.d.Path(), withLine(err, said.String()))
	}
	return answers, nil
}

// apart keeps a process from the caller's terminal: root may work for another user here,
// and that user can trace the process.
var apart = &syscall.SysProcAttr{Setsid: true}

// withLine adds the first line of a child's output to its error.
func withLine(err error, said string) error {
	if said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, firstLine(said))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// start starts the keeper in new namespaces. If a killed one has left commands running,
// it uses the namespaces that they keep alive: their overlays are mounted there, and must
// not be mounted a second time.
func (j *join) start(lock *os.File) error {
	// The limits with which a user namespace is made hold for all that is in it later: in the
	// session no command could have a gate.
	if err := rlimit.Signals(); err != nil {
		return err
	}
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
		words, err := json.Marshal(append(Line(j.Nsenter, userFD, mntFD), fsat.Path(selfFD)))
		if err != nil {
			return err
		}
		enter = string(words)
	}
	cmd := &exec.Cmd{
		Path: fsat.Path(selfFD), Dir: "/", Env: []string{}, ExtraFiles: files,
		Args: []string{title + "starting", startOption, enter, base, j.d.Name(), j.Idle.String()}, SysProcAttr: apart,
	}
	var problem bytes.Buffer
	cmd.Stderr = &problem
	err = cmd.Run()
	tell.Close()
	if err != nil {
		return withLine(err, problem.String())
	}
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(said); err != nil {
		return err
	}
	switch answer.String() {
	case ready:
		return nil
	case "":
		return errKilled
	}
	return errors.New(firstLine(answer.String()))
}

// survivor returns the namespaces of a keeper that was killed, if the set-up program of a
// command is still in them, or nil once none of its mounts is left. Sandboxes without
// their set-up program are ending.
//
// A set-up program may also be about to find that its keeper has ended. It then leaves
// namespaces that no other process is in, so survivor waits while there are two.
func (j *join) survivor() (*Joined, error) {
	if !mayBeMounted(j.d.dir) {
		return nil, nil
	}
	marker := j.d.Marker()
	for limit := time.Now().Add(endWait); time.Now().Before(limit); {
		list := processes(marker)
		if len(list) == 0 {
			return nil, nil
		}
		found, several := j.members(list)
		if found != nil && !several {
			return found, nil
		}
		if found != nil {
			found.Close()
			time.Sleep(time.Millisecond) // a program finds its keeper within that time
			continue
		}
		for _, p := range list {
			if s := j.member(p.pid); s != nil { // it has just started
				s.Close()
				continue
			}
			p.end(marker, time.Until(limit))
		}
	}
	return nil, errors.New("its keeper was killed, and a command of it does not end")
}

// members returns the namespaces of the first set-up program in a list, and whether
// another program is in others.
func (j *join) members(list []process) (first *Joined, several bool) {
	for _, p := range list {
		s := j.member(p.pid)
		switch {
		case s == nil:
		case first == nil:
			first = s
		default:
			several = several || !sameFile(first.Mount, s.Mount)
			s.Close()
		}
	}
	return first, several
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	other, failed := b.Stat()
	return err == nil && failed == nil && os.SameFile(one, other)
}

// member returns the namespaces of a process if it is in those of the keeper, and not in
// a sandbox: in the keeper's, the overlays have the keeper's paths.
func (j *join) member(pid int) *Joined {
	s, err := open(pid)
	if err != nil {
		return nil
	}
	for _, m := range mountsOf(fmt.Sprintf("/proc/%d/mountinfo", pid), j.d.Marker()) {
		if filepath.Base(layer(m.Point)) == merged {
			return s
		}
	}
	s.Close()
	return nil
}
