package monitor

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// screen relays between the caller's terminal and that of a sandbox. The caller's is in raw mode meanwhile, if
// the caller sits at it and standard output is there: keys have their effect in the sandbox's.
//
// If standard output goes elsewhere, another program may have the keys, as less in "pk-bwrap -- CMD | less" or
// sudo in "pk-bwrap -- CMD | sudo tee FILE". Then the caller's terminal has the modes that the command has set
// in the sandbox's, edits and echoes the lines itself (EXTPROC in termios(3)), and is read only while no other program
// has changed them.
type screen struct {
	sandbox   *Sandbox
	master    int
	in, out   int // the caller's terminal; -1 for none
	lines     bool
	modes     *unix.Termios
	onSuspend func()
	idle      *time.Timer
	looks     atomic.Int32 // left, for a command that stops itself
	typed     atomic.Int32 // the last signal whose key the caller typed

	mu      sync.Mutex
	active  bool          // input is relayed
	rests   bool          // until resume
	set     *unix.Termios // the modes that this process has given the caller's terminal, or nil
	claimed bool
	lock    int    // of the caller's terminal, or -1
	wake    [2]int // a pipe: look again whether input is relayed
	done    chan struct{}
}

// isRaw reports whether the caller's terminal is in raw mode while it has the input, for the streams that are terminals.
func isRaw(terminals []int) bool {
	return slices.Contains(terminals, 0) && slices.Contains(terminals, 1)
}

// newScreen begins to relay. suspend is called when the caller types the key that
// suspends, and no shell in the sandbox is there to take it; idle soon after input or output:
// before a command stops itself, it reads a key, or leaves the terminal as it was.
func newScreen(s *Sandbox, streams [3]*os.File, suspend, idle func()) *screen {
	c := &screen{sandbox: s, master: int(s.master.Fd()), in: -1, out: -1, onSuspend: suspend, done: make(chan struct{})}
	c.idle = time.AfterFunc(time.Hour, func() {
		idle()
		if left := c.looks.Add(-1); left > 0 {
			c.idle.Reset(nextLook << (looks - 1 - left))
		}
	})
	list := terminals(streams)
	for _, fd := range list {
		if fd == 0 {
			c.in = numberOf(streams[fd])
		} else if c.out < 0 {
			c.out = numberOf(streams[fd])
		}
	}
	if unix.Pipe2(c.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		c.in = -1
	}
	c.lines = c.in >= 0 && !isRaw(list)
	if c.lines {
		_ = unix.IoctlSetPointerInt(c.master, unix.TIOCPKT, 1) // tells changes of the modes
		c.adopt(c.master)
		c.modes = nil
	} else if c.in < 0 {
		c.adopt(c.out)
	}
	if c.out < 0 {
		c.out = c.in
	}
	c.resize()
	c.busy()
	go c.show()
	c.resume()
	if c.in >= 0 {
		go c.read()
	}
	return c
}

// adopt gives the sandbox's terminal the modes of another one. The processing of output is left to the caller's
// while that is not raw.
func (c *screen) adopt(from int) {
	if c.modes, _ = unix.IoctlGetTermios(from, unix.TCGETS); c.modes == nil {
		return
	}
	modes := *c.modes
	if c.lines {
		modes.Lflag |= unix.EXTPROC
	}
	if c.lines || c.in < 0 { // Job.Unprocessed, too
		modes.Oflag &^= unix.OPOST
	}
	_ = unix.IoctlSetTermios(c.master, unix.TCSETS, &modes)
}

// The times after input or output at which a command is looked for that has stopped itself.
const (
	firstLook = 50 * time.Millisecond
	nextLook  = 300 * time.Millisecond
	looks     = 6 // the time doubles: on a busy machine a command takes seconds
)

// busy notes input or output.
func (c *screen) busy() {
	c.looks.Store(looks)
	c.idle.Reset(firstLook)
}

// resize gives the sandbox's terminal the size of the caller's.
func (c *screen) resize() {
	for _, fd := range []int{c.out, c.in} {
		if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			_ = unix.IoctlSetWinsize(c.master, unix.TIOCSWINSZ, size)
			return
		}
	}
}

// resume relays input if this process is in the foreground.
func (c *screen) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests = false
	c.activate()
}

func (c *screen) activate() {
	if c.in < 0 || c.active || !inForeground(c.in) {
		return
	}
	if !c.claimed {
		if c.lock, c.claimed = claim(c.in); !c.claimed {
			return // as in the background
		}
	}
	if c.lines && c.set == nil && !c.begins() {
		return
	}
	c.active = true
	if c.modes == nil { // before, they may be those in which a shell reads a line
		c.adopt(c.in)
	}
	switch {
	case c.modes == nil:
	case c.lines:
		c.mirror()
	default:
		raw := *c.modes
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Oflag &^= unix.OPOST
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		c.give(&raw)
	}
	c.poke()
}

// begins notes the modes of the caller's terminal anew, which a shell may have changed. If they are those of a program
// that reads keys, or a password, that has to be no other one in the foreground.
func (c *screen) begins() bool {
	is, err := unix.IoctlGetTermios(c.in, unix.TCGETS)
	const edits = unix.ICANON | unix.ECHO
	if err != nil || is.Lflag&edits != edits && !alone() {
		return false
	}
	if c.modes != nil {
		c.modes = is
	}
	return true
}

// mirror gives the caller's terminal the modes that the command has set for input.
func (c *screen) mirror() {
	command, err := unix.IoctlGetTermios(c.master, unix.TCGETS)
	if err != nil || !c.active || !inForeground(c.in) || !c.undisturbed() {
		return
	}
	modes := *c.modes
	modes.Iflag, modes.Lflag, modes.Cc = command.Iflag, command.Lflag&^unix.EXTPROC, command.Cc
	if modes != *cmp.Or(c.set, c.modes) {
		c.give(&modes)
	}
}

// give sets the modes of the caller's terminal until cook.
func (c *screen) give(modes *unix.Termios) {
	if unix.IoctlSetTermios(c.in, unix.TCSETS, modes) == nil {
		c.set = modes
	}
}

// undisturbed reports whether the caller's terminal has the modes that it had at first, or that this process has given
// it.
func (c *screen) undisturbed() bool {
	is, err := unix.IoctlGetTermios(c.in, unix.TCGETS)
	return err == nil && c.modes != nil && *is == *cmp.Or(c.set, c.modes)
}

// suspend gives the caller's terminal back.
func (c *screen) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active, c.rests = false, true
	c.cook()
	c.poke()
}

func (c *screen) cook() {
	if c.set != nil && inForeground(c.in) && (!c.lines || c.undisturbed()) {
		_ = unix.IoctlSetTermios(c.in, unix.TCSETS, c.modes) // TCSETSW waits until the output is read
	}
	c.set = nil
	if c.claimed {
		unix.Close(c.lock)
		c.claimed = false
	}
}

func (c *screen) poke() { _, _ = unix.Write(c.wake[1], []byte{0}) }

// close shows the last of the output, and gives the caller's terminal back. If the terminal takes no output, it
// waits for that as the command would, or for a signal; sent came before.
func (c *screen) close(signals <-chan os.Signal, sent syscall.Signal) {
	var late <-chan time.Time
	if slices.Contains(endSignals, os.Signal(sent)) {
		late = time.After(drainTime)
	}
	for shown := false; !shown; {
		select {
		case <-c.done:
			shown = true
		case <-late:
			shown = true
		case sig := <-signals:
			if slices.Contains(endSignals, sig) && late == nil {
				late = time.After(drainTime)
			}
		}
	}
	c.idle.Stop()
	c.suspend()
}

var endSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

// drainTime bounds the wait after a signal.
const drainTime = 2 * time.Second

// show copies output until the sandbox has ended.
func (c *screen) show() {
	defer close(c.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Read(c.master, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		output := buf[:n]
		if c.lines { // the first byte is its kind (TIOCPKT in ioctl_tty(2))
			if output = output[1:]; buf[0] != unix.TIOCPKT_DATA {
				c.mu.Lock()
				c.mirror()
				c.mu.Unlock()
				continue
			}
		}
		writeAll(c.out, c.forCaller(output))
		c.busy()
	}
}

// forCaller leaves the carriage returns to a terminal that adds them itself, since
// it is not in raw mode.
func (c *screen) forCaller(output []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set != nil || c.lines || c.in < 0 {
		return output
	}
	return bytes.ReplaceAll(output, []byte("\r\n"), []byte("\n"))
}

// lookAgain is how often, in milliseconds, a process in the background looks whether it is in the foreground: a
// shell sends no signal to a job that runs.
const lookAgain = 100

// read copies input while this process is in the foreground. At the end of the caller's terminal it types the key
// that ends input.
func (c *screen) read() {
	defer c.endInput()
	buf := make([]byte, 4096)
	for {
		fds, wait := []unix.PollFd{{Fd: int32(c.wake[0]), Events: unix.POLLIN}}, -1
		c.mu.Lock()
		if _, err := unix.IoctlGetInt(c.in, unix.TIOCGPGRP); err == unix.EIO {
			c.mu.Unlock()
			return // a process in the background gets no SIGHUP
		}
		c.active = c.active && inForeground(c.in)
		if !c.rests {
			c.activate()
			wait = lookAgain
		}
		if c.active && (!c.lines || c.undisturbed()) {
			fds, wait = append(fds, unix.PollFd{Fd: int32(c.in), Events: unix.POLLIN}), -1
		}
		c.mu.Unlock()
		if c.lines {
			wait = lookAgain
		}
		if _, err := unix.Poll(fds, wait); err != nil && err != unix.EINTR {
			return
		}
		if fds[0].Revents != 0 {
			_, _ = unix.Read(c.wake[0], buf)
			continue
		}
		if len(fds) < 2 || fds[1].Revents == 0 {
			continue
		}
		n, err := c.input(buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil || n == 0 && fds[1].Revents&unix.POLLHUP != 0:
			return
		case n == 0: // the caller typed the end of the file
			c.endInput()
		default:
			c.enter(buf[:n])
			c.busy()
		}
	}
}

// input reads from the caller's terminal, unless another program has it by now.
func (c *screen) input(buf []byte) (int, error) {
	if !c.lines {
		if !inForeground(c.in) {
			return 0, unix.EAGAIN
		}
		return unix.Read(c.in, buf)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active || !inForeground(c.in) || !c.undisturbed() {
		return 0, unix.EAGAIN
	}
	if c.lock >= 0 { // never waits
		return unix.Read(c.lock, buf)
	}
	return unix.Read(c.in, buf)
}

// endInput types the key that ends input, where that has an effect. Without the editing of lines it has none together with
// other input.
func (c *screen) endInput() {
	modes, err := unix.IoctlGetTermios(c.master, unix.TCGETS)
	if err != nil || modes.Lflag&unix.ICANON == 0 {
		return
	}
	for c.lines && c.unread() {
		select {
		case <-c.done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	writeAll(c.master, []byte{modes.Cc[unix.VEOF]})
}

// unread reports whether the command has not yet read all of its input.
func (c *screen) unread() bool {
	slave, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(c.master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != 0 {
		return false
	}
	defer unix.Close(int(slave))
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(slave), Events: unix.POLLIN}}, 0) // all that was written is input then
	n, failed := unix.IoctlGetInt(int(slave), unix.TIOCINQ)
	return failed == nil && n > 0
}

// enter passes keys on, except the suspend key if nothing in the sandbox would stop
// for it. It notes the keys that interrupt the command itself, and not those for a job of a
// shell there.
func (c *screen) enter(keys []byte) {
	modes, err := unix.IoctlGetTermios(c.master, unix.TCGETS)
	for i, key := range keys {
		if err != nil || modes.Lflag&unix.ISIG == 0 || key == 0 || !slices.Contains([]byte{modes.Cc[unix.VSUSP], modes.Cc[unix.VINTR], modes.Cc[unix.VQUIT]}, key) {
			continue
		}
		if group, err := unix.IoctlGetInt(c.master, unix.TIOCGPGRP); err != nil || group != c.sandbox.bwrap {
			continue
		}
		switch key {
		case modes.Cc[unix.VINTR]:
			c.interrupt(unix.SIGINT)
		case modes.Cc[unix.VQUIT]:
			c.interrupt(unix.SIGQUIT)
		default:
			writeAll(c.master, keys[:i])
			c.onSuspend()
			c.enter(keys[i+1:])
			return
		}
	}
	writeAll(c.master, keys)
}

// interrupt notes the signal of a key, and sends it to the processes around this one.
func (c *screen) interrupt(sig syscall.Signal) {
	c.typed.Store(int32(sig))
	signalOthers(sig)
}

func writeAll(fd int, data []byte) {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err == unix.EAGAIN { // the caller's terminal is shared, and may be non-blocking
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		} else if err != nil && err != unix.EINTR {
			return
		}
		data = data[max(n, 0):]
	}
}
