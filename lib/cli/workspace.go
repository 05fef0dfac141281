package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"pikuri/lib/confine"
	"pikuri/lib/pattern"
	"pikuri/lib/session"
)

// WorkspaceFlags is the set of options that describe a workspace, with the same
// meaning in every command that takes them.
type WorkspaceFlags struct {
	ProjectRoot string
	Session     string
	Temp        string
	NoAliasTmp  bool
	NoProtect   bool  // git directories may be written
	AllowAll    bool  // for commands with --allow-all
	Zero        *bool // the command's -z: lists are NUL-terminated too

	// Trusting leaves the policy of the project out: it does not bind the command.
	Trusting bool

	// Trial makes the session a trial. Unfenced says that the command's changes cannot be
	// kept in one.
	Trial, Unfenced bool

	// TrialBy and OfflineBy are the lines of policies that say trial, and net none or net
	// allow, for commands that make no sandbox; "" if none does.
	TrialBy, OfflineBy string

	Audit string // the file for records, "" for none

	// LateSession keeps Open from making the directory of a new session: for a
	// command that plans, and may refuse, before it makes anything.
	LateSession bool

	// Making is called, if set, when all has been read that others may keep waiting,
	// and before anything is made. Its error ends Open.
	Making func() error

	// Shown returns the directories that stand for some of the roots in a session, for
	// confine.Config.Shown; nil: the host's are used. It is called once the session is
	// joined. The directories are closed.
	Shown func(*session.Dir, []confine.Root) (map[string]*os.File, error)

	roots    []rootOption
	origins  map[string]string // the origin of a root's name, in words
	rules    confine.Rules
	policies []policy
	source   string // the line of the policy that is being read, "" outside

	lasting  []Option // that a policy can give
	lines    []PolicyLine
	machine  machine
	narrowed bool // an outer policy has --allow-write
}

// rootOption is one --readable, --writable, --readable-from or
// --writable-from, in the order of the command line.
type rootOption struct {
	value    string
	writable bool
	list     bool
	source   string // the line of a policy that gave it, or ""
}

// origin is the option as its user knows it.
func (r rootOption) origin() string {
	text := "option --readable"
	if r.writable {
		text = "option --writable"
	}
	if r.list {
		text += fmt.Sprintf("-from %q", r.value)
	}
	if r.source != "" {
		text += " of policy " + r.source
	}
	return text
}

// Options returns the options, to be added to a command's own.
func (w *WorkspaceFlags) Options() []Option {
	return []Option{
		Name(&w.ProjectRoot, "project-root", "C").Path(),
		w.root("readable", false, false),
		w.root("writable", true, false),
		w.root("readable-from", false, true),
		w.root("writable-from", true, true),
		Name(&w.Session, "session", ""),
		Name(&w.Temp, "temp", "").Path(),
		Switch(&w.NoAliasTmp, "no-alias-tmp", ""),
		Switch(&w.NoProtect, "no-protect", ""),
	}
}

// AuditOption returns the option of the commands that write records.
func (w *WorkspaceFlags) AuditOption() Option { return Name(&w.Audit, "audit", "").Path() }

// NamedRoots returns where the project root and the roots of the options lie, but for those
// of lists.
func (w *WorkspaceFlags) NamedRoots() (roots []string) {
	for _, r := range append(slices.Clone(w.roots), rootOption{value: w.Project()}) {
		if t, err := confine.Follow(r.value); err == nil && !r.list {
			roots = append(roots, t.Place)
		}
	}
	return roots
}

// RuleOptions returns the options that narrow a workspace, for commands that
// enforce them: a rule that is accepted and not enforced is worse than none.
func (w *WorkspaceFlags) RuleOptions() []Option {
	return []Option{
		w.rule(&w.rules.Deny, "deny"),
		w.rule(&w.rules.DenyRead, "deny-read"),
		// A further pattern allows more, so only the outermost may give any.
		w.rule(&w.rules.AllowWrite, "allow-write").Tightens(func(string) bool { return !w.narrowed }),
	}
}

func (w *WorkspaceFlags) rule(dst *[]confine.Rule, long string) Option {
	return Func(func(v string) error {
		if strings.HasPrefix(v, "~/") || strings.HasPrefix(v, "$HOME/") {
			err := fmt.Errorf("%q: patterns begin at each root, and not at the home", v)
			return WithHint(err, "for a directory of that name: [%s]%s; anywhere: **/%s", v[:1], v[1:], v[strings.Index(v, "/")+1:])
		}
		p, err := pattern.Compile(v)
		if err != nil {
			return err
		}
		*dst = append(*dst, confine.Rule{Pattern: p, Source: w.source})
		return nil
	}, long, "")
}

// ErrNoName refuses an empty name.
var ErrNoName = errors.New("the name is empty")

// Name is a text option that cannot be empty. An empty name is a variable that
// was never set, and must not be taken for an option that was left out: the
// working directory would become the project root.
func Name(dst *string, long, short string) Option {
	return Func(func(v string) error {
		if v == "" {
			return ErrNoName
		}
		*dst = v
		return nil
	}, long, short)
}

func (w *WorkspaceFlags) root(long string, writable, list bool) Option {
	o := Func(func(v string) error {
		w.roots = append(w.roots, rootOption{value: v, writable: writable, list: list, source: w.source})
		return nil
	}, long, "")
	if list {
		return o.PathOrStdin()
	}
	return o.Path()
}

// AddWritable adds a writable root, as the option does.
func (w *WorkspaceFlags) AddWritable(dir string) {
	w.roots = append(w.roots, rootOption{value: dir, writable: true})
}

// Rules returns the rules that the options gave.
func (w *WorkspaceFlags) Rules() confine.Rules { return w.rules }

// Origin says which option named the root; "" if none did.
func (w *WorkspaceFlags) Origin(root confine.Root) string { return w.origins[root.Name] }

// Source is the line of the policy that is being read, or "". Options record it as
// their origin.
func (w *WorkspaceFlags) Source() string { return w.source }

// Opened is a workspace that is ready for use. Close it.
type Opened struct {
	*confine.Workspace

	// Session is the session directory, locked as in use; nil without a session.
	Session *session.Dir

	// Reserved is the session directory that the caller has to make, for Begin; see
	// Workspace.LateSession.
	Reserved *session.Reserved
	reopen   func(*session.Dir, []confine.Root) (*confine.Workspace, error)
}

// Begin goes on in the session whose directory the caller has made from Reserved.
// It is released by Close.
func (o *Opened) Begin(d *session.Dir) error {
	o.Session, o.Reserved = d, nil
	w, err := o.reopen(d, o.Roots())
	if err != nil {
		return err
	}
	o.Workspace.Close()
	o.Workspace = w
	return nil
}

// Close gives back the workspace's descriptors and the session's lock. The
// session itself lives on.
func (o *Opened) Close() {
	o.Workspace.Close()
	if o.Session != nil {
		o.Session.Release()
	}
}

// ListsFromStdin tells whether a list of roots comes from standard input, for
// commands that have another use for it.
func (w *WorkspaceFlags) ListsFromStdin() bool {
	return slices.ContainsFunc(w.roots, func(r rootOption) bool { return r.list && r.value == "-" })
}

// Open reads the lists, opens the roots and joins the session. Errors are the
// caller's mistakes and end in status 2 or 125; they leave nothing behind.
func (w *WorkspaceFlags) Open(ctx *Context) (*Opened, error) {
	cfg, err := w.config(ctx)
	if err != nil {
		return nil, Invalid(err)
	}
	if w.Making != nil {
		if err := w.Making(); err != nil {
			return nil, err
		}
	}
	opened, err := w.open(cfg)
	if err != nil {
		return nil, Invalid(err)
	}
	name := w.SessionName()
	if name == "" {
		return &Opened{Workspace: opened}, nil
	}
	reserved, err := reserve(name, opened.Roots())
	if err == nil && w.Unfenced && reserved.IsTrial() {
		err = WithHint(fmt.Errorf("session %q is a trial, and without a sandbox changes are made in the project", name), "leave --session out, or unset PK_SESSION")
	}
	if err != nil {
		opened.Close()
		return nil, Invalid(err)
	}
	reserved.Trial = w.Trial
	o := &Opened{Workspace: opened, Reserved: reserved, reopen: func(d *session.Dir, roots []confine.Root) (*confine.Workspace, error) {
		return w.openIn(d, cfg, roots)
	}}
	if w.LateSession && !reserved.Exists() {
		return o, nil
	}
	joined, err := reserved.Open()
	if err == nil {
		err = o.Begin(joined)
	}
	if err != nil {
		o.Close()
		return nil, Invalid(err)
	}
	return o, nil
}

// openIn opens the roots again, in a session.
func (w *WorkspaceFlags) openIn(d *session.Dir, cfg confine.Config, roots []confine.Root) (*confine.Workspace, error) {
	tmp, err := d.Tmp()
	if err != nil {
		return nil, err
	}
	cfg.Temp = cmp.Or(cfg.Temp, tmp)
	if w.Shown != nil {
		cfg.Shown, err = w.Shown(d, roots)
		for _, dir := range cfg.Shown {
			defer dir.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return w.open(cfg)
}

// open opens the roots, and refuses policies that are kept in one of them.
func (w *WorkspaceFlags) open(cfg confine.Config) (*confine.Workspace, error) {
	opened, err := confine.Open(cfg)
	if err != nil {
		return nil, err
	}
	if err := w.checkLists(opened.Roots()); err != nil {
		opened.Close()
		return nil, err
	}
	for _, p := range w.policies {
		if err := p.check(opened.Roots()); err != nil {
			opened.Close()
			return nil, err
		}
	}
	return opened, nil
}

// checkLists refuses lists of roots that are kept where a command can write.
func (w *WorkspaceFlags) checkLists(roots []confine.Root) error {
	for _, r := range w.roots {
		if r.list {
			if err := CheckList(r.value, roots); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckList refuses a list that lies in a writable root: a command could add
// roots for the next one.
func CheckList(file string, roots []confine.Root) error {
	if file == "-" {
		return nil
	}
	return confine.RefuseWritable("take the list", file, roots, "keep it outside, or pass it on standard input")
}

// SessionName names the session to join: by option, else by $PK_SESSION; "" for
// none.
func (w *WorkspaceFlags) SessionName() string {
	if w.Session != "" {
		return w.Session
	}
	return os.Getenv("PK_SESSION")
}

func reserve(name string, roots []confine.Root) (*session.Reserved, error) {
	base, err := session.Base(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("cannot join session %q: %w", name, err)
	}
	if err := session.CheckBase(base, roots, nil); err != nil {
		return nil, err
	}
	reserved, err := session.ReserveNamed(base, name)
	return &reserved, err
}

// Project is the project root as it was given: by option, else by
// $PK_PROJECT_ROOT, else the working directory.
func (w *WorkspaceFlags) Project() string {
	return cmp.Or(w.ProjectRoot, os.Getenv("PK_PROJECT_ROOT"), ".")
}

// config reads everything that the options name, before anything is made.
func (w *WorkspaceFlags) config(ctx *Context) (confine.Config, error) {
	cfg := confine.Config{
		ProjectRoot: w.Project(),
		Temp:        w.Temp,
		AliasTmp:    !w.NoAliasTmp,
		AllowAll:    w.AllowAll,
		Rules:       w.rules,
		GitDirs:     w.NoProtect,
		Home:        os.Getenv("HOME"),
	}
	w.origins = map[string]string{}
	for _, r := range w.roots {
		paths := []string{r.value}
		if r.list {
			var err error
			if paths, err = ctx.ReadList(r.value, w.Zero != nil && *w.Zero); err != nil {
				return cfg, err
			}
		}
		for _, path := range paths {
			w.origins[path] = r.origin()
		}
		if r.writable {
			cfg.Writable = append(cfg.Writable, paths...)
		} else {
			cfg.Readable = append(cfg.Readable, paths...)
		}
	}
	return cfg, nil
}
