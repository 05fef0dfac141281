package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"pikuri/lib/cli"
	"pikuri/lib/toolchain"
)

const help = `Usage: pk-toolchains [OPTION]... [readable|overlay|masks]

Prints the directories and files of tool chains that exist on this machine, one
a line. What is printed is chosen so that builds work and logins stay private.
Options may follow the operand.

  readable   what was installed beforehand, to be shown read-only
  overlay    caches that tools write to, to be shown so that writes stay inside
  masks      credentials inside those, to be hidden

Without an operand: every readable and overlay path, each as its kind, its tool
and the path, with one tab between them.

Options:
      --tool NAME            only this tool; repeatable
  -z, --zero                 records end in NUL, not in a newline
      --json                 JSON lines: kind, tool, path
  -h, --help                 this text
      --version [--json]     the version

Variables that move a path, such as CARGO_HOME, GOPATH or XDG_CACHE_HOME, are
honoured, unless they lead to a home, a system directory or a secret.

Exit status: 0 done, also when nothing exists; 1 a path could not be printed;
2 called wrongly.

Examples:
  pk-toolchains
  pk-toolchains overlay --tool go
  du $(pk-toolchains overlay)
`

// masks is the operand beside the two kinds.
const masks = "masks"

// options of pk-toolchains.
type options struct {
	tools      []string
	zero, json bool
}

func command() *cli.Command {
	o := &options{}
	return &cli.Command{
		Name:         "pk-toolchains",
		Version:      version,
		Help:         help,
		Interspersed: true,
		JSON:         &o.json,
		Options: []cli.Option{
			cli.List(&o.tools, "tool", ""),
			cli.Switch(&o.zero, "zero", "z"),
		},
		Action: o.run,
	}
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

func (o *options) run(ctx *cli.Context) error {
	kind, err := o.kind(ctx.Args)
	if err != nil {
		return err
	}
	table, err := toolchain.Load()
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if err := o.checkTools(table); err != nil {
		return err
	}
	entries := table.Present(toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv})
	out := bufio.NewWriter(ctx.Stdout)
	p := &printer{options: o, ctx: ctx, out: out, labelled: kind == ""}
	for _, e := range entries {
		if len(o.tools) > 0 && !slices.Contains(o.tools, e.Tool) {
			continue
		}
		if err := p.entry(e, kind); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return cli.Exit(p.status)
}

// kind reads the operand: one of the kinds, "masks", or "" for none.
func (o *options) kind(args []string) (string, error) {
	kinds := []string{string(toolchain.Readable), string(toolchain.Overlay), masks}
	switch {
	case o.json && o.zero:
		return "", cli.Usage("--json cannot be used with --zero")
	case len(args) == 0:
		return "", nil
	case len(args) > 1:
		return "", cli.Usage("one operand at most, not %q as well", args[1])
	case !slices.Contains(kinds, args[0]):
		return "", cli.Usage("unknown operand %q: use one of %s", args[0], strings.Join(kinds, ", "))
	}
	return args[0], nil
}

func (o *options) checkTools(table toolchain.Table) error {
	known := table.Tools()
	for _, t := range o.tools {
		if !slices.Contains(known, t) {
			return cli.Usage("unknown tool %q: use one of %s", t, strings.Join(known, ", "))
		}
	}
	return nil
}
