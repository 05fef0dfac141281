package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/sandbox"
)

// recorder records the last call, and whether it was closed.
type recorder struct {
	sandbox.NoopRunner
	calls  int
	opts   sandbox.ExecOptions
	closed int
}

func (r *recorder) Exec(ctx context.Context, cmd string, args []string, opts sandbox.ExecOptions) (*sandbox.ExecResult, error) {
	r.calls++
	r.opts = opts
	return r.NoopRunner.Exec(ctx, cmd, args, opts)
}

func (r *recorder) Close() error { r.closed++; return nil }

func (r *recorder) Enforcement() sandbox.Enforcement { return sandbox.Enforcement{Memory: true} }

func TestNoopRunner(t *testing.T) {
	result, err := sandbox.NoopRunner{}.Exec(context.Background(), "no-such-command", nil, sandbox.ExecOptions{})
	require.NoError(t, err)
	assert.Equal(t, &sandbox.ExecResult{}, result)
	assert.Zero(t, sandbox.EnforcementOf(sandbox.NoopRunner{}))
}

func TestEnforcementOfNothing(t *testing.T) {
	assert.Zero(t, sandbox.EnforcementOf(nil))
}

func TestAllowCommands(t *testing.T) {
	for _, row := range []struct {
		name    string
		allowed []string
		cmd     string
		ok      bool
	}{
		{"named", []string{"echo", "git"}, "git", true},
		{"not named", []string{"echo"}, "git", false},
		{"no list", nil, "git", false},
		{"empty list", []string{}, "git", false},
		{"another spelling", []string{"echo"}, "/bin/echo", false},
		{"the base name of a path", []string{"/bin/echo"}, "echo", false},
		{"a blank more", []string{"echo"}, "echo ", false},
		{"nothing", []string{"echo"}, "", false},
	} {
		inner := &recorder{}
		_, err := sandbox.AllowCommands(inner, row.allowed).Exec(context.Background(), row.cmd, nil, sandbox.ExecOptions{})
		if row.ok {
			assert.NoError(t, err, row.name)
			assert.Equal(t, 1, inner.calls, row.name)
			continue
		}
		require.ErrorIs(t, err, sandbox.ErrPolicyDenied, row.name)
		assert.Contains(t, err.Error(), "whitelist", row.name)
		assert.Zero(t, inner.calls, row.name)
	}
}

func TestAllowCommandsTakesNoCodeInVariables(t *testing.T) {
	for _, name := range []string{
		"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "NODE_OPTIONS",
		"PYTHONPATH", "PERL5OPT", "RUBYOPT", "BASH_FUNC_ls%%",
	} {
		inner := &recorder{}
		opts := sandbox.ExecOptions{Env: sandbox.EnvPolicy{Inject: map[string]string{name: "/tmp/evil"}}}
		_, err := sandbox.AllowCommands(inner, []string{"git"}).Exec(context.Background(), "git", nil, opts)
		assert.ErrorIs(t, err, sandbox.ErrPolicyDenied, name)
		assert.Zero(t, inner.calls, name)
	}
	opts := sandbox.ExecOptions{Env: sandbox.EnvPolicy{Inject: map[string]string{"LANG": "C"}}}
	_, err := sandbox.AllowCommands(&recorder{}, []string{"git"}).Exec(context.Background(), "git", nil, opts)
	assert.NoError(t, err)
}

func TestAllowCommandsOwnsItsList(t *testing.T) {
	list := []string{"echo"}
	r := sandbox.AllowCommands(&recorder{}, list)
	list[0] = "rm"
	_, err := r.Exec(context.Background(), "rm", nil, sandbox.ExecOptions{})
	assert.ErrorIs(t, err, sandbox.ErrPolicyDenied)
}

func TestWithDefaults(t *testing.T) {
	type opts = sandbox.ExecOptions
	inject := func(kv ...string) sandbox.EnvPolicy {
		p := sandbox.EnvPolicy{Inject: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			p.Inject[kv[i]] = kv[i+1]
		}
		return p
	}
	for _, row := range []struct {
		name                 string
		defaults, call, want opts
	}{
		{"nothing", opts{}, opts{}, opts{}},
		{"directory of the call", opts{WorkDir: "a"}, opts{WorkDir: "b"}, opts{WorkDir: "b"}},
		{"directory of the defaults", opts{WorkDir: "a"}, opts{}, opts{WorkDir: "a"}},
		{"input of the call", opts{Stdin: []byte("a")}, opts{Stdin: []byte("b")}, opts{Stdin: []byte("b")}},
		{"empty input of the call", opts{Stdin: []byte("a")}, opts{Stdin: []byte{}}, opts{Stdin: []byte{}}},
		{"input of the defaults", opts{Stdin: []byte("a")}, opts{}, opts{Stdin: []byte("a")}},
		{"shorter timeout of the call", opts{Timeout: 5}, opts{Timeout: 3}, opts{Timeout: 3}},
		{"longer timeout of the call", opts{Timeout: 5}, opts{Timeout: 7}, opts{Timeout: 5}},
		{"timeout of the call alone", opts{}, opts{Timeout: 7}, opts{Timeout: 7}},
		{"timeout of the defaults alone", opts{Timeout: 5}, opts{}, opts{Timeout: 5}},
		{"what passes is the defaults'", opts{Env: sandbox.EnvPolicy{Allow: []string{"A"}}},
			opts{Env: sandbox.EnvPolicy{Allow: []string{"B"}, InheritAll: true}}, opts{Env: sandbox.EnvPolicy{Allow: []string{"A"}}}},
		{"an empty list stays one", opts{Env: sandbox.EnvPolicy{Allow: []string{}}}, opts{}, opts{Env: sandbox.EnvPolicy{Allow: []string{}}}},
		{"a call cannot ask for everything", opts{}, opts{Env: sandbox.EnvPolicy{InheritAll: true}}, opts{}},
		{"variables are joined", opts{Env: inject("A", "1", "B", "1")}, opts{Env: inject("B", "2", "C", "2")},
			opts{Env: inject("A", "1", "B", "2", "C", "2")}},
		{"variables of the call alone", opts{}, opts{Env: inject("B", "2")}, opts{Env: inject("B", "2")}},
		{"the network is the defaults'", opts{Net: sandbox.NetPolicy{Mode: sandbox.NetDenyAll}}, opts{}, opts{Net: sandbox.NetPolicy{Mode: sandbox.NetDenyAll}}},
		{"a call cannot open the network", opts{Net: sandbox.NetPolicy{Mode: sandbox.NetDenyAll}},
			opts{Net: sandbox.NetPolicy{Mode: sandbox.NetProxy}}, opts{Net: sandbox.NetPolicy{Mode: sandbox.NetDenyAll}}},
		{"limits are the defaults'", opts{Resources: sandbox.Resources{MaxFileBytes: 1}},
			opts{Resources: sandbox.Resources{MaxFileBytes: 2, MaxOutputBytes: 3}}, opts{Resources: sandbox.Resources{MaxFileBytes: 1}}},
	} {
		inner := &recorder{}
		r := sandbox.WithDefaults(inner, row.defaults)
		for range 2 { // a call changes nothing for the next
			_, err := r.Exec(context.Background(), "true", nil, row.call)
			require.NoError(t, err, row.name)
			assert.Equal(t, row.want, inner.opts, row.name)
			_, err = r.Exec(context.Background(), "true", nil, opts{Env: inject("A", "changed", "Z", "9")})
			require.NoError(t, err, row.name)
		}
	}
	_, err := sandbox.WithDefaults(&recorder{}, opts{Timeout: time.Second}).Exec(context.Background(), "true", nil, opts{Timeout: -1})
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestDecoratorsPassOn(t *testing.T) {
	inner := &recorder{}
	r := sandbox.WithDefaults(sandbox.AllowCommands(inner, []string{"a"}), sandbox.ExecOptions{})
	assert.Equal(t, sandbox.Enforcement{Memory: true}, sandbox.EnforcementOf(r))
	require.NoError(t, r.(interface{ Close() error }).Close())
	assert.Equal(t, 1, inner.closed)
	_, err := r.Exec(context.Background(), "b", nil, sandbox.ExecOptions{})
	assert.ErrorIs(t, err, sandbox.ErrPolicyDenied)
	assert.NoError(t, sandbox.AllowCommands(sandbox.NoopRunner{}, nil).(interface{ Close() error }).Close())
}
