package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/monitor"
	"pikuri/lib/shell"
)

// With --keep-background and without --loop, pk-bash runs the command in a second process,
// which stays as the monitor of the background processes. The first process, which the
// caller waits for, passes signals on, and ends with the status of the command.
//
// Both are in the process group of the caller, so that the second can ask on the terminal.
// A signal of the terminal reaches both: the second takes only signals that the first passes
// on.
const stayOption = "--pk-stay"

// endSignals are the signals that end a command. Under nohup(1), which ignores SIGHUP for
// its program, that is none. An ignored SIGINT is heeded: a shell without job control
// ignores it for all that it starts in the background, and callers cancel commands with it.
var endSignals = sync.OnceValue(func() []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGABRT}
	if signal.Ignored(syscall.SIGHUP) {
		return signals
	}
	return append(signals, syscall.SIGHUP)
})

// stay is the second process. The first closes its end of control when it is killed.
type stay struct {
	control   *os.File
	inherited []int // descriptors of the caller
	reporting atomic.Bool
	detached  atomic.Bool
}

func stayMode() cli.Mode { return cli.Mode{Name: stayOption, Run: runStaying} }

func runStaying(args []string) error {
	if len(args) == 0 {
		return cli.ErrOwnUse
	}
	fd, err := strconv.Atoi(args[0])
	var st unix.Stat_t
	if err != nil || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return cli.ErrOwnUse
	}
	unix.CloseOnExec(fd)
	o := newOptions()
	o.stay = &stay{control: os.NewFile(uintptr(fd), "control"), inherited: inherited()}
	return cli.Exit(o.asCommand().Run(args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// inherited lists the descriptors above 2 that this program did not open: it opens all
// close-on-exec.
func inherited() (fds []int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// runInSecond is the first process.
func runInSecond() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make a socket: %w", err)
	}
	signals := make(chan os.Signal, 8)
	monitor.Listen(signals, endSignals()...)
	_, err = unix.FcntlInt(uintptr(pair[1]), unix.F_SETFD, 0)
	pid := 0
	if err == nil {
		pid, err = syscall.ForkExec("/proc/self/exe", append([]string{os.Args[0], stayOption, strconv.Itoa(pair[1])}, os.Args[1:]...),
			&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	}
	unix.Close(pair[1])
	if err != nil {
		return fmt.Errorf("cannot start the process that stays: %w", err)
	}
	control := os.NewFile(uintptr(pair[0]), "control")
	go func() {
		for sig := range signals {
			_, _ = control.Write([]byte{byte(sig.(syscall.Signal))})
		}
	}()
	var status [1]byte
	if n, _ := control.Read(status[:]); n == 1 {
		return cli.Exit(int(status[0]))
	}
	var ended syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &ended, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("cannot wait for the process that stays: %w", err)
	case ended.Signaled():
		if ended.Signal() == syscall.SIGINT {
			monitor.Die(syscall.SIGINT)
		}
		return cli.Exit(cli.StatusSignal + int(ended.Signal()))
	}
	return cli.Exit(ended.ExitStatus())
}

// listen takes the signals that the first process passes on. If that was killed, the command
// ends, as it does when pk-bash is killed without --keep-background.
func (y *stay) listen(signals chan<- os.Signal) {
	monitor.Listen(make(chan os.Signal, 1), endSignals()...)
	go func() {
		for {
			said := []byte{byte(syscall.SIGKILL)}
			n, _ := y.control.Read(said)
			if y.detached.Load() {
				return
			}
			if y.reporting.Load() { // nothing waits for a signal
				os.Exit(cli.StatusSignal + int(said[0]))
			}
			signals <- syscall.Signal(said[0])
			if n == 0 {
				return
			}
		}
	}()
}

// detach lets the first process end with that status, and gives up all that this one has of
// the caller's. Messages go to the log, if there is one.
func (y *stay) detach(status int, signals chan<- os.Signal, log *os.File) error {
	monitor.Listen(signals, endSignals()...)
	y.detached.Store(true)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if log == nil {
		log = null
	}
	_, err = unix.Setsid()
	err = errors.Join(err, unix.Chdir("/"))
	for fd, f := range []*os.File{null, null, log} {
		err = errors.Join(err, unix.Dup2(int(f.Fd()), fd))
	}
	for _, fd := range y.inherited {
		unix.Close(fd)
	}
	_, _ = y.control.Write([]byte{byte(status)})
	return errors.Join(err, y.control.Close())
}

// finish reports the result of the one command. If processes stay, this one does too.
func (t *turn) finish(result *shell.Result) error {
	var lock *os.File
	if t.super != nil {
		var err error
		if lock, err = t.job.fence.Fence.Session.Stay(); err != nil { // nothing could end them
			t.end(syscall.SIGTERM)
			t.ctx.Report(err)
		}
		t.stay.reporting.Store(true)
	}
	err := t.report(result)
	if t.super != nil {
		if t.status != nil {
			t.status.Close()
		}
		if err := t.stay.detach(t.ctx.StatusOf(err), t.signals, t.job.log); err != nil {
			t.ctx.Report(err)
		}
		defer lock.Close() // nil can be closed
		t.cleanUp()
	}
	return err
}

// keep prepares that processes of the command stay.
func (j *job) keep() {
	j.Background = func() *shell.Log {
		log, err := j.openBackgroundLog()
		if err != nil {
			return nil
		}
		j.log = log
		j.later(log.Close)
		return shell.NewLogFile(shell.MaxLog, log)
	}
}

// openBackgroundLog makes a file in the session tmp, where later commands can read it.
func (j *job) openBackgroundLog() (*os.File, error) {
	name := "background-" + strings.ToLower(rand.Text()[:10]) + ".log"
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	if j.workspace.Temp() != "" {
		return j.workspace.OpenFile("/tmp/"+name, flags, 0o600) // alias of the session tmp
	}
	return os.OpenFile(filepath.Join(j.fence.Fence.Tmp, name), flags, 0o600) // of a loop's own session
}

// staysOn makes the clean-up wait for processes that stay, and then do the rest at their
// end.
func (t *turn) staysOn(super *shell.Supervisor, j *job) {
	t.super = super
	j.later(func() error {
		super.Rest()
		var r shell.Result
		t.undo(j, &r)
		r.Network = nil // the gate still has all that the command's result had
		t.recordRest(j, &r)
		return t.rawReport(&r)
	})
}

// endedBy says how the processes that stay are ended.
func (t *turn) endedBy(session string) string {
	switch {
	case !t.loop:
		return fmt.Sprintf("pk-sweep --session %s --background ends it", session)
	case t.request.Op == shell.OpStart:
		return "a kill of the job ends it"
	}
	return "the end of the loop ends it"
}
