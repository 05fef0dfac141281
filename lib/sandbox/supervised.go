package sandbox

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

const (
	// pipeGrace is the time for which a pipe may stay open after the supervisor and its processes have ended: a
	// process from elsewhere may have it. A busy machine needs a while to read the rest.
	pipeGrace = 10 * time.Second

	// stuckAfter is the time, after KillAfter, in which a supervisor must end its command.
	// Then it counts as hanging, and is killed.
	stuckAfter = 30 * time.Second
)

// supervised runs a request below a supervisor. dir is the directory where the command
// starts.
func supervised(ctx context.Context, r request, dir *os.File, stdin []byte, limit int64) (*ExecResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, stopped(err)
	}
	control, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("sandbox: cannot make a socket: %w", err)
	}
	defer control.Close()
	input, err := inputFile(stdin)
	if err != nil {
		return nil, err
	}
	defer input.Close()
	stdout, stderr := &stream{limit: limit}, &stream{limit: limit}
	cmd := &exec.Cmd{
		Path: hidden.Self,
		Args: []string{hidden.Self, supervisorOption},
		// A process of the same user can read this environment in /proc.
		Env:         []string{"PATH=" + pathOf(nil)},
		Dir:         "/",
		Stdin:       input,
		Stdout:      stdout,
		Stderr:      stderr,
		ExtraFiles:  []*os.File{theirs, dir},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // the terminal's signals do not reach it
		WaitDelay:   pipeGrace,
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("sandbox: cannot start a supervisor: %w", err)
	}
	answer, err := converse(ctx, control, r, cmd.Process)
	if werr := cmd.Wait(); err == nil && werr != nil && !errors.Is(werr, exec.ErrWaitDelay) {
		err = werr
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: the supervisor of %q failed: %w%s", r.Argv[0], err, quoted(stderr.kept().first))
	}
	if answer.Outcome == "" {
		if err := ctx.Err(); err != nil {
			return nil, stopped(err)
		}
		return nil, fmt.Errorf("%w: %s", kinds[answer.Kind], answer.Error)
	}
	return conclude(ctx, r.Argv[0], r.Timeout, answer, stdout, stderr)
}

func quoted(said string) string {
	if len(said) == 0 {
		return ""
	}
	return fmt.Sprintf(": it said %q", said[:min(len(said), 256)])
}

// socketPair returns two ends of a connection. Shutting ours down for writing tells the
// other side to stop.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// converse hands over the request and waits for the report. When ctx ends, it stops the
// command, and still waits for the report.
func converse(ctx context.Context, control *os.File, r request, supervisor *os.Process) (report, error) {
	stop := context.AfterFunc(ctx, func() {
		// The file may be closed by now, and its number may belong to another file.
		if raw, err := control.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		}
	})
	defer stop()
	stuck := context.AfterFunc(ctx, func() {
		time.AfterFunc(r.KillAfter+stuckAfter, func() { _ = supervisor.Kill() }) // no effect once the supervisor has been waited for
	})
	defer stuck()
	var answer report
	err := gob.NewEncoder(control).Encode(r)
	if err != nil && ctx.Err() != nil {
		err = nil // the supervisor was stopped before it had the request, and reports that
	}
	if err == nil {
		err = gob.NewDecoder(control).Decode(&answer)
	}
	if errors.Is(err, io.EOF) && ctx.Err() == nil {
		err = errors.New("it was killed")
	}
	if ctx.Err() != nil && answer.Outcome == "" {
		err = nil // stopped before the command began
	}
	return answer, err
}
