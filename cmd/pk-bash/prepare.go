package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/confine"
	"pikuri/lib/limits"
	sessiondir "pikuri/lib/session"
	"pikuri/lib/shell"
)

// job is a shell.Job and the state to undo when it is over.
type job struct {
	shell.Job
	question  shell.Question
	workspace *cli.Opened
	output    *shell.Output       // nil with --raw
	live      *shell.Live         // nil for none
	box       *limits.Box         // nil without limits
	fence     *sandboxflags.Fence // nil without a sandbox of ours
	ahead     func()              // starts the set-up program of the next command; nil for none
	logKept   bool
	log       *os.File // of processes that stay; nil for none
	undo      []func() error
	typed     atomic.Bool // it has got input
}

func (j *job) cleanUp() error {
	var errs []error
	for _, undo := range slices.Backward(j.undo) {
		errs = append(errs, undo())
	}
	j.undo = nil
	return errors.Join(errs...)
}

func (j *job) later(undo func() error) { j.undo = append(j.undo, undo) }

// prepare does everything that can fail, before the question.
func (t *turn) prepare() (*job, error) {
	seconds := *t.request.Timeout
	j := &job{
		Job: shell.Job{
			Command: t.request.Command, Timeout: time.Duration(seconds) * time.Second,
			KillAfter: time.Duration(t.killAfter) * time.Second, Signals: t.signals, Asides: t.asides, Suspends: !t.loop,
			Keep: t.keep, State: t.began, Terminal: t.request.TTY,
		},
		question: shell.Question{Command: t.request.Command, Description: t.request.Description, Timeout: seconds},
	}
	prepare := t.sandboxed
	switch {
	case t.noSandbox:
		prepare = t.unfenced
	case t.wrap != "":
		prepare = t.wrapped
	}
	err := prepare(j)
	switch {
	case err != nil:
	case t.request.Dir != "":
		j.Dir, err = t.begin(j)
	case t.request.In != "":
		if now := cmp.Or(j.State.Dir, j.question.Where); now != t.request.In {
			err = fmt.Errorf("the working directory is %q, not %q", now, t.request.In)
		}
		j.Dir = t.request.In
	}
	if err != nil {
		return nil, errors.Join(err, j.cleanUp())
	}
	j.question.Where, j.question.Carried = cmp.Or(j.Dir, j.State.Dir, j.question.Where), j.State.Names()
	return j, nil
}

// begin is the requested working directory, by its path in the sandbox. The session tmp of
// a loop's own session has no name on the host.
func (t *turn) begin(j *job) (string, error) {
	if dir := filepath.Clean(t.request.Dir); j.fence != nil && (dir == "/tmp" || strings.HasPrefix(dir, "/tmp/")) {
		if _, err := j.workspace.Resolve(dir, confine.Read); err != nil {
			return dir, nil // bash finds out whether it is there
		}
	}
	return j.workspace.Resolve(t.request.Dir, confine.Read)
}

// gated reports whether the command needs a gate to pass a directory to bash, or a state to
// or from bash.
func (t *turn) gated() bool {
	return t.keep != shell.KeepNothing || t.request.Dir != "" || t.request.In != ""
}

// open opens the workspace of a command that is not fenced by pk.
func (s *session) open(j *job) error {
	s.Scratch, s.Unfenced = false, true
	opened, err := s.WorkspaceFlags.Open(s.ctx)
	if err != nil {
		return err
	}
	j.later(func() error { opened.Close(); return nil })
	j.workspace, j.question.Where = opened, opened.ProjectRoot()
	return cli.Invalid(s.Log.CheckOutside(opened.Roots()))
}

// noTerminal refuses a terminal without a sandbox.
func (t *turn) noTerminal() error {
	if t.request.TTY == nil {
		return nil
	}
	return errors.New("a tty needs the sandbox: leave --no-sandbox and --wrap out, or use stdin")
}

func (t *turn) unfenced(j *job) (err error) {
	if err := t.noTerminal(); err != nil {
		return err
	}
	if err := t.open(j); err != nil {
		return err
	}
	if !t.warned {
		t.warnUnfenced()
		t.warned = true
	}
	j.question.Fence = "NO SANDBOX"
	_, j.Gated = shell.Gated(nil, j.Command, t.gated())
	if j.Cmd, err = shell.Unfenced(j.Command, j.question.Where, t.gated()); err != nil {
		return cli.WithStatus(cli.StatusMissing, err)
	}
	return nil
}

func (t *turn) wrapped(j *job) (err error) {
	if err := t.noTerminal(); err != nil {
		return err
	}
	if t.request.Dir != "" {
		return errors.New("a cwd cannot be used with --wrap")
	}
	if err := t.open(j); err != nil {
		return err
	}
	j.question.Fence = "NO SANDBOX OF OURS, but behind " + strings.Join(t.wrapWords, " ")
	if j.Cmd, err = shell.Wrapped(t.wrapWords, j.Command, j.question.Where); err != nil {
		return cli.WithStatus(cli.StatusMissing, err)
	}
	return refuseReplaceable("wrap", j.Cmd.Path, j.workspace)
}

// refuseReplaceable refuses a program that a command could replace: it would
// decide about the next command.
func refuseReplaceable(what, program string, opened *cli.Opened) error {
	root, ok := confine.LiesIn(program, confine.WritablePaths(opened.Roots()))
	if !ok {
		return nil
	}
	err := fmt.Errorf("--%s: cannot use %q: it lies in the writable root %q", what, program, root)
	return cli.WithHint(err, "keep it where no command can write")
}

func (t *turn) sandboxed(j *job) error {
	f, err := t.Open(t.ctx)
	if err != nil {
		return err
	}
	j.later(func() error { return f.Close() })
	f.Plan.Env, _ = shell.Gated(shell.WithQuiet(f.Plan.Env), j.Command, true)
	argv := shell.Argv(j.Command)
	if err := f.Ready(argv[0]); err != nil {
		return err
	}
	c, err := f.Sandbox(argv)
	if err != nil {
		return err
	}
	j.ahead = func() { t.Ahead.Start(f.Keeper(), c.Plan.Gate != nil && c.Session == nil) }
	j.Fence, j.Gated, j.box, j.fence = &c, true, f.Box(), f
	j.workspace, j.question.Where, j.question.Fence = f.Opened, f.ProjectRoot(), "sandboxed, "+network(f.Plan)
	if t.background && t.request.TTY == nil { // the end of bash hangs its terminal up
		j.keep()
	}
	if f.Trial {
		j.question.Fence += ", a trial: changes stay in the session until pk-apply"
	}
	return nil
}

func network(p *bwrap.Plan) string {
	switch {
	case p.Net:
		return "with the network of the host"
	case p.Gate != nil && p.Gate.Allow:
		return "with the network: " + p.Gate.Rules.String()
	}
	return "no network"
}

// begin connects the output, once the answer is yes.
func (j *job) begin(s *session) error {
	if s.raw && !s.object() {
		j.Out, j.Err = s.ctx.Stdout, s.ctx.Stderr
		return nil
	}
	log, err := j.newLog(s)
	if err != nil {
		return err
	}
	j.live = s.newLive(j.Timeout)
	if j.live == nil {
		j.output = shell.NewOutput(s.head, s.tail, s.raw, log, nil)
	} else {
		j.output = shell.NewOutput(s.head, s.tail, s.raw, log, j.live)
	}
	j.Out = j.output
	return nil
}

// newLog is the log of the output: the requested file, or one in the session directory
// that is made when text is omitted.
func (j *job) newLog(s *session) (*shell.Log, error) {
	if s.noLog {
		return nil, nil
	}
	if s.log == "" {
		return shell.NewLog(s.head+s.tail, shell.MaxLog, j.openLog), nil
	}
	file, err := j.createLog(s.log)
	if err != nil {
		return nil, err
	}
	return shell.NewLogFile(shell.MaxLog, file), nil
}

// createLog opens the file of --log. A command that can write there may have put a link in its
// place, or on the way, or may put one now: it would lead to a file that is protected from commands.
func (j *job) createLog(name string) (*os.File, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	root, ok := confine.LiesIn(path, confine.WritablePaths(j.workspace.Roots()))
	if !ok {
		return shell.CreateLog(path)
	}
	plain := func(opened *os.File) error {
		if err := shell.PlainIn(root, path, opened); err != nil {
			return cli.WithHint(fmt.Errorf("cannot make the log %q: %w", path, err), "name a file outside of the writable roots")
		}
		return nil
	}
	if err := plain(nil); err != nil {
		return nil, err
	}
	// A project below /tmp has no other name if /tmp is the session tmp.
	file, err := j.workspace.OpenFile(strings.TrimPrefix(path, j.workspace.ProjectRoot()+"/"), unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	if err := plain(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, file.Truncate(0)
}

// openLog makes a log in the session directory. Without a session it makes one for
// the log, which the caller may read until a sweep.
func (j *job) openLog() (*os.File, error) {
	if j.workspace.Session != nil {
		return shell.OpenLog(j.workspace.Session.Path())
	}
	base, err := sessiondir.Base(os.Getenv)
	if err == nil {
		err = sessiondir.CheckBase(base, j.workspace.Roots(), nil)
	}
	if err != nil {
		return nil, err
	}
	u, err := sessiondir.Create(base)
	if err != nil {
		return nil, err
	}
	j.later(func() error {
		if j.logKept {
			return u.Release()
		}
		return u.Remove()
	})
	return shell.OpenLog(u.Path())
}

// newLive shows the output on standard error while the command runs: all of it,
// unless the result goes to the same terminal.
func (s *session) newLive(timeout time.Duration) *shell.Live {
	file, ok := s.ctx.Stderr.(*os.File)
	if !ok || s.noFollow || !s.follow && !cli.Terminal(file) {
		return nil
	}
	return shell.NewLive(file, shell.Columns(file), s.follow || !cli.Terminal(s.ctx.Stdout), timeout)
}
