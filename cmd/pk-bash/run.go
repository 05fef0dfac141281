package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/cli/fence"
	"pikuri/lib/shell"
)

const help = `Usage: pk-bash [OPTION]... [--] COMMAND
       pk-bash [OPTION]... -c COMMAND

Runs COMMAND, one argument as for bash -c, in the sandbox of pk-bwrap: asks on
the terminal, gives it a time limit, and prints the command, its output and its
exit status. With - as COMMAND it is read from standard input. Nothing that
COMMAND starts outlives it.

Running:
  -c, --command COMMAND      the same as the operand
      --timeout SECONDS      1 to 600, default 120; then SIGTERM, then SIGKILL
      --kill-after SECONDS   between the two signals, default 5
      --description TEXT     a short label, shown when asking
  -y, --yes                  do not ask, run
  -n, --no                   do not ask, decline
      --no-sandbox           run with all that you can read and write

Output:
      --json                 one JSON object
      --raw                  COMMAND's own bytes, as they come
      --status-fd N          write the JSON object to descriptor N as well
      --head BYTES           how much to keep of the beginning, default 15360
      --tail BYTES           how much to keep of the end, default 15360

Workspace:
  -C, --project-root DIR     the project root, where COMMAND starts
                             (default $PK_PROJECT_ROOT, else the working directory)
      --readable PATH        a further root, not writable; repeatable
      --writable DIR         a further root, writable; repeatable
      --readable-from FILE   the same from a list, one a line; - is standard input
      --writable-from FILE
      --session NAME         join a session: its playground is /tmp (default $PK_SESSION)
      --temp DIR             use DIR as the playground instead
      --deny PATTERN         what matches is neither read nor written; repeatable
      --deny-read PATTERN    what matches is not read (nor written, in the sandbox)
      --allow-write PATTERN  only what matches is written
      --policy FILE          take options of this kind and the next from a file
      --no-alias-tmp         /tmp keeps its meaning; with --no-sandbox only
  -z, --zero                 lists end their records in NUL

Sandbox:
      --overlay DIR          a root that looks writable; what is written is lost
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
      --bwrap PATH           the bwrap to use

  -h, --help                 this text
      --version [--json]     the version

Exit status: COMMAND's own; 128+N when it died of signal N; 124 when it ran out
of time, 125 when it could not be started, 126 when the user declined.

Examples:
  pk-bash 'make test 2>&1 | tail'
  pk-bash -y --timeout 300 --json 'go test ./...'
  printf %s "$script" | pk-bash -y -
`

// options of pk-bash.
type options struct {
	fence.Options
	command         string
	given           bool // -c was
	timeout         string
	killAfter       int
	description     string
	yes, no         bool
	noSandbox       bool
	json, raw, zero bool
	status          *os.File // --status-fd
	head, tail      int
}

func command() *cli.Command {
	o := &options{
		timeout:   strconv.Itoa(int(shell.DefaultTimeout.Seconds())),
		killAfter: int(shell.DefaultKillAfter.Seconds()),
		head:      shell.DefaultHead,
		tail:      shell.DefaultTail,
	}
	o.Zero, o.Scratch = &o.zero, true
	return &cli.Command{
		Name:    "pk-bash",
		Version: version,
		Help:    help,
		Wraps:   true,
		JSON:    &o.json,
		Options: append(o.Options.Options(),
			cli.Func(o.setCommand, "command", "c"),
			cli.Text(&o.timeout, "timeout", ""),
			cli.Int(&o.killAfter, 0, 600, "kill-after", ""),
			cli.Text(&o.description, "description", ""),
			cli.Switch(&o.yes, "yes", "y"),
			cli.Switch(&o.no, "no", "n"),
			cli.Switch(&o.noSandbox, "no-sandbox", ""),
			cli.Switch(&o.raw, "raw", ""),
			cli.Func(o.setStatus, "status-fd", ""),
			cli.Int(&o.head, 0, 64<<20, "head", ""),
			cli.Int(&o.tail, 0, 64<<20, "tail", ""),
			cli.Switch(&o.zero, "zero", "z"),
		),
		Action: o.run,
	}
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return fence.Run(command(), args, stdin, stdout, stderr)
}

func (o *options) setCommand(v string) error {
	o.command, o.given = v, true
	return nil
}

// setStatus takes the descriptor at once: later, its number may be one of this
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

// run: refuse, prepare, ask, run, clean up, report. What was prepared is gone
// before anything is reported, so that a reader who has gone away cannot keep
// it alive.
func (o *options) run(ctx *cli.Context) error {
	seconds, err := o.check(ctx)
	if err != nil {
		return err
	}
	if why := shell.Check(o.command, seconds); why != "" {
		return o.report(ctx, &shell.Result{Outcome: shell.Refused, Status: cli.StatusFailed, Error: why})
	}
	if err := bwrap.CloseInherited(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE) // a reader that has gone ends the command, as in any pipeline

	job, err := o.prepareUnless(ctx, signals)
	if err != nil {
		return o.failed(ctx, err)
	}
	job.Timeout, job.KillAfter, job.Signals = time.Duration(seconds)*time.Second, time.Duration(o.killAfter)*time.Second, signals
	result, err := o.askAndRun(ctx, job)
	if cerr := job.cleanUp(); cerr != nil {
		ctx.Report(fmt.Errorf("cannot clean up: %w", cerr))
	}
	// From here on there is nothing to undo, and a reader that stalls must not
	// keep the program.
	signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if err != nil {
		return o.failed(ctx, err)
	}
	return o.report(ctx, result)
}

// prepareUnless prepares, unless a signal comes: a list may be a pipe that
// nobody writes to. Nothing has been made then, as making comes last.
func (o *options) prepareUnless(ctx *cli.Context, signals <-chan os.Signal) (*job, error) {
	type prepared struct {
		job *job
		err error
	}
	done := make(chan prepared, 1)
	go func() {
		j, err := o.prepare(ctx)
		done <- prepared{j, err}
	}()
	select {
	case p := <-done:
		return p.job, p.err
	case sig := <-signals:
		select { // it may have been just about done
		case p := <-done:
			if p.err == nil {
				p.err = p.job.cleanUp()
			}
		case <-time.After(settleTime):
		}
		return nil, cli.Exit(cli.StatusSignal + int(sig.(syscall.Signal)))
	}
}

// settleTime is what preparing takes at most, when it waits for nobody.
const settleTime = 200 * time.Millisecond

// check finds what is wrong with the call, and the command to run.
func (o *options) check(ctx *cli.Context) (seconds int, err error) {
	switch {
	case o.yes && o.no:
		return 0, cli.Usage("--yes cannot be used with --no")
	case o.json && o.raw:
		return 0, cli.Usage("--json cannot be used with --raw")
	case o.given && len(ctx.Args) > 0:
		return 0, cli.Usage("-c cannot be used with the operand %q", ctx.Args[0])
	case !o.given && len(ctx.Args) == 0:
		return 0, cli.Usage("no command given")
	case len(ctx.Args) > 1:
		return 0, cli.WithHint(cli.Usage("extra operand %q", ctx.Args[1]), "COMMAND is one argument: quote it")
	}
	if seconds, err = strconv.Atoi(o.timeout); err != nil {
		return 0, cli.Usage("option \"--timeout\": %q is not a whole number of seconds", o.timeout)
	}
	if !o.given {
		o.command = ctx.Args[0]
		if o.command == "-" {
			o.command, err = ctx.ReadAll()
		}
	}
	return seconds, err
}

// job is a shell.Job and what is to be undone when it is over.
type job struct {
	shell.Job
	where, fence string
	sink         *shell.Capture
	ran          bool
	undo         []func(ran bool) error
}

func (j *job) cleanUp() error {
	var errs []error
	for _, undo := range slices.Backward(j.undo) {
		errs = append(errs, undo(j.ran))
	}
	return errors.Join(errs...)
}

// prepare makes everything ready that can fail, before anybody is asked.
func (o *options) prepare(ctx *cli.Context) (*job, error) {
	j := &job{sink: shell.NewCapture(o.head, o.tail)}
	j.Out = j.sink
	if o.raw {
		j.Out, j.Err = ctx.Stdout, ctx.Stderr
	}
	prepare := o.sandboxed
	if o.noSandbox {
		prepare = o.unfenced
	}
	if err := prepare(ctx, j); err != nil {
		return nil, errors.Join(err, j.cleanUp())
	}
	return j, nil
}

func (o *options) unfenced(ctx *cli.Context, j *job) error {
	o.Scratch = false
	opened, err := o.Workspace.Open(ctx)
	if err != nil {
		return err
	}
	j.undo = append(j.undo, func(bool) error { opened.Close(); return nil })
	ctx.Warn("no sandbox: the command can read and write all that you can")
	j.where, j.fence = opened.ProjectRoot(), "NO SANDBOX"
	if j.Cmd, err = shell.Unfenced(o.command, j.where); err != nil {
		return cli.WithStatus(cli.StatusMissing, err)
	}
	return nil
}

func (o *options) sandboxed(ctx *cli.Context, j *job) error {
	f, err := o.Open(ctx)
	if err != nil {
		return err
	}
	j.undo = append(j.undo, func(ran bool) error {
		if !ran {
			return f.Undo()
		}
		return f.Close()
	})
	f.Plan.Env = shell.WithQuiet(f.Plan.Env)
	argv := shell.Argv(o.command)
	if err := f.FindCommand(argv[0]); err != nil {
		return err
	}
	if err := bwrap.CheckHost(f.Bwrap); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	j.undo = append(j.undo, func(bool) error { r.Close(); return nil })
	j.Sandbox, j.Status = true, r
	j.where, j.fence = f.ProjectRoot(), "sandboxed, "+network(f.Plan)
	box, err := o.Limit()
	if err != nil {
		return err
	}
	j.Start = f.Plan.Start
	if box != nil {
		j.undo = append(j.undo, func(bool) error { return box.Close() })
		j.Start = func(cmd *exec.Cmd) (func(), error) {
			if err := box.Guard(cmd); err != nil {
				return nil, err
			}
			return f.Plan.Start(cmd)
		}
	}
	j.Cmd, j.Started, err = f.Plan.Command(f.Bwrap, argv, w)
	return err
}

func network(p *bwrap.Plan) string {
	if p.Net {
		return "with the network"
	}
	return "no network"
}

// askAndRun returns a result also when the user declined.
func (o *options) askAndRun(ctx *cli.Context, j *job) (*shell.Result, error) {
	yes, err := o.confirm(j)
	if errors.Is(err, shell.ErrNoTerminal) {
		ctx.Report(cli.WithHint(err, "pass --yes to run commands without asking"))
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if !yes {
		return &shell.Result{Outcome: shell.Declined, Status: cli.StatusNotExec, Error: "user declined the bash command."}, nil
	}
	j.ran = true
	result, err := j.Run()
	if err != nil {
		return nil, err
	}
	if result.WriteErr != nil && !errors.Is(result.WriteErr, syscall.EPIPE) {
		ctx.Report(fmt.Errorf("cannot write the command's output: %w", errors.Unwrap(result.WriteErr)))
		result.Status = max(result.Status, cli.StatusRefused)
	}
	result.Output, result.Total, result.Omitted = j.sink.Bytes(), j.sink.Total(), j.sink.Omitted()
	if result.Outcome == shell.SandboxFailed {
		return nil, bwrap.Diagnose(string(result.Output))
	}
	return result, nil
}

// confirm gets the answer, or gives up on a signal.
func (o *options) confirm(j *job) (bool, error) {
	if o.yes || o.no {
		return o.yes, nil
	}
	type answer struct {
		yes bool
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		yes, err := shell.Ask(shell.Question{
			Command:     o.command,
			Description: o.description,
			Where:       j.where,
			Fence:       fmt.Sprintf("%s, %d s", j.fence, int(j.Timeout.Seconds())),
		})
		answered <- answer{yes, err}
	}()
	select {
	case a := <-answered:
		return a.yes, a.err
	case sig := <-j.Signals:
		return false, cli.Exit(cli.StatusSignal + int(sig.(syscall.Signal)))
	}
}

// failed reports that nothing was run: to people on stderr, and to whoever
// reads the product.
func (o *options) failed(ctx *cli.Context, err error) error {
	status := ctx.StatusOf(err)
	if status > cli.StatusSignal { // a signal came while asking
		return err
	}
	result := &shell.Result{Outcome: shell.Refused, Status: status, Error: err.Error()}
	if _, ok := errors.AsType[*bwrap.Unavailable](err); ok {
		result.Outcome = shell.SandboxFailed
	}
	if rerr := o.report(ctx, result); rerr != nil && ctx.StatusOf(rerr) != status {
		return rerr
	}
	return err
}

// report writes the result in the form that was asked for, and turns it into
// the exit status.
func (o *options) report(ctx *cli.Context, r *shell.Result) error {
	r.Command = o.command
	record, err := r.JSON()
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if o.status != nil {
		if _, err := o.status.Write(record); err != nil {
			ctx.Report(fmt.Errorf("cannot write to the descriptor of --status-fd: %w", errors.Unwrap(err)))
		}
	}
	switch {
	case o.json:
		_, err = ctx.Stdout.Write(record)
	case o.raw:
		err = rawReport(ctx, r)
	default:
		_, err = io.WriteString(ctx.Stdout, r.Observation())
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return cli.Exit(cli.StatusSignal + int(syscall.SIGPIPE))
	case err != nil:
		return fmt.Errorf("cannot write the result: %w", errors.Unwrap(err))
	}
	return cli.Exit(r.Status)
}

// rawReport says on stderr what the command's own bytes cannot.
func rawReport(ctx *cli.Context, r *shell.Result) error {
	switch r.Outcome {
	case shell.TimedOut:
		ctx.Report(fmt.Errorf("command timed out after %d s", int(r.Timeout.Seconds())))
	case shell.Declined, shell.Refused:
		ctx.Report(errors.New(r.Error))
	}
	return nil
}
