package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/cli/trialflags"
	"pikuri/lib/confine"
	"pikuri/lib/fence"
	"pikuri/lib/grep"
	"pikuri/lib/sandbox"
	"pikuri/lib/workspace"
)

const help = `Usage: pk-fs [OPTION]... VERB [OPTION]... [--] OPERAND...
       pk-fs [OPTION]... --loop

Works on files of a workspace. Every path is looked up and used in one step,
from its root's descriptor: whoever renames things in the workspace meanwhile
does not lead it outside. FIFOs, sockets and devices are refused.

Reading:
  cat PATH...                print files
  read PATH                  print lines of a text
  ls [DIR]                   names in a directory, all of them, sorted
  walk [DIR]                 paths of all that is below a directory
  glob PATTERN [DIR]         paths of the files below a directory that match
  grep PATTERN [PATH]...     lines that match a regular expression (RE2), in files
                             that git does not ignore
  stat PATH...               type, mode, size, time and path, links followed
  exists PATH...             status 1 if one of them is missing

Writing:
  write PATH                 standard input becomes the content of a file
  edit PATH                  put a text in the place of one that is there once;
                             print the change and the new SHA-256
  patch                      apply a patch from standard input: unified diffs, or
                             the format of apply_patch; all of it or nothing
  append PATH                standard input is added to the end of a file
  cp SOURCE DEST             copy a file; DEST is its new name
  mv SOURCE DEST             rename; DEST is the new name, not where to put it
  rm PATH...                 remove files; links themselves
  mkdir DIR...               make directories; that they exist is no error

Git:
  git-clone URL DIR          clone; by https, unless --protocol says otherwise
  git-pull DIR               go forward to what the branch follows
  git-head DIR               print the commit that is checked out
  git-adopt DIR              make a repository of a sandbox usable on the host

Options of verbs:
      --atomic               write: readers, and a crash, find the old content
                             or the new, never a part
      --exclusive            write: fail if there is something already
      --if-unchanged HASH    write, edit: fail unless the SHA-256 of the content
                             is HASH
      --old TEXT             edit: what is replaced, as it stands in the file
      --new TEXT             edit: what takes its place
      --old-from FILE        the same from a file; - is standard input
      --new-from FILE
      --all                  edit: replace it wherever it is
      --from FILE            patch: take it from a file
      --dry-run              patch: check it, and write nothing
      --lines A-B            read: these lines; A- for all from A
      --head N               read: the first N lines
      --tail N               read: the last N lines
  -n, --number               read: each line with its number
  -i, --ignore-case          grep: letters match in either case
  -F, --fixed                grep: the pattern is a text
  -B, --before N             grep: N lines before each match, too
  -A, --after N              grep: N lines behind each match, too
      --context N            grep: both
  -l, --files-only           grep: only the paths of files
      --glob PATTERN         grep: only files that match; repeatable
      --limit N              grep: end after N lines that match
      --sync                 return when it is on stable storage
  -r, --recursive            rm: directories and all that is in them
  -f, --force                rm: what is missing is no failure
      --json                 one JSON object for each answer
  -z, --zero                 answers, and records of lists, end in NUL
      --protocol NAME        git: allow https, http, ssh, git or file; repeatable
      --pass-env NAME        git: let it see a variable; repeatable
      --timeout SECONDS      git: 1 to 86400, default 600

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
      --violations FILE      append what is refused to FILE, as JSON lines
      --audit FILE           append a record of each operation that changes files
                             to FILE, or change nothing

      --loop                 answer requests: JSON lines on standard input, one
                             JSON line each on standard output
  -h, --help                 this text
      --version [--json]     the version

Options end at the verb's first operand, or at --.

Exit status: 0 done; 1 something was refused or could not be done; 2 called
wrongly, or the workspace is invalid.

Examples:
  pk-fs cat src/main.c
  generate | pk-fs write --atomic out/report.txt
  pk-fs --readable /usr/lib cat /usr/lib/os-release
  pk-fs grep --glob '*.c' 'return [0-9]' src
  pk-fs walk -z --json src
`

// options of pk-fs.
type options struct {
	cli.WorkspaceFlags
	textFlags
	query  grep.Query
	isLoop bool
	view   trialflags.View

	atomic, exclusive, sync bool
	ifUnchanged             string
	recursive, force        bool
	json, zero              bool
	protocols, passEnv      []string
	timeout                 int
	violations              string
	maxSearch               time.Duration // of a loop

	given []string // the options of verbs that were given
}

const defaultTimeout = 600

func command() *cli.Command { return new(options).command() }

func (o *options) command() *cli.Command {
	o.timeout, o.maxSearch = defaultTimeout, maxSearch
	o.Zero = &o.zero
	if o.Shown == nil { // a test may have another
		o.Shown = o.view.Shown
	}
	return &cli.Command{
		Name:      "pk-fs",
		Version:   version,
		Help:      help,
		JSON:      &o.json,
		Workspace: &o.WorkspaceFlags,
		Verb:      true,
		Hidden:    sandbox.Modes(),
		Options: append(append(o.policyOptions(),
			cli.Name(&o.violations, "violations", ""),
			cli.Switch(&o.zero, "zero", "z"),
			cli.Switch(&o.isLoop, "loop", "")),
			o.verbOptions()...),
		Action: o.run,
	}
}

// policyOptions are the options that describe a workspace, and can stand in a policy.
func (o *options) policyOptions() []cli.Option {
	return o.WithPolicy(append(append(o.WorkspaceFlags.Options(), o.RuleOptions()...), o.AuditOption()))
}

// verbOptions are the options that not every verb takes. Each one given is added to
// o.given.
func (o *options) verbOptions() []cli.Option {
	list := []cli.Option{
		cli.Switch(&o.atomic, "atomic", ""),
		cli.Switch(&o.exclusive, "exclusive", ""),
		cli.Func(o.setHash, "if-unchanged", ""),
		cli.Switch(&o.sync, "sync", ""),
		cli.Switch(&o.recursive, "recursive", "r"),
		cli.Switch(&o.force, "force", "f"),
		cli.Func(o.setProtocol, "protocol", ""),
		cli.List(&o.passEnv, "pass-env", ""),
		cli.Int(&o.timeout, 1, 86400, "timeout", ""),
	}
	list = append(append(list, o.textFlags.options()...), grepOptions(&o.query)...)
	for i, option := range list {
		list[i] = option.Noted(func() { o.given = append(o.given, "--"+option.Long) })
	}
	return list
}

func (o *options) setHash(v string) error {
	if len(v) != hex.EncodedLen(sha256.Size) || strings.Trim(v, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is not a SHA-256 of 64 hexadecimal digits in lower case", v)
	}
	o.ifUnchanged = v
	return nil
}

var protocols = []string{"https", "http", "ssh", "git", "file"}

func (o *options) setProtocol(v string) error {
	if !slices.Contains(protocols, v) {
		return fmt.Errorf("%q is none of %s", v, strings.Join(protocols, ", "))
	}
	o.protocols = append(o.protocols, v)
	return nil
}

// verb is one thing to do.
type verb struct {
	name        string
	least, most int      // operands; most 0: any number, -1: none
	operands    string   // for messages
	options     []string // beside those that all verbs take
	json        bool
	lists       bool // its answers are records, so that -z means something
	stdin       bool // reads standard input
	stable      bool // has --sync anyway
	changes     bool // changes the files that its operands name
	check       func(*textFlags) error
	run         func(*work) error
}

var verbs = []verb{
	{name: "cat", least: 1, operands: "PATH...", run: (*work).cat},
	{name: "read", least: 1, most: 1, operands: "PATH", options: []string{"--lines", "--head", "--tail", "--number"}, run: (*work).read},
	{name: "ls", most: 1, operands: "[DIR]", json: true, lists: true, run: (*work).ls},
	{name: "walk", most: 1, operands: "[DIR]", json: true, lists: true, run: (*work).walk},
	{name: "glob", least: 1, most: 2, operands: "PATTERN [DIR]", json: true, lists: true, run: (*work).glob},
	{name: "grep", least: 1, operands: "PATTERN [PATH]...", options: []string{"--ignore-case", "--fixed", "--before", "--after", "--context", "--files-only", "--glob", "--limit"}, json: true, run: (*work).grep},
	{name: "stat", least: 1, operands: "PATH...", json: true, lists: true, run: (*work).stat},
	{name: "exists", least: 1, operands: "PATH...", json: true, run: (*work).exists},
	{name: "write", least: 1, most: 1, operands: "PATH", options: []string{"--atomic", "--exclusive", "--if-unchanged", "--sync"}, json: true, stdin: true, changes: true, run: (*work).write},
	{name: "edit", least: 1, most: 1, operands: "PATH", options: []string{"--old", "--old-from", "--new", "--new-from", "--all", "--if-unchanged"}, json: true, stdin: true, stable: true, check: (*textFlags).check, changes: true, run: (*work).edit},
	{name: "patch", most: -1, options: []string{"--from", "--dry-run"}, json: true, lists: true, stdin: true, stable: true, run: (*work).patch},
	{name: "append", least: 1, most: 1, operands: "PATH", options: []string{"--sync"}, stdin: true, changes: true, run: (*work).append},
	{name: "cp", least: 2, most: 2, operands: "SOURCE DEST", options: []string{"--sync"}, changes: true, run: (*work).cp},
	{name: "mv", least: 2, most: 2, operands: "SOURCE DEST", options: []string{"--sync"}, changes: true, run: (*work).mv},
	{name: "rm", least: 1, operands: "PATH...", options: []string{"--recursive", "--force", "--sync"}, changes: true, run: (*work).rm},
	{name: "mkdir", least: 1, operands: "DIR...", options: []string{"--sync"}, changes: true, run: (*work).mkdir},
	{name: "git-clone", least: 2, most: 2, operands: "URL DIR", options: []string{"--protocol", "--pass-env", "--timeout", "--sync"}, changes: true, run: (*work).gitClone},
	{name: "git-pull", least: 1, most: 1, operands: "DIR", options: []string{"--protocol", "--pass-env", "--timeout", "--sync"}, changes: true, run: (*work).gitPull},
	{name: "git-head", least: 1, most: 1, operands: "DIR", run: (*work).gitHead},
	{name: "git-adopt", least: 1, most: 1, operands: "DIR", changes: true, run: (*work).gitAdopt},
}

func verbNames() []string {
	var names []string
	for _, v := range verbs {
		names = append(names, v.name)
	}
	return names
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

func (o *options) run(ctx *cli.Context) error {
	if o.isLoop {
		if err := o.checkLoop(ctx); err != nil {
			return err
		}
		return o.loop(ctx)
	}
	v, err := o.verb(ctx)
	if err != nil {
		return err
	}
	o.sync = o.sync || v.stable
	records, err := o.openRecords()
	if err != nil {
		return err
	}
	defer records.Close()
	opened, err := sandboxflags.OpenAsOwner(ctx, &o.WorkspaceFlags)
	if err != nil {
		return err
	}
	defer opened.Close()
	if err := records.CheckOutside(opened.Roots()); err != nil {
		return cli.Invalid(err)
	}
	w := &work{options: o, ctx: ctx, confined: opened.Workspace, args: ctx.Args[1:], views: map[string]workspace.Workspace{}, hosts: map[string]*fence.HostRun{}, records: records}
	defer w.close()
	if o.violations != "" {
		if err := w.logTo(o.violations); err != nil {
			return cli.Invalid(err)
		}
	}
	switch {
	case !v.changes:
		err = v.run(w)
	case v.name == "git-clone":
		err = w.change(v.name, w.args[0], w.args[1:], func() error { return v.run(w) })
	default:
		err = w.change(v.name, "", w.args, func() error { return v.run(w) })
	}
	if last := w.finish(); last != nil {
		if err != nil {
			ctx.Report(err)
		}
		return last
	}
	return err
}

// checkLoop refuses the options and operands that --loop does not take.
func (o *options) checkLoop(ctx *cli.Context) error {
	for _, option := range o.given {
		if option != "--sync" {
			return cli.Usage("%s cannot be used with --loop", option)
		}
	}
	switch {
	case len(ctx.Args) > 0:
		return cli.WithHint(cli.Usage("--loop takes no operands"), "its requests are JSON lines on standard input")
	case o.json:
		return cli.Usage("--json cannot be used with --loop")
	case o.ListsFromStdin():
		return cli.Usage("--loop cannot be used with a list of roots from standard input")
	}
	return nil
}

// verb finds the verb, and refuses operands and options that do not fit it,
// before anything is opened.
func (o *options) verb(ctx *cli.Context) (*verb, error) {
	if len(ctx.Args) == 0 {
		return nil, cli.Usage("no verb given")
	}
	at := slices.IndexFunc(verbs, func(v verb) bool { return v.name == ctx.Args[0] })
	if at < 0 {
		return nil, cli.WithHint(cli.Usage("unknown verb %q", ctx.Args[0]), "use one of %s", strings.Join(verbNames(), ", "))
	}
	v := &verbs[at]
	n := len(ctx.Args) - 1
	switch {
	case n < v.least:
		missing := strings.Trim(strings.Fields(v.operands)[n], "[].")
		return nil, cli.WithHint(cli.Usage("%s: missing %s", v.name, missing), "pk-fs %s %s", v.name, v.operands)
	case v.most != 0 && n > max(v.most, 0):
		return nil, cli.WithHint(cli.Usage("%s: extra operand %q", v.name, ctx.Args[1+max(v.most, 0)]), "pk-fs %s", strings.TrimSpace(v.name+" "+v.operands))
	}
	for _, option := range o.given {
		if !slices.Contains(v.options, option) {
			return nil, cli.Usage("%s cannot be used with %s", option, v.name)
		}
	}
	switch {
	case o.json && !v.json:
		return nil, cli.Usage("--json cannot be used with %s", v.name)
	case o.exclusive && o.ifUnchanged != "":
		return nil, cli.Usage("--exclusive cannot be used with --if-unchanged")
	case v.stdin && o.ListsFromStdin():
		return nil, cli.Usage("%s cannot be used with a list of roots from standard input", v.name)
	}
	if v.check != nil {
		return v, v.check(&o.textFlags)
	}
	return v, nil
}

// work is one run of a verb.
type work struct {
	*options
	ctx      *cli.Context
	confined *confine.Workspace
	args     []string

	views    map[string]workspace.Workspace // by the path of the root
	hosts    map[string]*fence.HostRun      // of writable ones
	opened   []*workspace.LocalWorkspace
	logger   workspace.ViolationLogger
	log      *failing
	records  *audit.Log // of --audit
	failures error      // of the operands of a verb
	refused  bool
	answered *answers
}

// close lets go of the roots.
func (w *work) close() {
	for _, ws := range w.opened {
		ws.Close()
	}
	if w.log != nil {
		w.log.file.Close()
	}
}

// each calls do for each operand, reports errors, and goes on.
func (w *work) each(do func(path string) error) error {
	for _, path := range w.args {
		if err := do(path); err != nil {
			if fatal, ok := errors.AsType[*outputError](err); ok {
				return fatal
			}
			w.ctx.Report(err)
			w.refused, w.failures = true, errors.Join(w.failures, err)
		}
	}
	return nil
}

// finish writes the buffered answers, and makes the status.
func (w *work) finish() error {
	var err error
	if w.answered != nil {
		err = w.answered.flush()
	}
	if w.log != nil && w.log.err != nil {
		err = errors.Join(err, fmt.Errorf("cannot write to %q: %w", w.violations, w.log.err))
	}
	if err == nil && w.refused {
		err = cli.Exit(cli.StatusRefused)
	}
	return err
}

// outputError is a failure to write the product, after which there is nothing
// left to do.
type outputError struct{ err error }

func (e *outputError) Error() string {
	return "cannot write to standard output: " + cause(e.err).Error()
}
func (e *outputError) Unwrap() error { return e.err }

// cause strips the second mention of standard output.
func cause(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}
