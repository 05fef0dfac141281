package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"pikuri/lib/capture"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/shell"
)

const help = `Usage: pk-bash [OPTION]... [--] COMMAND
       pk-bash [OPTION]... -c COMMAND
       pk-bash [OPTION]... --loop
       pk-bash [OPTION]... --describe
       pk-bash --audit-check FILE [--json]

Runs COMMAND, one argument as for bash -c, in the sandbox of pk-bwrap: asks on
the terminal, gives it a time limit, and prints the command, its output and its
exit status. With - as COMMAND it is read from standard input. Nothing that
COMMAND starts outlives it, unless --keep-background says so.

Running:
  -c, --command COMMAND      the same as the operand
      --timeout SECONDS      1 to 600, default 120; then SIGTERM, then SIGKILL
      --kill-after SECONDS   between the two signals, default 5
      --description TEXT     a short label, shown when asking
  -y, --yes                  do not ask, run
  -n, --no                   do not ask, decline
      --confirm-command PROGRAM
                             have PROGRAM answer: exit status 0 is a yes
      --no-sandbox           run with all that you can read and write
      --wrap PREFIX          run behind PREFIX, such as "docker exec BOX", instead
                             of the sandbox
      --loop                 read requests from standard input, one JSON object a
                             line, and answer each with one; also jobs, which run
                             beside other commands
      --state none|cwd|env   with --loop: what a command hands on to the next, its
                             working directory, or exported variables too
      --keep-background      what COMMAND leaves running runs on until the loop
                             ends, or with --session until pk-sweep ends it
      --audit-check FILE     find what was changed in, or cut off, the records of
                             --audit, and run nothing: 1 if something was
      --describe             print what these options mean for a command, in words
                             for a model, and run nothing

Output:
      --json                 one JSON object
      --raw                  COMMAND's own bytes, as they come; with --json or
                             --loop: nothing is made visible or folded
      --status-fd N          write the JSON object to descriptor N as well
      --head BYTES           how much to keep of the beginning, default 15360
      --tail BYTES           how much to keep of the end, default 15360
      --log FILE             write all of it to FILE, up to 64 MiB; the default is
                             a file of the session, made when something is cut
      --no-log               keep no log
      --follow               show the output on standard error as it comes; this is
                             the default on a terminal
      --no-follow            do not show it

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
      --deny-read PATTERN    matches are not read (nor written, in the sandbox)
      --allow-write PATTERN  only matches are written
      --policy FILE          take options of this kind and the next from a file
      --no-alias-tmp         /tmp keeps its meaning; with --no-sandbox only
  -z, --zero                 lists end their records in NUL

` + sandboxflags.SandboxHelp + `
  -h, --help                 this text
      --version [--json]     the version

Exit status: COMMAND's own; 128+N when it died of signal N; 124 when it ran out
of time, 125 when it could not be started, 126 when the user declined or could
not be asked.

Examples:
  pk-bash 'make test 2>&1 | tail'
  pk-bash -y --timeout 300 --json 'go test ./...'
  printf %s "$script" | pk-bash -y -
  pk-bash --wrap 'docker exec box' 'make test'
`

// options of pk-bash.
type options struct {
	sandboxflags.Options
	command     string
	given       bool // -c was
	timeout     int  // in seconds
	killAfter   int
	description string
	yes, no     bool
	confirmer   string // --confirm-command
	noSandbox   bool
	wrap        string
	wrapWords   []string
	loop        bool
	tell        bool // --describe
	auditCheck  string
	keep        shell.Keep // --state
	background  bool       // --keep-background
	stay        *stay      // this process stays with that; or nil
	json, raw   bool
	zero        bool
	status      *os.File // --status-fd
	head, tail  int
	log         string
	noLog       bool
	follow      bool
	noFollow    bool
}

func newOptions() *options {
	o := &options{
		timeout:   int(shell.DefaultTimeout.Seconds()),
		killAfter: int(shell.DefaultKillAfter.Seconds()),
		head:      capture.DefaultHead,
		tail:      capture.DefaultTail,
		keep:      shell.KeepNothing,
	}
	o.Zero, o.Scratch, o.Runs = &o.zero, true, true
	return o
}

func command() *cli.Command { return newOptions().asCommand() }

// asCommand returns the command that fills these options.
func (o *options) asCommand() *cli.Command {
	return &cli.Command{
		Name:      "pk-bash",
		Version:   version,
		Help:      help,
		Wraps:     true,
		JSON:      &o.json,
		Workspace: &o.WorkspaceFlags,
		Options: append(o.Options.Options(),
			cli.Func(o.setCommand, "command", "c"),
			cli.Int(&o.timeout, 1, int(shell.MaxTimeout.Seconds()), "timeout", ""),
			cli.Int(&o.killAfter, 0, 600, "kill-after", ""),
			cli.Text(&o.description, "description", ""),
			cli.Switch(&o.yes, "yes", "y"),
			cli.Switch(&o.no, "no", "n"),
			cli.Name(&o.confirmer, "confirm-command", ""),
			cli.Switch(&o.noSandbox, "no-sandbox", ""),
			cli.Func(o.setWrap, "wrap", ""),
			cli.Switch(&o.loop, "loop", ""),
			cli.Func(o.setState, "state", ""),
			cli.Switch(&o.background, "keep-background", ""),
			cli.Switch(&o.tell, "describe", ""),
			cli.Name(&o.auditCheck, "audit-check", ""),
			cli.Switch(&o.raw, "raw", ""),
			cli.Func(o.setStatus, "status-fd", ""),
			cli.Int(&o.head, 0, 64<<20, "head", ""),
			cli.Int(&o.tail, 0, 64<<20, "tail", ""),
			cli.Name(&o.log, "log", ""),
			cli.Switch(&o.noLog, "no-log", ""),
			cli.Switch(&o.follow, "follow", ""),
			cli.Switch(&o.noFollow, "no-follow", ""),
			cli.Switch(&o.zero, "zero", "z"),
		),
		Hidden: append(sandboxflags.Modes(), stayMode()),
		Action: o.run,
	}
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

func (o *options) setCommand(v string) error {
	o.command, o.given = v, true
	return nil
}

func (o *options) setState(v string) error {
	o.keep = shell.Keep(v)
	if !slices.Contains([]shell.Keep{shell.KeepNothing, shell.KeepDir, shell.KeepEnv}, o.keep) {
		return fmt.Errorf("%q is not one of none, cwd and env", v)
	}
	return nil
}

func (o *options) setWrap(v string) (err error) {
	o.wrap = v
	if o.wrapWords, err = shell.SplitWords(v); err == nil && len(o.wrapWords) == 0 {
		err = cli.ErrNoName
	}
	return err
}

// setStatus checks the descriptor at once: later, its number may be one of this
// program's own.
func (o *options) setStatus(v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 3 {
		return fmt.Errorf("%q is not the number of a descriptor above 2", v)
	}
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(n, &st)
	}
	if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY || st.Mode&unix.S_IFMT == 0 {
		return fmt.Errorf("descriptor %d is not open for writing", n)
	}
	copied, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	o.status = os.NewFile(uintptr(copied), "status")
	return err
}

// object reports whether the product is JSON.
func (o *options) object() bool { return o.json || o.loop }

// check finds mistakes in the call, before anything is read or made.
func (o *options) check(ctx *cli.Context) error {
	for _, pair := range []struct {
		both bool
		a, b string
	}{
		{o.yes && o.no, "--yes", "--no"},
		{o.yes && o.confirmer != "", "--yes", "--confirm-command"},
		{o.no && o.confirmer != "", "--no", "--confirm-command"},
		{o.noSandbox && o.wrap != "", "--no-sandbox", "--wrap"},
		{o.background && o.noSandbox, "--keep-background", "--no-sandbox"},
		{o.background && o.wrap != "", "--keep-background", "--wrap"},
		{o.Trial && o.noSandbox, "--trial", "--no-sandbox"},
		{o.Trace && o.noSandbox, "--trace", "--no-sandbox"},
		{o.Trace && o.wrap != "", "--trace", "--wrap"},
		{o.Trial && o.wrap != "", "--trial", "--wrap"},
		{o.log != "" && o.noLog, "--log", "--no-log"},
		{o.log != "" && o.loop, "--log", "--loop"},
		{o.log != "" && o.raw && !o.object(), "--log", "--raw"},
		{o.follow && o.noFollow, "--follow", "--no-follow"},
		{o.follow && o.raw && !o.object(), "--follow", "--raw"},
		{o.auditCheck != "" && o.loop, "--audit-check", "--loop"},
		{o.auditCheck != "" && o.tell, "--audit-check", "--describe"},
		{o.auditCheck != "" && o.given, "--audit-check", "-c"},
		{o.loop && o.given, "--loop", "-c"},
		{o.loop && o.description != "", "--loop", "--description"},
	} {
		if pair.both {
			return cli.Usage("%s cannot be used with %s", pair.a, pair.b)
		}
	}
	keeps := o.keep != shell.KeepNothing
	switch {
	case keeps && !o.loop:
		return cli.Usage("--state needs --loop")
	case o.background && !o.loop && !o.Trial && o.SessionName() == "":
		return cli.WithHint(cli.Usage("--keep-background needs a session to keep processes in"), "--session NAME makes one or joins it")
	case keeps && o.wrap != "":
		return cli.Usage("--state cannot be used with --wrap")
	case o.tell && (o.given || len(ctx.Args) > 0):
		return cli.Usage("--describe takes no command")
	case o.tell && o.raw:
		return cli.Usage("--describe cannot be used with --raw")
	case o.loop && len(ctx.Args) > 0:
		return cli.Usage("--loop cannot be used with the operand %q", ctx.Args[0])
	case o.loop && o.ListsFromStdin():
		return cli.Usage("--loop and a list both read standard input")
	case o.auditCheck != "" && len(ctx.Args) > 0:
		return cli.Usage("--audit-check cannot be used with the operand %q", ctx.Args[0])
	case o.loop, o.tell, o.auditCheck != "":
	case o.given && len(ctx.Args) > 0:
		return cli.Usage("-c cannot be used with the operand %q", ctx.Args[0])
	case !o.given && len(ctx.Args) == 0:
		return cli.Usage("no command given")
	case len(ctx.Args) > 1:
		return cli.WithHint(cli.Usage("extra operand %q", ctx.Args[1]), "COMMAND is one argument: quote it")
	}
	return nil
}
