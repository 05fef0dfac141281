package shell

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// A command is not started by the process that asked for it but by a guard
// between the two: the same program in a session of its own, which waits for
// the command, collects what falls to it, and ends the rest. Whoever kills the
// first process, with a signal that cannot be caught, does not reach the guard:
// it sees its socket close and ends everything. Whoever kills the guard, as a
// command without a sandbox can, leaves all to the first process, which is a
// subreaper as well.

// GuardMode is the mode of a guard. Every program that runs a Job has to dispatch
// it.
var GuardMode = hidden.Mode{Name: guardOption, Run: runGuard}

const guardOption = "--pk-guard"

// guardName is the name of the guard's process, so that a pkill of the command's
// own name does not end the guard too.
const guardName = "pk-guard"

// Places in the command at which it finds what the guard hands to it. Shells
// use descriptors up to 9 and from 10 on, bash itself 63 and 255.
const (
	gateFD   = 250 // the socket of a gate
	scriptFD = 251 // what bash reads first
	longFD   = 252 // a command that is too long for an argument

	// programFD is far above them, where nothing takes its place on the way: the
	// program that is started, if it is not to be had by its name. It is closed
	// then.
	programFD = 512

	// cgroupFD only names the cgroup among the others; it is nobody's number.
	cgroupFD = 513
)

// placed is a file and the number at which the command has it.
type placed struct {
	at   int
	file *os.File
}

// guarded is a guard as seen by the process that started it.
type guarded struct {
	cmd     *exec.Cmd
	control *os.File
	said    chan report // closed when the guard has gone
	spared  []int       // children that were there before
	release func()      // to be called when the guard has ended
}

// report is one line of a guard.
type report struct {
	what string // started, failed, exited, done
	n    [2]int // process id; errno; wait status; survivors and processes left
}

// startGuard starts a guard, and the job's command below it. files are the
// command's beyond its own ExtraFiles.
func startGuard(job *Job, files []placed) (*guarded, error) {
	if err := hidden.Check(guardOption); err != nil {
		return nil, err
	}
	cmd := job.Cmd
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that closing it ends the reading
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	words := []string{strconv.FormatBool(job.Sandbox), strconv.Itoa(len(cmd.ExtraFiles))}
	extra := slices.Clone(cmd.ExtraFiles)
	for _, f := range files {
		words = append(words, fmt.Sprintf("%d=%d", f.at, 3+len(extra)))
		extra = append(extra, f.file)
	}
	program, err := openProgram(cmd)
	if err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	if program != nil {
		defer program.Close()
		words = append(words, fmt.Sprintf("%d=%d", programFD, 3+len(extra)))
		extra = append(extra, program)
	}
	if cgroup := cgroupOf(cmd); cgroup != nil {
		defer cgroup.Close()
		words = append(words, fmt.Sprintf("%d=%d", cgroupFD, 3+len(extra)))
		extra = append(extra, cgroup)
	}
	control := 3 + len(extra)
	args := []string{hidden.Self, guardOption, strconv.Itoa(control), strings.Join(words, ","), cmd.Path}
	g := &guarded{
		cmd: &exec.Cmd{
			Path: hidden.Self, Args: append(args, cmd.Args...), Env: cmd.Env, Dir: cmd.Dir,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: append(extra, theirs),
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		},
		control: os.NewFile(uintptr(pair[0]), "control"),
		said:    make(chan report, 4),
		spared:  ownChildren(),
	}
	if g.release, err = job.start(g.cmd); err != nil {
		g.control.Close()
		return nil, fmt.Errorf("cannot start the command's guard: %w", err)
	}
	go g.listen()
	return g, nil
}

// openProgram opens a program that is named by a descriptor of this process, which
// the guard does not have. Those that the command gets are named as it has them.
func openProgram(cmd *exec.Cmd) (*os.File, error) {
	number, ok := strings.CutPrefix(cmd.Path, selfFD)
	fd, err := strconv.Atoi(number)
	if !ok || err != nil || fd < 3+len(cmd.ExtraFiles) {
		return nil, nil
	}
	opened, err := unix.Open(cmd.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", cmd.Path, err)
	}
	return os.NewFile(uintptr(opened), cmd.Path), nil
}

// cgroupOf is the cgroup that the command, and not its guard, is to start in.
func cgroupOf(cmd *exec.Cmd) *os.File {
	if cmd.SysProcAttr == nil || !cmd.SysProcAttr.UseCgroupFD {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(cmd.SysProcAttr.CgroupFD), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		fd = -1 // starting it will fail
	}
	return os.NewFile(uintptr(fd), "cgroup")
}

// start starts cmd, by Start if there is one.
func (j *Job) start(cmd *exec.Cmd) (release func(), err error) {
	if j.Start != nil {
		return j.Start(cmd)
	}
	return func() {}, cmd.Start()
}

// selfFD is where a descriptor is a path.
const selfFD = "/proc/self/fd/"

func (g *guarded) listen() {
	defer close(g.said)
	for lines := bufio.NewScanner(g.control); lines.Scan(); {
		var r report
		if _, err := fmt.Sscan(lines.Text(), &r.what, &r.n[0], &r.n[1]); err != nil {
			return
		}
		g.said <- r
	}
}

// send has the guard signal the command. One that has gone needs no signal.
func (g *guarded) send(sig syscall.Signal) { tell(g.control, string([]byte{byte(sig)})) }

// tell writes to a socket whose other end may have gone, which is to be no signal
// to this process.
func tell(socket *os.File, text string) {
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.SendmsgN(int(fd), []byte(text), nil, nil, unix.MSG_NOSIGNAL) })
	}
}

// close ends a guard, and with it what it guards.
func (g *guarded) close() {
	g.control.Close()
	_ = g.cmd.Wait()
	g.release()
}

// endOrphans ends what fell to this process when its guard was killed, and
// returns how many there were.
func (g *guarded) endOrphans() (ended int) {
	self := os.Getpid()
	for limit := time.Now().Add(teardownLimit); time.Now().Before(limit); time.Sleep(reapPause) {
		left := slices.DeleteFunc(ownChildren(), func(pid int) bool { return slices.Contains(g.spared, pid) })
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

// guard is the guard itself.
type guard struct {
	control *os.File
	sandbox bool
	files   []uintptr   // of the command, by number
	program int         // what it is, 0 if the path says it
	cgroup  int         // in which it starts, 0 for the guard's own
	main    int         // the command's process
	asked   atomic.Bool // a signal has been passed on
	after   bool        // it has ended
	ended   int         // processes that had to be ended after it
}

// runGuard runs a command as the guard that startGuard asked for, and returns when
// it and everything it started has ended. args are those behind guardOption. The
// guard reports to its socket; the error is a wrong call.
func runGuard(args []string) error {
	runtime.LockOSThread() // the command is to die with this thread
	g, err := parseGuard(args)
	if err != nil {
		return hidden.ErrOwnUse
	}
	_ = os.WriteFile("/proc/self/comm", []byte(guardName), 0)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return g.say("failed", errnoOf(err))
	}
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	path := args[2]
	if g.program > 0 {
		if err := unix.Dup3(g.program, programFD, unix.O_CLOEXEC); err != nil {
			return g.say("failed", errnoOf(err))
		}
		path = fmt.Sprintf("%s%d", selfFD, programFD)
	}
	g.main, err = syscall.ForkExec(path, args[3:], &syscall.ProcAttr{
		Env: os.Environ(), Files: g.files,
		Sys: &syscall.SysProcAttr{
			Setsid: true, Pdeathsig: syscall.SIGKILL, UseCgroupFD: g.cgroup > 0, CgroupFD: g.cgroup,
		},
	})
	if err != nil {
		return g.say("failed", errnoOf(err))
	}
	g.letGo()
	_ = g.say("started", g.main)
	go g.obey()
	g.wait()
	return g.say("done", g.ended, 0)
}

func parseGuard(args []string) (*guard, error) {
	if len(args) < 4 {
		return nil, hidden.ErrOwnUse
	}
	control, err := strconv.Atoi(args[0])
	if err != nil || control < 3 {
		return nil, hidden.ErrOwnUse
	}
	if _, err := unix.GetsockoptInt(control, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, err
	}
	words := strings.Split(args[1], ",")
	if len(words) < 2 {
		return nil, hidden.ErrOwnUse
	}
	plain, err := strconv.Atoi(words[1])
	if err != nil || plain < 0 || plain >= control {
		return nil, hidden.ErrOwnUse
	}
	g := &guard{control: os.NewFile(uintptr(control), "control"), sandbox: words[0] == "true"}
	for fd := range 3 + plain {
		g.files = append(g.files, uintptr(fd))
	}
	for _, word := range words[2:] {
		var at, fd int
		if _, err := fmt.Sscanf(word, "%d=%d", &at, &fd); err != nil || at < len(g.files) || at > cgroupFD || fd < 3 || fd >= control {
			return nil, hidden.ErrOwnUse
		}
		switch at {
		case programFD:
			g.program = fd
			continue
		case cgroupFD:
			g.cgroup = fd
			continue
		}
		for len(g.files) < at {
			g.files = append(g.files, ^uintptr(0)) // closed
		}
		g.files = append(g.files, uintptr(fd))
	}
	return g, nil
}

// letGo closes what is the command's. A guard that held the other end of a pipe
// would keep it open.
func (g *guard) letGo() {
	for _, fd := range g.files {
		if fd > 2 && fd != ^uintptr(0) {
			unix.Close(int(fd))
		}
	}
	for fd := 1; fd <= 2; fd++ {
		_ = unix.Dup3(0, fd, 0)
	}
}

func (g *guard) say(what string, n ...int) error {
	n = append(n, 0, 0)
	tell(g.control, fmt.Sprintln(what, n[0], n[1]))
	return nil
}

func errnoOf(err error) int {
	errno, _ := errors.AsType[syscall.Errno](err)
	return int(errno)
}

// obey passes signals on, one for each byte, until the other side is gone.
func (g *guard) obey() {
	var sig [1]byte
	for {
		_, err := io.ReadFull(g.control, sig[:])
		if err != nil {
			g.endAll()
		}
		g.signal(syscall.Signal(sig[0]))
	}
}

// wait collects what ends, until nobody is left. After the command's own end,
// what it left behind is ended; mostly there is nothing that has not ended by
// itself, and then nobody is looked for.
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
		case pid == 0: // those that are left live
			options = 0
			go g.endAll()
		case pid == g.main && !g.after:
			g.after = true
			_ = g.say("exited", int(ws))
			options = syscall.WNOHANG
		case g.after && !g.sandbox && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
			g.ended++ // what ended by itself is not counted
		}
	}
}

// endAll ends every process below the guard, until wait finds none. It does not
// return.
func (g *guard) endAll() {
	self := os.Getpid()
	// What was asked to end is not killed while it does.
	for limit := time.Now().Add(askedLimit); g.asked.Load() && time.Now().Before(limit) && len(descendants(self)) > 0; {
		time.Sleep(reapPause)
	}
	for limit := time.Now().Add(teardownLimit); time.Now().Before(limit); time.Sleep(reapPause) {
		for _, p := range descendants(self) {
			p.send(syscall.SIGKILL)
		}
	}
	_ = g.say("done", g.ended, len(descendants(self)))
	os.Exit(0) // somebody else's, or stuck in the kernel
}

// signal reaches everything that the command started.
//
// In a sandbox bwrap must not get a SIGTERM: it would die of it, and take the
// command along before it could clean up. The signal goes to the processes
// inside, but for the first of them, the namespace's init. While there is
// nobody else the command has not begun, and there is nothing to clean up.
func (g *guard) signal(sig syscall.Signal) {
	g.asked.Store(sig != syscall.SIGKILL)
	all := descendants(os.Getpid())
	inside := slices.DeleteFunc(slices.Clone(all), func(p process) bool {
		return g.sandbox && (p.pid == g.main || p.parent == g.main)
	})
	if len(inside) == 0 || sig == syscall.SIGKILL {
		sig, inside = syscall.SIGKILL, all
	}
	for _, p := range inside {
		p.send(sig)
	}
}
