package monitor

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// screen relays between the caller's terminal and that of a sandbox. The caller's
// is in raw mode meanwhile, if the caller sits at it: keys have their effect in
// the sandbox's.
type screen struct {
	sandbox   *Sandbox
	master    int
	in, out   int  // the caller's terminal; -1 for none
	free      bool // as in Foreground
	modes     *unix.Termios
	first     *unix.Termios // of the sandbox's terminal
	onSuspend func()
	idle      *time.Timer
	looks     atomic.Int32 // since input or output, for a command that has stopped itself
	typed     atomic.Int32 // the last signal whose key the caller typed

	mu      sync.Mutex
	active  bool // input is relayed
	rests   bool // until resume
	raw     bool
	claimed bool
	lock    int    // of the caller's terminal, or -1
	wake    [2]int // a pipe: look again whether input is relayed
	done    chan struct{}
}

// newScreen begins to relay. suspend is called when the caller types the key that
// suspends, and no shell in the sandbox is there to take it; idle from time to time, and soon
// after input or output: before a command stops itself, it reads a key, or leaves the terminal as it was.
func newScreen(s *Sandbox, f *Foreground, suspend, idle func()) *screen {
	c := &screen{sandbox: s, master: int(s.master.Fd()), in: -1, out: -1, free: f.free, first: f.terminal.Modes, onSuspend: suspend, done: make(chan struct{})}
	c.idle = time.AfterFunc(time.Hour, func() {
		select {
		case <-c.done:
			return
		default:
		}
		idle()
		c.idle.Reset(nextLook << min(c.looks.Add(1), doublings))
	})
	for _, fd := range f.terminal.Streams {
		if fd == 0 {
			c.in = numberOf(f.streams[fd])
		} else if c.out < 0 {
			c.out = numberOf(f.streams[fd])
		}
	}
	c.resize()
	if unix.Pipe2(c.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		c.in = -1
	}
	c.busy()
	go c.show()
	c.resume()
	if c.in >= 0 {
		go c.read()
	}
	return c
}

// adopt gives the sandbox's terminal the modes of the caller's if they are others than at the beginning, and the
// command has set none.
func (c *screen) adopt() {
	modes, err := unix.IoctlGetTermios(c.in, unix.TCGETS)
	if err != nil {
		return
	}
	c.modes = modes
	now, err := unix.IoctlGetTermios(c.master, unix.TCGETS)
	if c.first != nil && err == nil && *c.modes != *c.first && *now == *c.first {
		_ = unix.IoctlSetTermios(c.master, unix.TCSETS, c.modes)
	}
}

// The times after input or output at which a command is looked for that has stopped itself.
const (
	firstLook = 50 * time.Millisecond
	nextLook  = 150 * time.Millisecond
	doublings = 5
)

// busy notes input or output.
func (c *screen) busy() {
	c.looks.Store(0)
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

// hasKeys reports whether the keys of the caller's terminal are for this process.
func (c *screen) hasKeys() bool { return c.free || inForeground(c.in) }

// resume relays input if it is for this process. It sets raw mode only if
// the output goes to a terminal too.
func (c *screen) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests = false
	c.activate()
}

func (c *screen) activate() {
	if c.in < 0 || c.active || !c.hasKeys() {
		return
	}
	if !c.claimed {
		if c.lock, c.claimed = claim(c.in); !c.claimed {
			return // as in the background
		}
	}
	c.active = true
	if c.modes == nil { // before, they may be those in which a shell reads a line
		c.adopt()
	}
	if c.out >= 0 && c.modes != nil {
		raw := *c.modes
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Oflag &^= unix.OPOST
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		c.raw = unix.IoctlSetTermios(c.in, unix.TCSETS, &raw) == nil
	}
	c.poke()
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
	if c.raw && c.hasKeys() {
		_ = unix.IoctlSetTermios(c.in, unix.TCSETS, c.modes) // TCSETSW waits until the output is read
	}
	c.raw = false
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
		if c.out >= 0 {
			writeAll(c.out, c.forCaller(buf[:n]))
		}
		c.busy()
	}
}

// forCaller leaves the carriage returns to a terminal that adds them itself, since
// it is not in raw mode.
func (c *screen) forCaller(output []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw {
		return output
	}
	return bytes.ReplaceAll(output, []byte("\r\n"), []byte("\n"))
}

// lookAgain is how often, in milliseconds, a process in the background looks whether it is in the foreground: a
// shell sends no signal to a job that runs.
const lookAgain = 100

// read copies input while this process is in the foreground.
func (c *screen) read() {
	defer c.hangUp()
	buf := make([]byte, 4096)
	for {
		fds, wait := []unix.PollFd{{Fd: int32(c.wake[0]), Events: unix.POLLIN}}, -1
		c.mu.Lock()
		if _, err := unix.IoctlGetInt(c.in, unix.TIOCGPGRP); err == unix.EIO {
			c.mu.Unlock()
			return // a process in the background gets no SIGHUP
		}
		c.active = c.active && c.hasKeys()
		if !c.rests {
			c.activate()
			wait = lookAgain
		}
		if c.active {
			fds, wait = append(fds, unix.PollFd{Fd: int32(c.in), Events: unix.POLLIN}), -1
		}
		if c.free { // no SIGWINCH comes
			c.resize()
			wait = lookAgain
		}
		c.mu.Unlock()
		if _, err := unix.Poll(fds, wait); err != nil && err != unix.EINTR {
			return
		}
		if fds[0].Revents != 0 {
			_, _ = unix.Read(c.wake[0], buf)
			continue
		}
		if len(fds) < 2 || fds[1].Revents == 0 || !c.hasKeys() {
			continue
		}
		n, err := unix.Read(c.in, buf)
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

// hangUp ends the command's input when the caller's terminal has gone, as the kernel does: each line, but no single key.
func (c *screen) hangUp() {
	if c.free { // the kernel sends it to a session only, and the caller may ignore it
		_ = unix.Kill(unix.Getpid(), unix.SIGHUP)
	}
	for {
		select {
		case <-c.done:
			return
		case <-time.After(lookAgain * time.Millisecond):
		}
		c.endInput()
	}
}

// endInput types the key that ends input, where that has an effect.
func (c *screen) endInput() {
	if modes, err := unix.IoctlGetTermios(c.master, unix.TCGETS); err == nil && modes.Lflag&unix.ICANON != 0 {
		writeAll(c.master, []byte{modes.Cc[unix.VEOF]})
	}
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
			if !c.free { // else nobody would continue it
				c.onSuspend()
			}
			c.enter(keys[i+1:])
			return
		}
	}
	writeAll(c.master, keys)
}

// interrupt notes the signal of a key, and sends it to the processes around this one, if they have the terminal too.
func (c *screen) interrupt(sig syscall.Signal) {
	c.typed.Store(int32(sig))
	if !c.free {
		signalOthers(sig)
	}
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
