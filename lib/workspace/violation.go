package workspace

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// ViolationLogger receives the refusals of a ScopedWorkspace. It is called on the
// goroutine of the operation, before that returns. A panic of it is swallowed: the
// refusal stands.
type ViolationLogger interface {
	LogViolation(ctx context.Context, record ViolationRecord)
}

// ViolationRecord is one refusal.
type ViolationRecord struct {
	Time      time.Time `json:"time"`
	Operation string    `json:"operation"` // "read", "write", "append", "rename", …
	Path      string    `json:"path"`      // as the caller gave it
	Reason    string    `json:"reason"`

	Kind     ViolationKind `json:"kind"`
	To       string        `json:"to,omitempty"`       // the destination of a rename
	Resolved string        `json:"resolved,omitempty"` // the resolved place, if it is not the path
	Pattern  string        `json:"pattern,omitempty"`  // the pattern that refused it
}

// ViolationKind is the kind of a violation.
type ViolationKind string

const (
	ViolatedPolicy    ViolationKind = "policy"       // a pattern forbids it, or none allows it
	ViolatedRoot      ViolationKind = "traversal"    // the path leads out of the workspace
	ViolatedFileKind  ViolationKind = "special-file" // it is a FIFO, a socket or a device
	ViolatedHardLinks ViolationKind = "hard-links"   // it has further names, which may be forbidden
)

// NewViolationWriter returns a logger that writes each record to w as a line of JSON,
// with one Write. A path that is not UTF-8 has a twin in base64, "path_base64"; so have
// "to" and "resolved". Errors of w are ignored.
func NewViolationWriter(w io.Writer) ViolationLogger {
	return &violationWriter{w: w}
}

type violationWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (v *violationWriter) LogViolation(_ context.Context, record ViolationRecord) {
	line, err := json.Marshal(struct {
		ViolationRecord
		Path64     []byte `json:"path_base64,omitempty"`
		To64       []byte `json:"to_base64,omitempty"`
		Resolved64 []byte `json:"resolved_base64,omitempty"`
	}{record, notUTF8(record.Path), notUTF8(record.To), notUTF8(record.Resolved)})
	if err != nil {
		return // internal error: every record can be encoded
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = v.w.Write(append(line, '\n'))
}

func notUTF8(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}
