// Package cli holds the common code of the pk commands: reading options, the
// streams, and the exit status of each failure. It is the only package that
// knows urfave/cli.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"

	"pikuri/lib/internal/hidden"
)

// Mode is a job for which a command starts itself again.
type Mode = hidden.Mode

// ErrOwnUse is the error of a mode that another program than the command itself
// has called.
var ErrOwnUse = hidden.ErrOwnUse

// Command is one pk command.
type Command struct {
	Name    string // "pk-resolve"
	Version string // set by the linker; "" means: ask the build info
	Help    string // the text of --help, verbatim
	Options []Option

	// Wraps is set by commands that run another command and pass its status
	// on: their own failures then answer 125 instead of 1 and 2.
	Wraps bool

	// Interspersed lets options follow operands. For commands whose first
	// operand is a verb; never for a command that runs its operands.
	Interspersed bool

	// Verb marks a command whose first operand is a verb: options may follow it,
	// and end at the next operand.
	Verb bool

	// JSON points at the command's own --json, for commands that have one;
	// the others take the option for --version --json alone.
	JSON *bool

	// Workspace is for commands that take a policy, and has that of the machine and that
	// of the project read too.
	Workspace *WorkspaceFlags

	// Hidden are the modes in which the command starts itself again. Their names
	// are no options: one counts as the first argument only, and --help does not
	// list it.
	Hidden []Mode

	// Action does the work once all options are read.
	Action func(*Context) error

	help, version, versionJSON bool
	broken                     error // of the machine's policy
}

// Context holds the operands and the three streams. Stdout carries the product
// and nothing else.
type Context struct {
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	command    *Command
	stdinTaken bool
}

// Run reads args (without the program's name), runs the Action and returns the
// exit status. It prints at most one line and one hint about a failure.
func (c *Command) Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx := &Context{Stdin: stdin, Stdout: stdout, Stderr: stderr, command: c}
	if job := hidden.Dispatch(args, c.Hidden...); job != nil {
		err := job()
		if status, ok := errors.AsType[hidden.Status](err); ok {
			return int(status)
		}
		return c.end(ctx, err)
	}
	return c.end(ctx, c.app(ctx).Run(append([]string{c.Name}, args...)))
}

// end reports how it went and returns the exit status.
func (c *Command) end(ctx *Context, err error) int {
	if f, ok := errors.AsType[*failure](err); ok && f.kind == kindUsage && f.hint == "" {
		err = WithHint(err, "%s --help lists the options", c.Name)
	}
	if err != nil {
		ctx.Report(err)
	}
	return c.statusOf(err)
}

// OptionNames returns all options as they are typed, long ones first. Tests
// compare them with the help text, the man page and the completions.
func (c *Command) OptionNames() []string {
	var names []string
	for _, o := range c.allOptions() {
		names = append(names, "--"+o.Long)
		if o.Short != "" {
			names = append(names, "-"+o.Short)
		}
	}
	return names
}

// TakesValue returns those of OptionNames that take a value.
func (c *Command) TakesValue() []string {
	var names []string
	for _, o := range c.allOptions() {
		if o.Value {
			names = append(names, "--"+o.Long)
			if o.Short != "" {
				names = append(names, "-"+o.Short)
			}
		}
	}
	return names
}

func (c *Command) allOptions() []Option {
	own := []Option{Switch(&c.help, "help", "h"), Switch(&c.version, "version", "")}
	if c.JSON == nil {
		c.JSON, c.versionJSON = new(bool), true
	}
	own = append(own, Switch(c.JSON, "json", ""))
	return append(own, c.Options...)
}

// app declares the options to urfave/cli, and has it read them and then act.
//
// The settings are those under which urfave/cli v2.27.7 neither prints nor exits
// by itself: without HideHelpCommand, `pk-bwrap -- help` would show help instead
// of running help; ExitErrHandler keeps it from calling os.Exit.
func (c *Command) app(ctx *Context) *cli.App {
	app := &cli.App{
		Name:            c.Name,
		HelpName:        c.Name,
		Reader:          ctx.Stdin,
		Writer:          ctx.Stdout,
		ErrWriter:       ctx.Stderr,
		HideHelp:        true,
		HideHelpCommand: true,
		HideVersion:     true,
		SkipFlagParsing: true,
		ExitErrHandler:  func(*cli.Context, error) {},
		Before: func(flags *cli.Context) (err error) {
			// --help helps to mend a policy.
			if c.Workspace != nil {
				c.broken = c.Workspace.readMachine()
			}
			ctx.Args, err = c.readOptions(flags, flags.Args().Slice())
			return err
		},
		Action: func(*cli.Context) error { return c.dispatch(ctx) },
	}
	for _, o := range c.allOptions() {
		app.Flags = append(app.Flags, o)
	}
	return app
}

func (c *Command) dispatch(ctx *Context) error {
	switch {
	case c.help:
		_, err := io.WriteString(ctx.Stdout, c.Help)
		return err
	case c.version:
		return c.printVersion(ctx)
	case c.broken != nil:
		return Invalid(c.broken)
	case c.versionJSON && *c.JSON:
		return Usage("--json goes with --version only")
	}
	if c.Workspace != nil {
		if err := c.Workspace.readProject(ctx); err != nil {
			return Invalid(err)
		}
	}
	return c.Action(ctx)
}

// Report prints one failure: a line with the error, then one with its hint. A
// failure made by Exit prints nothing.
func (ctx *Context) Report(err error) {
	if f, ok := errors.AsType[*failure](err); ok && f.err == nil {
		return
	}
	ctx.line("%v", err)
	if hint := HintOf(err); hint != "" {
		ctx.line("hint: %s", hint)
	}
}

// ReportLine prints a failure in exactly one line, without its hint: for
// commands that answer many records, so that lines can be counted.
func (ctx *Context) ReportLine(err error) { ctx.line("%v", err) }

// StatusOf is the exit status that err will end in when an Action returns it.
func (ctx *Context) StatusOf(err error) int { return ctx.command.statusOf(err) }

// Warn prints one line about something that works, but not as asked.
func (ctx *Context) Warn(format string, args ...any) {
	ctx.line("warning: "+format, args...)
}

// Say prints one line that is neither a failure nor a warning, because the caller
// asked for it.
func (ctx *Context) Say(format string, args ...any) { ctx.line(format, args...) }

// line writes one diagnostic. Any text stays on one line and cannot drive the
// terminal: errors of the system quote paths as they are. errors.Join ends lines, and
// an error that another one quotes is mere text.
func (ctx *Context) line(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	fmt.Fprintf(ctx.Stderr, "%s: %s\n", ctx.command.Name, strings.Map(printable, text))
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}
