package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/session"
	"pikuri/lib/trial"
)

const help = `Usage: pk-sweep [OPTION]...

Removes the session directories that no process uses and that have not been
used for seven days. A directory in use is never touched, whatever its age and
whatever the options. Prints nothing unless something fails.

What to remove:
      --older-than AGE       not used for AGE: a number and s, m, h, d or w
                             (default 7d)
      --all                  whatever the age
      --session NAME         this session, whatever its age; repeatable
      --background           with --session: remove nothing, but end what
                             commands of pk-bash have left running there
      --discard              trials too that hold changes: pk-diff shows them
      --base DIR             look in DIR instead; repeatable (default
                             $XDG_CACHE_HOME/pikuri, else ~/.cache/pikuri)

Options:
  -n, --dry-run              print what would be removed, change nothing
  -v, --verbose              print what was removed, what was kept and why
      --json                 the same as JSON lines
  -h, --help                 this text
      --version [--json]     the version

Exit status: 0 done, also when there was nothing to do; 1 something could not be
removed or ended, or a named session is in use; 2 called wrongly.

Examples:
  pk-sweep --dry-run --verbose --all
  pk-sweep --session review
  17 4 * * * pk-sweep --older-than 3d
`

// options of pk-sweep.
type options struct {
	age             bool // --older-than was given
	sessions, bases []string
	verbose, json   bool
	background      bool
	sweep           session.SweepOptions
}

func command() *cli.Command {
	o := &options{sweep: session.SweepOptions{OlderThan: session.DefaultAge}}
	return &cli.Command{
		Name:    "pk-sweep",
		Version: version,
		Help:    help,
		JSON:    &o.json,
		Options: []cli.Option{
			cli.Func(o.setAge, "older-than", ""),
			cli.Switch(&o.sweep.All, "all", ""),
			cli.List(&o.sessions, "session", ""),
			cli.List(&o.bases, "base", ""),
			cli.Switch(&o.background, "background", ""),
			cli.Switch(&o.sweep.Discard, "discard", ""),
			cli.Switch(&o.sweep.DryRun, "dry-run", "n"),
			cli.Switch(&o.verbose, "verbose", "v"),
		},
		Action: o.run,
	}
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

func (o *options) setAge(v string) error {
	age, err := parseAge(v)
	o.age, o.sweep.OlderThan = true, age
	return err
}

// units of an age. Nothing is swept after months.
var units = map[byte]time.Duration{
	's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour,
}

// maxAge bounds an age, far below where a Duration overflows.
const maxAge = 100 * 365 * 24 * time.Hour

func parseAge(v string) (time.Duration, error) {
	if v == "" || units[v[len(v)-1]] == 0 {
		return 0, fmt.Errorf("%q is not an age: use a number and one of s, m, h, d, w", v)
	}
	unit := units[v[len(v)-1]]
	n, err := strconv.ParseUint(v[:len(v)-1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not an age: use a number and one of s, m, h, d, w", v)
	}
	if n > uint64(maxAge/unit) {
		return 0, fmt.Errorf("%q is more than a hundred years", v)
	}
	return time.Duration(n) * unit, nil
}

// check refuses combinations that mean nothing, before anything is opened.
func (o *options) check(ctx *cli.Context) error {
	switch {
	case len(ctx.Args) > 0:
		return cli.WithHint(cli.Usage("unexpected operand %q", ctx.Args[0]), "name a session with --session, a directory with --base")
	case o.age && o.sweep.All:
		return cli.Usage("--older-than cannot be used with --all, which removes sessions of any age")
	case o.age && len(o.sessions) > 0:
		return cli.Usage("--older-than cannot be used with --session, which removes one of any age")
	case o.sweep.All && len(o.sessions) > 0:
		return cli.Usage("--all cannot be used with --session")
	case o.background && len(o.sessions) == 0:
		return cli.Usage("--background needs --session")
	case o.background && (o.sweep.DryRun || o.sweep.Discard || o.json):
		return cli.Usage("--background removes nothing: it cannot be used with --dry-run, --discard or --json")
	}
	for _, name := range o.sessions {
		if err := session.CheckName(name); err != nil {
			return cli.Invalid(err)
		}
	}
	return o.checkBases(ctx)
}

// checkBases refuses places where a directory called workspace-x is likely to
// be a user's work.
func (o *options) checkBases(ctx *cli.Context) error {
	for _, base := range o.bases {
		if base == "" {
			return cli.Usage("--base is empty: name a directory, or leave it out")
		}
		real, err := filepath.Abs(base)
		if err == nil {
			real, err = filepath.EvalSymlinks(real)
		}
		if errors.Is(err, os.ErrNotExist) {
			ctx.Warn("%q does not exist", base)
		}
		if err == nil && confine.DeniedRoot(real, os.Getenv("HOME")) {
			return cli.Usage("--base %q is a home or a system directory, not one of session directories", base)
		}
	}
	return nil
}

func (o *options) run(ctx *cli.Context) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	if len(o.bases) == 0 {
		base, err := session.Base(os.Getenv)
		if err != nil {
			return cli.Invalid(err)
		}
		o.bases = []string{base}
	}
	o.sweep.Sessions, o.sweep.Holds = o.sessions, trial.Holds
	o.sweep.Measure = o.verbose || o.json
	out := bufio.NewWriter(ctx.Stdout)
	r := &reporter{options: o, ctx: ctx, out: out}
	for _, base := range o.bases {
		if o.background {
			r.endBackground(base)
			continue
		}
		if !o.sweep.DryRun {
			r.recover(base)
		}
		r.base(base)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return cli.Exit(r.status)
}
