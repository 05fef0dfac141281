// Package sandboxflags has the options by which pk-bwrap and pk-bash describe a
// sandbox, and makes them the Config of a fence.
package sandboxflags

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"pikuri/lib/audit"
	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/fence"
	"pikuri/lib/gate"
	"pikuri/lib/internal/heap"
	"pikuri/lib/limits"
	"pikuri/lib/monitor"
	"pikuri/lib/quarantine"
	"pikuri/lib/session"
	"pikuri/lib/setup"
)

// Options are the workspace options and the sandbox options.
type Options struct {
	cli.WorkspaceFlags

	// Scratch asks for a session that lasts as long as the Fence when neither
	// --session nor --temp is given.
	Scratch bool

	Tell bool // the plan is only described: nothing runs

	// OwnLoop asks for a session directory for several calls of Open, in the place of a scratch
	// one. The first call makes it, Loop, which the caller removes.
	OwnLoop bool
	Loop    *session.Dir

	// Runs says that a command will run, if nothing is refused. Ahead holds the set-up
	// program of several calls of Open; or nil.
	Runs  bool
	Ahead *monitor.Ahead

	// Log is the file of --audit, which Open refuses if the sandbox shows it; or nil. The
	// caller opens it before Open, after which root can be another user.
	Log *audit.Log

	overlays     []listed
	noToolchains bool
	net          string // of --net; "" means host
	allowHosts   []listed
	hostSets     string // file of the user's sets, if one was asked for
	publish      []uint16
	connect      []uint16
	allowNested  bool
	Trace        bool // --trace
	protect      []bwrap.Protected
	require      []string
	passFDs      []int
	limits       limits.Limits
	bwrap        string
	env          bwrap.EnvPolicy
}

// listed is the value of an option such as --overlay or, as a list, --overlay-from.
type listed struct {
	value  string
	list   bool
	policy string // the line of a policy that gave it, or ""
}

// SandboxHelp is the text of --help about the sandbox options, the same in each
// command that has them.
const SandboxHelp = `Sandbox:
      --overlay DIR          a root that looks writable; writes stay in the
                             session, or are lost with the command
      --overlay-from FILE    the same from a list
      --trial                writable roots keep their changes in the session:
                             pk-diff shows them, pk-apply lands them
      --no-toolchains        do not show what pk-toolchains lists
      --net host|none|allow  the host's network (default), none, or the hosts
                             that are allowed
      --allow-host NAME[:PORT,...] [private]
                             a host of --net allow, at ports 80 and 443 unless
                             given; *.NAME for those below it; @SET; repeatable
      --allow-host-from FILE the same from a list
      --publish PORT         open a port of the sandbox on the host's loopback
      --connect PORT         open a port of the host's loopback inside
      --env-inherit          pass the whole environment, secrets and all
      --pass-env NAME        pass NAME though it may carry code or a secret
      --setenv NAME=VALUE    set NAME inside
      --protect PATH         keep PATH in a writable root from being written;
                             repeatable. By default: what git, editors and
                             agents on the host run from a project
      --no-protect           protect nothing by default
      --require NAME,...     fail unless these guarantees hold here; repeatable
      --pass-fd N            hand on the caller's descriptor N; repeatable
      --allow-nested         let COMMAND make user namespaces
      --trace                find what the fence refused by the system calls that
                             failed, too
      --memory SIZE          memory of all its processes together, such as 2G
      --pids N               how many processes and threads it may have at once
      --cpu-time SECONDS     processor time of each process
      --file-size SIZE       how large a file it may write, at least 4K
      --bwrap PATH           the bwrap to use (default: root's own in /usr/bin,
                             /bin or /usr/local/bin)
      --audit FILE           append a record of each command to FILE, or run
                             nothing
`

// Options returns the options, to be added to a command's own.
func (o *Options) Options() []cli.Option {
	// Descriptors are the matter of one call, and no policy's.
	return append(o.WithPolicy(o.Lasting()), cli.Func(o.passFD, "pass-fd", ""))
}

// Lasting returns the options that can stand in a policy.
func (o *Options) Lasting() []cli.Option {
	return append(append(o.WorkspaceFlags.Options(), o.RuleOptions()...),
		o.listedIn(&o.overlays, "overlay", false).Path(),
		o.listedIn(&o.overlays, "overlay-from", true).PathOrStdin(),
		cli.Switch(&o.Trial, "trial", ""),
		cli.Switch(&o.noToolchains, "no-toolchains", ""),
		cli.Func(o.setNet, "net", "").Tightens(func(v string) bool { return v == netNone }),
		o.listedIn(&o.allowHosts, "allow-host", false),
		o.listedIn(&o.allowHosts, "allow-host-from", true).PathOrStdin(),
		port(&o.publish, "publish"),
		port(&o.connect, "connect"),
		cli.Switch(&o.env.Inherit, "env-inherit", ""),
		cli.List(&o.env.Pass, "pass-env", ""),
		cli.List(&o.env.Set, "setenv", ""),
		cli.Func(o.addProtected, "protect", "").Path(),
		cli.Func(o.setRequire, "require", ""),
		cli.Switch(&o.allowNested, "allow-nested", ""),
		cli.Switch(&o.Trace, "trace", ""),
		limit(&o.limits.Memory, limits.ParseSize, "memory"),
		limit(&o.limits.Pids, limits.ParseCount, "pids"),
		limit(&o.limits.CPUTime, limits.ParseSeconds, "cpu-time"),
		limit(&o.limits.FileSize, limits.ParseSize, "file-size"),
		cli.Name(&o.bwrap, "bwrap", "").Path(),
		o.AuditOption(),
	)
}

// setRequire takes names of guarantees, which hold no comma.
func (o *Options) setRequire(v string) error {
	for name := range strings.SplitSeq(v, ",") {
		if name == "" {
			return fmt.Errorf("%q names nothing between its commas", v)
		}
		o.require = append(o.require, name)
	}
	return nil
}

func (o *Options) addProtected(v string) error {
	if v == "" {
		return cli.ErrNoName
	}
	rule := "option --protect"
	if o.Source() != "" {
		rule += " of policy " + o.Source()
	}
	o.protect = append(o.protect, bwrap.Protected{Path: v, Rule: rule})
	return nil
}

// passFD checks the descriptor at once, while all open files are the caller's.
func (o *Options) passFD(v string) error {
	fd, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q is not the number of a descriptor", v)
	}
	if err := monitor.CheckPassed(fd); err != nil {
		return err
	}
	if !slices.Contains(o.passFDs, fd) {
		o.passFDs = append(o.passFDs, fd)
	}
	return nil
}

// limit is an option whose value parse understands. A lower limit tightens.
func limit[T int64 | time.Duration](dst *T, parse func(string) (T, error), long string) cli.Option {
	return cli.Func(func(v string) (err error) {
		*dst, err = parse(v)
		return err
	}, long, "").Tightens(func(v string) bool {
		n, err := parse(v)
		return err != nil || *dst == 0 || n <= *dst
	})
}

func (o *Options) listedIn(dst *[]listed, long string, list bool) cli.Option {
	return cli.Func(func(v string) error {
		*dst = append(*dst, listed{v, list, o.Source()})
		return nil
	}, long, "")
}

// Modes are the modes in which a command with a sandbox starts itself again.
func Modes() []cli.Mode {
	return append(session.Modes(), setup.Mode, gate.Mode, monitor.GuardMode, quarantine.DisarmMode)
}

// Fence is an opened workspace and the plan of a sandbox that shows it.
type Fence struct {
	*fence.Fence
	*cli.Opened
	ahead *monitor.Ahead // of this sandbox alone, or nil
	begun func()         // to call once its session has begun, or nil
}

// Open opens the workspace and makes the plan. Nothing has been started when it
// returns, and a refusal leaves nothing behind.
func (o *Options) Open(ctx *cli.Context) (*Fence, error) {
	heap.Prepare()
	for _, check := range []func() error{bwrap.CheckFiles, bwrap.CheckProcesses} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	overlays, err := o.readOverlays(ctx)
	if err != nil {
		return nil, cli.Invalid(err)
	}
	network, err := o.network(ctx)
	if err != nil {
		return nil, err
	}
	runAs, err := becomeOwner(o.Project())
	if err != nil {
		return nil, err
	}
	o.LateSession = true
	named := o.Trial && o.nameTrial()
	var ahead *monitor.Ahead // the set-up program takes longer to start than the plan takes to make
	if o.Ahead == nil {
		ahead = &monitor.Ahead{Orphaned: fence.Orphaned()}
		if o.Runs && o.SessionName() == "" {
			ahead.Start(nil, network != nil)
		}
	}
	opened, err := o.WorkspaceFlags.Open(ctx)
	if err != nil {
		ahead.Close()
		return nil, err
	}
	f := &Fence{Opened: opened, ahead: ahead}
	if err := stillOwned(opened.Roots()[0], runAs); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, v := range o.overlays {
		if err := cli.CheckList(v.value, opened.Roots()); v.list && err != nil {
			return nil, errors.Join(cli.Invalid(err), f.Close())
		}
	}
	if err := o.checkHostLists(opened); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c, err := o.config(opened, overlays)
	c.NoNet, c.Gate = o.net == netNone || o.net == netAllow, network
	c.RunAs, c.Warn = runAs, ctx.Warn
	if err == nil {
		if c.Ahead = o.Ahead; c.Ahead == nil {
			c.Ahead = f.ahead
		}
		f.Fence, err = fence.New(c)
	}
	if err == nil {
		err = f.refuseShown(o.Log)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if named && !o.Tell {
		f.begun = func() { ctx.Say("hint: pk-diff --session %s shows what changes", o.Session) }
	}
	return f, nil
}

func (o *Options) config(opened *cli.Opened, overlays []string) (fence.Config, error) {
	c := fence.Config{
		Roots: opened.Roots(), Origin: o.Origin, Rules: o.Rules(), Tmp: opened.Temp(),
		Overlays: overlays, NoToolchains: o.noToolchains, AllowNested: o.allowNested,
		Protect: o.protect, NoProtect: o.NoProtect, Require: o.require, PassFDs: o.passFDs,
		Limits: o.limits, Bwrap: o.bwrap, Env: o.env, Trace: o.Trace, Tell: o.Tell, Pinned: o.Pinned(),
	}
	c.Session, c.OwnTmp = opened.Session, opened.Session != nil && o.Temp == ""
	c.Trial = o.Trial || opened.Session != nil && opened.Session.Trial()
	c.Reserved = opened.Reserved
	switch {
	case o.Temp != "" || c.Session != nil || c.Reserved != nil:
	case o.OwnLoop:
		if o.Loop == nil {
			base, err := session.Base(os.Getenv)
			if err == nil {
				err = session.CheckBase(base, c.Roots, overlays)
			}
			if err == nil {
				o.Loop, err = session.Create(base)
			}
			if err != nil {
				return c, err
			}
		}
		tmp, err := o.Loop.Tmp()
		if err != nil {
			return c, err
		}
		c.Session, c.OwnTmp, c.Tmp = o.Loop, true, bwrap.Canonical(tmp)
	case o.Scratch:
		base, err := session.Base(os.Getenv)
		if err != nil {
			return c, err
		}
		reserved := session.Reserve(bwrap.Canonical(base))
		c.Reserved = &reserved
	}
	if o.NoAliasTmp && (c.Tmp != "" || c.Reserved != nil) {
		return c, &bwrap.Refusal{
			Reason: "cannot make a sandbox in which /tmp is not the session tmp",
			Advice: "leave --no-alias-tmp out",
		}
	}
	return c, nil
}

// nameTrial names the session of a trial without one. The name has to be told, so that the user
// finds the changes again.
func (o *Options) nameTrial() (named bool) {
	if o.Session != "" || os.Getenv("PK_SESSION") != "" {
		return false
	}
	o.Session = "trial-" + strings.ToLower(rand.Text()[:10])
	return true
}

// Ready joins the session and looks for the command, whose absence has exit
// statuses of its own.
func (f *Fence) Ready(name string) error {
	err := f.Fence.Ready(name)
	if err == nil && f.Opened.Reserved != nil {
		err = f.Begin(f.Fence.Session)
	}
	if err == nil && f.begun != nil {
		f.begun()
		f.begun = nil
	}
	if _, ok := errors.AsType[*bwrap.NotFound](err); ok {
		return cli.WithStatus(cli.StatusMissing, err)
	}
	if _, ok := errors.AsType[*bwrap.NotExecutable](err); ok {
		return cli.WithStatus(cli.StatusNotExec, err)
	}
	return err
}

// Close ends the use of the session.
func (f *Fence) Close() error {
	var err error
	if f.Fence != nil {
		err = f.Fence.Close()
	}
	f.ahead.Close()
	f.Opened.Close()
	return err
}

func (o *Options) readOverlays(ctx *cli.Context) ([]string, error) {
	var paths []string
	for _, v := range o.overlays {
		if !v.list {
			paths = append(paths, v.value)
			continue
		}
		read, err := ctx.ReadList(v.value, o.Zero != nil && *o.Zero)
		if err != nil {
			return nil, err
		}
		paths = append(paths, read...)
	}
	return paths, nil
}
