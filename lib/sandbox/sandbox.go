// Package sandbox runs commands for agents under a policy. It sets the directory where
// they start, the variables that they see, their network, and the bounds of their output
// and time.
//
// A Runner refuses a request that it cannot enforce, with ErrNotAvailable, and never runs
// a command under a weaker policy. LocalRunner confines only the working directory;
// BwrapRunner runs commands in the sandbox of package bwrap.
//
// Each command is watched by a helper process, which is this program started again. The
// helper ends all processes that the command leaves behind, also when this program is
// killed. So the program's main function has to begin with a call of Main:
//
//	func main() {
//		sandbox.Main()
//		...
//	}
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"pikuri/lib/bwrap"
	"pikuri/lib/gate"
	"pikuri/lib/hostrule"
)

// Reasons why a command was not run, or did not end by itself. Each error of a Runner
// wraps one of these.
var (
	ErrPathTraversal = errors.New("sandbox: path traversal denied")
	ErrInvalid       = errors.New("sandbox: invalid request")
	ErrNotFound      = errors.New("sandbox: not found")
	ErrNotExecutable = errors.New("sandbox: not executable")
	ErrPolicyDenied  = errors.New("sandbox: denied by policy")
	ErrNotAvailable  = errors.New("sandbox: not available here")
	ErrTimeout       = errors.New("sandbox: timed out")
	ErrAborted       = errors.New("sandbox: aborted")
	ErrClosed        = errors.New("sandbox: runner is closed")
)

// Runner runs one command and waits for it.
//
// A command that ran has a result and no error, whatever its status. One that was ended
// for taking too long, or because ctx ended, has both: its output until then, and
// ErrTimeout or ErrAborted. All others have an error alone. No process that the command
// started is left when Exec returns. Implementations can be used by several goroutines at
// once.
type Runner interface {
	Exec(ctx context.Context, cmd string, args []string, opts ExecOptions) (*ExecResult, error)
}

// ExecOptions are the options of one command. The zero value runs it at the runner's root
// with no input, with the variables that carry neither code nor secrets, and without a
// time limit.
type ExecOptions struct {
	// WorkDir is the directory where the command starts: relative to the root, or absolute
	// and in it. "" is the root.
	WorkDir string

	// Stdin is all that the command can read; nil is an empty input.
	Stdin []byte

	// Timeout bounds the time of the command; 0 means that only ctx does. The command then
	// gets SIGTERM, and SIGKILL if it does not end.
	Timeout time.Duration

	Env       EnvPolicy
	Net       NetPolicy
	Resources Resources
}

// EnvPolicy selects variables of this program's environment for a command. The zero value
// passes those that carry neither code nor secrets, as pk-bwrap does.
type EnvPolicy struct {
	// Allow names the variables to pass on, whatever they carry. Nil leaves the choice to the
	// rule above; an empty list passes none.
	Allow []string

	// InheritAll passes all variables on, secrets too. Allow must be nil then.
	InheritAll bool

	// Inject is added last, and overrides the others.
	Inject map[string]string
}

// NetMode is the kind of network that a command has.
type NetMode int

// The modes. No runner of this package enforces NetProxy: it is there so that a request
// for it can be refused.
const (
	NetDefault   NetMode = iota // the host's
	NetDenyAll                  // none but a loopback of its own
	NetAllowList                // only a loopback of its own
	NetProxy                    // through a proxy
)

func (m NetMode) String() string {
	if m < NetDefault || m > NetProxy {
		return fmt.Sprintf("NetMode(%d)", int(m))
	}
	return [...]string{"default", "deny all", "allow list", "proxy"}[m]
}

// NetPolicy is the network of a command.
type NetPolicy struct {
	Mode       NetMode
	AllowHosts []string // for NetAllowList: NAME[:PORT,...] [private], as --allow-host takes it
}

// Resources are limits; 0 means no limit.
type Resources struct {
	// MaxOutputBytes bounds the part of each stream that is kept, from its beginning. The
	// rest is read, counted and dropped. 0 means the runner's own limit.
	MaxOutputBytes int64

	MaxFileBytes int64 // of a file that is written; per file
	MaxOpenFiles int64 // per process

	CPUMillicores int64 // of all processes together
	MemoryBytes   int64 // of all processes together
	DiskBytes     int64 // of all files together
}

// minOpenFiles is the number of files that it takes to start a command.
const minOpenFiles = 32

// Validate refuses options that are invalid for every runner.
func (o ExecOptions) Validate() error {
	if o.Timeout < 0 {
		return fmt.Errorf("%w: the timeout %v is negative", ErrInvalid, o.Timeout)
	}
	for _, check := range []func() error{o.Env.validate, o.Net.validate, o.Resources.validate} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (p EnvPolicy) validate() error {
	if p.InheritAll && p.Allow != nil {
		return fmt.Errorf("%w: Env.InheritAll cannot be used with Env.Allow", ErrInvalid)
	}
	for name, value := range p.Inject {
		if name == "" || strings.ContainsAny(name, "=\x00\n") || strings.Contains(value, "\x00") {
			return fmt.Errorf("%w: %q cannot be set in an environment", ErrInvalid, name)
		}
	}
	return nil
}

func (p NetPolicy) validate() error {
	switch {
	case p.Mode < NetDefault || p.Mode > NetProxy:
		return fmt.Errorf("%w: there is no network mode %d", ErrInvalid, int(p.Mode))
	case p.Mode != NetAllowList && len(p.AllowHosts) > 0:
		return fmt.Errorf("%w: Net.AllowHosts means nothing with the network mode %q", ErrInvalid, p.Mode)
	}
	_, err := p.rules()
	return err
}

// rules are those of AllowHosts.
func (p NetPolicy) rules() (hostrule.Rules, error) {
	var rules hostrule.Rules
	for _, text := range p.AllowHosts {
		r, err := hostrule.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%w: Net.AllowHosts: %w", ErrInvalid, err)
		}
		r.Origin = "Net.AllowHosts"
		rules = append(rules, r)
	}
	if err := (gate.Config{Rules: rules}).Check(); err != nil {
		return nil, fmt.Errorf("%w: Net.AllowHosts: %w", ErrInvalid, err)
	}
	return rules, nil
}

// gate configures the gate to the allowed hosts; nil without any.
func (p NetPolicy) gate() (*gate.Config, error) {
	if p.Mode != NetAllowList {
		return nil, nil
	}
	rules, err := p.rules()
	if err != nil {
		return nil, err
	}
	proxy, err := gate.FindProxy(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAvailable, err)
	}
	return &gate.Config{Allow: true, Rules: rules, Proxy: proxy}, nil
}

func (r Resources) validate() error {
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"MaxOutputBytes", r.MaxOutputBytes}, {"MaxFileBytes", r.MaxFileBytes}, {"MaxOpenFiles", r.MaxOpenFiles},
		{"CPUMillicores", r.CPUMillicores}, {"MemoryBytes", r.MemoryBytes}, {"DiskBytes", r.DiskBytes},
	} {
		if limit.value < 0 {
			return fmt.Errorf("%w: Resources.%s is negative", ErrInvalid, limit.name)
		}
	}
	if r.MaxOpenFiles > 0 && r.MaxOpenFiles < minOpenFiles {
		return fmt.Errorf("%w: Resources.MaxOpenFiles is below %d", ErrInvalid, minOpenFiles)
	}
	return nil
}

// policy translates p for package bwrap, which knows the variables that carry code or
// secrets. environ is the environment of this program.
func (p EnvPolicy) policy(environ []string) bwrap.EnvPolicy {
	out := bwrap.EnvPolicy{Caller: environ, Inherit: p.InheritAll}
	if p.Allow != nil {
		out.Inherit = true
		out.Caller = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return !slices.Contains(p.Allow, name)
		})
	}
	for name, value := range p.Inject {
		out.Set = append(out.Set, name+"="+value)
	}
	slices.Sort(out.Set)
	return out
}

// Enforcement lists the guarantees of a runner. Its zero value promises nothing.
type Enforcement struct {
	Env        bool      // a command cannot read the variables that the policy withholds
	Files      bool      // a command sees and writes the roots, and little else
	NetModes   []NetMode // beyond NetDefault
	FileBytes  bool      // Resources.MaxFileBytes
	OpenFiles  bool      // Resources.MaxOpenFiles
	CPU        bool      // Resources.CPUMillicores
	Memory     bool      // Resources.MemoryBytes
	Disk       bool      // Resources.DiskBytes
	Terminates bool      // no process that a command started can outlive it
}

// Enforcer is a runner that lists its guarantees.
type Enforcer interface{ Enforcement() Enforcement }

// EnforcementOf returns the guarantees of r, or the zero value if it does not list them.
func EnforcementOf(r Runner) Enforcement {
	if e, ok := r.(Enforcer); ok {
		return e.Enforcement()
	}
	return Enforcement{}
}

// permits refuses options that are not enforced.
func (e Enforcement) permits(o ExecOptions) error {
	if o.Net.Mode != NetDefault && !slices.Contains(e.NetModes, o.Net.Mode) {
		return fmt.Errorf("%w: the network mode %q", ErrNotAvailable, o.Net.Mode)
	}
	for _, limit := range []struct {
		name  string
		asked int64
		kept  bool
	}{
		{"MaxFileBytes", o.Resources.MaxFileBytes, e.FileBytes}, {"MaxOpenFiles", o.Resources.MaxOpenFiles, e.OpenFiles},
		{"CPUMillicores", o.Resources.CPUMillicores, e.CPU}, {"MemoryBytes", o.Resources.MemoryBytes, e.Memory},
		{"DiskBytes", o.Resources.DiskBytes, e.Disk},
	} {
		if limit.asked > 0 && !limit.kept {
			return fmt.Errorf("%w: Resources.%s", ErrNotAvailable, limit.name)
		}
	}
	return nil
}
