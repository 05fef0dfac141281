// Package sandbox runs commands for agents under a policy: where they start,
// which variables they see, whether they reach the network, how much they may
// print and for how long they may run.
//
// A Runner refuses what it cannot enforce, with ErrNotAvailable, and never runs
// a command under less than was asked for. LocalRunner confines nothing but the
// working directory; BwrapRunner runs commands in the sandbox of package bwrap.
//
// Each command is watched by a helper process, which is this program started
// again. The helper ends what the command leaves behind, also when this program is
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

// Why a command is not run, or did not end by itself. Errors of a Runner wrap
// one of these.
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
// A command that ran has a result and no error, whatever its status. One that
// was ended for taking too long, or because ctx ended, has both: what it printed
// until then, and ErrTimeout or ErrAborted. All others have an error alone.
// Nothing that the command started is left when Exec returns. Implementations
// can be used by several goroutines at once.
type Runner interface {
	Exec(ctx context.Context, cmd string, args []string, opts ExecOptions) (*ExecResult, error)
}

// ExecOptions is how one command is to be run. The zero value runs it at the
// runner's root with no input, with what of the environment carries neither code
// nor secrets, and without a time limit.
type ExecOptions struct {
	// WorkDir is where the command starts: relative to the root, or absolute and
	// in it. "" is the root.
	WorkDir string

	// Stdin is all that the command can read; nil is an empty input.
	Stdin []byte

	// Timeout is how long the command may run; 0 is for as long as ctx lets it.
	// It then gets SIGTERM, and SIGKILL if that was not enough.
	Timeout time.Duration

	Env       EnvPolicy
	Net       NetPolicy
	Resources Resources
}

// EnvPolicy is what a command sees of this program's environment. The zero value
// shows what carries neither code nor secrets, as pk-bwrap does.
type EnvPolicy struct {
	// Allow names the variables that are passed on, whatever they carry. Nil
	// leaves the choice to the rule above; an empty list passes nothing.
	Allow []string

	// InheritAll passes everything on, secrets and all. Allow must be nil then.
	InheritAll bool

	// Inject is added last, and wins.
	Inject map[string]string
}

// NetMode is how much of the network a command reaches.
type NetMode int

// The modes. No runner of this package enforces NetProxy: it is there so that a request
// for it can be refused.
const (
	NetDefault   NetMode = iota // the host's
	NetDenyAll                  // none but a loopback of its own
	NetAllowList                // NetPolicy.AllowHosts
	NetProxy                    // through a proxy
)

func (m NetMode) String() string {
	if m < NetDefault || m > NetProxy {
		return fmt.Sprintf("NetMode(%d)", int(m))
	}
	return [...]string{"default", "deny all", "allow list", "proxy"}[m]
}

// NetPolicy is what a command may reach.
type NetPolicy struct {
	Mode       NetMode
	AllowHosts []string // for NetAllowList: NAME[:PORT,...] [private], as --allow-host takes it
}

// Resources are limits; 0 means none is asked for.
type Resources struct {
	// MaxOutputBytes is how much is kept of each stream, from its beginning. More
	// is read, counted and dropped. 0 means the runner's own limit.
	MaxOutputBytes int64

	MaxFileBytes int64 // of a file that is written; per file
	MaxOpenFiles int64 // per process

	CPUMillicores int64 // of all processes together
	MemoryBytes   int64 // of all processes together
	DiskBytes     int64 // of all files together
}

// minOpenFiles is what starting a command takes.
const minOpenFiles = 32

// Validate finds what no runner could make sense of.
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

// gate is the gate to the hosts that are allowed, or nil.
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

// policy translates p for package bwrap, which knows what carries what. environ
// is the environment of this program.
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

// Enforcement is what a runner holds commands to. Its zero value promises
// nothing.
type Enforcement struct {
	Env        bool      // a command cannot find out what the policy keeps from it
	Files      bool      // a command sees and writes the roots, and little else
	NetModes   []NetMode // beyond NetDefault
	FileBytes  bool      // Resources.MaxFileBytes
	OpenFiles  bool      // Resources.MaxOpenFiles
	CPU        bool      // Resources.CPUMillicores
	Memory     bool      // Resources.MemoryBytes
	Disk       bool      // Resources.DiskBytes
	Terminates bool      // nothing that a command started can outlive it
}

// Enforcer is what runners implement that can tell.
type Enforcer interface{ Enforcement() Enforcement }

// EnforcementOf returns what r promises, the zero value if it does not tell.
func EnforcementOf(r Runner) Enforcement {
	if e, ok := r.(Enforcer); ok {
		return e.Enforcement()
	}
	return Enforcement{}
}

// permits refuses what is asked for and not enforced.
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
