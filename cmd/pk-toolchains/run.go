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

const help = `Usage: pk-toolchains [OPTION]... [readable|overlay|masks|hosts]

Prints the directories and files of tool chains that exist on this machine, one
a line. What is printed is chosen so that builds work and logins stay private.
Options may follow the operand.

  readable   what was installed beforehand, to be shown read-only
  overlay    caches that tools write to, to be shown so that writes stay inside
  masks      credentials inside those, to be hidden
  hosts      hosts that tools are configured to reach, each as NAME:PORT and a
             comment that says which file names it

Without an operand: every readable and overlay path, each as its kind, its tool
and the path, with one tab between them.

Options:
      --tool NAME            only this tool; repeatable
      --absent               the rows that show nothing here instead, and why
      --check                known credentials that would be seen instead
      --project              hosts: those too that the project's own files name,
                             which whoever wrote the project has chosen
  -z, --zero                 records end in NUL, not in a newline
      --json                 JSON lines: kind, tool, path or rule, and where it
                             comes from
  -h, --help                 this text
      --version [--json]     the version

Variables that move a path, such as CARGO_HOME, GOPATH or XDG_CACHE_HOME, are
honoured, unless they lead to a home, a system directory or a secret. Rows of
your own go into ~/.config/pikuri/toolchains.tsv.

Exit status: 0 done, also when nothing exists; 1 a record could not be printed, or
--check found something; 2 called wrongly, or a row of your own is wrong.

Examples:
  pk-toolchains
  pk-toolchains overlay --tool go
  pk-toolchains --absent --tool uv
  pk-toolchains hosts --tool go --tool npm
  du $(pk-toolchains overlay)
`

// masks and hosts are the operands beside the two kinds.
const (
	masks     = "masks"
	hostNames = "hosts"
)

var operands = []string{string(toolchain.Readable), string(toolchain.Overlay), masks, hostNames}

// options of pk-toolchains.
type options struct {
	tools         []string
	absent, check bool
	project       bool
	zero, json    bool
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
			cli.Switch(&o.absent, "absent", ""),
			cli.Switch(&o.check, "check", ""),
			cli.Switch(&o.project, "project", ""),
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
	out := bufio.NewWriter(ctx.Stdout)
	p := &printer{ctx: ctx, out: out, zero: o.zero, json: o.json}
	list := o.paths
	if kind == hostNames {
		list = o.hosts
	}
	if err := list(p, kind); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return cli.Exit(p.status)
}

// paths prints the requested part of the table.
func (o *options) paths(p *printer, kind string) error {
	host := toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv}
	table, err := toolchain.LoadFor(host)
	if err != nil {
		return cli.Invalid(err)
	}
	if err := o.checkTools(table.Tools(), "pk-toolchains and pk-toolchains --absent list them all"); err != nil {
		return err
	}
	entries, absent := table.Survey(host)
	switch {
	case o.absent:
		return each(absent, func(a toolchain.Absence) bool {
			return o.wants(a.Row.Tool) && (kind == "" || kind == string(a.Row.Kind))
		}, p.absent)
	case o.check:
		leaks := table.Check(host, entries, toolchain.Masks(entries))
		return each(leaks, func(l toolchain.Leak) bool { return o.wants(l.Entry.Tool) }, p.leak)
	case kind == masks:
		return each(entries, func(e toolchain.Entry) bool { return o.wants(e.Tool) }, p.masks)
	}
	return each(entries, func(e toolchain.Entry) bool {
		return o.wants(e.Tool) && (kind == "" || kind == string(e.Kind))
	}, func(e toolchain.Entry) error { return p.entry(e, kind == "") })
}

func (o *options) wants(tool string) bool {
	return len(o.tools) == 0 || slices.Contains(o.tools, tool)
}

func each[T any](list []T, wanted func(T) bool, print func(T) error) error {
	for _, item := range list {
		if !wanted(item) {
			continue
		}
		if err := print(item); err != nil {
			return err
		}
	}
	return nil
}

// kind reads the operand: one of the kinds, "masks", or "" for none.
func (o *options) kind(args []string) (string, error) {
	switch {
	case o.json && o.zero:
		return "", cli.Usage("--json cannot be used with --zero")
	case o.absent && o.check:
		return "", cli.Usage("--absent cannot be used with --check")
	case o.project && !slices.Equal(args, []string{hostNames}):
		return "", cli.Usage("--project goes with %q only", hostNames)
	case len(args) == 0:
		return "", nil
	case len(args) > 1:
		return "", cli.Usage("one operand at most, not %q as well", args[1])
	case !slices.Contains(operands, args[0]):
		return "", cli.Usage("unknown operand %q: use one of %s", args[0], strings.Join(operands, ", "))
	case o.check:
		return "", cli.Usage("--check takes no operand, not %q", args[0])
	case o.absent && (args[0] == masks || args[0] == hostNames):
		return "", cli.Usage("--absent cannot be used with %q", args[0])
	}
	return args[0], nil
}

// checkTools refuses a tool that is not known. hint says where they are listed.
func (o *options) checkTools(known []string, hint string) error {
	for _, t := range o.tools {
		if !slices.Contains(known, t) {
			return cli.WithHint(cli.Usage("unknown tool %q", t), "%s", hint)
		}
	}
	return nil
}
