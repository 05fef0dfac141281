package shell

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Request is one line of a conversation: a command to run, or with Op something else.
type Request struct {
	ID          json.RawMessage // as it came; nil for none
	Op          Op              // "" for a command that is run to its end
	Command     string
	Description string
	Timeout     *int // in seconds

	Dir    string   // OpStart: directory to begin in; "" for the kept one
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

// operations are the fields that each operation takes beside id and op. Those that begin
// with an exclamation mark are needed.
var operations = []struct {
	op     Op
	fields []string
}{
	{"", []string{"command", "command_base64", "description", "timeout"}},
	{OpHello, nil},
	{OpStart, []string{"command", "command_base64", "description", "timeout", "cwd", "wait_ms", "stdin", "tty", "events"}},
	{OpRead, []string{"!job", "since", "wait_ms", "max_bytes"}},
	{OpWrite, []string{"!job", "input", "input_base64", "eof", "wait_ms"}},
	{OpResize, []string{"!job", "!rows", "!cols"}},
	{OpKill, []string{"!job", "signal"}},
	{OpCancel, []string{"!request"}},
	{OpList, nil},
	{OpReset, []string{"jobs"}},
}

// Ops are the names of the operations.
func Ops() (names []Op) {
	for _, o := range operations[1:] {
		names = append(names, o.op)
	}
	return names
}

// Limits of requests.
const (
	maxID = 1024 // bytes of an id

	// MaxWait is the longest wait of an operation.
	MaxWait = 300 * time.Second

	// DefaultMost is how much output OpRead returns, and MaxMost the most.
	DefaultMost = 30000
	MaxMost     = 1 << 20

	maxSide = 1000 // rows or columns of a terminal
)

// ParseRequest reads one JSON object. It refuses a field that is unknown or given
// twice, and text that is not UTF-8 (command_base64 is for that): otherwise another
// command could run than was sent. An id, and an operation, that could be read are
// returned with the error.
func ParseRequest(line []byte) (Request, error) {
	var r Request
	if !utf8.Valid(line) {
		return r, errors.New("the request is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return r, errors.New("the request is not a JSON object")
	}
	var fields []given
	seen := map[string]bool{}
	for d.More() {
		f, err := field(d)
		if err != nil {
			return r, err
		}
		f.twice = seen[f.name]
		seen[f.name] = true
		if fields = append(fields, f); f.name == "id" && !f.twice {
			_ = r.setID(f.value)
		}
	}
	if _, err := d.Token(); err != nil {
		return r, errors.New("the request is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("something follows the request on its line")
	}
	known, err := r.operation(fields)
	if err != nil {
		return r, err
	}
	for _, f := range fields {
		switch {
		case f.twice:
			err = fmt.Errorf("the field %q is there twice", f.name)
		case f.name == "id":
			err = r.setID(f.value)
		case f.name == "op" && r.Op != "":
		case !slices.Contains(known, f.name) && !slices.Contains(known, "!"+f.name):
			err = fmt.Errorf("the field %q is unknown", f.name)
			if r.Op != "" {
				err = fmt.Errorf("the field %q is unknown to op %q", f.name, r.Op)
			}
		default:
			err = r.set(f.name, f.value)
		}
		if err != nil {
			return r, err
		}
	}
	return r, r.complete(known, seen)
}

// given is one field of a request.
type given struct {
	name  string
	value json.RawMessage
	twice bool // it was there before
}

func field(d *json.Decoder) (f given, err error) {
	token, err := d.Token()
	name, ok := token.(string)
	if err == nil && ok {
		err = d.Decode(&f.value)
	}
	if err != nil || !ok {
		return f, errors.New("the request is not a JSON object")
	}
	f.name = name
	return f, nil
}

// operation sets Op, and returns the fields that it takes.
func (r *Request) operation(fields []given) ([]string, error) {
	name := ""
	if at := slices.IndexFunc(fields, func(f given) bool { return f.name == "op" }); at >= 0 {
		var err error
		if name, err = text("op", fields[at].value); err != nil {
			r.Op = "?" // it is no command, and is not answered as one
			return nil, err
		}
		r.Op = Op(name)
	}
	for _, o := range operations {
		if string(o.op) == name && (name != "" || r.Op == "") {
			return o.fields, nil
		}
	}
	return nil, fmt.Errorf("the op %q is unknown", name)
}

// complete refuses a request in which a field is missing, or contradicts another.
func (r *Request) complete(known []string, seen map[string]bool) error {
	for _, name := range known {
		if name, needed := strings.CutPrefix(name, "!"); needed && !seen[name] {
			return fmt.Errorf("there is no %s", name)
		}
	}
	runs := r.Op == "" || r.Op == OpStart
	switch {
	case seen["command"] && seen["command_base64"]:
		return errors.New("there is a command and a command_base64")
	case runs && !seen["command"] && !seen["command_base64"]:
		return errors.New("there is no command")
	case seen["input"] && seen["input_base64"]:
		return errors.New("there is an input and an input_base64")
	case r.Op == OpWrite && !seen["input"] && !seen["input_base64"] && !r.EOF:
		return errors.New("there is no input")
	case r.Input && r.TTY != nil:
		return errors.New("there is a stdin and a tty")
	}
	return nil
}

func (r *Request) setID(value json.RawMessage) error {
	if len(value) > maxID {
		return fmt.Errorf("the id is longer than %d bytes", maxID)
	}
	if value[0] == '{' || value[0] == '[' {
		return errors.New("the id is neither a string nor a number")
	}
	r.ID = bytes.Clone(value)
	return nil
}

func (r *Request) set(name string, value json.RawMessage) error {
	var err error
	switch name {
	case "command":
		r.Command, err = text(name, value)
	case "command_base64":
		r.Command, err = encoded(name, value)
	case "description":
		r.Description, err = text(name, value)
	case "timeout":
		var seconds int64
		seconds, err = whole(name, value, math.MinInt64, math.MaxInt64)
		timeout := int(seconds)
		r.Timeout = &timeout
	case "cwd":
		if r.Dir, err = text(name, value); err == nil && (r.Dir == "" || strings.ContainsRune(r.Dir, 0)) {
			err = errors.New("the cwd is not a path")
		}
	case "stdin":
		r.Input, err = truth(name, value)
	case "eof":
		r.EOF, err = truth(name, value)
	case "jobs":
		r.Jobs, err = truth(name, value)
	case "tty":
		r.TTY, err = terminalSize(value)
	case "rows", "cols":
		var n int64
		if r.TTY == nil {
			r.TTY = &Size{}
		}
		if n, err = whole(name, value, 1, maxSide); name == "rows" {
			r.TTY.Rows = uint16(n)
		} else {
			r.TTY.Cols = uint16(n)
		}
	case "events":
		if value[0] != '[' || json.Unmarshal(value, &r.Events) != nil ||
			slices.ContainsFunc(r.Events, func(e string) bool { return e != EventOutput && e != EventExit }) {
			err = fmt.Errorf("the events are not a list of %q and %q", EventOutput, EventExit)
		}
	case "job":
		r.Job, err = text(name, value)
	case "since":
		var n int64
		n, err = whole(name, value, 0, math.MaxInt64)
		r.Since = &n
	case "max_bytes":
		var n int64
		n, err = whole(name, value, 1, MaxMost)
		r.Most = int(n)
	case "wait_ms":
		var n int64
		n, err = whole(name, value, 0, MaxWait.Milliseconds())
		r.Wait = time.Duration(n) * time.Millisecond
	case "input":
		r.Bytes, err = text(name, value)
	case "input_base64":
		r.Bytes, err = encoded(name, value)
	case "signal":
		var s string
		if s, err = text(name, value); err == nil {
			if r.Signal = unix.SignalNum(s); r.Signal == 0 {
				err = fmt.Errorf("the signal %q is unknown: type a name such as SIGINT", s)
			}
		}
	case "request":
		if value[0] == '{' || value[0] == '[' {
			return errors.New("the request is neither a string nor a number")
		}
		r.Target = bytes.Clone(value)
	}
	return err
}

// Names of events.
const (
	EventOutput = "output"
	EventExit   = "exit"
)

func encoded(name string, value json.RawMessage) (string, error) {
	s, err := text(name, value)
	if err == nil {
		var decoded []byte
		if decoded, err = base64.StdEncoding.DecodeString(s); err == nil {
			return string(decoded), nil
		}
	}
	return "", fmt.Errorf("the %s is not base64", name)
}

func truth(name string, value json.RawMessage) (bool, error) {
	switch string(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("the field %q is neither true nor false", name)
}

// whole reads a whole number between least and most.
func whole(name string, value json.RawMessage, least, most int64) (n int64, err error) {
	if json.Unmarshal(value, &n) != nil || bytes.Equal(value, []byte("null")) {
		return 0, fmt.Errorf("the %s is not a whole number", name)
	}
	if n < least || n > most {
		return 0, fmt.Errorf("the %s is not between %d and %d", name, least, most)
	}
	return n, nil
}

// terminalSize reads {"rows":R,"cols":C}, and nothing else.
func terminalSize(value json.RawMessage) (*Size, error) {
	size, seen := &Size{}, 0
	d := json.NewDecoder(bytes.NewReader(value))
	if start, err := d.Token(); err == nil && start == json.Delim('{') {
		for d.More() {
			f, err := field(d)
			if err != nil {
				return nil, err
			}
			n, err := whole(f.name, f.value, 1, maxSide)
			switch {
			case err != nil:
				return nil, err
			case f.name == "rows" && seen&1 == 0:
				size.Rows, seen = uint16(n), seen|1
			case f.name == "cols" && seen&2 == 0:
				size.Cols, seen = uint16(n), seen|2
			default:
				return nil, fmt.Errorf("the tty has another field %q", f.name)
			}
		}
	}
	if seen != 3 {
		return nil, errors.New("the tty has no rows and cols")
	}
	return size, nil
}

// SameID reports whether two IDs are equal: the same string, however it is spelt, or the
// same number.
func SameID(a, b json.RawMessage) bool {
	var s, t string
	if json.Unmarshal(a, &s) == nil && json.Unmarshal(b, &t) == nil && a[0] == '"' && b[0] == '"' {
		return s == t
	}
	return bytes.Equal(a, b)
}

// text reads a string. Half of a surrogate pair, which JSON can spell and UTF-8
// cannot, is refused: encoding/json would put U+FFFD in its place.
func text(name string, value json.RawMessage) (string, error) {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", fmt.Errorf("the %s is not a string", name)
	}
	if !paired(value) {
		return "", fmt.Errorf("the %s holds half of a surrogate pair", name)
	}
	return s, nil
}

// paired reports whether each surrogate in a valid JSON string is one of a pair.
func paired(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++ // to what is escaped
		first, ok := escapedUnit(literal[i:])
		if !ok || !utf16.IsSurrogate(first) {
			continue
		}
		i += len("uXXXX")
		if literal[i] != '\\' {
			return false
		}
		i++
		second, _ := escapedUnit(literal[i:])
		if utf16.DecodeRune(first, second) == utf8.RuneError {
			return false
		}
	}
	return true
}

// escapedUnit reads uXXXX, the UTF-16 code unit of an escape.
func escapedUnit(escape []byte) (unit rune, ok bool) {
	if escape[0] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(escape[1:5]), 16, 16)
	return rune(n), err == nil
}
