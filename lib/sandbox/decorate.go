package sandbox

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"pikuri/lib/bwrap"
)

// NoopRunner runs nothing and succeeds. It is for tests of code that uses a Runner.
type NoopRunner struct{}

// Exec returns the result of a command without output and with status 0.
func (NoopRunner) Exec(context.Context, string, []string, ExecOptions) (*ExecResult, error) {
	return &ExecResult{}, nil
}

// decorated passes all calls but Exec on.
type decorated struct{ inner Runner }

func (d decorated) Enforcement() Enforcement { return EnforcementOf(d.inner) }

// Close closes the inner runner, if that can be closed.
func (d decorated) Close() error {
	if c, ok := d.inner.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

type allowing struct {
	decorated
	allowed []string
}

// AllowCommands returns a runner that runs only the named commands; an empty list names
// none. A name is compared with the whole command: "/bin/echo" is not "echo". A name
// without a slash is looked up in PATH when the command starts.
//
// It looks at names only. An allowed command may run others by its arguments (find -exec,
// git -c, env, any interpreter). It may not do so by variables that carry code, or by
// another PATH.
func AllowCommands(inner Runner, allowed []string) Runner {
	return &allowing{decorated{inner}, slices.Clone(allowed)}
}

func (a *allowing) Exec(ctx context.Context, cmd string, args []string, opts ExecOptions) (*ExecResult, error) {
	if !slices.Contains(a.allowed, cmd) {
		return nil, fmt.Errorf("%w: command %q is not in the whitelist", ErrPolicyDenied, cmd)
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Env.Inject)) {
		if bwrap.CarriesCode(name, opts.Env.Inject[name]) {
			return nil, fmt.Errorf("%w: variable %q can make %q run something else", ErrPolicyDenied, name, cmd)
		}
	}
	return a.inner.Exec(ctx, cmd, args, opts)
}

type defaulting struct {
	decorated
	defaults ExecOptions
}

// WithDefaults returns a runner that adds defaults to the options of a call. WorkDir and
// Stdin are the call's, if it has them. Timeout is the shorter of the two. Net, Resources
// and the variables that Env passes on are always those of defaults. Env.Inject is
// joined, and the call's values win: put AllowCommands outside to keep code out of them.
func WithDefaults(inner Runner, defaults ExecOptions) Runner {
	return &defaulting{decorated{inner}, copyOptions(defaults)}
}

func (d *defaulting) Exec(ctx context.Context, cmd string, args []string, opts ExecOptions) (*ExecResult, error) {
	if opts.Timeout < 0 {
		return nil, opts.Validate() // merge would lose it
	}
	return d.inner.Exec(ctx, cmd, args, d.merge(opts))
}

func (d *defaulting) merge(opts ExecOptions) ExecOptions {
	merged := copyOptions(d.defaults)
	if opts.WorkDir != "" {
		merged.WorkDir = opts.WorkDir
	}
	if opts.Stdin != nil {
		merged.Stdin = opts.Stdin
	}
	if opts.Timeout > 0 && (merged.Timeout == 0 || opts.Timeout < merged.Timeout) {
		merged.Timeout = opts.Timeout
	}
	if len(opts.Env.Inject) > 0 && merged.Env.Inject == nil {
		merged.Env.Inject = map[string]string{}
	}
	maps.Copy(merged.Env.Inject, opts.Env.Inject)
	return merged
}

// copyOptions returns options that share nothing with o except Stdin.
func copyOptions(o ExecOptions) ExecOptions {
	o.Env.Allow = slices.Clone(o.Env.Allow)
	o.Env.Inject = maps.Clone(o.Env.Inject)
	o.Net.AllowHosts = slices.Clone(o.Net.AllowHosts)
	if len(o.Env.Inject) == 0 {
		o.Env.Inject = nil
	}
	return o
}
