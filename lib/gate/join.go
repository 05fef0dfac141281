package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/session"
)

// Link is a set-up program's connection to its gate.
type Link struct {
	Network int // the command's network namespace, open
	conn    int
	pid     int // of a gate that this process has started; 0: none
}

// lockName is, in a session directory, a file that is locked while a gate is started.
const lockName = ".gate-starts"

const (
	// startTime bounds the wait for a gate, and for another command that starts it.
	startTime = 30 * time.Second

	// drainTime bounds the wait for the last records, which take endTime to gather.
	drainTime = 3 * time.Second

	// joinTries bounds the retries if the gate found is about to end.
	joinTries = 20
)

// Begin starts a gate for one sandbox, which waits for its Config. The gate is in the
// user namespace of the calling process, which must be that of a set-up program.
func Begin() (*Link, error) {
	l, err := start(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot start the gate: %w", err)
	}
	return l, nil
}

// Configure makes the gate create its network.
func (l *Link) Configure(c Config) error {
	if err := l.ask(c); err != nil {
		return fmt.Errorf("cannot make the network of the sandbox: %w", err)
	}
	return nil
}

// Join connects to the gate of the session whose directory is open as dir, or starts it,
// as Begin and Configure do.
func Join(c Config, dir int) (*Link, error) {
	for range joinTries {
		l, err := find(c, dir)
		if errors.Is(err, errGone) {
			l, err = startShared(c, dir)
		}
		if !errors.Is(err, errGone) {
			return l, err
		}
	}
	return nil, errors.New("the gate of the session ends as soon as it is found")
}

// errGone means that there is no gate, or that it has just ended.
var errGone = errors.New("the gate has ended")

// address names the socket in an open directory, whose path may have any length.
func address(dir int) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, session.GateSocket)}
}

// find connects to the gate of a session.
func find(c Config, dir int) (*Link, error) {
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := &Link{conn: conn}
	if err := unix.Connect(conn, address(dir)); err != nil {
		l.close()
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, errGone
		}
		return nil, fmt.Errorf("cannot connect to the gate of the session: %w", err)
	}
	return l, l.ask(c)
}

// startShared starts the gate of a session, one process at a time.
func startShared(c Config, dir int) (*Link, error) {
	lock, err := unix.Openat(dir, lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	defer unix.Close(lock)
	for limit := time.Now().Add(startTime); ; time.Sleep(time.Millisecond) {
		if err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK && err != unix.EINTR {
			break
		}
		if time.Now().After(limit) {
			return nil, errors.New("another command takes too long to start the gate of the session")
		}
	}
	if err != nil {
		return nil, err
	}
	if l, err := find(c, dir); !errors.Is(err, errGone) {
		return l, err
	}
	listening, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(listening)
	if err := unix.Unlinkat(dir, session.GateSocket, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	if err := unix.Bind(listening, address(dir)); err != nil {
		return nil, fmt.Errorf("cannot make the socket of the gate: %w", err)
	}
	if err := unix.Listen(listening, backlog); err != nil {
		return nil, err
	}
	l, err := start(listening)
	if err == nil {
		err = l.ask(c)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the gate of the session: %w", err)
	}
	return l, nil
}

// start starts a gate process. It has no descriptor of the caller's and no terminal, and
// executing a program gives it no capability that it has dropped.
func start(listening int) (*Link, error) {
	if err := hidden.Check(Mode.Name); err != nil {
		return nil, err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(null)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := &Link{conn: pair[0]}
	line := []string{session.GateTitle, Mode.Name}
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pair[1])}
	if listening >= 0 {
		files, line = append(files, uintptr(listening)), append(line, sharedWord)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine: the gate alone inherits the flag
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			l.pid, err = syscall.ForkExec(hidden.Self, line, &syscall.ProcAttr{
				Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
			})
		}
		done <- err
	}()
	err = <-done
	unix.Close(pair[1])
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// ask sends a Config, and receives the network.
func (l *Link) ask(c Config) (err error) {
	defer func() {
		if err != nil {
			l.abandon()
		}
	}()
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	namespace, err := os.Open(userNamespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	rights := unix.UnixRights(int(namespace.Fd()))
	for line = append(line, '\n'); len(line) > 0; rights = nil {
		n, err := unix.SendmsgN(l.conn, line, rights, nil, unix.MSG_NOSIGNAL)
		for err == unix.EINTR {
			n, err = unix.SendmsgN(l.conn, line, rights, nil, unix.MSG_NOSIGNAL)
		}
		if err != nil {
			return gone(err)
		}
		line = line[n:]
	}
	answer, files, err := l.receive(startTime)
	if errors.Is(err, unix.EAGAIN) {
		return l.silent()
	}
	if err != nil {
		return gone(err)
	}
	var r reply
	if err := json.Unmarshal(answer, &r); err != nil {
		return fmt.Errorf("internal error: an answer of the gate: %w", err)
	}
	switch {
	case r.Error != "":
		return &Failure{errors.New(r.Error), r.Advice}
	case len(files) != 1:
		return errors.New("internal error: the gate has sent no network")
	}
	l.Network = files[0]
	return nil
}

// silent is the error of a gate that does not answer.
func (l *Link) silent() error {
	f := &Failure{errors.New("the gate does not answer"), "try again"}
	if l.pid > 0 { // abandon ends it
		return f
	}
	f.Advice = "pk-sweep --session ends it with the session, when no command runs there"
	if peer, err := unix.GetsockoptUcred(l.conn, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && peer.Pid > 0 {
		f.Advice = fmt.Sprintf("end process %[1]d (pk-gate): kill -KILL %[1]d; or, if it is stopped, continue it", peer.Pid)
	}
	return f
}

// abandon closes the connection to a gate that has given no network. If this process has started
// the gate, it ends it too: a gate that hangs is in the way of the next.
func (l *Link) abandon() {
	l.close()
	if l.pid > 0 {
		_ = syscall.Kill(l.pid, syscall.SIGKILL) // not reaped yet, so the number is still its own
		_, _ = syscall.Wait4(l.pid, nil, 0, nil)
	}
}

// gone reports whether an error is the end of a gate.
func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return errGone
	}
	return err
}

// receive reads a line, each part of it within a time, and the files sent with it.
func (l *Link) receive(limit time.Duration) (line []byte, files []int, err error) {
	wait := unix.NsecToTimeval(limit.Nanoseconds())
	_ = unix.SetsockoptTimeval(l.conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, space, _, _, err := unix.Recvmsg(l.conn, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return nil, nil, err
		}
		line = append(line, buf[:n]...)
		more, err := filesIn(oob[:space])
		if err != nil {
			return nil, nil, err
		}
		files = append(files, more...)
	}
	return line, files, nil
}

func (l *Link) close() { unix.Close(l.conn) }

// End is called when the sandbox has ended. It returns the gate's records when these are
// complete and, if the gate has no other user, the gate has ended. It returns nil if the
// gate was killed.
func (l *Link) End() []Record {
	defer l.close()
	if _, err := unix.SendmsgN(l.conn, []byte{end}, nil, nil, unix.MSG_NOSIGNAL); err != nil {
		return nil
	}
	line, _, err := l.receive(drainTime)
	var said goodbye
	if err != nil || json.Unmarshal(line, &said) != nil {
		return nil
	}
	if said.Last && l.pid > 0 {
		l.reap()
	}
	return said.Records
}

// reap waits for the end of the gate: the first process of a container may not reap orphans. A gate that was stopped is
// killed.
func (l *Link) reap() {
	if gate, err := unix.PidfdOpen(l.pid, 0); err == nil {
		if !session.AwaitEnd(gate, drainTime) {
			_ = unix.PidfdSendSignal(gate, unix.SIGKILL, nil, 0)
		}
		unix.Close(gate)
	}
	_, _ = syscall.Wait4(l.pid, nil, 0, nil)
}
