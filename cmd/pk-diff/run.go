package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/cli/trialflags"
	"pikuri/lib/session"
	"pikuri/lib/trial"
)

const help = `Usage: pk-diff [--session NAME] [OPTION]... [PATH...]

Lists the paths that the commands of a trial have changed, one a line, from the
project root: a letter, the path, and why it does not land. With PATH, lists the
changes there and below. Without a session, lists the trials.

  A added   M modified   P other permissions   D removed   T another type
  G a reference of a git directory, which lands with its commits

      --session NAME         the trial (default $PK_SESSION)
      --name-only            the paths alone, as a list for pk-apply
      --stat                 how many lines or bytes each file gains and loses
      --patch                a patch, for git apply --3way
      --json                 a JSON object a line, with hashes
      --all                  each file of directories that git ignores, too
      --links                links that lead out of the project can land
  -z, --zero                 records end in NUL
      --no-pager             no pager for --patch on a terminal
  -h, --help                 this text
      --version [--json]     the version

pk-apply lands what is listed.

Exit status: 0 nothing has changed; 1 something has; 125 trouble.

Examples:
  pk-diff
  pk-diff --session try
  pk-diff --session try --patch src | git apply --3way
  pk-diff --session try --json | jq .path
`

// options of pk-diff.
type options struct {
	trialflags.Options
	json, zero, patch, stat, nameOnly, all, noPager bool
}

func command() *cli.Command {
	o := &options{}
	return &cli.Command{
		Name: "pk-diff", Version: version, Help: help, JSON: &o.json, Wraps: true, Interspersed: true,
		Options: append(o.Options.Options(),
			cli.Switch(&o.zero, "zero", "z"),
			cli.Switch(&o.patch, "patch", ""),
			cli.Switch(&o.stat, "stat", ""),
			cli.Switch(&o.nameOnly, "name-only", ""),
			cli.Switch(&o.all, "all", ""),
			cli.Switch(&o.noPager, "no-pager", ""),
		),
		Action: o.run,
	}
}

// gcPercent trades memory for time: a list of 100 000 changes takes some 100 MB.
const gcPercent = 800

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	debug.SetGCPercent(gcPercent)
	return command().Run(args, stdin, stdout, stderr)
}

// check refuses combinations that mean nothing.
func (o *options) check() error {
	forms := []struct {
		given bool
		name  string
	}{{o.json, "--json"}, {o.patch, "--patch"}, {o.stat, "--stat"}, {o.nameOnly, "--name-only"}}
	before := ""
	for _, f := range forms {
		if f.given && before != "" {
			return cli.Usage("%s cannot be used with %s", before, f.name)
		}
		if f.given {
			before = f.name
		}
	}
	if o.zero && (o.json || o.patch) {
		return cli.Usage("-z cannot be used with %s", before)
	}
	return nil
}

func (o *options) run(ctx *cli.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Name() == "" {
		if len(ctx.Args) > 0 {
			return cli.WithHint(cli.Usage("there is no session in which %q could have changed", ctx.Args[0]), "--session NAME; pk-diff alone lists the trials")
		}
		return o.list(ctx)
	}
	t, err := o.Open(false)
	if err != nil {
		return err
	}
	defer t.Close()
	if t.InUse {
		ctx.Warn("a command of session %q runs: the list is of no one moment", t.Session)
	}
	p := &printer{options: o, ctx: ctx, trial: t, out: bufio.NewWriter(ctx.Stdout), terminal: cli.Terminal(ctx.Stdout), colours: cli.Colours(ctx.Stdout, os.Getenv)}
	if o.nameOnly {
		o.Names = p.name
	}
	s, err := o.Select(t, ctx.Args, len(ctx.Args) == 0, false)
	if err != nil {
		return err
	}
	for _, path := range s.Missing {
		ctx.Warn("the trial has not changed %q", path)
	}
	for _, path := range s.Outside {
		ctx.ReportLine(fmt.Errorf("%q lies in no root of the trial", path))
		p.trouble = true
	}
	for _, gone := range s.Gone {
		ctx.Report(fmt.Errorf("cannot list the changes of the trial of %q: %w", gone.Path, gone))
		p.trouble = true
	}
	if err := p.print(s); err != nil {
		return err
	}
	if p.trouble {
		return cli.Exit(cli.StatusFailed)
	}
	if p.printed || len(s.Items)+len(s.Refs) > 0 {
		return cli.Exit(1)
	}
	return nil
}

// print prints the selection.
func (p *printer) print(s *trialflags.Selection) (err error) {
	done := func() error { return nil }
	if p.patch {
		var out io.Writer
		out, done = p.pager()
		p.out = bufio.NewWriter(out)
	}
	switch {
	case p.nameOnly: // a reference is no path
		for _, i := range s.Items {
			if err = p.name(i); err != nil {
				break
			}
		}
	case p.json:
		err = p.objects(s)
	case p.patch:
		err = p.patches(s)
	case p.stat:
		err = p.stats(s)
	default:
		err = p.lines(s)
	}
	if ferr := p.out.Flush(); err == nil && ferr != nil {
		err = fmt.Errorf("cannot write: %w", ferr)
	}
	if derr := done(); err == nil {
		err = derr
	}
	return err
}

// list prints the trials that there are.
func (o *options) list(ctx *cli.Context) error {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return cli.Invalid(err)
	}
	trials, err := trial.Sessions(base)
	if err != nil {
		return err
	}
	if len(trials) == 0 && !o.json {
		ctx.Say("there is no trial: pk-bash --trial --session NAME begins one")
		if as := sandboxflags.AsOwner(); as != "" {
			ctx.Say("hint: those of this directory's owner: %s pk-diff", as)
		}
	}
	for _, s := range trials {
		if o.json {
			r := summary{Session: s.Session, Entries: s.Entries, Commits: s.Commits}
			r.Project, r.ProjectBytes = cli.TextOrBytes(s.Project)
			if !s.Began.IsZero() {
				began := s.Began.UTC().Truncate(time.Second)
				r.Began = &began
			}
			if err := cli.JSON(ctx.Stdout).Encode(r); err != nil {
				return err
			}
			continue
		}
		about := "nothing to land"
		if s.Entries > 0 || s.Commits {
			about = fmt.Sprintf("%s, begun %s ago", cli.Count(s.Entries, "entry", "entries"), cli.Age(time.Since(s.Began)))
		}
		if s.Commits {
			about += ", commits"
		}
		record := s.Session + "\t" + about
		if s.Project != "" {
			record += "\t" + filepath.Clean(s.Project)
		}
		if err := cli.WriteRecord(ctx.Stdout, record, o.zero, cli.Terminal(ctx.Stdout)); err != nil {
			return err
		}
	}
	return nil
}

// summary is a line of --json without a session.
type summary struct {
	Session      string     `json:"session"`
	Project      string     `json:"project,omitempty"`
	ProjectBytes []byte     `json:"project_base64,omitempty"`
	Began        *time.Time `json:"began,omitempty"`
	Entries      int        `json:"entries"`
	Commits      bool       `json:"commits,omitempty"`
}
