package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/shell"
)

// DefaultMaxOutputBytes is how much is kept of each stream, unless said
// otherwise.
const DefaultMaxOutputBytes = 10 << 20

// Option changes what a runner does with every command.
type Option func(*settings)

type settings struct {
	maxOutput int64
	killAfter time.Duration
}

// WithMaxOutputBytes sets how much is kept of each stream when a command does
// not say. There is always a limit: a command can print for as long as it likes.
func WithMaxOutputBytes(n int64) Option { return func(s *settings) { s.maxOutput = n } }

// WithKillAfter sets how long a command that is to stop has between SIGTERM and
// SIGKILL; 5 seconds by default.
func WithKillAfter(d time.Duration) Option { return func(s *settings) { s.killAfter = d } }

func configure(opts []Option) (settings, error) {
	s := settings{DefaultMaxOutputBytes, shell.DefaultKillAfter}
	for _, o := range opts {
		o(&s)
	}
	if s.maxOutput <= 0 || s.killAfter < 0 {
		return s, fmt.Errorf("%w: a limit is negative, or there is none", ErrInvalid)
	}
	return s, nil
}

func (s settings) limit(r Resources) int64 {
	if r.MaxOutputBytes > 0 {
		return r.MaxOutputBytes
	}
	return s.maxOutput
}

// LocalRunner runs commands as this user, with all that this user may read,
// write and reach. The root is where commands start, and no more: it is not a
// fence. Close it.
type LocalRunner struct {
	settings
	place
}

// NewLocalRunner returns a runner whose commands start in root, or below. The
// root is held open: what is put in its place later is another directory.
func NewLocalRunner(root string, opts ...Option) (*LocalRunner, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	s, err := configure(opts)
	if err != nil {
		return nil, err
	}
	workspace, err := confine.Open(confine.Config{ProjectRoot: root, Home: os.Getenv("HOME")})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return &LocalRunner{settings: s, place: place{workspace: workspace}}, nil
}

// Enforcement promises limits on files, and that nothing is left. A child of the
// same user can look into /proc of this program, so it promises nothing about
// the environment.
func (r *LocalRunner) Enforcement() Enforcement {
	return Enforcement{FileBytes: true, OpenFiles: true, Terminates: true}
}

// Exec runs a command.
func (r *LocalRunner) Exec(ctx context.Context, cmd string, args []string, opts ExecOptions) (*ExecResult, error) {
	if err := check(r, cmd, args, opts); err != nil {
		return nil, err
	}
	dir, err := r.enter(opts.WorkDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	env, err := opts.Env.policy(os.Environ()).Environ()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return supervised(ctx, r.request(cmd, args, opts, env), dir, opts.Stdin, r.limit(opts.Resources))
}

func (s settings) request(cmd string, args []string, opts ExecOptions, env []string) request {
	return request{
		Argv:      append([]string{cmd}, args...),
		Env:       env,
		Timeout:   opts.Timeout,
		KillAfter: s.killAfter,
		FileBytes: opts.Resources.MaxFileBytes,
		OpenFiles: opts.Resources.MaxOpenFiles,
	}
}

// check refuses what cannot be run or enforced, before anything is opened.
func check(r Enforcer, cmd string, args []string, opts ExecOptions) error {
	if cmd == "" {
		return fmt.Errorf("%w: there is no command", ErrInvalid)
	}
	for _, word := range append([]string{cmd}, args...) {
		if strings.Contains(word, "\x00") {
			return fmt.Errorf("%w: %q holds a NUL byte", ErrInvalid, word)
		}
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	return r.Enforcement().permits(opts)
}

// place is the directories in which commands may start.
type place struct {
	mu        sync.Mutex
	workspace *confine.Workspace // nil: closed
}

// enter opens the directory that name leads to, if it is in the root.
func (p *place) enter(name string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workspace == nil {
		return nil, ErrClosed
	}
	if name == "" {
		name = "."
	}
	dir, err := p.workspace.OpenFile(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, confine.ErrOutside), errors.Is(err, confine.ErrReplaced), errors.Is(err, confine.ErrRaced):
		return nil, fmt.Errorf("%w: %q as the working directory", ErrPathTraversal, name)
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("%w: working directory %q", ErrNotFound, name)
	}
	return nil, fmt.Errorf("%w: working directory %q: %w", ErrInvalid, name, err)
}

// Close gives the root back. Commands that run go on.
func (p *place) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workspace != nil {
		p.workspace.Close()
		p.workspace = nil
	}
	return nil
}
