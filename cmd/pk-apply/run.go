package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
	"pikuri/lib/cli/trialflags"
	"pikuri/lib/gitland"
	"pikuri/lib/overlay"
	"pikuri/lib/passwd"
	"pikuri/lib/quarantine"
	"pikuri/lib/session"
	"pikuri/lib/shell"
	"pikuri/lib/trial"
)

const help = `Usage: pk-apply [--session NAME] [OPTION]... PATH...
       pk-apply [--session NAME] [OPTION]... --from FILE
       pk-apply [--session NAME] [OPTION]... --all
       pk-apply [--session NAME] [--dry-run] --undo|--redo

Lands changes of a trial in the project: those at each PATH and below. Prints a
letter, as pk-diff does, and the path of each. For each that does not land, it
prints a line on stderr: the project has changed it since the trial began, or
it never lands. No command of the trial may run.

      --session NAME         the trial (default $PK_SESSION)
      --from FILE            paths from a list, one a line; - is standard input
      --all                  everything, commits and branches too
      --discard              drop the changes from the trial instead
      --undo                 put back what the last landing replaced or removed
      --redo                 land again what --undo has put back
      --overwrite            land what the project has changed meanwhile, too
      --links                land links that lead out of the project, too
      --audit FILE           append a record of each path that lands to FILE, or
                             land nothing
  -n, --dry-run              print what would land, change nothing
  -z, --zero                 records end in NUL, in the list too
      --json                 a JSON object a line; with --from the list is that
                             of pk-diff --json, and the hashes in it must hold
  -h, --help                 this text
      --version [--json]     the version

Exit status: 0 done; 1 something did not land; 2 called wrongly.

Examples:
  pk-apply --session try src
  pk-diff --session try --json | review | pk-apply --session try --json --from -
  pk-apply --session try --discard --all
`

// options of pk-apply.
type options struct {
	trialflags.Options
	machine                                                 cli.WorkspaceFlags // of its policy only the audit file counts
	from                                                    string
	all, discard, undo, redo, overwrite, dryRun, zero, json bool
}

func command() *cli.Command {
	o := &options{}
	w := &o.machine
	audit := w.AuditOption()
	w.Trusting = true // a project's policy does not bind its owner
	w.WithPolicy(append(append(w.Options(), w.RuleOptions()...), audit))
	return &cli.Command{
		Name: "pk-apply", Version: version, Help: help, JSON: &o.json, Interspersed: true, Workspace: w,
		Options: append(o.Options.Options(),
			cli.Name(&o.from, "from", "").PathOrStdin().FromInput(),
			audit,
			cli.Switch(&o.all, "all", ""),
			cli.Switch(&o.discard, "discard", ""),
			cli.Switch(&o.undo, "undo", ""),
			cli.Switch(&o.redo, "redo", ""),
			cli.Switch(&o.overwrite, "overwrite", ""),
			cli.Switch(&o.dryRun, "dry-run", "n"),
			cli.Switch(&o.zero, "zero", "z"),
		),
		Action: o.run,
	}
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

// check refuses calls that mean nothing, before anything is opened.
func (o *options) check(args []string) error {
	ways := 0
	for _, given := range []bool{len(args) > 0, o.from != "", o.all, o.undo, o.redo} {
		if given {
			ways++
		}
	}
	switch {
	case o.Name() == "":
		return cli.WithHint(cli.Usage("no session is named"), "--session NAME; pk-diff lists the trials")
	case ways == 0:
		return cli.WithHint(cli.Usage("nothing is named to land"), "a path, --from FILE, or --all")
	case ways > 1:
		return cli.Usage("use one of: paths, --from, --all, --undo, --redo")
	case (o.undo || o.redo) && (o.discard || o.overwrite):
		return cli.Usage("--undo and --redo cannot be used with --discard or --overwrite")
	case o.discard && o.overwrite:
		return cli.Usage("--discard cannot be used with --overwrite")
	case o.json && o.zero:
		return cli.Usage("-z cannot be used with --json")
	}
	return nil
}

func (o *options) run(ctx *cli.Context) error {
	if err := o.check(ctx.Args); err != nil {
		return err
	}
	list, err := o.list(ctx)
	if err == nil && o.machine.Pinned() {
		err = checkBase()
	}
	if err != nil {
		return cli.Invalid(err)
	}
	t, err := o.Open(!o.dryRun)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that goes ends no landing half-way
	w := &work{options: o, ctx: ctx, trial: t, out: bufio.NewWriter(ctx.Stdout), list: list}
	if err = w.recordBegin(); err == nil {
		err = w.run()
		w.recordEnd(err)
	}
	err = errors.Join(err, t.Close())
	if ferr := w.out.Flush(); ferr != nil {
		err = errors.Join(err, fmt.Errorf("cannot write: %w", ferr))
	}
	if err == nil {
		err = cli.Exit(w.status)
	}
	return err
}

// checkBase refuses sessions that variables choose, under a mandatory policy of the machine.
// A command could write a directory like those, with any place of the home as a root.
func checkBase() error {
	home := passwd.Find(passwd.Users, os.Getuid()).Home
	own, err := session.Base(func(name string) string { return map[string]string{"HOME": home}[name] })
	base, berr := session.Base(os.Getenv)
	if err = errors.Join(err, berr); err == nil && base != own {
		err = fmt.Errorf("cannot use the sessions in %q: the machine's policy is mandatory", base)
		err = cli.WithHint(err, "those in %q can be used; its administrator can allow others there: user-may environment", own)
	}
	return err
}

// reviewed is a line of pk-diff --json.
type reviewed struct {
	Path        string `json:"path"`
	PathBytes   []byte `json:"path_base64"`
	Change      string `json:"change"`
	Before      string `json:"before"`
	After       string `json:"after"`
	BeforeBytes []byte `json:"before_base64"`
	AfterBytes  []byte `json:"after_base64"`
	GitDir      string `json:"git_dir"`
	GitDirBytes []byte `json:"git_dir_base64"`
	Ref         string `json:"ref"`
	RefBytes    []byte `json:"ref_base64"`
	Modes       string `json:"modes"`
	Stashes     string `json:"stashes"`
}

// list reads the list of --from.
func (o *options) list(ctx *cli.Context) ([]reviewed, error) {
	if o.from == "" {
		return nil, nil
	}
	records, err := ctx.ReadList(o.from, o.zero)
	if err != nil {
		return nil, err
	}
	list := make([]reviewed, len(records))
	for n, record := range records {
		if !o.json {
			if strings.IndexByte(record, 0) >= 0 {
				return nil, cli.WithHint(fmt.Errorf("record %d of %q holds a NUL", n+1, o.from), "-z: records end in NUL")
			}
			list[n].Path = record
			continue
		}
		if err := json.Unmarshal([]byte(record), &list[n]); err != nil {
			return nil, cli.WithHint(fmt.Errorf("record %d of %q is no line of pk-diff --json: %w", n+1, o.from, plainly(err)), "for a list of paths leave --json out")
		}
		r := &list[n]
		r.Path, r.Before, r.After = either(r.Path, r.PathBytes), either(r.Before, r.BeforeBytes), either(r.After, r.AfterBytes)
		r.GitDir, r.Ref = either(r.GitDir, r.GitDirBytes), either(r.Ref, r.RefBytes)
		if r.Path == "" && r.GitDir == "" {
			return nil, fmt.Errorf("record %d of %q names no path", n+1, o.from)
		}
	}
	return list, nil
}

// plainly says which value of a record has the wrong type, without the types of Go.
func plainly(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case wrong.Field == "":
		return fmt.Errorf("it is a JSON %s, and no object", wrong.Value)
	}
	return fmt.Errorf("its field %q is a JSON %s, and no string", wrong.Field, wrong.Value)
}

func either(text string, bytes []byte) string {
	if len(bytes) > 0 {
		return string(bytes)
	}
	return text
}

// work is one call on an open trial.
type work struct {
	*options
	ctx    *cli.Context
	trial  *trial.Trial
	out    *bufio.Writer
	list   []reviewed
	above  map[string]bool // directories above the paths of the list
	status int
	log    *audit.Log // of --audit
	begin  uint64     // number of the record of this call
}

func (w *work) run() error {
	if w.undo || w.redo {
		return w.replay()
	}
	if w.discard && w.all {
		return w.discardAll()
	}
	paths, byPath := w.paths()
	s, err := w.Select(w.trial, paths, w.all, !w.discard)
	if err != nil {
		return err
	}
	for _, path := range s.Missing {
		if w.from != "" && w.trial.HasLanded(path) {
			continue // an earlier call was killed, or has landed it
		}
		w.fail(path, errors.New("the trial has not changed it"))
	}
	for _, path := range s.Outside {
		w.fail(path, errors.New("it lies in no root of the trial"))
	}
	for _, gone := range s.Gone {
		w.fail(gone.Path, gone)
	}
	items := map[*trial.Root][]trial.Item{}
	for _, i := range s.Items {
		if w.from != "" {
			at := filepath.Join(i.Root.Path, i.Path)
			if _, listed := byPath[at]; !listed {
				if w.discard || !w.above[at] || i.Op != overlay.Added || !i.New.IsDir() {
					continue
				}
				i.Above = true
			}
		}
		items[i.Root] = append(items[i.Root], i)
	}
	number := trial.Number()
	for _, r := range w.trial.Roots {
		if err := w.root(r, items[r], byPath, number); err != nil {
			return err
		}
	}
	if w.discard {
		for _, l := range s.GitDirs {
			w.fail(l.GitDir, errors.New("commits and branches are dropped with --discard --all"))
		}
		return nil
	}
	return w.git(s)
}

// paths are the paths that are named: absolute for those of a list.
func (w *work) paths() (paths []string, byPath map[string]reviewed) {
	if w.from == "" {
		return w.ctx.Args, nil
	}
	byPath, w.above = map[string]reviewed{}, map[string]bool{"/": true}
	for _, r := range w.list {
		if r.GitDir != "" {
			if !slices.Contains(paths, r.GitDir) {
				paths = append(paths, r.GitDir)
			}
			continue
		}
		path := trialflags.FromRoot(w.trial, r.Path)
		paths, byPath[path] = append(paths, path), r
		for dir := filepath.Dir(path); !w.above[dir]; dir = filepath.Dir(dir) {
			w.above[dir] = true
		}
	}
	return paths, byPath
}

// root lands or discards items of one root.
func (w *work) root(r *trial.Root, items []trial.Item, byPath map[string]reviewed, number int64) error {
	if len(items) == 0 && (w.discard || w.dryRun || !r.Interrupted()) {
		return nil
	}
	var review func(i trial.Item) trial.Reviewed
	if w.json && w.from != "" {
		review = func(i trial.Item) trial.Reviewed {
			r, ok := byPath[filepath.Join(i.Root.Path, i.Path)]
			return trial.Reviewed{Given: ok, Before: r.Before, After: r.After, Modes: r.Modes}
		}
	}
	if w.discard {
		return r.Discard(items, trial.DiscardOptions{One: w.from != "", DryRun: w.dryRun, Reviewed: review}, w.report)
	}
	base, err := session.Base(os.Getenv)
	if err != nil {
		return err
	}
	umask := unix.Umask(0o077)
	unix.Umask(umask)
	o := trial.ApplyOptions{Overwrite: w.overwrite, DryRun: w.dryRun, Number: number, Plain: fs.FileMode(0o777 &^ umask), GitState: filepath.Join(base, session.GitDir), Reviewed: review}
	return r.Apply(items, o, w.report)
}

// discardAll drops everything that the trial holds, in git directories too.
func (w *work) discardAll() error {
	s, err := w.Select(w.trial, nil, true, false)
	if err != nil {
		return err
	}
	items := map[*trial.Root][]trial.Item{}
	for _, i := range s.Items {
		items[i.Root] = append(items[i.Root], i)
	}
	for _, gone := range s.Gone {
		w.ctx.Warn("the changes of the trial of %q are dropped unseen: %v", gone.Path, gone)
	}
	for _, r := range s.Refs {
		w.line("G", r.Name, r.Arrow())
	}
	if w.dryRun {
		for _, i := range s.Items {
			w.report(i, nil)
		}
		return nil
	}
	for _, r := range w.trial.Roots {
		if err := r.Discard(items[r], trial.DiscardOptions{All: true}, w.report); err != nil {
			return fmt.Errorf("cannot drop the changes in %q: %w", r.Path, err)
		}
	}
	for _, l := range w.trial.Git {
		if err := l.Drop(); err != nil {
			return fmt.Errorf("cannot drop the commits of %q: %w", l.GitDir, err)
		}
	}
	return nil
}

// git lands commits and branches of the git directories that are named.
func (w *work) git(s *trialflags.Selection) error {
	if !w.dryRun && len(s.GitDirs) > 0 {
		defer w.noteLocks(s.GitDirs)()
	}
	for _, l := range gitland.InOrder(s.GitDirs) {
		var pending []trialflags.Ref
		for _, r := range s.Refs {
			if r.GitDir == l.GitDir {
				pending = append(pending, r)
			}
		}
		if unseen := w.unseen(pending); unseen != "" {
			w.fail(l.GitDir, fmt.Errorf("reference %q is not the one that was reviewed", unseen))
			continue
		}
		left, err := w.landGit(l)
		if err != nil {
			return err
		}
		for _, r := range pending {
			if slices.Contains(left, r.Name) {
				w.fail(r.Name, errors.New("see the warning"))
			} else {
				w.line("G", r.Name, r.Arrow())
			}
		}
	}
	return nil
}

// noteLocks has the next command of pk remove the locks of git that this process leaves if it is killed.
func (w *work) noteLocks(list []*gitland.Layer) (done func()) {
	n := quarantine.Note{Session: session.Reserve("").Name()}
	for _, l := range list {
		n.Unlock = append(n.Unlock, l.GitDir)
	}
	base, err := session.Base(os.Getenv)
	if err == nil {
		var note *quarantine.Note
		if note, err = quarantine.Begin(base, n); err == nil {
			return func() { _, _ = note.End(quarantine.Report{}) } // or the next command does
		}
	}
	w.ctx.Warn("if this process is killed, locks of git stay: %v", err)
	return func() {}
}

// landGit lands from the layer of one git directory, and returns the parts that stay.
func (w *work) landGit(l *gitland.Layer) (left []string, err error) {
	if w.dryRun {
		return nil, nil
	}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	for _, line := range l.LandLast() {
		w.ctx.Warn("git: %s", line)
	}
	if !l.Landed() {
		w.status = cli.StatusRefused
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	changes, files, err := l.Changes()
	left = l.Left() // a value that was kept elsewhere is no change any more
	for _, c := range changes {
		left = append(left, c.Name)
	}
	for _, f := range files {
		left = append(left, f.Name)
	}
	return left, err
}

// unseen names a reference that a list of reviewed changes does not have as it is.
func (w *work) unseen(pending []trialflags.Ref) string {
	if w.from == "" || !w.json {
		return ""
	}
	for _, r := range pending {
		seen := slices.ContainsFunc(w.list, func(l reviewed) bool {
			return l.GitDir == r.GitDir && l.Ref == r.Name && l.Before == r.Old+r.OldTarget && l.After == r.New+r.Target && l.Stashes == r.Stashes()
		})
		if !seen {
			return r.Name
		}
	}
	return ""
}

// replay undoes the last landing, or lands it again.
func (w *work) replay() error {
	turn, letter := w.trial.Undo, "U"
	if w.redo {
		turn, letter = w.trial.Redo, "R"
	}
	err := turn(w.dryRun, func(r *trial.Root, path string, err error) {
		name := path
		if r.Path != w.trial.Project() {
			name = filepath.Join(r.Path, path)
		}
		if err != nil {
			w.fail(name, err)
			return
		}
		w.line(letter, name, "")
	})
	if errors.Is(err, trial.ErrNothingLanded) {
		return cli.WithHint(err, "pk-apply keeps what it replaces as long as the session lives")
	}
	return err
}

// result is a line of --json.
type result struct {
	Path      string `json:"path,omitempty"`
	PathBytes []byte `json:"path_base64,omitempty"`
	Change    string `json:"change,omitempty"`
	Done      bool   `json:"done"`
	Conflict  bool   `json:"conflict,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// report prints the result for an item.
func (w *work) report(i trial.Item, err error) {
	name := w.trial.Name(i)
	if err != nil {
		w.fail(name, err)
		return
	}
	remark := ""
	if i.Repository && !w.discard {
		remark = "inert: pk-fs git-adopt " + shell.JoinWords([]string{filepath.Dir(filepath.Join(i.Root.Path, i.Path))})
	}
	if i.New.IsDir() || i.New.Mode == 0 && i.Old.IsDir() {
		name = strings.TrimSuffix(name, "/") + "/"
	}
	w.line(trialflags.Letter(i), name, remark)
}

func (w *work) line(letter, name, remark string) {
	w.recordLanding(letter, name, nil)
	if w.json {
		r := result{Change: letter, Done: !w.dryRun}
		r.Path, r.PathBytes = cli.TextOrBytes(strings.TrimSuffix(name, "/"))
		_ = cli.JSON(w.out).Encode(r) // a failed write comes back from Flush
		return
	}
	record := letter + "\t" + name
	if remark != "" {
		record += "\t" + remark
	}
	if strings.ContainsAny(name, "\n\t") && !w.zero {
		record = fmt.Sprintf("%s\t%q", letter, name) // it has landed: quote the name
	}
	_ = cli.WriteRecord(w.out, record, w.zero, cli.Terminal(w.ctx.Stdout)) // a failed write comes back from Flush
}

func (w *work) fail(name string, err error) {
	w.status = cli.StatusRefused
	w.recordLanding("", name, err)
	verb := "land"
	switch {
	case w.discard:
		verb = "drop"
	case w.undo:
		verb = "put back"
	case w.redo:
		verb = "land again"
	}
	refused, _ := errors.AsType[*trial.Refused](err)
	if w.json {
		r := result{Reason: err.Error(), Conflict: refused != nil && refused.Conflict}
		r.Path, r.PathBytes = cli.TextOrBytes(name)
		_ = cli.JSON(w.out).Encode(r)
		return
	}
	what := "cannot " + verb
	if refused != nil && refused.Conflict {
		what = "conflict: cannot " + verb
	}
	w.ctx.ReportLine(fmt.Errorf("%s %q: %w", what, name, err))
}
