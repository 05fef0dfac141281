package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"pikuri/lib/jsonline"
)

// maxLine bounds a message, and so the content of a file in one call.
const maxLine = 16 << 20

// maxID bounds the text of an id. The server keeps it until it has answered the request.
const maxID = 1024

// versions are the supported versions of the protocol. They exclude 2025-03-26, the only
// version that requires servers to take batches.
var versions = slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v == batchVersion })

const (
	batchVersion  = "2025-03-26"
	beforeBatches = "2024-11-05"
)

// stdio is a transport that the client cannot end with an invalid line. The transports of
// go-sdk v1.8.0 end at the first line that is not a message, and the server ends all jobs.
type stdio struct {
	in   io.Reader
	out  io.Writer
	gone chan struct{} // closed when the input has ended
}

func newStdio(in io.Reader, out io.Writer) *stdio { return &stdio{in, out, make(chan struct{})} }

// Connect starts to read.
func (t *stdio) Connect(context.Context) (mcp.Connection, error) {
	c := &conn{out: t.out, lines: make(chan incoming), closed: make(chan struct{}), open: map[jsonrpc.ID]bool{}}
	gone := sync.OnceFunc(func() { close(t.gone) })
	go func() {
		c.readLines(bufio.NewReader(t.in))
		gone()
	}()
	go func() {
		if hungUp(t.in) {
			gone()
		}
	}()
	return c, nil
}

// hungUp waits until a pipe or a socket has no writer any more, even with unread data in
// it: nothing is read while an answer has no reader.
func hungUp(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	var fds [1]unix.PollFd
	if raw.Control(func(fd uintptr) { fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP} }) != nil {
		return false
	}
	for {
		if _, err := unix.Poll(fds[:], -1); err != unix.EINTR {
			return err == nil && fds[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0
		}
	}
}

type conn struct {
	lines  chan incoming
	closed chan struct{}
	once   sync.Once

	writing sync.Mutex
	out     io.Writer

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // requests without an answer; true: the client has cancelled it
}

type incoming struct {
	line []byte
	err  error
}

func (c *conn) SessionID() string { return "" }

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// readLines can outlive the connection, because a read of standard input cannot be
// interrupted.
func (c *conn) readLines(in *bufio.Reader) {
	for {
		line, err := jsonline.ReadLine(in, maxLine)
		select {
		case c.lines <- incoming{line, err}:
		case <-c.closed:
			return
		}
		if err != nil && !jsonline.IsTooLong(err) {
			return
		}
	}
}

// Read returns the next message. It answers a line that is not a message itself.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var in incoming
		select {
		case in = <-c.lines:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if in.err != nil && !jsonline.IsTooLong(in.err) {
			return nil, in.err
		}
		msg, problem := c.message(in)
		if problem != nil {
			if err := c.send(problem); err != nil {
				return nil, err
			}
		}
		if msg != nil {
			return msg, nil
		}
	}
}

// problem is the response to an invalid line.
type problem struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"` // null if the line has none that can be used
	Error   *jsonrpc.Error  `json:"error"`
}

func wrong(id json.RawMessage, code int64, format string, args ...any) *problem {
	if id == nil {
		id = json.RawMessage("null")
	}
	return &problem{"2.0", id, &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// message returns the message of a line, or an error response, or neither: it ignores a
// response without a request.
func (c *conn) message(in incoming) (jsonrpc.Message, *problem) {
	if in.err != nil {
		return nil, wrong(nil, jsonrpc.CodeInvalidRequest, "%v", in.err)
	}
	msg, problem := parse(in.line)
	request, ok := msg.(*jsonrpc.Request)
	if problem != nil || !ok {
		return msg, problem
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, twice := c.open[request.ID]; twice && request.IsCall() {
		return nil, wrong(nil, jsonrpc.CodeInvalidRequest, "the id %v is that of a request that is not answered yet", request.ID.Raw())
	}
	switch {
	case request.IsCall():
		c.open[request.ID] = false
	case request.Method == "notifications/cancelled":
		c.cancel(request.Params)
	}
	return msg, nil
}

// cancel marks a request as cancelled, so that Write drops its answer. The SDK cancels the
// context of the request, but answers it all the same.
func (c *conn) cancel(params json.RawMessage) {
	var p struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	if _, ok := c.open[id]; err == nil && ok {
		c.open[id] = true
	}
}

// parse reads one line. It compares the keys of a message exactly: encoding/json would take
// "ID" for "id" in a struct.
func parse(line []byte) (jsonrpc.Message, *problem) {
	line = bytes.TrimSpace(line)
	var fields map[string]json.RawMessage
	switch {
	case len(line) == 0:
		return nil, nil
	case !utf8.Valid(line) || !json.Valid(line):
		return nil, wrong(nil, jsonrpc.CodeParseError, "the line is not JSON")
	case line[0] == '[':
		return nil, wrong(nil, jsonrpc.CodeInvalidRequest, "batches are not part of the protocol versions %v", versions)
	case json.Unmarshal(line, &fields) != nil || fields == nil:
		return nil, wrong(nil, jsonrpc.CodeInvalidRequest, "the line is not an object")
	}
	if fields["method"] == nil && (fields["result"] != nil || fields["error"] != nil) {
		response, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			return nil, nil
		}
		return response, nil
	}
	id := fields["id"]
	if id != nil && !usable(id) {
		return nil, wrong(nil, jsonrpc.CodeInvalidRequest, "the id is neither a string nor a whole number")
	}
	if err := once(line, fields); err != nil {
		return nil, wrong(nil, jsonrpc.CodeInvalidRequest, "%v", err)
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(fields["params"], &params) == nil && params != nil {
		if err := once(fields["params"], params); err != nil {
			return nil, wrong(id, jsonrpc.CodeInvalidParams, "%v", err)
		}
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, wrong(id, jsonrpc.CodeInvalidRequest, "this is no request of JSON-RPC 2.0: %v", err)
	}
	request, ok := msg.(*jsonrpc.Request)
	if !ok {
		return nil, wrong(id, jsonrpc.CodeInvalidRequest, "there is no method")
	}
	if problem := checkVersion(request, id); problem != nil {
		return nil, problem
	}
	return request, nil
}

// once refuses an object in which a field is there twice: another program may take the
// first value, and the SDK takes the last.
func once(object json.RawMessage, fields map[string]json.RawMessage) error {
	o := jsonline.Parse(object)
	for name := range fields {
		o.Raw(name)
	}
	return o.End()
}

// usable reports whether the server can return an id unchanged. The SDK keeps a number as
// an int64, by way of a float64.
func usable(id json.RawMessage) bool {
	const exact = 1 << 53
	var number int64
	return id[0] == '"' && len(id) <= maxID ||
		json.Unmarshal(id, &number) == nil && id[0] != 'n' && -exact <= number && number <= exact
}

// checkVersion refuses an unsupported version of the protocol, for which the SDK would use
// another one. In initialize, it replaces the version that has batches by the version
// before.
func checkVersion(r *jsonrpc.Request, id json.RawMessage) *problem {
	if !r.IsCall() {
		return nil
	}
	var params map[string]json.RawMessage
	_ = json.Unmarshal(r.Params, &params) // the SDK refuses other parameters
	var asked string
	if r.Method == "initialize" {
		if json.Unmarshal(params["protocolVersion"], &asked) != nil {
			return wrong(id, jsonrpc.CodeInvalidParams, "the protocolVersion is not a string")
		}
		if asked == batchVersion { // a client that speaks it speaks the version before too
			params["protocolVersion"], _ = json.Marshal(beforeBatches)
			r.Params, _ = json.Marshal(params)
		}
		return nil
	}
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(params["_meta"], &meta)
	version := meta[mcp.MetaKeyProtocolVersion]
	if version == nil {
		return nil
	}
	if json.Unmarshal(version, &asked) != nil {
		return wrong(id, jsonrpc.CodeInvalidParams, "the protocolVersion is not a string")
	}
	if slices.Contains(versions, asked) {
		return nil
	}
	problem := wrong(id, mcp.CodeUnsupportedProtocolVersion, "unsupported protocol version")
	problem.Error.Data, _ = json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: versions, Requested: asked})
	return problem
}

// Write sends a message of the server, unless it answers a cancelled request.
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	if response, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		cancelled := c.open[response.ID]
		delete(c.open, response.ID)
		c.mu.Unlock()
		if cancelled {
			return nil
		}
		response.Error = withCode(response.Error)
	}
	line, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return c.write(line)
}

// withCode adds the error code that the SDK omits, for requests before the handshake and
// for a second handshake.
func withCode(err error) error {
	coded, ok := errors.AsType[*jsonrpc.Error](err)
	if err == nil || ok && coded.Code != 0 {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
}

func (c *conn) send(p *problem) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return c.write(line)
}

func (c *conn) write(line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.out.Write(append(line, '\n'))
	return err
}
