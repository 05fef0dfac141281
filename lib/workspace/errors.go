package workspace

import (
	"errors"
	"fmt"
	"io/fs"
)

// sentinel is an error that others match, and that may itself match one of package fs,
// for code that does not know this package.
type sentinel struct {
	text  string
	class error
}

func (s *sentinel) Error() string { return "workspace: " + s.text }
func (s *sentinel) Unwrap() error { return s.class }

// The reasons why operations fail. An error matches (errors.Is) its reason.
var (
	// ErrPathTraversal: the path leads out of the workspace, or may.
	ErrPathTraversal error = &sentinel{"path traversal denied", fs.ErrPermission}
	// ErrAccessDenied: a rule or the system does not allow it.
	ErrAccessDenied error = &sentinel{"access denied", fs.ErrPermission}
	// ErrReadOnly: the workspace is a read-only view, or on a medium that is.
	ErrReadOnly error = &sentinel{"read-only", fs.ErrPermission}
	// ErrNotFound: the file or directory is missing.
	ErrNotFound error = &sentinel{"not found", fs.ErrNotExist}
	// ErrExist: the name is already in use.
	ErrExist error = &sentinel{"already exists", fs.ErrExist}
	// ErrInvalid: no workspace could do this, such as use a name with a NUL.
	ErrInvalid error = &sentinel{"invalid argument", fs.ErrInvalid}
	// ErrIsDir: it is a directory, and a file is needed.
	ErrIsDir error = &sentinel{"is a directory", nil}
	// ErrNotDir: it is a file, and a directory is needed.
	ErrNotDir error = &sentinel{"not a directory", nil}
	// ErrNotRegular: it is a FIFO, a socket or a device.
	ErrNotRegular error = &sentinel{"not a regular file", nil}
	// ErrTooLarge: a file is, or would be, larger than an option allows.
	ErrTooLarge error = &sentinel{"file too large", nil}
	// ErrTooMany: there are more entries, or deeper directories, than an option
	// allows.
	ErrTooMany error = &sentinel{"too many entries", nil}
	// ErrNoSpace: the medium is full.
	ErrNoSpace error = &sentinel{"no space left", nil}
	// ErrChanged: the entry, or its content, is not the expected one.
	ErrChanged error = &sentinel{"changed in the meantime", nil}
	// ErrRaced: the tree changed at every attempt to look up the path.
	ErrRaced error = &sentinel{"it changed each time it was looked at", nil}
	// ErrUnsupported: this workspace cannot do this at all.
	ErrUnsupported error = &sentinel{"not supported", errors.ErrUnsupported}
	// ErrClosed: the workspace, or the file, is closed.
	ErrClosed error = &sentinel{"closed", fs.ErrClosed}
	// ErrIO: the medium or the system failed.
	ErrIO error = &sentinel{"input/output error", nil}
)

// Error describes a failed operation: its name, the path, and the reason.
type Error struct {
	Op   string // one word: "read", "write", "append", "rename", "delete", "remove", "list", …
	Path string // as the caller gave it, relative to the workspace
	To   string // the destination of a rename or a copy, "" otherwise
	Err  error  // a sentinel, or an error of the context

	// Detail adds to the reason, or is "". It names no place outside the workspace.
	Detail string
	// Cause is a further error that this one matches, such as a
	// *pattern.SyntaxError or a unix.Errno; nil for none.
	Cause error
}

// verbs are the operations whose name is not a verb.
var verbs = map[string]string{
	"exists": "look for",
	"mkdir":  "make directory",
	"swap":   "replace",
	"glob":   "look for files that match",
	"scope":  "use as a pattern",
}

func (e *Error) Error() string {
	verb := e.Op
	if words, ok := verbs[verb]; ok {
		verb = words
	}
	text := fmt.Sprintf("cannot %s %q", verb, e.Path)
	if e.To != "" {
		text += fmt.Sprintf(" to %q", e.To)
	}
	return text + ": " + e.reason()
}

func (e *Error) reason() string {
	reason := e.Err.Error()
	if s, ok := e.Err.(*sentinel); ok {
		reason = s.text
	}
	if e.Detail != "" {
		reason += ": " + e.Detail
	}
	return reason
}

// Unwrap lets an error match its sentinel and its cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}
