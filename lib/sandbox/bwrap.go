package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/toolchain"
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

	// NoProtect leaves writable what makes git on the host run code: hooks and
	// configuration of the repositories in the roots, which are read-only
	// otherwise.
	NoProtect bool

	// Bwrap is the program; "" is the first in the system's own directories.
	Bwrap string
}

// BwrapRunner runs commands in a sandbox that shows a workspace, the system's
// programs, and nothing else of the host. Each command has a sandbox of its own,
// with an empty /tmp and an empty home. Close it.
type BwrapRunner struct {
	settings
	place
	fence fence // but for what each command says
}

// NewBwrapRunner returns a runner, or says why there can be none: a root that
// would show more than it should, no bwrap, no user namespaces.
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
	r := &BwrapRunner{settings: s, place: place{workspace: workspace}}
	if err := r.plan(cfg); err != nil {
		workspace.Close()
		return nil, err
	}
	return r, nil
}

// plan makes the plan once, so that what is wrong with it is said now.
func (r *BwrapRunner) plan(cfg BwrapConfig) error {
	r.fence = fence{Bwrap: cfg.Bwrap, Roots: r.workspace.Roots(), AllowNested: cfg.AllowNested, NoProtect: cfg.NoProtect, Net: true}
	if cfg.Toolchains {
		table, err := toolchain.Load()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		r.fence.Toolchains = table.Present(toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv})
		r.fence.Masks = toolchain.Masks(r.fence.Toolchains)
	}
	trial := r.fence
	trial.Env.Caller = os.Environ()
	binary, _, err := trial.plan()
	if err == nil {
		err = bwrap.CheckHost(binary)
	}
	r.fence.Bwrap = binary.Path
	if _, unavailable := errors.AsType[*bwrap.Unavailable](err); unavailable {
		return fmt.Errorf("%w: %w", ErrNotAvailable, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Enforcement promises what the sandbox keeps. Limits on files would bear on
// bwrap, too, which opens and copies many before the command begins.
func (r *BwrapRunner) Enforcement() Enforcement {
	return Enforcement{Env: true, Files: true, NetModes: []NetMode{NetDenyAll}, Terminates: true}
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
	req := r.request(cmd, args, opts, nil)
	fence := r.fence
	fence.Chdir, fence.Net, fence.Env = dir.Name(), opts.Net.Mode == NetDefault, opts.Env.policy(os.Environ())
	req.Fence = &fence
	return supervised(ctx, req, dir, opts.Stdin, r.limit(opts.Resources))
}
