package main

import (
	"errors"
	"io"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/cli/fence"
)

const help = `Usage: pk-bwrap [OPTION]... [--] COMMAND [ARG]...
       pk-bwrap [OPTION]... --print [-z] [--] [COMMAND [ARG]...]

Runs COMMAND in a sandbox (bubblewrap) that shows the workspace, the system's
programs, the tool chains and nothing else of the machine. Only the workspace's
writable roots can be written; the home directory and /tmp are empty and last
as long as the command.

Workspace:
  -C, --project-root DIR     the project root, where COMMAND starts
                             (default $PK_PROJECT_ROOT, else the working directory)
      --readable PATH        a further root, not writable; repeatable
      --writable DIR         a further root, writable; repeatable
      --readable-from FILE   the same from a list, one a line; - is standard input
      --writable-from FILE
      --session NAME         join a session: its playground is /tmp (default $PK_SESSION)
      --temp DIR             use DIR as the playground instead
      --policy FILE          take options of this kind and the next from a file
      --no-alias-tmp         /tmp keeps its meaning; not possible with a playground here

Sandbox:
      --overlay DIR          a root that looks writable; what is written is lost
      --overlay-from FILE    the same from a list
      --no-toolchains        do not show what pk-toolchains lists
      --net host|none        the host's network (default), or none
      --env-inherit          pass the whole environment, secrets and all
      --pass-env NAME        pass NAME though it may carry code or a secret
      --setenv NAME=VALUE    set NAME inside
      --allow-nested         let COMMAND make user namespaces
      --bwrap PATH           the bwrap to use (default: root's own in /usr/bin,
                             /bin or /usr/local/bin)

Other:
      --print                print the command line of bwrap, one word a line
  -z, --zero                 lists and --print end their records in NUL
  -h, --help                 this text
      --version [--json]     the version

Exit status: COMMAND's own; 128+N when it died of signal N; 125 when the
sandbox could not be made, 126 when COMMAND cannot be executed, 127 when it
was not found.

Examples:
  pk-bwrap -- make test
  pk-bwrap --net none --readable ~/data -- python3 report.py
  pk-toolchains readable | pk-bwrap --no-toolchains --readable-from - -- make
`

// options of pk-bwrap.
type options struct {
	fence.Options
	print, zero bool
}

func command() *cli.Command {
	o := &options{}
	o.Zero = &o.zero
	return &cli.Command{
		Name:    "pk-bwrap",
		Version: version,
		Help:    help,
		Wraps:   true,
		Options: append(o.Options.Options(),
			cli.Switch(&o.print, "print", ""),
			cli.Switch(&o.zero, "zero", "z"),
		),
		Action: o.run,
	}
}

// Run is the whole command. It does not return when the sandbox has started.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return fence.Run(command(), args, stdin, stdout, stderr)
}

func (o *options) run(ctx *cli.Context) error {
	if len(ctx.Args) == 0 && !o.print {
		return cli.Usage("no command given")
	}
	f, err := o.Open(ctx)
	if err != nil {
		return err
	}
	if o.print {
		defer f.Close()
		return o.printPlan(ctx, f)
	}
	return errors.Join(start(ctx, f), f.Undo())
}

// start returns only when the command cannot be run.
func start(ctx *cli.Context, f *fence.Fence) error {
	if err := f.FindCommand(ctx.Args[0]); err != nil {
		return err
	}
	if err := bwrap.CheckHost(f.Bwrap); err != nil {
		return err
	}
	if err := bwrap.CheckStreams(); err != nil {
		return err
	}
	lock, err := f.Lock()
	if err != nil {
		return err
	}
	return f.Plan.Exec(f.Bwrap, ctx.Args, lock)
}

func (o *options) printPlan(ctx *cli.Context, f *fence.Fence) error {
	line, err := f.Plan.Printable(f.Bwrap, ctx.Args)
	if err != nil {
		return err
	}
	for _, word := range line {
		if err := cli.WriteRecord(ctx.Stdout, word, o.zero); err != nil {
			return err
		}
	}
	return nil
}
