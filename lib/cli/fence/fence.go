// Package fence is what pk-bwrap and pk-bash share: the options that describe
// a sandbox, and the way from them to a plan.
package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/gitrepo"
	"pikuri/lib/keeper"
	"pikuri/lib/limits"
	"pikuri/lib/toolchain"
	"pikuri/lib/umbrella"
)

// Options are the workspace options and the sandbox options.
type Options struct {
	cli.Workspace

	// Scratch asks for a playground that lasts as long as the Fence when
	// neither a session nor --temp gives one.
	Scratch bool

	overlays     []overlay
	noToolchains bool
	noNet        bool
	allowNested  bool
	protect      []bwrap.Protected
	noProtect    bool
	require      []string
	passFDs      []int
	limits       limits.Limits
	runAs        int
	bwrap        string
	env          bwrap.EnvPolicy
}

// overlay is one --overlay or --overlay-from.
type overlay struct {
	value string
	list  bool
}

// SandboxHelp is what --help says of the sandbox options, the same in each
// command that has them.
const SandboxHelp = `Sandbox:
      --overlay DIR          a root that looks writable; what is written stays
                             in the session, or is lost with the command
      --overlay-from FILE    the same from a list
      --no-toolchains        do not show what pk-toolchains lists
      --net host|none        the host's network (default), or none
      --env-inherit          pass the whole environment, secrets and all
      --pass-env NAME        pass NAME though it may carry code or a secret
      --setenv NAME=VALUE    set NAME inside
      --protect PATH         keep PATH in a writable root from being written;
                             repeatable. By default: what makes git run code
      --no-protect           protect nothing by default
      --require NAME,...     fail unless these guarantees hold here; repeatable
      --pass-fd N            hand on the caller's descriptor N; repeatable
      --allow-nested         let COMMAND make user namespaces
      --memory SIZE          what all its processes may hold together, such as 2G
      --pids N               how many processes and threads it may have at once
      --cpu-time SECONDS     processor time of each process
      --file-size SIZE       how large a file it may write
      --bwrap PATH           the bwrap to use (default: root's own in /usr/bin,
                             /bin or /usr/local/bin)
`

// Options returns the options, to be added to a command's own.
func (o *Options) Options() []cli.Option {
	// Descriptors are the matter of one call, and no policy's.
	return append(o.WithPolicy(o.Lasting()), cli.Func(o.passFD, "pass-fd", ""))
}

// Lasting returns the options that can stand in a policy.
func (o *Options) Lasting() []cli.Option {
	return append(append(o.Workspace.Options(), o.RuleOptions()...),
		o.overlay("overlay", false).Path(),
		o.overlay("overlay-from", true).PathOrStdin(),
		cli.Switch(&o.noToolchains, "no-toolchains", ""),
		cli.Func(o.setNet, "net", ""),
		cli.Switch(&o.env.Inherit, "env-inherit", ""),
		cli.List(&o.env.Pass, "pass-env", ""),
		cli.List(&o.env.Set, "setenv", ""),
		cli.Func(o.addProtected, "protect", "").Path(),
		cli.Switch(&o.noProtect, "no-protect", ""),
		cli.Func(o.setRequire, "require", ""),
		cli.Switch(&o.allowNested, "allow-nested", ""),
		limit(&o.limits.Memory, limits.ParseSize, "memory"),
		limit(&o.limits.Pids, limits.ParseCount, "pids"),
		limit(&o.limits.CPUTime, limits.ParseSeconds, "cpu-time"),
		limit(&o.limits.FileSize, limits.ParseSize, "file-size"),
		cli.Text(&o.bwrap, "bwrap", "").Path(),
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
		return errors.New("the name is empty")
	}
	rule := "option --protect"
	if o.Source() != "" {
		rule += " of policy " + o.Source()
	}
	o.protect = append(o.protect, bwrap.Protected{Path: v, Rule: rule})
	return nil
}

// passFD looks at the descriptor at once, while what is open is the caller's.
func (o *Options) passFD(v string) error {
	fd, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q is not the number of a descriptor", v)
	}
	if err := bwrap.CheckPassed(fd); err != nil {
		return err
	}
	if !slices.Contains(o.passFDs, fd) {
		o.passFDs = append(o.passFDs, fd)
	}
	return nil
}

// limit is an option whose value parse understands.
func limit[T any](dst *T, parse func(string) (T, error), long string) cli.Option {
	return cli.Func(func(v string) (err error) {
		*dst, err = parse(v)
		return err
	}, long, "")
}

func (o *Options) overlay(long string, list bool) cli.Option {
	return cli.Func(func(v string) error {
		o.overlays = append(o.overlays, overlay{v, list})
		return nil
	}, long, "")
}

func (o *Options) setNet(v string) error {
	if !slices.Contains([]string{"host", "none"}, v) {
		return fmt.Errorf("%q is neither \"host\" nor \"none\"", v)
	}
	o.noNet = v == "none"
	return nil
}

// Modes are the modes in which a command with a sandbox starts itself again: to
// set the sandbox up, to keep the mounts of a session, and to limit itself.
func Modes() []cli.Mode {
	return append(slices.Concat(bwrap.Modes(), keeper.Modes()), limits.Mode)
}

// Fence is a plan that is ready to run. Close it.
type Fence struct {
	*cli.Opened
	Plan  *bwrap.Plan
	Bwrap bwrap.Binary

	require []string
	scratch *umbrella.Umbrella
	keeper  *keeper.Session // nil before Join, and without overlays of a session
}

// Lock is the lock of the session whose playground the sandbox shows, for what
// this process becomes, or nil.
func (f *Fence) Lock() (*os.File, error) {
	if f.Umbrella == nil {
		return nil, nil
	}
	return f.Umbrella.Lock()
}

// Close ends the use of the session, and removes a scratch playground.
func (f *Fence) Close() error {
	if f.keeper != nil {
		f.keeper.Close()
	}
	f.Opened.Close()
	if f.scratch == nil {
		return nil
	}
	return f.scratch.Remove()
}

// Open opens the workspace and makes the plan. Nothing has been started when
// it returns, and a refusal leaves nothing behind.
func (o *Options) Open(ctx *cli.Context) (*Fence, error) {
	overlays, err := o.readOverlays(ctx)
	if err != nil {
		return nil, cli.Invalid(err)
	}
	if o.runAs, err = becomeOwner(o.Project()); err != nil {
		return nil, err
	}
	opened, err := o.Workspace.Open(ctx)
	if err != nil {
		return nil, err
	}
	f := &Fence{Opened: opened, require: o.require}
	for _, v := range o.overlays {
		if err := cli.CheckList(v.value, opened.Roots()); v.list && err != nil {
			return nil, errors.Join(cli.Invalid(err), f.Undo())
		}
	}
	if err := o.make(f, overlays); err != nil {
		return nil, errors.Join(err, f.Undo())
	}
	for _, w := range f.Plan.Warnings {
		ctx.Warn("%s", w)
	}
	return f, nil
}

// make plans first and makes the scratch playground last.
func (o *Options) make(f *Fence, overlays []string) error {
	base, err := umbrella.Base(os.Getenv)
	if !o.Scratch || o.Temp != "" || f.Umbrella != nil {
		return o.plan(f, overlays, base, nil)
	}
	if err != nil {
		return err
	}
	reserved := umbrella.Reserve(bwrap.Canonical(base))
	if err := o.plan(f, overlays, base, &reserved); err != nil {
		return err
	}
	if f.scratch, err = reserved.Mint(); err == nil {
		_, err = f.scratch.Playground()
	}
	return err
}

// Undo closes a fence in which nothing was run, and leaves nothing of it behind.
func (f *Fence) Undo() error {
	var err error
	if f.Umbrella != nil {
		err = f.Umbrella.Undo()
	}
	return errors.Join(err, f.Close())
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

func (o *Options) plan(f *Fence, overlays []string, base string, scratch *umbrella.Reserved) error {
	opened := f.Opened
	if scratch != nil {
		if err := cli.CheckBase(base, opened.Roots()); err != nil {
			return err
		}
	}
	if o.NoAliasTmp && (opened.Temp() != "" || scratch != nil) {
		return &bwrap.Refusal{
			Reason: "cannot make a sandbox in which /tmp is not the playground",
			Advice: "leave --no-alias-tmp out",
		}
	}
	binary, err := bwrap.FindBinary(o.bwrap, cli.WritablePaths(opened.Roots()))
	if err != nil {
		return err
	}
	options := bwrap.Options{
		Roots:       opened.Roots(),
		Playground:  opened.Temp(),
		PlayOwned:   f.Umbrella != nil && o.Temp == "",
		RootRule:    o.Origin,
		Overlays:    overlays,
		Rules:       o.Rules(),
		Bwrap:       binary,
		Net:         !o.noNet,
		AllowNested: o.allowNested,
		PassFDs:     o.passFDs,
		RunAs:       o.runAs,
		Limits:      o.limits.String(),
		NoProtect:   o.noProtect,
		Require:     o.require,
		Env:         o.env,
		Identity:    identity(opened.ProjectRoot()),
	}
	options.Env.Caller = os.Environ()
	options.Umbrellas = base // "" without a home: then there are none to protect
	if scratch != nil {
		options.Playground, options.PlayOwned = scratch.Playground(), true
		options.Roots = append(options.Roots, confine.Root{Path: options.Playground, Writable: true, Dir: true})
	}
	if !o.noToolchains {
		if err := addToolchains(&options, opened); err != nil {
			return err
		}
	}
	own := ""
	if options.PlayOwned {
		own = options.Playground
	}
	if options.Protect, err = o.protected(options.Roots, own); err != nil {
		return err
	}
	f.Bwrap = binary
	f.Plan, err = bwrap.New(options)
	return err
}

// protected lists what is protected by name, and what is by default.
func (o *Options) protected(roots []confine.Root, playground string) ([]bwrap.Protected, error) {
	var list []bwrap.Protected
	for _, p := range o.protect {
		path, err := filepath.Abs(p.Path)
		if err != nil {
			return nil, fmt.Errorf("cannot protect %q: %w", p.Path, err)
		}
		if !filepath.IsAbs(p.Path) {
			path = filepath.Join(roots[0].Path, p.Path)
		}
		p.Path = path
		list = append(list, p)
	}
	if o.noProtect {
		return list, nil
	}
	for _, r := range roots {
		if !r.Writable || r.Path == playground {
			continue
		}
		sinks, err := gitSinks(r.Path)
		if err != nil {
			return nil, err
		}
		list = append(list, sinks...)
	}
	return list, nil
}

// patience is for a disk that is asleep or a machine that has much else to do: a
// usual project takes a millisecond.
const patience = 10 * time.Second

// gitSinks lists what makes git on the host run code, in the repositories of a
// root. What git itself writes in the course of its work is left out: it could
// not work.
func gitSinks(root string) ([]bwrap.Protected, error) {
	repos, err := gitrepo.Find(root, gitrepo.Limits{Time: patience}, os.LookupEnv)
	if err != nil {
		return nil, &bwrap.Refusal{
			Reason: fmt.Sprintf("cannot protect what git runs in %q: %v", root, err),
			Advice: "name a narrower root, or protect what matters with --no-protect and --protect",
		}
	}
	list := userConfigs(root)
	for _, repo := range repos {
		for _, sink := range repo.Sinks() {
			if !sink.Watch {
				list = append(list, bwrap.Protected{Path: filepath.Join(root, sink.Path), Rule: "default: git: " + sink.Why, Default: true})
			}
		}
	}
	return list, nil
}

// userConfigs lists the files of the user's own git that lie in a root.
func userConfigs(root string) []bwrap.Protected {
	var list []bwrap.Protected
	for _, file := range gitrepo.UserFiles(os.LookupEnv) {
		if strings.HasPrefix(file, root+"/") {
			list = append(list, bwrap.Protected{Path: file, Rule: "default: git: the user's configuration", Default: true})
		}
	}
	return list
}

// identity carries into the sandbox who commits, since no file of the host's
// configuration is seen there. A configuration that git would not read either
// names nobody.
func identity(project string) []string {
	id, err := gitrepo.Identify(project, os.LookupEnv)
	if err != nil {
		return nil
	}
	return id.Env()
}

// addToolchains shows the tool chains of this machine, hides what is in them,
// and tells the tools what they need to know. The user's own rows count, unless
// a command could have written them.
func addToolchains(options *bwrap.Options, opened *cli.Opened) error {
	host := toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv}
	own := toolchain.UserFile(host)
	if _, err := os.Lstat(own); err == nil {
		if err := cli.CheckList(own, opened.Roots()); err != nil {
			return cli.Invalid(err)
		}
	}
	table, err := toolchain.LoadFor(host)
	if err != nil {
		return cli.Invalid(err)
	}
	options.Toolchains = table.Present(host)
	options.Masks = toolchain.Masks(options.Toolchains)
	for _, e := range options.Toolchains {
		for _, s := range e.Settings(opened.ProjectRoot()) {
			name, value, _ := strings.Cut(s, "=")
			options.Env.Usual = append(options.Env.Usual, bwrap.Var{Name: name, Value: value, Rule: "toolchain " + e.Tool})
		}
	}
	return nil
}

// Limit makes what holds the command to its limits, or refuses. It returns nil
// when there are none. It may move this process.
func (o *Options) Limit() (*limits.Box, error) {
	if o.limits.Zero() {
		return nil, nil
	}
	return limits.Prepare(o.limits)
}

// Limited reports whether there are limits.
func (o *Options) Limited() bool { return !o.limits.Zero() }

// FindCommand answers 126 and 127 before the sandbox starts.
func (f *Fence) FindCommand(name string) error {
	err := f.Plan.FindCommand(name)
	if _, ok := errors.AsType[*bwrap.NotFound](err); ok {
		return cli.WithStatus(cli.StatusMissing, err)
	}
	if _, ok := errors.AsType[*bwrap.NotExecutable](err); ok {
		return cli.WithStatus(cli.StatusNotExec, err)
	}
	return err
}
