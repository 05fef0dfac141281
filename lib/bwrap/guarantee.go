package bwrap

import (
	"fmt"
	"slices"
	"strings"

	"pikuri/lib/landlock"
)

// Guarantee is one promise of a sandbox, by its name for --require and --check.
type Guarantee struct {
	Name  string
	Text  string // the promise, in messages
	Holds bool
	Off   bool   // an option, or the lack of one, turns it off
	Why   string // why it does not hold
	Fix   string // how to make it hold; "" if it cannot hold here
}

// Guarantees lists the promises of this plan on this machine. bwrap carries its options
// out or fails, so most hold; the others depend on the machine or on the options.
func (p *Plan) Guarantees() []Guarantee {
	list := []Guarantee{
		{Name: "files", Text: "only what is shown can be read or written", Holds: true},
		{Name: "processes", Text: "no process outside is seen, signalled or traced", Holds: true},
		{Name: "capabilities", Text: "no capability, and no way to gain one", Holds: true},
		{Name: "environment", Text: "no variable that was not passed, in any process inside", Holds: true},
		{Name: "descriptors", Text: "no descriptor but the standard streams and those passed", Holds: true},
		{Name: "terminal", Text: "nothing is typed into the caller's terminal", Holds: true},
		{Name: "litter", Text: "nothing is made on the host to mount on", Holds: true},
		p.unless("network", "no network but a loopback of its own", p.reaches() != "", p.reaches(), "--net none"),
		p.unless("net-allow", "no host but those allowed by name, nor the host's loopback", p.Net, "the host's network is shared", "--net allow with --allow-host, or --net none"),
		p.unless("nested", "no user namespaces inside", p.AllowNested, "--allow-nested was given", "leave --allow-nested out"),
		p.when("syscalls", "no keys, io_uring, bpf, perf events or set-user-ID files", p.Filter != nil, "no filter is known for this processor", ""),
		p.abstract(),
		p.when("overlay", "what looks writable is, and never the host's", len(p.Degraded) == 0, degraded(p.Degraded), "unmount what is below, or show it with --readable"),
		p.unless("protect", "files that git and editors on the host run are unchanged", p.Unprotected, "--no-protect was given", "leave --no-protect out"),
	}
	return list
}

func (p *Plan) when(name, text string, holds bool, why, fix string) Guarantee {
	g := Guarantee{Name: name, Text: text, Holds: holds}
	if !holds {
		g.Why, g.Fix = why, fix
	}
	return g
}

// unless is a guarantee that the options decide.
func (p *Plan) unless(name, text string, off bool, why, fix string) Guarantee {
	g := p.when(name, text, !off, why, fix)
	g.Off = off
	return g
}

func degraded(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return fmt.Sprintf("read-only instead: %q", paths)
}

// reaches names the network that the command reaches beyond its own loopback, or "".
func (p *Plan) reaches() string {
	switch {
	case p.Net:
		return "the host's network is shared"
	case p.Gate != nil && p.Gate.Allow:
		return "hosts are allowed by name"
	case p.Gate != nil && len(p.Gate.Publish)+len(p.Gate.Connect) > 0:
		return "ports of the host's loopback are shared"
	}
	return ""
}

// abstract: a network namespace of its own has only abstract sockets made inside.
func (p *Plan) abstract() Guarantee {
	g := Guarantee{Name: "abstract-sockets", Text: "no abstract socket of the host is reached"}
	if p.Net {
		if err := landlock.Supported(); err != nil {
			g.Why, g.Fix = err.Error(), "--net none, or Linux 6.12 with lsm=landlock,..."
			return g
		}
	}
	g.Holds = true
	return g
}

// Require refuses a plan without one of the required guarantees.
func (p *Plan) Require(required []string) error {
	if len(required) == 0 {
		return nil // Guarantees asks the kernel, which costs time
	}
	all := p.Guarantees()
	for _, name := range required {
		i := slices.IndexFunc(all, func(g Guarantee) bool { return g.Name == name })
		if i < 0 {
			return &Refusal{Reason: fmt.Sprintf("cannot require %q: there is no such guarantee", name), Advice: "there are " + strings.Join(names(all), ", ")}
		}
		if g := all[i]; !g.Holds {
			return &Refusal{Reason: fmt.Sprintf("cannot promise %q (%s): %s", name, g.Text, g.Why), Advice: g.Fix}
		}
	}
	return nil
}

// Holding lists the names of this plan's guarantees that hold on this machine.
func (p *Plan) Holding() []string {
	return names(slices.DeleteFunc(p.Guarantees(), func(g Guarantee) bool { return !g.Holds }))
}

func names(list []Guarantee) []string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = g.Name
	}
	return names
}
