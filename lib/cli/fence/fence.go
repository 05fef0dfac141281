// Package fence is what pk-bwrap and pk-bash share: the options that describe
// a sandbox, and the way from them to a plan.
package fence

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
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
	bwrap        string
	env          bwrap.EnvPolicy
}

// overlay is one --overlay or --overlay-from.
type overlay struct {
	value string
	list  bool
}

// Options returns the options, to be added to a command's own.
func (o *Options) Options() []cli.Option {
	return o.WithPolicy(append(o.Workspace.Options(),
		o.overlay("overlay", false).Path(),
		o.overlay("overlay-from", true).PathOrStdin(),
		cli.Switch(&o.noToolchains, "no-toolchains", ""),
		cli.Func(o.setNet, "net", ""),
		cli.Switch(&o.env.Inherit, "env-inherit", ""),
		cli.List(&o.env.Pass, "pass-env", ""),
		cli.List(&o.env.Set, "setenv", ""),
		cli.Switch(&o.allowNested, "allow-nested", ""),
		cli.Text(&o.bwrap, "bwrap", "").Path(),
	))
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

// Run runs c, or what a sandbox with overlays needs in between: the command
// started again as the stage of an older bwrap.
func Run(c *cli.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == bwrap.StageOption {
		stage := args[1:]
		args, c.Action = nil, func(*cli.Context) error { return bwrap.Stage(stage) }
	}
	return c.Run(args, stdin, stdout, stderr)
}

// Fence is a plan that is ready to run. Close it.
type Fence struct {
	*cli.Opened
	Plan  *bwrap.Plan
	Bwrap bwrap.Binary

	scratch *umbrella.Umbrella
}

// Lock is the lock of the umbrella whose playground the sandbox shows, to be
// held by the sandbox itself, or nil.
func (f *Fence) Lock() *os.File {
	switch {
	case f.scratch != nil:
		return f.scratch.Lock()
	case f.Umbrella != nil:
		return f.Umbrella.Lock()
	}
	return nil
}

// Close ends the use of the session, and removes a scratch playground.
func (f *Fence) Close() error {
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
	scratch, err := o.mint()
	if err != nil {
		return nil, err
	}
	opened, err := o.Workspace.Open(ctx)
	if err != nil {
		return nil, errors.Join(err, remove(scratch))
	}
	f := &Fence{Opened: opened, scratch: scratch}
	if err := o.plan(f, overlays); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, w := range f.Plan.Warnings {
		ctx.Warn("%s", w)
	}
	return f, nil
}

// mint makes the scratch playground, if one is wanted.
func (o *Options) mint() (*umbrella.Umbrella, error) {
	if !o.Scratch || o.Temp != "" || o.Session != "" || os.Getenv("PK_SESSION") != "" {
		return nil, nil
	}
	base, err := umbrella.Base(os.Getenv)
	if err != nil {
		return nil, err
	}
	u, err := umbrella.Mint(base)
	if err != nil {
		return nil, err
	}
	if o.Temp, err = u.Playground(); err != nil {
		return nil, errors.Join(err, u.Remove())
	}
	return u, nil
}

func remove(u *umbrella.Umbrella) error {
	if u == nil {
		return nil
	}
	return u.Remove()
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

func (o *Options) plan(f *Fence, overlays []string) error {
	opened := f.Opened
	if opened.Temp() != "" && !opened.AliasTmp() {
		return &bwrap.Refusal{
			Reason: "cannot make a sandbox in which /tmp is not the playground",
			Advice: "leave --no-alias-tmp out",
		}
	}
	identity := bwrap.LookUpIdentity(opened.ProjectRoot())
	binary, err := bwrap.FindBinary(o.bwrap, writable(opened))
	if err != nil {
		return err
	}
	options := bwrap.Options{
		Roots:       opened.Roots(),
		Playground:  opened.Temp(),
		PlayOwned:   f.scratch != nil || opened.Umbrella != nil && o.Temp == "",
		Overlays:    overlays,
		Bwrap:       binary,
		Net:         !o.noNet,
		AllowNested: o.allowNested,
		Env:         o.env,
		Identity:    identity,
	}
	options.Env.Caller = os.Environ()
	options.Umbrellas, _ = umbrella.Base(os.Getenv) // without a home there are none to protect
	if !o.noToolchains {
		if err := addToolchains(&options); err != nil {
			return err
		}
	}
	f.Bwrap = binary
	f.Plan, err = bwrap.New(options)
	return err
}

func addToolchains(options *bwrap.Options) error {
	table, err := toolchain.Load()
	if err != nil {
		return err
	}
	options.Toolchains = table.Present(toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv})
	options.Masks = toolchain.Masks(options.Toolchains)
	return nil
}

func writable(opened *cli.Opened) []string {
	var paths []string
	for _, r := range opened.Roots() {
		if r.Writable {
			paths = append(paths, r.Path)
		}
	}
	return paths
}
