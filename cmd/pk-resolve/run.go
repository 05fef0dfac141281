package main

import (
	"bufio"
	"io"

	"pikuri/lib/cli"
	"pikuri/lib/cli/trialflags"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
	"pikuri/lib/session"
)

const help = `Usage: pk-resolve [OPTION]... [--] PATH...
       pk-resolve [OPTION]... --stdin

Prints where each PATH really is: absolute, every symbolic link followed. A
path that is not in the workspace, or whose place cannot be told, is refused:
nothing on standard output, one line on standard error. What is missing at the
end of a path may be missing. Nothing is opened and nothing is created.

An answer is a snapshot: whoever may rename things in the workspace can change
what it means before it is used.

Workspace:
  -C, --project-root DIR     where relative paths begin; readable and writable
                             (default $PK_PROJECT_ROOT, else the working directory)
      --readable PATH        a further root, not writable; repeatable
      --writable DIR         a further root, writable; repeatable
      --readable-from FILE   the same from a list, one a line; - is standard input
      --writable-from FILE
      --session NAME         join a session: its session tmp is a writable root,
                             and what /tmp means (default $PK_SESSION)
      --temp DIR             use DIR as the session tmp instead
      --no-alias-tmp         /tmp keeps its meaning
      --no-protect           let git directories be written, and files the host runs
      --deny PATTERN         neither read nor write what it covers; repeatable
      --deny-read PATTERN    do not read what it covers; repeatable
      --allow-write PATTERN  write only what it matches, and what another does;
                             repeatable
      --policy FILE          take options of this kind from a file, one a line
      --allow-all            refuse only what cannot be told

Options:
      --read                 paths are to be read (default)
      --write                paths are to be written
  -e, --existing             refuse what does not exist
  -P, --physical             take ".." as the kernel does, after following links
  -q, --quiet                say nothing about refused paths
  -v, --verbose              say where refused paths lead
      --explain              say on standard error how each path gets its answer
      --json                 one JSON object for each path, refused or not
      --stdin                read paths from standard input, one a line, and
                             answer each as it comes; an empty record is a refusal
  -z, --zero                 records end in NUL, in lists, input and output;
                             those of --json are always lines
  -h, --help                 this text
      --version [--json]     the version

Exit status: 0 all paths were printed; 1 some were refused; 2 called wrongly, or
the workspace is invalid.

Examples:
  pk-resolve -C ~/src/app src/main.c
  pk-resolve --write --readable /usr/include -- "$path"
  git ls-files -z | pk-resolve -z --stdin -q
`

// options of pk-resolve.
type options struct {
	cli.WorkspaceFlags
	read, write        bool
	existing, physical bool
	quiet, verbose     bool
	explain, json      bool
	stdin, zero        bool
}

func command() *cli.Command { return new(options).command() }

func (o *options) command() *cli.Command {
	o.Zero = &o.zero
	if o.Shown == nil { // a test may have another
		o.Shown = new(trialflags.View).Shown
	}
	return &cli.Command{
		Name:      "pk-resolve",
		Version:   version,
		Help:      help,
		JSON:      &o.json,
		Workspace: &o.WorkspaceFlags,
		Hidden:    session.Modes(),
		Options: append(o.policyOptions(),
			cli.Switch(&o.read, "read", ""),
			cli.Switch(&o.write, "write", ""),
			cli.Switch(&o.existing, "existing", "e"),
			cli.Switch(&o.physical, "physical", "P"),
			cli.Switch(&o.quiet, "quiet", "q"),
			cli.Switch(&o.verbose, "verbose", "v"),
			cli.Switch(&o.explain, "explain", ""),
			cli.Switch(&o.stdin, "stdin", ""),
			cli.Switch(&o.zero, "zero", "z"),
		),
		Action: o.run,
	}
}

// policyOptions are the options that describe a workspace, and can stand in a policy.
func (o *options) policyOptions() []cli.Option {
	all := append(o.WorkspaceFlags.Options(), o.RuleOptions()...)
	return o.WithPolicy(append(all, cli.Switch(&o.AllowAll, "allow-all", "")))
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

func (o *options) run(ctx *cli.Context) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	workspace, err := o.Open(ctx)
	if err != nil {
		return err
	}
	defer workspace.Close()
	a := &answerer{options: o, ctx: ctx, out: bufio.NewWriterSize(ctx.Stdout, bufferSize), terminal: cli.Terminal(ctx.Stdout)}
	a.batch = workspace.Batch(confine.Request{Mode: o.mode(), Physical: o.physical, Existing: o.existing})
	a.workspace, a.host, a.looks = workspace.Workspace, map[string]*fence.HostRun{}, map[string]func(string) (string, error){}
	if o.stdin {
		return a.answerStream(ctx.Stdin)
	}
	return a.answerAll(ctx.Args)
}

// check refuses combinations that mean nothing, before anything is opened.
func (o *options) check(ctx *cli.Context) error {
	switch {
	case o.read && o.write:
		return cli.Usage("--read cannot be used with --write")
	case o.quiet && o.verbose:
		return cli.Usage("--quiet cannot be used with --verbose")
	case o.quiet && o.explain:
		return cli.Usage("--quiet cannot be used with --explain")
	case o.stdin && len(ctx.Args) > 0:
		return cli.Usage("--stdin cannot be used with operands, such as %q", ctx.Args[0])
	case o.stdin && o.ListsFromStdin():
		return cli.Usage("--stdin cannot be used with a list of roots from standard input")
	case !o.stdin && len(ctx.Args) == 0:
		return cli.Usage("no path given")
	}
	return nil
}

func (o *options) mode() confine.Mode {
	if o.write {
		return confine.Write
	}
	return confine.Read
}
