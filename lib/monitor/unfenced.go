package monitor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/internal/wire"
	"pikuri/lib/setup"
)

// A command without a sandbox has no PID namespace that would end it with its
// monitor. A guard stands between the two: this program again, in a session of
// its own, which reaps the processes of the command and ends them. If the monitor
// is killed, the guard sees its socket close and ends everything. If the command
// kills the guard, its processes fall to the monitor, which is a subreaper too.

// GuardMode is the mode of a guard.
var GuardMode = hidden.Mode{Name: "--pk-guard", Run: func([]string) error { return runGuard() }}

// guardName is the guard's name in the list of processes: a pkill of the
// command's name must not end both.
const guardName = "pk-guard"

// Limits of waiting.
const (
	teardownLimit = 5 * time.Second        // for the last processes to go
	askedLimit    = 100 * time.Millisecond // for processes that got a signal, once the command has ended
	reapPause     = time.Millisecond       // between two looks at processes that are dying
)

// guardJob is the command for a guard, as a message on its controlFD.
type guardJob struct {
	Path  string
	Argv  []string
	Files []setup.Placed
}

const controlFD = 3

// Unfenced is a command without a sandbox.
type Unfenced struct {
	process *os.Process
	control *os.File
	events  chan Event
	spared  []int // children that were there before
}

// guards are the guards of the running commands. This process is a subreaper while there is
// a guard, and does not take a guard for an orphan of another command.
var guards struct {
	sync.Mutex
	pids map[int]bool
}

// startGuard starts a guard, and adds it to guards.
func (u *Unfenced) startGuard(attr *os.ProcAttr) (err error) {
	guards.Lock()
	defer guards.Unlock()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot watch over the command's children: %w", err)
	}
	u.spared = ownChildren()
	u.process, err = os.StartProcess(hidden.Self, []string{hidden.Self, GuardMode.Name}, attr)
	if err == nil {
		if guards.pids == nil {
			guards.pids = map[int]bool{}
		}
		guards.pids[u.process.Pid] = true
	}
	return err
}

// forget removes the guard from guards, after a wait for it.
func (u *Unfenced) forget() {
	guards.Lock()
	defer guards.Unlock()
	delete(guards.pids, u.process.Pid)
	if len(guards.pids) == 0 {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
}

// orphans returns the processes that became children of this process since the guard
// started.
func (u *Unfenced) orphans() []int {
	guards.Lock()
	defer guards.Unlock()
	return slices.DeleteFunc(ownChildren(), func(pid int) bool { return slices.Contains(u.spared, pid) || guards.pids[pid] })
}

// StartUnfenced starts cmd (path, arguments, environment, directory) with the
// files, below a guard. The calling process is a subreaper until Close.
func StartUnfenced(cmd *exec.Cmd, streams [3]*os.File, placed []Placed) (*Unfenced, error) {
	if err := hidden.Check(GuardMode.Name); err != nil {
		return nil, err
	}
	if err := bwrap.CheckSystem(); err != nil {
		return nil, err
	}
	control, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		control.Close()
		theirs.Close()
		return nil, err
	}
	defer null.Close()
	files := []*os.File{null, null, null, theirs}
	job := guardJob{Path: cmd.Path, Argv: cmd.Args}
	for at, f := range streams {
		if f == nil {
			f = null
		}
		placed = append(placed, Placed{At: at, File: f})
	}
	for _, p := range placed {
		job.Files = append(job.Files, setup.Placed{FD: len(files), At: p.At})
		files = append(files, p.File)
	}
	u := &Unfenced{control: control, events: make(chan Event, 2)}
	err = u.startGuard(&os.ProcAttr{
		Dir: cmd.Dir, Env: cmd.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	theirs.Close() // the end of the guard is the end of the connection
	if err != nil {
		control.Close()
		return nil, fmt.Errorf("cannot start the command's guard: %w", err)
	}
	if err := u.begin(job); err != nil {
		u.EndOrphans()
		u.Close()
		return nil, err
	}
	return u, nil
}

// begin hands over the job, and waits for word that the command runs.
func (u *Unfenced) begin(job guardJob) error {
	text, err := wire.Message(&job)
	if err != nil {
		return err
	}
	_ = send(u.control, text, nil)
	lines := bufio.NewScanner(u.control)
	var began guardReport
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &began) != nil {
		close(u.events)
		return fmt.Errorf("cannot start %q: its guard has ended", job.Path)
	}
	go u.listen(lines)
	if began.Errno != 0 {
		return fmt.Errorf("cannot start %q: %w", job.Path, syscall.Errno(began.Errno))
	}
	return nil
}

func (u *Unfenced) listen(lines *bufio.Scanner) {
	defer close(u.events)
	for lines.Scan() {
		var r guardReport
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			return
		}
		u.events <- r.Event
	}
}

// Events tells of the command.
func (u *Unfenced) Events() <-chan Event { return u.events }

// Signal sends a signal to all processes of the command.
func (u *Unfenced) Signal(sig syscall.Signal) { _ = send(u.control, []byte{byte(sig)}, nil) }

// Stop stops all processes of the command, until SIGCONT.
func (u *Unfenced) Stop() { u.Signal(syscall.SIGSTOP) }

// Abandon ends the guard, and leaves its processes to EndOrphans.
func (u *Unfenced) Abandon() { _ = u.process.Kill() }

// Close ends the remaining processes of the command.
func (u *Unfenced) Close() {
	shut(u.control)
	_, _ = u.process.Wait()
	for range u.events {
	}
	u.control.Close()
	u.forget()
}

// EndOrphans ends the processes that fell to this one when the guard was killed,
// and returns how many there were.
func (u *Unfenced) EndOrphans() (ended int) {
	_, _ = u.process.Wait()
	self := os.Getpid()
	for limit := time.Now().Add(teardownLimit); time.Now().Before(limit); time.Sleep(reapPause) {
		left := u.orphans()
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			for _, p := range append(descendants(pid), process{pid, self}) {
				p.send(syscall.SIGKILL)
			}
			if n, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); n > 0 {
				ended++
			}
		}
	}
	return ended
}

// guardReport is one line of a guard: first whether the command runs, then its
// events.
type guardReport struct {
	Event
	Errno int
}

// guard is the guard itself.
type guard struct {
	control *os.File
	main    int         // the command's process
	asked   atomic.Bool // a signal has been passed on
	after   bool        // the command has ended
	left    []string    // command lines of processes that it left
	ended   int         // processes that had to be ended after it
}

// runGuard is the guard's process: it runs one command, and returns when all that
// the command started has ended.
func runGuard() error {
	runtime.LockOSThread() // the command dies with this thread
	if kind, _ := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); kind != unix.SOCK_STREAM {
		return hidden.ErrOwnUse
	}
	g := &guard{control: os.NewFile(controlFD, "control")}
	var job guardJob
	if wire.Read(g.control, &job) != nil {
		return errors.New("cannot read the command")
	}
	_ = os.WriteFile("/proc/self/comm", []byte(guardName), 0)
	if err := g.start(job); err != nil {
		errno, _ := errors.AsType[syscall.Errno](err)
		g.say(guardReport{Errno: int(errno)})
		return nil
	}
	g.say(guardReport{})
	go g.obey()
	g.wait()
	g.done(0)
	return nil
}

// start starts the command, and closes the command's files here: a guard that
// held the other end of a pipe would keep it open.
func (g *guard) start(job guardJob) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	var err error
	g.main, err = syscall.ForkExec(job.Path, job.Argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: setup.FilesAt(job.Files),
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	for _, p := range job.Files {
		unix.Close(p.FD)
	}
	return err
}

func (g *guard) say(r guardReport) {
	if line, err := json.Marshal(r); err == nil {
		_ = send(g.control, append(line, '\n'), nil)
	}
}

func (g *guard) done(left int) {
	e := Event{Kind: Done, Ended: g.ended, Left: left}
	if g.ended > 0 {
		e.Commands = g.left
	}
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &e.Usage)
	g.say(guardReport{Event: e})
}

// obey passes signals on, one for each byte, until the monitor is gone.
func (g *guard) obey() {
	var sig [1]byte
	for {
		if _, err := io.ReadFull(g.control, sig[:]); err != nil {
			g.endAll()
		}
		s := syscall.Signal(sig[0])
		if s != syscall.SIGSTOP && s != syscall.SIGCONT {
			g.asked.Store(s != syscall.SIGKILL)
		}
		for _, p := range descendants(os.Getpid()) {
			p.send(s)
		}
	}
}

// wait reaps until no child is left. After the command's own end it ends the remaining
// processes; mostly there are none, and it does not search for any.
func (g *guard) wait() {
	options := 0
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, options, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return
		case err != nil:
			continue
		case pid == 0: // the processes that are left live
			options = 0
			if !g.asked.Load() {
				g.left = commandLines(descendants(os.Getpid()))
			}
			go g.endAll()
		case pid == g.main && !g.after:
			g.after = true
			g.say(guardReport{Event: Event{Kind: Exited, Status: ws, Ran: true}})
			options = syscall.WNOHANG
		case g.after && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
			g.ended++ // processes that ended by themselves are not counted
		}
	}
}

// endAll ends every process below the guard, until wait finds none. It does not
// return.
func (g *guard) endAll() {
	self := os.Getpid()
	// Processes that were asked to end are not killed while they do.
	for limit := time.Now().Add(askedLimit); g.asked.Load() && time.Now().Before(limit) && len(descendants(self)) > 0; {
		time.Sleep(reapPause)
	}
	for limit := time.Now().Add(teardownLimit); time.Now().Before(limit); time.Sleep(reapPause) {
		for _, p := range descendants(self) {
			p.send(syscall.SIGKILL)
		}
	}
	g.done(len(descendants(self)))
	os.Exit(0) // a process of another user, or stuck in the kernel
}
