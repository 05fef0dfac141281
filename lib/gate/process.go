package gate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// Descriptors of a gate process that starts.
const (
	firstFD  = 3 // the connection to the set-up program that starts it
	reportFD = 4 // where records go
	listenFD = 5 // a listening socket for the other set-up programs of the session
)

// The words of the protocol between set-up program and gate. A set-up program sends its
// Config as a line, and gets an answer with the command's network namespace. When its
// sandbox has ended it says end, and gets drained once all is reported.
const (
	end     = 'e'
	drained = 'd'
)

// reply is the gate's answer to a Config, one line of JSON.
type reply struct {
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// main is the gate process. args are the word "session" for a gate that others may join.
func main(args []string) error {
	shared := len(args) == 1 && args[0] == sharedWord
	kind, err := unix.GetsockoptInt(firstFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM || len(args) > 0 && !shared {
		return hidden.ErrOwnUse
	}
	_ = os.WriteFile("/proc/self/comm", []byte("pk-gate"), 0) // a courtesy to ps
	for fd := firstFD; fd <= listenFD; fd++ {
		unix.CloseOnExec(fd)
	}
	first, err := connection(firstFD)
	if err != nil {
		return err
	}
	g := &process{shared: shared}
	in := bufio.NewReader(first)
	c, err := readConfig(in)
	if err == nil {
		err = g.open(c)
	}
	if err != nil {
		answerError(first, err)
		return hidden.Status(1)
	}
	g.users.Add(1)
	if shared {
		l, err := listener(listenFD)
		if err != nil {
			answerError(first, err)
			return hidden.Status(1)
		}
		go g.acceptUsers(l)
	}
	go g.user(first, in)
	g.users.Wait()
	g.server.unpublish()
	return nil
}

const sharedWord = "session"

// connection is a socket that was inherited.
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

func listener(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	return net.FileListener(f)
}

// process is a gate with its users.
type process struct {
	shared bool
	config Config
	server *server
	users  sync.WaitGroup
}

// open makes the network and begins to serve.
func (g *process) open(c Config) error {
	g.config = c
	w, err := makeWires(c)
	if err != nil {
		return err
	}
	g.server = newServer(c, w, os.NewFile(reportFD, "report"))
	return g.server.start()
}

// acceptUsers serves the other set-up programs of the session.
func (g *process) acceptUsers(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		g.users.Add(1)
		go func() {
			in := bufio.NewReader(c)
			config, err := readConfig(in)
			if err == nil && !config.Equal(g.config) {
				err = &Failure{
					fmt.Errorf("other commands of the session have another network: %s", g.config),
					"wait for their end, give the same network options, or use another session",
				}
			}
			if err != nil {
				answerError(c, err)
				c.Close()
				g.users.Done()
				return
			}
			g.user(c.(*net.UnixConn), in)
		}()
	}
}

// user answers one set-up program to its end.
func (g *process) user(c *net.UnixConn, in *bufio.Reader) {
	defer g.users.Done()
	defer c.Close()
	line, _ := json.Marshal(reply{})
	_, _, err := c.WriteMsgUnix(append(line, '\n'), unix.UnixRights(int(g.server.command.Fd())), nil)
	for err == nil {
		var word byte
		if word, err = in.ReadByte(); err == nil && word == end {
			g.finish()
			_, err = c.Write([]byte{drained})
		}
	}
}

// endTime bounds the wait for connections whose command has ended. The kernel has
// closed the command's ends; the hosts' may be slow.
const endTime = 300 * time.Millisecond

// finish completes the report of a command that has ended. In a session other commands
// may have connections.
func (g *process) finish() {
	idle := make(chan struct{})
	if !g.shared {
		g.server.unpublish()
		go func() {
			g.server.busy.Wait()
			close(idle)
		}()
		select {
		case <-idle:
		case <-time.After(endTime):
		}
	}
	g.server.drain()
}

// maxConfig bounds a Config as a line.
const maxConfig = 4 << 20

func readConfig(in *bufio.Reader) (c Config, err error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return c, json.Unmarshal(line, &c)
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxConfig {
			return c, err
		}
	}
}

func answerError(c io.Writer, err error) {
	r := reply{Error: err.Error()}
	if f, ok := errors.AsType[*Failure](err); ok {
		r.Advice = f.Advice
	}
	if line, err := json.Marshal(r); err == nil {
		_, _ = c.Write(append(line, '\n'))
	}
}
