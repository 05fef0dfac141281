package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
	"pikuri/lib/workspace"
)

// operand is a path below the root that it leads to.
type operand struct {
	workspace.Workspace
	path  string // relative to the root
	typed string
	root  string
}

// at finds the root that a path leads to. The verb looks the path up again, from
// the root's descriptor, and asks the rules again, so this only picks the root.
func (w *work) at(verb, typed string, req confine.Request) (*operand, error) {
	where, err := w.confined.Lookup(typed, req)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, &workspace.Error{Op: verb, Path: typed, Err: workspace.ErrNotFound}
	case errors.Is(err, unix.ENOTDIR):
		return nil, &workspace.Error{Op: verb, Path: typed, Err: workspace.ErrNotDir}
	case err != nil:
		w.refusal(verb, typed, err)
		return nil, err
	}
	p, err := w.within(where, req.Mode)
	if err == nil {
		p.typed = typed
	}
	return p, err
}

// within returns the operand for a place that Lookup has found.
func (w *work) within(where string, mode confine.Mode) (*operand, error) {
	root := w.confined.RootOf(where, mode)
	if root == nil {
		return nil, fmt.Errorf("internal error: %q is in no root", where)
	}
	ws, err := w.open(*root)
	if err != nil {
		return nil, err
	}
	below := "."
	switch {
	case !root.Dir:
		below = path.Base(where)
	case where != root.Path:
		below = strings.TrimPrefix(where[len(root.Path):], "/")
	}
	return &operand{Workspace: ws, path: below, root: root.Path}, nil
}

// reached returns the file to which a path leads, nil if it cannot be read. Nothing is logged.
func (w *work) reached(typed string) *operand {
	where, err := w.confined.Lookup(typed, toRead)
	if err != nil {
		return nil
	}
	p, err := w.within(where, toRead.Mode)
	if err != nil {
		return nil
	}
	return p
}

// The requests of verbs.
var (
	toRead  = confine.Request{Existing: true}
	toWrite = confine.Request{Mode: confine.Write}
	itself  = confine.Request{Mode: confine.Write, Itself: true}
)

// file is at for a file to be made or written. As with open(2), a path that ends
// in a slash names none.
func (w *work) file(verb, typed string, req confine.Request) (*operand, error) {
	if endsInSlash(typed) {
		return nil, &workspace.Error{Op: verb, Path: typed, Err: workspace.ErrIsDir}
	}
	return w.at(verb, typed, req)
}

func endsInSlash(path string) bool {
	return strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/.")
}

// open opens a root, once, as a workspace that asks the rules about every place.
func (w *work) open(root confine.Root) (workspace.Workspace, error) {
	if ws, ok := w.views[root.Path]; ok {
		return ws, nil
	}
	dir, err := w.confined.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	ws, err := workspace.NewLocalWorkspaceFrom(dir, w.settings()...)
	if err != nil {
		return nil, err
	}
	w.opened = append(w.opened, ws)
	view, top := workspace.Workspace(ws), dir.Name()
	if !root.Dir || !w.confined.PermitsAll(root) {
		view = ws.Guarded(func(a workspace.Access) error { return w.permit(root, top, a) })
	}
	if root.Dir && root.Writable && !w.NoProtect && root.Path != w.confined.Temp() {
		host := fence.NewHostRun(top)
		w.hosts[root.Path] = host
		view = workspace.Guarded(view, func(a workspace.Access) error {
			if !a.Write {
				return nil
			}
			why, err := host.Look()(a.Path)
			if err != nil {
				why = err.Error()
			}
			if why == "" {
				return nil
			}
			return &workspace.Error{Err: workspace.ErrAccessDenied, Detail: why, Cause: err}
		})
	}
	w.views[root.Path] = view
	return view, nil
}

func (w *work) settings() []workspace.Option {
	var settings []workspace.Option
	if w.sync {
		settings = append(settings, workspace.WithSync())
	}
	if w.NoProtect {
		settings = append(settings, workspace.WithGitDirs())
	}
	return settings
}

// permit applies the rules to a place in a root. It refuses a place in a root below this
// one that another directory replaces.
func (w *work) permit(root confine.Root, top string, a workspace.Access) error {
	where, mode := top, confine.Read
	if a.Path != "." {
		where = strings.TrimSuffix(top, "/") + "/" + a.Path
	}
	if a.Write {
		mode = confine.Write
	}
	err := w.confined.Permits(where, mode)
	if err == nil && w.elsewhere(top, where) && (a.Write || !w.isShown(where)) {
		return &workspace.Error{Err: workspace.ErrAccessDenied, Detail: fmt.Sprintf("it belongs to the root %q", w.confined.Shown(where))}
	}
	if err == nil {
		return nil
	}
	denied := &workspace.Error{Err: workspace.ErrAccessDenied, Detail: err.Error(), Cause: err}
	if errors.Is(err, confine.ErrOutside) {
		denied.Detail = "it is in no root that allows it"
		if a.Write && root.Contains(where) {
			denied.Detail = fmt.Sprintf("the root %q is not writable", root.Path)
		}
	}
	return denied
}

// elsewhere reports whether another directory than that with the files of top has where.
func (w *work) elsewhere(top, where string) bool {
	return w.confined.Shown(where) != w.confined.Shown(top)
}

// isShown reports whether another directory replaces where itself.
func (w *work) isShown(where string) bool { return w.confined.Shown(where) == where }

// failed makes err an error of the verb about the path as it was typed, and logs
// a refusal.
func (w *work) failed(verb, typed string, err error) error {
	return w.failedTo(verb, typed, "", err)
}

// failedTo is failed for a verb that has a second path.
func (w *work) failedTo(verb, typed, to string, err error) error {
	e, ok := errors.AsType[*workspace.Error](err)
	if !ok {
		return err
	}
	told := *e
	told.Op, told.Path, told.To = verb, typed, to
	w.refusal(verb, typed, &told)
	switch {
	case errors.Is(err, workspace.ErrIsDir) && verb == "rm":
		return cli.WithHint(&told, "rm -r removes directories")
	case errors.Is(err, workspace.ErrAccessDenied) && strings.Contains(e.Detail, "several hard links") && verb == "write":
		return cli.WithHint(&told, "with --atomic the file is replaced, and its other names stay as they are")
	}
	return &told
}

// refusal appends a record of a refusal to the log of violations.
func (w *work) refusal(verb, typed string, err error) {
	record := workspace.ViolationRecord{Time: time.Now(), Operation: verb, Path: typed}
	refused, confined := errors.AsType[*confine.Refusal](err)
	denial, ruled := errors.AsType[*confine.Denial](err)
	switch {
	case w.logger == nil:
		return
	case ruled:
		record.Kind, record.Reason, record.Pattern = workspace.ViolatedPolicy, denial.Error(), denial.Pattern()
	case errors.Is(err, confine.ErrNotAllowed):
		record.Kind, record.Reason = workspace.ViolatedPolicy, confine.ErrNotAllowed.Error()
	case errors.Is(err, confine.ErrManyNames):
		record.Kind, record.Reason = workspace.ViolatedHardLinks, confine.ErrManyNames.Error()
	case confined && isSystem(refused.Err):
		return // it is missing, or cannot be reached: no rule refused it
	case confined:
		record.Kind, record.Reason = workspace.ViolatedRoot, refused.Reason()
	case errors.Is(err, workspace.ErrNotRegular):
		record.Kind, record.Reason = workspace.ViolatedFileKind, "special-file"
	case errors.Is(err, workspace.ErrPathTraversal), errors.Is(err, workspace.ErrRaced):
		record.Kind, record.Reason = workspace.ViolatedRoot, "outside"
	case errors.Is(err, workspace.ErrAccessDenied) && !isSystem(err):
		record.Kind, record.Reason = workspace.ViolatedPolicy, "access-denied"
	default:
		return
	}
	w.logger.LogViolation(context.Background(), record)
}

func isSystem(err error) bool {
	_, ok := errors.AsType[unix.Errno](err)
	return ok
}

// logTo opens the log of violations. It must not lie in a writable root, where a
// command could empty it.
func (w *work) logTo(name string) error {
	if root, ok := confine.LiesIn(name, confine.WritablePaths(w.confined.Roots())); ok {
		err := fmt.Errorf("cannot log violations to %q: it lies in the writable root %q", name, root)
		return cli.WithHint(err, "name a file outside")
	}
	// A FIFO without a reader fails at once.
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0o600)
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		return fmt.Errorf("cannot log violations to %q: %w", name, err)
	}
	w.log = &failing{file: os.NewFile(uintptr(fd), name)}
	w.logger = workspace.NewViolationWriter(w.log)
	return nil
}

// failing remembers that writing failed.
type failing struct {
	file *os.File
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	if err != nil && f.err == nil {
		f.err = cause(err)
	}
	return n, err
}
