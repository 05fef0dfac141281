package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
	"pikuri/lib/session"
	"pikuri/lib/shell"
)

// BwrapConfig describes the sandbox of a BwrapRunner.
type BwrapConfig struct {
	Root     string   // where commands start; they can read and write it
	Readable []string // further directories that they can read
	Writable []string // further directories that they can read and write

	// Toolchains shows the tool chains and caches that pk-toolchains lists: the
	// former read-only, the latter as overlays that are thrown away.
	Toolchains bool

	// AllowNested lets commands make user namespaces.
	AllowNested bool

	// NoProtect lets commands write the files from which git, editors and agents on
	// the host run code. By default those in the roots are read-only, and new ones
	// are moved away when the command has ended; Exec fails if that fails.
	NoProtect bool

	// Session is the name of a session that all commands join, "" for none: they share /tmp
	// and their changes of caches. pk-bash --session joins it too.
	Session string

	// Trial makes the session a trial: changes that commands make in the roots stay in the
	// session, until pk-apply lands them. A Session that exists and is not a trial is refused.
	Trial bool

	// Bwrap is the program; "" is the first in the system's own directories.
	Bwrap string
}

// BwrapRunner runs commands in a sandbox that shows a workspace, the system's
// programs, and nothing else of the host. Each command has a sandbox of its own,
// with an empty home and, without a session, an empty /tmp. Close the runner.
type BwrapRunner struct {
	settings
	workDirs
	config  fence.Config      // without the options of a command
	session *session.Reserved // or nil
}

// NewBwrapRunner returns a runner. It fails with ErrInvalid if a root would show
// too much of the host, and with ErrNotAvailable without bwrap or user namespaces.
func NewBwrapRunner(cfg BwrapConfig, opts ...Option) (*BwrapRunner, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	s, err := configure(opts)
	if err != nil {
		return nil, err
	}
	workspace, err := confine.Open(confine.Config{
		ProjectRoot: cfg.Root, Readable: cfg.Readable, Writable: cfg.Writable, Home: os.Getenv("HOME"),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	r := &BwrapRunner{settings: s, workDirs: workDirs{workspace: workspace}, config: fence.Config{
		Roots: workspace.Roots(), NoToolchains: !cfg.Toolchains, AllowNested: cfg.AllowNested, NoProtect: cfg.NoProtect, Bwrap: cfg.Bwrap,
	}}
	if r.session, err = cfg.reserve(); err == nil {
		err = r.try()
	}
	if err != nil {
		workspace.Close()
		return nil, err
	}
	return r, nil
}

// reserve reserves the session that the configuration names.
func (c BwrapConfig) reserve() (*session.Reserved, error) {
	if c.Session == "" {
		if c.Trial {
			return nil, fmt.Errorf("%w: a trial needs the name of a session", ErrInvalid)
		}
		return nil, nil
	}
	base, err := session.Base(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s, err := session.ReserveNamed(base, c.Session)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s.Trial = c.Trial
	return &s, nil
}

// join makes config that of a command in the session. leave ends its use.
func (r *BwrapRunner) join(config *fence.Config) (leave func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case r.session == nil:
		return nothing, nil
	case !r.session.Exists():
		config.Reserved, config.Trial = r.session, r.session.Trial
		return nothing, nil
	}
	dir, err := r.session.Open()
	if err != nil {
		return nil, err
	}
	config.Session, config.OwnTmp, config.Trial = dir, true, dir.Trial()
	if config.Tmp, err = dir.Tmp(); err != nil {
		return nil, errors.Join(err, dir.Release())
	}
	config.Tmp = bwrap.Canonical(config.Tmp)
	return dir.Release, nil
}

// try makes a plan, so that NewBwrapRunner reports its errors.
func (r *BwrapRunner) try() error {
	f, err := fence.New(r.config)
	if err == nil {
		r.config.Bwrap = f.Bwrap.Path
		err = f.CheckHost()
	}
	if _, unavailable := errors.AsType[*bwrap.Unavailable](err); unavailable {
		return fmt.Errorf("%w: %w", ErrNotAvailable, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Enforcement promises the guarantees of the sandbox. A limit on open files is not one of
// them: it would apply to bwrap too.
func (r *BwrapRunner) Enforcement() Enforcement {
	return Enforcement{Env: true, Files: true, NetModes: []NetMode{NetDenyAll, NetAllowList}, FileBytes: true, Terminates: true}
}

// Exec runs a command.
func (r *BwrapRunner) Exec(ctx context.Context, cmd string, args []string, opts ExecOptions) (*ExecResult, error) {
	if err := check(r, cmd, args, opts); err != nil {
		return nil, err
	}
	dir, err := r.enter(opts.WorkDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := ctx.Err(); err != nil {
		return nil, stopped(err)
	}
	config := r.config
	config.NoNet, config.Env = opts.Net.Mode != NetDefault, opts.Env.policy(os.Environ())
	if config.Gate, err = opts.Net.gate(); err != nil {
		return nil, err
	}
	limit := r.limit(opts.Resources)
	stdout, stderr := &stream{limit: limit}, &stream{limit: limit}
	answer, err := r.run(ctx, config, append([]string{cmd}, args...), opts, dir.Name(), stdout, stderr)
	if left, ok := errors.AsType[*leftError](err); ok {
		return nil, left
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kinds[kindOf(err)], err)
	}
	return conclude(ctx, cmd, opts.Timeout, answer, stdout, stderr)
}

// run makes the sandbox of a command, and runs it.
func (r *BwrapRunner) run(ctx context.Context, config fence.Config, argv []string, opts ExecOptions, dir string, stdout, stderr *stream) (report, error) {
	leave, err := r.join(&config)
	if err != nil {
		return report{}, err
	}
	defer leave()
	f, err := fence.New(config)
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	f.Plan.Chdir = dir
	f.Plan.Rlimits = opts.Resources.rlimits()
	if err := f.Ready(argv[0]); err != nil {
		return report{}, err
	}
	sandbox, err := f.Sandbox(argv)
	if err != nil {
		return report{}, err
	}
	input, err := inputFile(opts.Stdin)
	if err != nil {
		return report{}, err
	}
	defer input.Close()
	signals := make(chan os.Signal, 1)
	defer context.AfterFunc(ctx, func() { signals <- syscall.SIGTERM })()
	answer, err := run(&shell.Job{
		Fence: &sandbox, In: input, Out: stdout, Err: stderr,
		Timeout: opts.Timeout, KillAfter: r.killAfter, Signals: signals,
	})
	if _, left := f.End(); left != nil {
		err = &leftError{left}
	}
	return answer, err
}

// leftError is a command that has ended and left a file that a tool on the host may run.
type leftError struct{ err error }

func (e *leftError) Error() string { return "sandbox: " + e.err.Error() }
func (e *leftError) Unwrap() error { return e.err }
