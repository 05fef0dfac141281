package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/internal/rlimit"
	"pikuri/lib/session"
)

// Descriptors of a gate process that starts.
const (
	firstFD  = 3 // the connection to the set-up program that starts it
	listenFD = 4 // a listening socket for the other set-up programs of the session
)

// end is the message of a set-up program whose sandbox has ended. Before, it has sent its
// Config as a line, and got a reply with the command's network namespace.
const end = 'e'

// reply is the gate's answer to a Config, one line of JSON.
type reply struct {
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// goodbye is the gate's answer to end, one line of JSON.
type goodbye struct {
	Last    bool     `json:"last"` // the gate ends, since it has no other user
	Records []Record `json:"records"`
}

// main is the gate process. args are "session" for a gate that others may join.
func main(args []string) error {
	shared := len(args) == 1 && args[0] == sharedWord
	kind, err := unix.GetsockoptInt(firstFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM || len(args) > 0 && !shared {
		return hidden.ErrOwnUse
	}
	_ = os.WriteFile("/proc/self/comm", []byte(session.GateTitle), 0) // for the output of ps
	rlimit.Raise()
	for fd := firstFD; fd <= listenFD; fd++ {
		unix.CloseOnExec(fd)
	}
	first, err := connection(firstFD)
	if err != nil {
		return err
	}
	var l net.Listener
	if shared {
		if l, err = listener(listenFD); err != nil {
			answerError(first, err)
			return hidden.Status(1)
		}
	}
	g := &process{shared: shared, closed: make(chan struct{})}
	c, namespace, err := readConfig(first)
	namespace.Close() // Close accepts nil
	if err == nil {
		err = g.open(c)
	}
	if err != nil {
		answerError(first, err)
		return hidden.Status(1)
	}
	g.enter()
	if shared {
		go g.acceptUsers(l)
	}
	go g.user(first)
	<-g.closed
	return nil
}

const sharedWord = "session"

// connection is an inherited socket.
func connection(fd uintptr) (*net.UnixConn, error) {
	f := os.NewFile(fd, "connection")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, hidden.ErrOwnUse
	}
	return u, nil
}

// listener listens again: a client finds the process that did that last (SO_PEERCRED).
func listener(fd uintptr) (net.Listener, error) {
	if err := unix.Listen(int(fd), backlog); err != nil {
		return nil, err
	}
	f := os.NewFile(fd, "listener")
	defer f.Close()
	return net.FileListener(f)
}

// process is a gate with its users.
type process struct {
	shared bool
	config Config
	server *server

	mu     sync.Mutex
	users  int // -1: the gate is ending
	closed chan struct{}
}

// enter counts a user, unless the gate ends.
func (g *process) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users < 0 {
		return false
	}
	g.users++
	return true
}

// leave reports whether the last user has left. It then closes the ports of the host: the
// next gate may need them.
func (g *process) leave() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users > 0 {
		return false
	}
	g.users = -1
	g.server.unpublish()
	return true
}

// open makes the network and begins to serve. Then it drops the capabilities over the
// network namespaces: the gate reads bytes of the command's.
func (g *process) open(c Config) error {
	g.config = c
	if err := rlimit.Signals(); err != nil { // dropCapabilities would not return
		return err
	}
	w, err := makeWires(c)
	if err != nil {
		return err
	}
	g.server = newServer(c, w)
	if err := g.server.start(); err != nil {
		return err
	}
	dropCapabilities()
	return nil
}

// dropCapabilities removes all capabilities from the threads of this process. In a
// program with cgo the Go library cannot do that; the gate's capabilities are those of a
// user namespace in which it is alone with the set-up program.
func dropCapabilities() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
}

// configTime bounds the wait for a Config, which is sent at once.
const configTime = 10 * time.Second

// acceptUsers serves the other set-up programs of the session.
func (g *process) acceptUsers(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			c := c.(*net.UnixConn)
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(configTime))
			config, namespace, err := readConfig(c)
			_ = c.SetReadDeadline(time.Time{})
			if !isOwn(namespace) {
				return
			}
			if err == nil && !config.Equal(g.config) {
				err = &Failure{
					fmt.Errorf("other commands of the session have another network: %s", g.config),
					"wait for their end, give the same network options, or use another session",
				}
			}
			if err != nil {
				answerError(c, err)
			} else if g.enter() {
				g.user(c)
			}
		}()
	}
}

// isOwn reports whether a file is the gate's own user namespace, that of the set-up
// programs of its session. A command may reach the socket through a root that shows the
// session directory. It is in a namespace below, and the kernel gives it no descriptor of
// one above (ioctl_nsfs(2)).
func isOwn(namespace *os.File) bool {
	if namespace == nil {
		return false
	}
	defer namespace.Close()
	theirs, err := namespace.Stat()
	own, failed := os.Stat(userNamespace)
	return err == nil && failed == nil && os.SameFile(own, theirs)
}

const userNamespace = "/proc/self/ns/user"

// user serves one set-up program to its end.
func (g *process) user(c *net.UnixConn) {
	r := newReport()
	g.server.tell(r, true)
	line, _ := json.Marshal(reply{})
	_, _, err := c.WriteMsgUnix(append(line, '\n'), unix.UnixRights(int(g.server.command.Fd())), nil)
	word := make([]byte, 1)
	if err == nil {
		_, err = c.Read(word)
	}
	if err == nil && word[0] == end {
		g.finish()
	}
	g.server.tell(r, false)
	last := g.leave()
	if line, err := json.Marshal(goodbye{last, r.all()}); err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(drainTime)) // a set-up program that was killed does not read it
		_, _ = c.Write(append(line, '\n'))
	}
	if last {
		close(g.closed)
	}
}

// endTime bounds the wait for connections whose command has ended. The kernel has closed
// the command's ends; the hosts' may be slow.
const endTime = 300 * time.Millisecond

// finish completes the report of a command that has ended. Other commands of the
// session may have connections, which stay.
func (g *process) finish() {
	left := g.server.closing()
	for limit := time.Now().Add(endTime); left > 0 && time.Now().Before(limit); left = g.server.closing() {
		time.Sleep(time.Millisecond)
	}
	g.server.drain()
	for range left {
		g.server.add(Record{Verdict: Failed, Protocol: "tcp", Reason: "connections that had not ended with the command"})
	}
}

// maxConfig bounds a Config as a line.
const maxConfig = 4 << 20

// readConfig reads a Config, and the file sent with it, or nil.
func readConfig(from *net.UnixConn) (c Config, with *os.File, err error) {
	var line []byte
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	for !bytes.HasSuffix(line, []byte("\n")) && len(line) < maxConfig {
		n, space, _, _, err := from.ReadMsgUnix(buf, oob)
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return c, with, err
		}
		line = append(line, buf[:n]...)
		files, err := filesIn(oob[:space])
		if err != nil {
			return c, with, err
		}
		for _, fd := range files {
			with.Close()
			with = os.NewFile(uintptr(fd), "namespace")
		}
	}
	return c, with, json.Unmarshal(line, &c)
}

// filesIn returns the descriptors in a control message.
func filesIn(oob []byte) (files []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		files = append(files, fds...)
	}
	return files, nil
}

func answerError(c io.Writer, err error) {
	r := reply{Error: err.Error()}
	if f, ok := errors.AsType[hinted](err); ok {
		r.Advice = f.Hint()
	}
	if line, err := json.Marshal(r); err == nil {
		_, _ = c.Write(append(line, '\n'))
	}
}
