package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"pikuri/lib/audit"
	"pikuri/lib/blocked"
	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
	"pikuri/lib/gate"
	"pikuri/lib/hostrule"
	"pikuri/lib/monitor"
	"pikuri/lib/shell"
	"pikuri/lib/visible"
)

const help = `Usage: pk-bwrap [OPTION]... [--] COMMAND [ARG]...
       pk-bwrap [OPTION]... --print [-z|--json] [--] [COMMAND [ARG]...]
       pk-bwrap [OPTION]... --explain [--json] [--] [PATH]...
       pk-bwrap [OPTION]... --check [--json]
       pk-bwrap [-C DIR] --trust-project

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
      --session NAME         join a session: its /tmp and what it wrote to caches
                             (default $PK_SESSION)
      --temp DIR             use DIR as the session tmp instead
      --deny PATTERN         matches are neither read nor written; repeatable
      --deny-read PATTERN    matches are not read (nor written, in here)
      --allow-write PATTERN  only matches are written
      --policy FILE          take options of this kind and the next from a file
      --no-alias-tmp         /tmp keeps its meaning; refused with a session tmp

` + sandboxflags.SandboxHelp + `
Other:
      --print                print a command line that makes the sandbox, one word a line
      --host NAME[:PORT]     with --explain: which rule lets a host through, and
                             where it leads; repeatable
      --explain              tell what the sandbox shows at each PATH and which rule
                             decided; without PATH, the whole plan
      --check                attack such a sandbox from inside, and tell which of the
                             guarantees hold on this machine; 1 if one does not
      --trust-project        have the policy of the project, .pk/policy, read from
                             now on, as it is; and print it
      --json                 the same as lines of JSON, with --print, --explain and
                             --check
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
	sandboxflags.Options
	print, explain, check, json, zero bool

	hosts []string // of --host

	args []string // as they were given
}

func command() *cli.Command { return new(options).command() }

func (o *options) command() *cli.Command {
	o.Zero = &o.zero
	return &cli.Command{
		Name:      "pk-bwrap",
		Version:   version,
		Help:      help,
		Wraps:     true,
		JSON:      &o.json,
		Workspace: &o.WorkspaceFlags,
		Options: append(o.Options.Options(),
			cli.Switch(&o.print, "print", ""),
			cli.Switch(&o.explain, "explain", ""),
			cli.List(&o.hosts, "host", ""),
			cli.Switch(&o.check, "check", ""),
			cli.Switch(&o.Trusting, "trust-project", ""),
			cli.Switch(&o.zero, "zero", "z"),
		),
		Action: o.run,
	}
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o := &options{args: args}
	c := o.command()
	c.Hidden = append(sandboxflags.Modes(), checkModes(stdin, stdout, stderr)...)
	return c.Run(args, stdin, stdout, stderr)
}

func (o *options) run(ctx *cli.Context) error {
	if err := o.validate(ctx); err != nil {
		return err
	}
	if o.Trusting {
		return o.TrustProject(ctx)
	}
	if o.check {
		return o.runCheck(ctx)
	}
	o.Runs = !o.print && !o.explain
	o.Tell = o.print || o.explain
	var err error
	if o.Runs {
		if o.Log, err = audit.Open("pk-bwrap", o.Audit, o.NamedRoots()); err != nil {
			return cli.Invalid(err)
		}
	}
	f, err := o.Open(ctx)
	if err != nil {
		return o.refused(ctx, nil, err)
	}
	if o.print || o.explain {
		return errors.Join(o.tell(ctx, f), f.Close())
	}
	return o.start(ctx, f)
}

// start runs the command in its sandbox, and becomes its end: the exit status, or
// the signal.
func (o *options) start(ctx *cli.Context, f *sandboxflags.Fence) error {
	streams := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	err := monitor.CheckStreams(streams)
	if err == nil {
		err = f.Ready(ctx.Args[0])
	}
	if err != nil {
		return errors.Join(o.refused(ctx, f, withQuoteHint(err, ctx.Args, func(name string) bool { return f.Plan.FindCommand(name) == nil })), f.Close())
	}
	begin, err := o.recordBegin(ctx, f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	begun := time.Now()
	status, death, err := attend(f, ctx.Args, streams)
	if errors.Is(err, errNotMade) {
		err = f.NotMade("")
	}
	done, merr := f.End()
	for _, line := range done.Git {
		ctx.Warn("git: %s", line)
	}
	for _, line := range gate.Lines(f.Connections()) {
		ctx.Warn("network: %s", line)
	}
	for _, m := range done.Moved {
		ctx.Warn("%q appeared or changed while the command ran, where it is protected; it is now %q", m.From, m.To)
	}
	facts := blocked.Command{Plan: f.Plan, Getenv: os.Getenv, Closed: o.Closed, Failed: f.Failed()}.Find("")
	for _, line := range (&shell.Result{Fence: facts}).FenceLines() {
		ctx.Warn("fence: %s", line)
	}
	if merr != nil {
		ctx.Report(merr)
		status, death = cli.StatusFailed, 0
	}
	o.recordEnd(ctx, f, begin, ended{status, death, time.Since(begun), err, merr, facts}, done)
	if cerr := f.Close(); cerr != nil {
		ctx.Report(fmt.Errorf("cannot clean up: %w", cerr))
	}
	fence.SweepInPassing()
	if err != nil {
		return err
	}
	if death != 0 {
		monitor.Die(death)
	}
	return cli.Exit(status)
}

// shellWords are words of a shell that users type like programs.
var shellWords = []string{".", "alias", "cd", "eval", "exec", "export", "for", "if", "popd", "pushd", "set", "source", "unset", "while"}

// withQuoteHint adds the command line to type instead of one word in quotes, or of a word of
// the shell.
func withQuoteHint(err error, args []string, isProgram func(string) bool) error {
	line := args[0]
	if slices.Contains(shellWords, line) {
		line = strings.Join(args, " ")
	} else if len(args) > 1 || line != "" && !strings.ContainsAny(line, " \t\n") {
		return err
	}
	_, missing := errors.AsType[*bwrap.NotFound](err)
	first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case !missing || strings.Contains(line, "'"):
		return err
	case line == "":
		return cli.WithHint(err, "the name is empty: a variable may not be set")
	case strings.ContainsAny(line, "\n\"\\$`*?[]{}()<>|&;#~!=") || !isProgram(first):
		return cli.WithHint(err, "type: pk-bash '%s'", line)
	}
	return cli.WithHint(err, "type: pk-bwrap -- %s, or pk-bash '%s'", line, line)
}

// attend starts the sandbox and stays with it to its end.
func attend(f *sandboxflags.Fence, argv []string, streams [3]*os.File) (status int, death syscall.Signal, err error) {
	c, err := f.Sandbox(argv)
	if err != nil {
		return 0, 0, err
	}
	front := monitor.NewForeground(streams)
	defer front.Close()
	c.Streams, c.Terminal, c.Suspends, c.Ready = streams, front.Terminal(f.Plan.RunAs != 0), true, front.Ready()
	s, err := monitor.Start(c)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	status, death, ran := front.Run(s)
	if !ran {
		err = errNotMade
	}
	return status, death, err
}

// errNotMade is for a bwrap that has not run the command. Its own message is on standard error.
var errNotMade = errors.New("bwrap could not make the sandbox")

// validate refuses combinations that mean nothing, before anything is opened.
func (o *options) validate(ctx *cli.Context) error {
	switch {
	case o.explain && slices.Contains(ctx.Args, ""):
		return cli.Usage("%q: %v", "", confine.ErrEmpty)
	case o.print && o.explain:
		return cli.Usage("--print cannot be used with --explain")
	case o.check && o.print:
		return cli.Usage("--check cannot be used with --print")
	case o.check && o.explain:
		return cli.Usage("--check cannot be used with --explain")
	case o.Trusting && (o.print || o.explain || o.check || o.json || o.zero || len(ctx.Args) > 0):
		return cli.Usage("--trust-project goes with a project root, and nothing else")
	case o.check && len(ctx.Args) > 0:
		return cli.Usage("--check takes no operands, and got %q", ctx.Args[0])
	case o.json && o.zero:
		return cli.Usage("--json cannot be used with --zero")
	case o.json && !o.print && !o.explain && !o.check:
		return cli.Usage("--json goes with --print, --explain, --check or --version")
	case len(o.hosts) > 0 && (!o.explain || o.json || len(ctx.Args) > 0):
		return cli.Usage("--host goes with --explain, without --json and PATHs")
	case len(ctx.Args) == 0 && !o.print && !o.explain && !o.check && !o.Trusting:
		return cli.Usage("no command given")
	}
	return nil
}

// tell prints the plan, instead of running it.
func (o *options) tell(ctx *cli.Context, f *sandboxflags.Fence) error {
	switch {
	case len(o.hosts) > 0:
		return explainHosts(ctx, f.Plan, o.hosts)
	case o.explain:
		return o.explainPlan(ctx, f.Plan)
	case o.json:
		return writeLines(ctx, f.Plan.JSON())
	}
	return o.printPlan(ctx, f)
}

// colours distinguish open paths of the host from closed ones and from the sandbox's own.
var colours = map[bwrap.Access]cli.Colour{
	bwrap.Title:     cli.Title,
	bwrap.Writable:  cli.Open,
	bwrap.Overlaid:  cli.Apart,
	bwrap.Scratch:   cli.Apart,
	bwrap.Synthetic: cli.Apart,
	bwrap.ReadOnly:  cli.Good,
	bwrap.Hidden:    cli.Good,
	bwrap.Absent:    cli.Good,
}

func (o *options) explainPlan(ctx *cli.Context, plan *bwrap.Plan) error {
	palette := cli.Colours(ctx.Stdout, os.Getenv)
	paint := func(what bwrap.Access, text string) string { return palette.Paint(colours[what], text) }
	for _, l := range o.PolicyLines() {
		plan.Policy = append(plan.Policy, bwrap.Flag{Text: visible.Text(l.Text), Rule: "policy " + l.Source})
	}
	var lines []string
	for _, path := range ctx.Args {
		v := plan.Explain(path)
		if o.json {
			lines = append(lines, v.JSON())
		} else {
			lines = append(lines, v.Describe(paint))
		}
	}
	switch {
	case len(ctx.Args) > 0:
	case o.json:
		lines = append(plan.JSON(), plan.SocketsJSON()...)
	default:
		lines = plan.Describe(paint)
	}
	return writeLines(ctx, lines)
}

// explainHosts prints whether connections to hosts are allowed.
func explainHosts(ctx *cli.Context, plan *bwrap.Plan, hosts []string) error {
	if plan.Gate == nil || !plan.Gate.Allow {
		return cli.Usage("--host needs --net allow: without it no rule decides about hosts")
	}
	var lines []string
	for _, host := range hosts {
		if _, err := hostrule.Parse(host); err != nil {
			return cli.Usage("--host: %v", err)
		}
		lines = append(lines, gate.Explain(*plan.Gate, host))
	}
	return writeLines(ctx, lines)
}

func writeLines(ctx *cli.Context, lines []string) error {
	for _, line := range lines {
		if _, err := io.WriteString(ctx.Stdout, line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) printPlan(ctx *cli.Context, f *sandboxflags.Fence) error {
	line, err := f.Plan.Printable(f.Fence.Bwrap, ctx.Args)
	if err != nil {
		return err
	}
	var out bytes.Buffer // buffered: an error prints no part of the line
	for _, word := range line {
		if err := cli.WriteRecord(&out, word, o.zero, cli.Terminal(ctx.Stdout)); err != nil {
			return err
		}
	}
	left := f.LeftOut()
	if o.Audit != "" {
		left = append(left, "--audit")
	}
	if len(left) > 0 {
		ctx.Say("the printed line leaves out: %s", strings.Join(left, ", "))
	}
	_, err = ctx.Stdout.Write(out.Bytes())
	return err
}
