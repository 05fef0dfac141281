package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/jsonline"
)

// Request is one line of input: a command to run, or with Op another operation.
type Request struct {
	ID          json.RawMessage // as it came; nil for none
	Op          Op              // "" for a command that is run to its end
	Command     string
	Description string
	Timeout     *int // in seconds

	Dir    string   // OpStart: directory to begin in; "" for the kept one
	In     string   // OpStart: the kept directory has to be this one, absolute and as seen inside; or ""
	Input  bool     // OpStart: standard input is a pipe
	TTY    *Size    // OpStart: or a terminal of that size. OpResize
	Events []string // OpStart: events to tell of

	Job    string          // that the operation is about
	Since  *int64          // OpRead
	Most   int             // OpRead: bytes of output; 0 for the default
	Wait   time.Duration   // for output or the end
	Bytes  string          // OpWrite
	EOF    bool            // OpWrite: and the end of input
	Signal syscall.Signal  // OpKill; 0 for the default
	Target json.RawMessage // OpCancel: the ID of another request
	Jobs   bool            // OpReset: the jobs too
}

// Op is an operation on jobs.
type Op string

// The operations.
const (
	OpHello  Op = "hello"
	OpStart  Op = "start"
	OpRead   Op = "read"
	OpWrite  Op = "write"
	OpResize Op = "resize"
	OpKill   Op = "kill"
	OpCancel Op = "cancel"
	OpList   Op = "list"
	OpReset  Op = "reset"
)

// Ops returns the names of the operations.
func Ops() []Op {
	return []Op{OpHello, OpStart, OpRead, OpWrite, OpResize, OpKill, OpCancel, OpList, OpReset}
}

// Limits of requests.
const (
	// MaxWait is the longest wait of an operation.
	MaxWait = 300 * time.Second

	// DefaultMost is the default bound for the output of OpRead, and MaxMost the largest.
	DefaultMost = 30000
	MaxMost     = 1 << 20

	maxSide = 1000 // rows or columns of a terminal
)

// ParseRequest reads one JSON object, as strictly as lib/jsonline: a lax parser could run
// another command than the client has sent. With an error, it returns the id and the
// operation if it could read them.
func ParseRequest(line []byte) (Request, error) {
	o := jsonline.Parse(line)
	r := Request{ID: o.ID()}
	name, given := o.String("op")
	if r.Op = Op(name); given && r.Op == "" {
		r.Op = "?" // it is no command, and is not answered as one
	}
	wait := func() {
		r.Wait = time.Duration(value(o.Between("wait_ms", 0, int(MaxWait.Milliseconds())))) * time.Millisecond
	}
	switch r.Op {
	case "":
		r.command(o)
	case OpHello, OpList:
	case OpStart:
		r.command(o)
		r.start(o)
		wait()
	case OpRead:
		r.Job = o.Need("job")
		if n := o.Between("since", 0, math.MaxInt); n != nil {
			since := int64(*n)
			r.Since = &since
		}
		r.Most = value(o.Between("max_bytes", 1, MaxMost))
		wait()
	case OpWrite:
		r.Job, r.EOF = o.Need("job"), o.Bool("eof")
		if r.Bytes, given = o.Text("input"); !given && !r.EOF {
			o.Missing("input")
		}
		wait()
	case OpResize:
		r.Job, r.TTY = o.Need("job"), terminalSize(o)
	case OpKill:
		r.Job = o.Need("job")
		if s, given := o.String("signal"); given {
			if r.Signal = unix.SignalNum(s); r.Signal == 0 {
				o.Fail(fmt.Errorf("the signal %q is unknown: type a name such as SIGINT", s))
			}
		}
	case OpCancel:
		if r.Target = o.Raw("request"); r.Target == nil {
			o.Missing("request")
		} else if r.Target[0] == '{' || r.Target[0] == '[' {
			o.Fail(errors.New("the request is neither a string nor a number"))
		}
	case OpReset:
		r.Jobs = o.Bool("jobs")
	default:
		o.Fail(fmt.Errorf("the op %q is unknown", name))
	}
	return r, o.End()
}

// value returns the number, or 0 for nil.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// command reads the fields that describe a command.
func (r *Request) command(o *jsonline.Object) {
	r.Command = o.Need("command")
	r.Description, _ = o.String("description")
	r.Timeout = o.Int("timeout")
}

// start reads the further fields that describe a job.
func (r *Request) start(o *jsonline.Object) {
	var given bool
	if r.Dir, given = o.String("cwd"); given && (r.Dir == "" || strings.ContainsRune(r.Dir, 0)) {
		o.Fail(errors.New("the cwd is not a path"))
	}
	if r.In, given = o.String("in"); given && (r.Dir != "" || !strings.HasPrefix(r.In, "/") || strings.ContainsRune(r.In, 0)) {
		o.Fail(errors.New("the in is not an absolute path, or stands beside a cwd"))
	}
	r.Input = o.Bool("stdin")
	if raw := o.Raw("tty"); raw != nil {
		size := jsonline.Parse(raw)
		r.TTY = terminalSize(size)
		if err := size.End(); err != nil {
			o.Fail(fmt.Errorf("the tty is not a size: %w", err))
		}
		if r.Input {
			o.Fail(errors.New("there is a stdin and a tty"))
		}
	}
	if raw := o.Raw("events"); raw != nil && (raw[0] != '[' || json.Unmarshal(raw, &r.Events) != nil ||
		slices.ContainsFunc(r.Events, func(e string) bool { return e != EventOutput && e != EventExit })) {
		o.Fail(fmt.Errorf("the events are not a list of %q and %q", EventOutput, EventExit))
	}
}

// terminalSize takes rows and cols.
func terminalSize(o *jsonline.Object) *Size {
	rows, cols := o.Between("rows", 1, maxSide), o.Between("cols", 1, maxSide)
	if rows == nil || cols == nil {
		o.Missing("number of rows and cols")
		return &Size{}
	}
	return &Size{Rows: uint16(*rows), Cols: uint16(*cols)}
}

// Names of events.
const (
	EventOutput = "output"
	EventExit   = "exit"
)

// SameID reports whether two IDs are equal: the same string in any spelling, or the same
// number.
func SameID(a, b json.RawMessage) bool {
	var s, t string
	if json.Unmarshal(a, &s) == nil && json.Unmarshal(b, &t) == nil && a[0] == '"' && b[0] == '"' {
		return s == t
	}
	return bytes.Equal(a, b)
}
