package sandbox

import (
	"context"
	"fmt"
	"os"

	"pikuri/lib/confine"
)

// LocalRunner runs commands as this user, without a sandbox: they read, write and
// reach everything that this user can. Commands start in the root; it does not
// confine them. Close the runner.
type LocalRunner struct {
	settings
	workDirs
}

// NewLocalRunner returns a runner whose commands start in root, or below. It holds
// the root open, and is not affected when the root is renamed or replaced.
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
	return &LocalRunner{settings: s, workDirs: workDirs{workspace: workspace}}, nil
}

// Enforcement promises limits on files, and that no process is left. It promises nothing
// about the environment: a process of the same user can read that of this program in
// /proc.
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
		Resources: opts.Resources,
	}
}
