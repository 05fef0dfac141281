// Package fence makes the plan of a sandbox from a Config, joins it to its session,
// and prepares the monitor's work: limits, the note for the quarantine, the session
// directory. It is the one plan-maker: for pk-bwrap and pk-bash, whose options become
// a Config, and for lib/sandbox.
package fence

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/gate"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitland"
	"pikuri/lib/hostrun"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/limits"
	"pikuri/lib/monitor"
	"pikuri/lib/mountinfo"
	"pikuri/lib/overlay"
	"pikuri/lib/passwd"
	"pikuri/lib/quarantine"
	"pikuri/lib/session"
	"pikuri/lib/setup"
	"pikuri/lib/toolchain"
	"pikuri/lib/trial"
)

// Config describes a sandbox. The zero value shows the workspace and the system,
// protects the files that git runs, and shares the host's network.
type Config struct {
	Roots  []confine.Root            // the project root first
	Origin func(confine.Root) string // the origin of a root, for people; or nil
	Rules  confine.Rules
	Tmp    string // seen as /tmp; "" for an empty one

	// Session is the session to join, or nil. Reserved is one whose directory Ready
	// makes: a new one, or one for this sandbox alone. Its session tmp is the Tmp,
	// unless there is one.
	Session  *session.Dir
	Reserved *session.Reserved
	OwnTmp   bool // Tmp is the session tmp of Session

	Overlays     []string
	Trial        bool // writable roots are overlays of the session, which has a name
	NoToolchains bool
	NoNet        bool
	Gate         *gate.Config // with NoNet: the hosts and ports that are reached all the same
	AllowNested  bool
	Protect      []bwrap.Protected // relative paths begin at the project root
	NoProtect    bool
	Require      []string
	PassFDs      []int
	Limits       limits.Limits
	RunAs        int             // the project's owner, if root became that user
	Bwrap        string          // "": the system's
	Env          bwrap.EnvPolicy // Caller nil: this process's environment

	// Pinned says that variables of the user show no file, and files of the user no tool
	// chains.
	Pinned bool

	Trace bool // note system calls that fail, for Failed

	Tell bool // the plan is only described: nothing is changed

	// Ahead may hold a set-up program that starts while the plan is made; or nil. It stays
	// the caller's.
	Ahead *monitor.Ahead

	Warn func(format string, args ...any) // nil: warnings are dropped
}

// Fence is a plan that is ready to run. Close it.
type Fence struct {
	Config
	Plan  *bwrap.Plan
	Bwrap bwrap.Binary

	table      []mountinfo.Mount // of this process
	made       *session.Dir      // from Reserved
	joined     *session.Joined   // nil before Ready, and without overlays of a session
	box        *limits.Box
	note       *quarantine.Note
	gitDirs    []string               // of the host, shown through layers
	workTrees  []string               // of these
	ownGitDirs []string               // the git directories of these, and bare repositories
	branches   []gitland.Checkout     // their common git directories, and the work trees in the roots
	saves      []func()               // what was read of these
	checkouts  []gitland.Checkout     // the work trees with their git directories
	outside    []gitconfig.Named      // protected files of those outside of the roots
	stores     []func() *gitdir.Store // of these, and of a repository around a root
	store      gitdir.Store           // all of them
	submodules []gitdir.Unpopulated
	wholeIndex bool      // one of them may have an index that would not land
	linked     []string  // files outside of the roots that git runs or reads, and that have several hard links
	unknown    []string  // settings of git's that run files which cannot be told
	searches   []*search // for repositories, one for each writable root
	runs       []*gitdir.Run

	layers []*gitland.Layer
	trial  []*trial.Root
	report *os.File // the gate's records, or nil
	told   *os.File // names of the files that the command has left in the empty home, or nil
	failed *os.File // the command's failed system calls, or nil
	stop   func()   // ends the landing of work while the command runs
	after  monitor.After
	ended  quarantine.Report

	ownAhead bool // Ahead is not the caller's
}

// New makes the plan. Nothing else is made: a refusal leaves nothing behind.
func New(c Config) (*Fence, error) {
	if c.Warn == nil {
		c.Warn = func(string, ...any) {}
	}
	own := c.Ahead == nil
	if own {
		c.Ahead = &monitor.Ahead{Orphaned: Orphaned()}
	}
	f := &Fence{Config: c, ownAhead: own}
	err := bwrap.CheckFiles()
	if err == nil {
		err = f.plan()
	}
	if all := f.planned(); err == nil && !all {
		f = &Fence{Config: c, ownAhead: own, searches: f.searches}
		err = f.plan()
	}
	if err != nil {
		return nil, err
	}
	for _, w := range f.Plan.Warnings {
		c.Warn("%s", w)
	}
	return f, nil
}

// begin makes the session directory that was reserved.
func (f *Fence) begin() error {
	if f.Reserved == nil || f.made != nil {
		return nil
	}
	made, err := f.Reserved.Open()
	if err != nil {
		return err
	}
	f.made = made
	if made.Named() {
		f.Session = made
	}
	if made.Trial() != f.Trial {
		return &bwrap.Refusal{Reason: "another command has just begun the session as a trial", Advice: "try again"}
	}
	_, err = made.Tmp()
	return err
}

// Close gives back the session, removes one without a name that Sandbox made, and
// removes the limits on the command.
func (f *Fence) Close() error {
	_, err := f.End()
	err = errors.Join(err, f.ended.Told())
	_, gerr := f.endGit() // of a command that never started
	f.after.AwaitMounts() // what follows frees what its mounts use
	if f.ownAhead {
		f.Ahead.Close()
	}
	errs := []error{err, gerr}
	if f.box != nil {
		errs = append(errs, f.box.Close())
	}
	for _, file := range []**os.File{&f.report, &f.told, &f.failed} {
		if *file != nil {
			errs = append(errs, (*file).Close())
			*file = nil
		}
	}
	for _, l := range f.layers {
		errs = append(errs, l.Close())
	}
	for _, r := range f.trial {
		errs = append(errs, r.Close())
	}
	if f.joined != nil {
		errs = append(errs, f.joined.Close())
	}
	if f.made != nil {
		errs = append(errs, f.made.Remove())
	}
	return errors.Join(errs...)
}

func (f *Fence) plan() error {
	var err error
	if err := bwrap.CheckSystem(); err != nil {
		return err
	}
	if !f.Tell {
		if err := bwrap.CheckUmask(); err != nil {
			return err
		}
	}
	tools := sync.OnceValues(f.lookForTools)
	if !f.NoToolchains {
		go tools() // for as long as all that follows here
	}
	if f.Bwrap, err = bwrap.FindBinary(f.Config.Bwrap, confine.WritablePaths(f.Roots)); err != nil {
		return err
	}
	f.table = bwrap.OwnMounts()
	o := bwrap.Options{
		Roots: f.Roots, Tmp: f.Tmp, OwnTmp: f.OwnTmp, RootRule: f.Origin,
		Overlays: f.Overlays, Trial: f.Trial, Rules: f.Rules, Net: !f.NoNet, Gate: f.network(), AllowNested: f.AllowNested, Trace: f.Trace && !f.Tell,
		PassFDs: f.PassFDs, RunAs: f.RunAs, Limits: f.Limits.String(), Rlimits: f.rlimits(), NoProtect: f.NoProtect,
		Require: f.Require, Env: f.Env, Table: f.table, Home: f.gitHome(f.Roots[0].Path),
	}
	if o.Env.Caller == nil {
		o.Env.Caller = os.Environ()
	}
	base, err := session.Base(os.Getenv)
	if err != nil && f.Reserved != nil {
		return err
	}
	if err == nil { // without a home there is nothing to protect
		if err := session.CheckBase(base, f.Roots, f.Overlays); err != nil {
			return err
		}
		o.SessionBase = base
		if !f.Tell {
			f.recover(base, nil)
		}
	}
	if f.OwnTmp && !slices.ContainsFunc(f.Roots, func(r confine.Root) bool { return r.Path == f.Tmp }) {
		o.Roots = append(o.Roots, confine.Root{Path: f.Tmp, Writable: true, Dir: true})
	}
	if f.Reserved != nil && f.Tmp == "" {
		o.Tmp, o.OwnTmp = bwrap.Canonical(f.Reserved.Tmp()), true
		o.Roots = append(o.Roots, confine.Root{Path: o.Tmp, Writable: true, Dir: true})
	}
	f.lookAhead()
	own := ""
	if o.OwnTmp {
		own = o.Tmp
	}
	if o.Protect, err = f.protected(o.Roots, own); err != nil {
		return err
	}
	o.GitDirs = f.gitDirs
	for _, s := range f.submodules {
		o.Submodules = append(o.Submodules, s.Dir)
	}
	if !f.NoToolchains {
		found, err := tools()
		if err != nil {
			return err
		}
		o.Toolchains, o.Missing, o.Masks = found.present, found.missing, found.masks
		o.Env.Usual = append(o.Env.Usual, found.vars...)
	}
	if f.Plan, err = bwrap.New(o); err != nil {
		return err
	}
	f.nameProtected(o.Protect)
	if len(f.unknown) > 0 {
		f.Plan.Warnings = append(f.Plan.Warnings, fmt.Sprintf("git: cannot tell which files these settings run, so what they run in a root is not protected: %s", shortened(f.unknown)))
	}
	for _, dir := range f.borrowed() {
		if v := f.Plan.Explain(dir); v.Access == bwrap.Absent {
			f.Plan.Warnings = append(f.Plan.Warnings, fmt.Sprintf("a repository borrows objects from %q, which is not shown: --readable shows it", dir))
		}
	}
	return nil
}

// rlimits are the limits that the kernel keeps for each process.
func (f *Fence) rlimits() []setup.Rlimit {
	var set []setup.Rlimit
	if n := uint64(f.Limits.CPUTime / time.Second); n > 0 {
		// At the hard limit the kernel sends SIGKILL, which does not tell why: it
		// comes a second later.
		set = append(set, setup.Rlimit{Resource: unix.RLIMIT_CPU, Soft: n, Hard: n + 1})
	}
	if n := uint64(f.Limits.FileSize); n > 0 {
		set = append(set, setup.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: n, Hard: n})
	}
	return set
}

// protected lists the paths to protect: those of Protect, and the defaults.
func (f *Fence) protected(roots []confine.Root, tmp string) ([]bwrap.Protected, error) {
	var list []bwrap.Protected
	for _, p := range f.Protect {
		if !filepath.IsAbs(p.Path) {
			p.Path = filepath.Join(roots[0].Path, p.Path)
		}
		p.Path = filepath.Clean(p.Path)
		list = append(list, p)
	}
	if f.NoProtect {
		return list, nil
	}
	var writable []string
	for _, r := range roots {
		if r.Writable && r.Path != tmp {
			writable = append(writable, r.Path)
			list = append(list, hostrun.Files(r.Path)...)
		}
	}
	files, err := f.git(writable)
	if err != nil {
		return nil, err
	}
	list = append(list, files...)
	for _, b := range f.branches { // a file of a work tree around a root may be a link into it
		if slices.ContainsFunc(writable, func(root string) bool { return root != b.WorkTree && fsat.Within(root, b.WorkTree) }) {
			list = append(list, hostrun.Files(b.WorkTree)...)
		}
	}
	behind, err := f.behindLinks(list)
	return slices.Concat(list, behind, f.stored()), err
}

// tools is the tool chains of this machine, as a plan shows them.
type tools struct {
	present, missing []toolchain.Entry
	masks            []string
	vars             []bwrap.Var // that they need
}

// lookForTools finds the tool chains. The user's own rows count, unless a command could
// have written them.
func (f *Fence) lookForTools() (t tools, err error) {
	host := toolchain.Host{Home: os.Getenv("HOME"), Getenv: os.Getenv}
	own := toolchain.UserFile(host)
	if _, err := os.Lstat(own); err == nil {
		if f.Pinned {
			return t, &bwrap.Refusal{Reason: fmt.Sprintf("cannot use %q: the machine's policy is mandatory", own), Advice: "move it away, or use --no-toolchains"}
		}
		if err := confine.RefuseWritable("take the list", own, f.Roots, "keep it outside"); err != nil {
			return t, err
		}
	}
	table, err := toolchain.LoadFor(host)
	if err != nil {
		return t, err
	}
	if f.Pinned {
		host = pinned(passwd.Find(passwd.Users, os.Getuid()).Home)
	}
	present, absent := table.Survey(host)
	t.present = present
	if f.Session != nil || f.Reserved != nil && f.Reserved.Named() {
		t.missing = toolchain.Missing(absent, host)
	}
	t.masks = toolchain.Masks(t.present)
	for _, e := range t.present {
		for _, s := range e.Settings(f.Roots[0].Path) {
			name, value, _ := strings.Cut(s, "=")
			t.vars = append(t.vars, bwrap.Var{Name: name, Value: value, Rule: "toolchain " + e.Tool})
		}
	}
	return t, nil
}

// pinned describes the machine without the user's variables: files are at their default
// places. PATH decides only which tools exist.
func pinned(home string) toolchain.Host {
	return toolchain.Host{Home: filepath.Clean(home), Getenv: func(name string) string {
		if name == "PATH" {
			return os.Getenv(name)
		}
		return ""
	}}
}

// gitenv looks up variables for the user's configuration of git, of which lists of ignored
// files and attributes are copied whole.
func (f *Fence) gitenv() gitconfig.Getenv {
	if !f.Pinned {
		return os.LookupEnv
	}
	home := passwd.Find(passwd.Users, os.Getuid()).Home
	return func(name string) (string, bool) {
		if name != "HOME" || home == "" {
			return "", false
		}
		return home, true
	}
}

// CheckHost reports why this machine cannot make a sandbox, as a *bwrap.Unavailable, or
// nil. It runs bwrap. A start that fails reports the same.
func (f *Fence) CheckHost() error { return bwrap.CheckHost(f.Bwrap, !f.NoNet) }

// NotMade is the error for a bwrap that has ended without running the command. said is what it
// wrote to standard error, if that is known.
func (f *Fence) NotMade(said string) error {
	if err := f.CheckHost(); err != nil {
		return err
	}
	if said == "" {
		return &bwrap.Unavailable{Reason: "bwrap could not make the sandbox", Advice: "if it has said nothing above, run it by hand; pk-bwrap --check tells more"}
	}
	return bwrap.Diagnose(said)
}

// Ready makes and joins the session, and looks for the command in the sandbox. From here
// on a keeper may run. The errors of the search are *bwrap.NotFound and *bwrap.NotExecutable.
func (f *Fence) Ready(name string) error {
	isNew := f.Reserved != nil
	if isNew && f.Reserved.Named() { // it and its keeper would stay
		if err := f.CheckHost(); err != nil {
			return err
		}
	}
	if isNew { // nothing is in it yet, so nothing has to be made for a command that is missing
		if err := f.Plan.FindCommand(name); err != nil {
			return err
		}
	}
	if err := f.begin(); err != nil {
		return err
	}
	if err := f.join(); err != nil {
		return err
	}
	if isNew {
		return nil
	}
	return f.Plan.FindCommand(name) // the session may have brought it
}

// join gives the plan the overlays of its session, in which writes stay for the
// session's next command.
func (f *Fence) join() error {
	lowers := f.Plan.Overlays()
	if f.Session == nil || len(lowers)+len(f.gitDirs)+len(f.submodules) == 0 && f.Plan.Gate == nil && !f.Trial {
		return nil
	}
	joined, err := f.findKeeper(lowers)
	if err != nil {
		return err
	}
	known := len(f.Plan.Warnings)
	err = f.Plan.Join(bwrap.Session{Shown: joined.Shown, Root: joined.Root()}, joined.Refused)
	for _, w := range f.Plan.Warnings[known:] {
		f.Warn("%s", w)
	}
	if len(joined.Memory) > 0 {
		f.Warn("kept in memory, and no longer than commands of the session follow each other: %q", joined.Memory)
	}
	if err != nil {
		return err
	}
	for _, root := range f.Plan.Trials() {
		f.Plan.LookIn(root, (&overlay.Layer{Dir: trial.Dir(joined.Overlays, root)}).Upper())
	}
	return f.Plan.Require(f.Require) // "overlay" may not hold any more
}

// dir is the session directory that the sandbox uses, or nil.
func (f *Fence) dir() *session.Dir {
	if f.Session != nil {
		return f.Session
	}
	return f.made
}

// findKeeper finds the keeper of the session, or starts it.
func (f *Fence) findKeeper(lowers []string) (*session.Joined, error) {
	nsenter := bwrap.FindTrusted("nsenter")
	if nsenter == "" {
		return nil, &bwrap.Refusal{Reason: "cannot join the session: nsenter is missing", Advice: "install util-linux"}
	}
	joined, err := session.Join(f.Session, lowers, session.JoinOptions{Nsenter: nsenter})
	if err != nil {
		return nil, cmp.Or(f.CheckHost(), err)
	}
	f.joined = joined
	return joined, nil
}

// Keeper returns the keeper of the session, or nil for none: another one than Sandbox
// returned, if that was killed.
func (f *Fence) Keeper() *monitor.Keeper {
	k := f.joined
	if k == nil {
		return nil
	}
	return &monitor.Keeper{Pid: k.Pid, User: k.User, Mount: k.Mount, Lock: k.Lock}
}

// rejoin finds the keeper that took the place of a killed keeper. It shows the
// overlays at the same paths.
func (f *Fence) rejoin() (*monitor.Keeper, error) {
	lowers := slices.Collect(maps.Keys(f.joined.Shown))
	if err := f.joined.Close(); err != nil {
		return nil, err
	}
	f.joined = nil
	joined, err := f.findKeeper(lowers)
	if err == nil && len(joined.Shown) < len(lowers) {
		err = errors.New("cannot join the session: its keeper was killed, and an overlay cannot be mounted any more")
	}
	if err != nil {
		return nil, err
	}
	return f.Keeper(), nil
}

// Sandbox is the command argv, for monitor.Start.
func (f *Fence) Sandbox(argv []string) (monitor.Config, error) {
	if err := f.begin(); err != nil {
		return monitor.Config{}, err
	}
	if err := f.OpenLayers(); err != nil {
		return monitor.Config{}, err
	}
	f.beginNote()
	c := monitor.Config{Plan: f.Plan, Bwrap: f.Bwrap, Argv: argv, Ahead: f.Ahead, After: &f.after}
	if c.Keeper = f.Keeper(); c.Keeper != nil {
		c.Rejoin = f.rejoin
	}
	if dir := f.dir(); dir != nil {
		c.Held = append(c.Held, dir.Locked())
	}
	if err := f.openReport(&c); err != nil {
		return monitor.Config{}, err
	}
	var err error
	if f.told, err = memfd("told"); err != nil {
		return monitor.Config{}, err
	}
	if f.Trace {
		if f.failed, err = memfd("failed"); err != nil {
			return monitor.Config{}, err
		}
	}
	c.Told, c.Failed = f.told, f.failed
	c.Note = f.note.Lock()
	for _, l := range f.layers {
		c.Held = append(c.Held, l.File())
	}
	for _, r := range f.trial {
		c.Held = append(c.Held, r.File())
	}
	for _, run := range f.runs {
		c.Held = append(c.Held, run.Lock())
	}
	if len(f.layers)+len(f.trial) > 0 {
		c.Started = f.started
	}
	if f.Limits.Zero() {
		return c, nil
	}
	if f.box, err = limits.Prepare(f.Limits); err == nil {
		c.Cgroup = f.box.Cgroup()
	}
	return c, err
}

// recover finishes the work that killed commands left undone. An error is a warning, unless
// it is known: the next command tries again.
func (f *Fence) recover(base string, known error) {
	if _, err := os.Stat(base); err != nil {
		return // no command has begun there
	}
	done, err := quarantine.Recover(base)
	defer done.Told()
	for _, m := range done.Moved {
		f.Warn("%q was left by a command that was killed, and is now %q", m.From, m.To)
	}
	for _, line := range done.Git {
		f.Warn("git: %s", line)
	}
	if err == nil || errors.Is(err, unix.EMFILE) { // the start will fail, and say so
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if known == nil || !slices.Contains(strings.Split(known.Error(), "\n"), line) {
			f.Warn("%s", line)
		}
	}
}

// beginNote records the work to do when the command has ended.
func (f *Fence) beginNote() {
	if f.Trial { // nothing of the host's has been written
		f.note = new(quarantine.Note)
		return
	}
	n, seen, others := quarantine.Note{Layers: f.layers}, []string(nil), f.otherNotes()
	for _, run := range f.runs {
		for _, r := range run.Restored {
			n.Had = append(n.Had, r.Repository())
		}
	}
	for _, o := range others { // they are there for this command as well, and may outlive the other
		n.Had = append(n.Had, o.Had...)
	}
	for _, w := range f.Plan.Watched {
		if w.Link != "" {
			n.Links = append(n.Links, quarantine.Link{Path: w.Path, Target: w.Link})
			continue
		}
		n.Names = append(n.Names, w.Path)
		if w.File {
			n.Files = append(n.Files, w.Path)
		}
		if w.Way {
			n.Ways = append(n.Ways, w.Path)
		}
	}
	for _, m := range f.Plan.Mounts {
		if m.Op == bwrap.OpProtect {
			seen = append(seen, m.Source)
			linked, err := quarantine.LinkedBelow(m.Source)
			if err != nil {
				f.Warn("%v", err)
			}
			n.Linked = append(n.Linked, linked...)
		}
		if m.Op != bwrap.OpPin && (m.Op != bwrap.OpWritable || !m.Root || m.Own) {
			continue
		}
		if mode, err := quarantine.ModeOf(m.Source); err == nil {
			n.Modes = append(n.Modes, mode)
		}
	}
	beyond := slices.Clone(f.linked)
	for _, dir := range f.gitDirs { // a layer hides these, but not their other names
		for _, name := range []string{"config", "config.worktree", "hooks", "info"} {
			beyond = append(beyond, filepath.Join(dir, name))
		}
	}
	for _, path := range beyond {
		linked, err := quarantine.LinkedBelow(path)
		if err != nil {
			f.Warn("%v", err)
		}
		n.Linked = append(n.Linked, linked...)
	}
	seen = append(seen, f.Plan.Masked()...)
	if dir := f.dir(); dir != nil && dir.Named() {
		n.Session = dir.Name()
	} else {
		n.Session = session.Reserve("").Name()
		if dir != nil {
			n.Tmp = dir.Name()
		}
	}
	n.Inherit(others, seen)
	f.note = &n
	if n.Empty() {
		return
	}
	base, err := makeBase()
	if err != nil {
		return // with --no-protect; else beginGit has refused
	}
	if note, err := quarantine.Begin(base, n); err == nil {
		f.note = note
	} else {
		f.Warn("if this process is killed, files that the command plants stay: %v", err)
	}
}

// otherNotes returns the notes of commands that run now.
func (f *Fence) otherNotes() []quarantine.Note {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return nil // no command has a note
	}
	others, err := quarantine.Others(base)
	if err != nil {
		f.Warn("files that a command beside this one plants may stay: %v", err)
	}
	return others
}

// End is called once the command has ended. It lands the command's work in git
// directories, moves files that have appeared at protected names to the quarantine, and
// restores protected files that the command wrote by another hard link. On an error, a
// tool on the host may run files that the command has left: the caller must not report
// success.
func (f *Fence) End() (quarantine.Report, error) {
	defer f.after.Done()
	if f.note == nil {
		return quarantine.Report{}, nil
	}
	note := f.note
	f.note = nil
	if f.stop != nil {
		f.stop()
	}
	told, gerr := f.endGit()
	r, err := note.End(quarantine.Report{Git: told})
	f.ended = r
	r.Git = quarantine.Few(r.Git)
	if base, berr := session.Base(os.Getenv); berr == nil {
		f.recover(base, errors.Join(gerr, err)) // a sandbox that was dying when this one was planned has ended
	}
	return r, errors.Join(gerr, err)
}

// Keep does the work of End when the command has ended, and other processes of its sandbox
// run on. End has to follow.
func (f *Fence) Keep() (quarantine.Report, error) {
	if f.stop != nil {
		f.stop()
		defer f.land()
	}
	told, gerr := f.each((*gitdir.Run).Keep)
	r, err := f.note.Keep()
	r.Git = quarantine.Few(append(told, r.Git...))
	return r, errors.Join(gerr, err)
}

// Orphaned are arguments for monitor.Ahead: in the place of a process that was killed, this
// program does the part of the work of End that cannot wait.
func Orphaned() []string {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return nil // then there is no note of the work
	}
	return []string{quarantine.DisarmMode.Name, base}
}

// makeBase makes the directory of session directories.
func makeBase() (string, error) {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return "", err
	}
	return base, session.MakeBase(base)
}

// SweepInPassing removes old remains of sessions, at most once an hour. Call it after
// the last report.
func SweepInPassing() {
	if base, err := session.Base(os.Getenv); err == nil {
		session.SweepInPassing(base, trial.Holds, func(age time.Duration) { _, _ = gitland.Sweep(filepath.Join(base, session.GitDir), age, false) })
	}
}

// LeftOut lists the parts of the plan that its printed line leaves out. The monitor's own
// work (signals, the terminal, moving files to the quarantine) is never in it.
func (f *Fence) LeftOut() []string {
	var list []string
	if f.Session != nil || f.Reserved != nil && f.Reserved.Named() {
		list = append(list, "the session's overlays, which are new ones")
	}
	if len(f.gitDirs) > 0 {
		list = append(list, "landing in git directories (what the command writes there is lost)")
	}
	if f.Plan.Gate != nil {
		list = append(list, "reports of the network")
		if f.Plan.Gate.Proxy != (gate.Proxy{}) {
			list = append(list, "the proxy of HTTPS_PROXY")
		}
	}
	if f.Limits.Memory > 0 || f.Limits.Pids > 0 {
		list = append(list, "--memory and --pids")
	}
	if f.Trace {
		list = append(list, "--trace")
	}
	if len(f.PassFDs) > 0 {
		list = append(list, "--pass-fd")
	}
	return list
}

// Box is the cgroup with the command's limits, or nil.
func (f *Fence) Box() *limits.Box { return f.box }
