package sandboxflags

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/gate"
	"pikuri/lib/hostrule"
)

// Values of --net.
const (
	netHost  = "host"
	netNone  = "none"
	netAllow = "allow"
)

// setNet sets the network. With none, the hosts that a policy allows are not reached, and
// a policy that says none drops those of the command line too.
func (o *Options) setNet(v string) error {
	if !slices.Contains([]string{netHost, netNone, netAllow}, v) {
		return fmt.Errorf("%q is not one of host, none and allow", v)
	}
	o.net = v
	if v == netNone {
		o.allowHosts = slices.DeleteFunc(o.allowHosts, func(h listed) bool { return h.policy != "" || o.Source() != "" })
	}
	return nil
}

// port is an option whose values are ports of the loopback, with or without its name.
func port(dst *[]uint16, long string) cli.Option {
	return cli.Func(func(v string) error {
		number := v
		for _, loopback := range []string{"localhost:", "127.0.0.1:", "[::1]:"} {
			number = strings.TrimPrefix(number, loopback)
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is no port of the loopback: type a number from 1 to 65535", v)
		}
		if !slices.Contains(*dst, uint16(n)) {
			*dst = append(*dst, uint16(n))
		}
		return nil
	}, long, "")
}

// network is the network that the options allow, or nil for the host's or none.
func (o *Options) network(ctx *cli.Context) (*gate.Config, error) {
	ports := len(o.publish)+len(o.connect) > 0
	if o.net == "" && len(o.allowHosts) > 0 {
		o.net = netAllow
	}
	switch {
	case o.net != netAllow && len(o.allowHosts) > 0:
		return nil, cli.Invalid(errors.New("--allow-host needs --net allow"))
	case o.net != netAllow && o.net != netNone && ports:
		return nil, cli.Invalid(errors.New("--publish and --connect need --net none or --net allow: with the host's network all ports are shared"))
	case o.net == netAllow && len(o.allowHosts) == 0:
		return nil, cli.Invalid(errors.New("--net allow needs --allow-host NAME, or --allow-host-from FILE"))
	case o.net != netAllow && !ports:
		return nil, nil
	}
	for _, p := range o.publish {
		if slices.Contains(o.connect, p) {
			return nil, cli.Invalid(fmt.Errorf("port %d is in --publish and in --connect: it can lead one way only", p))
		}
	}
	c := &gate.Config{Allow: o.net == netAllow, Publish: o.publish, Connect: o.connect}
	var err error
	if c.Rules, err = o.hostRules(ctx); err != nil {
		return nil, cli.Invalid(err)
	}
	if c.Allow && !o.Pinned() { // a proxy is one host more
		c.Proxy, err = gate.FindProxy(os.Getenv)
	}
	return c, err
}

// hostRules reads the rules of --allow-host and --allow-host-from. It reads the sets only
// if a rule names one.
func (o *Options) hostRules(ctx *cli.Context) (hostrule.Rules, error) {
	var all hostrule.Rules
	for _, v := range o.allowHosts {
		var rules hostrule.Rules
		var lines []string
		var err error
		if v.list {
			if lines, err = ctx.ReadLines(v.value, o.Zero != nil && *o.Zero); err == nil {
				rules, err = hostrule.FromList(v.value, lines, o.hostSet)
			}
		} else {
			rules, err = hostrule.From(v.value, "option --allow-host", o.hostSet)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	return all, gate.Config{Rules: all}.Check()
}

// hostSet returns a set of the user's own.
func (o *Options) hostSet(name string) (hostrule.Rules, error) {
	if o.Pinned() {
		return nil, fmt.Errorf("the set %q is the user's own, and the machine's policy is mandatory", name)
	}
	o.hostSets = hostrule.SetsFile(os.Getenv("HOME"), os.Getenv)
	sets, err := hostrule.LoadSets(o.hostSets)
	if err != nil {
		return nil, err
	}
	return sets.Rules(name)
}

// checkHostLists refuses lists of hosts that a command could have written.
func (o *Options) checkHostLists(opened *cli.Opened) error {
	if o.hostSets != "" {
		if err := confine.RefuseWritable("take the hosts", o.hostSets, opened.Roots(), "keep it outside"); err != nil {
			return err
		}
	}
	for _, v := range o.allowHosts {
		if err := cli.CheckList(v.value, opened.Roots()); v.list && err != nil {
			return cli.Invalid(err)
		}
	}
	return nil
}
