package workspace

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxPath = unix.PathMax - 1
	maxName = 255
)

// clean returns the path that every operation starts from: cleaned, relative to the root,
// which is ".". A name that only begins with two dots is an ordinary name.
func clean(typed string) (string, error) {
	if strings.IndexByte(typed, 0) >= 0 {
		return "", &Error{Err: ErrInvalid, Detail: "it holds a NUL byte"}
	}
	if strings.HasPrefix(typed, "/") {
		return "", &Error{Err: ErrPathTraversal, Detail: "it is absolute"}
	}
	rel := path.Clean(typed)
	if rel == ".." || strings.HasPrefix(rel, "../") {
		return "", &Error{Err: ErrPathTraversal, Detail: `it leaves the root through ".."`}
	}
	if len(rel) > maxPath {
		return "", &Error{Err: ErrInvalid, Detail: "it is longer than a path can be"}
	}
	for name := range strings.SplitSeq(rel, "/") {
		if len(name) > maxName {
			return "", &Error{Err: ErrInvalid, Detail: "a name in it is longer than a name can be"}
		}
	}
	return rel, nil
}

// join puts a name, or a clean path, below a clean directory.
func join(dir, name string) string {
	switch {
	case dir == ".":
		return name
	case name == ".":
		return dir
	}
	return dir + "/" + name
}

// parent is the directory of a clean path.
func parent(rel string) string { return path.Dir(rel) }

// depth is the number of names in a clean path.
func depth(rel string) int {
	if rel == "." {
		return 0
	}
	return strings.Count(rel, "/") + 1
}

// failed makes err the error of an operation on path, as the caller gave it. An *Error
// keeps its reason.
func failed(op, path string, err error) error {
	return failedTo(op, path, "", err)
}

// failedTo is failed for an operation that has a second path.
func failedTo(op, path, to string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{}
	if inner, ok := errors.AsType[*Error](err); ok {
		*e = *inner
	} else {
		e.Err, e.Cause = classify(err)
		if e.Cause != nil && !slices.Contains(plainErrnos, e.Cause) {
			e.Detail = e.Cause.Error()
		}
	}
	e.Op, e.Path, e.To = op, path, to
	return e
}

// classify returns the sentinel for an error. cause is nil if it adds nothing.
func classify(err error) (kind, cause error) {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known, nil
		}
	}
	if s, ok := errors.AsType[*sentinel](err); ok {
		if s == err {
			return s, nil
		}
		return s, err
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return classifyErrno(errno), errno // the text of a wrapper may hold a host path
	}
	return ErrIO, err
}

// plainErrnos add nothing to their sentinels.
var plainErrnos = []error{unix.ENOENT, unix.EEXIST, unix.EISDIR, unix.ENOTDIR, unix.ENOSPC, unix.EROFS, unix.EFBIG}

func classifyErrno(errno unix.Errno) error {
	switch errno {
	case unix.ENOENT, unix.ESTALE:
		return ErrNotFound
	case unix.EEXIST, unix.ENOTEMPTY:
		return ErrExist
	case unix.EISDIR:
		return ErrIsDir
	case unix.ENOTDIR:
		return ErrNotDir
	case unix.EACCES, unix.EPERM, unix.ETXTBSY, unix.EBUSY:
		return ErrAccessDenied
	case unix.ELOOP, unix.EXDEV:
		return ErrPathTraversal
	case unix.ENAMETOOLONG, unix.EINVAL, unix.EILSEQ:
		return ErrInvalid
	case unix.ENOSPC, unix.EDQUOT:
		return ErrNoSpace
	case unix.EFBIG:
		return ErrTooLarge
	case unix.EROFS:
		return ErrReadOnly
	case unix.ENXIO, unix.ENODEV:
		return ErrNotRegular
	case unix.EOPNOTSUPP, unix.ENOSYS:
		return ErrUnsupported
	case unix.EBADF:
		return ErrClosed
	}
	return ErrIO
}
