package bwrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/gate"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/mountinfo"
	"pikuri/lib/overlay"
	"pikuri/lib/seccomp"
	"pikuri/lib/settings"
	"pikuri/lib/setup"
	"pikuri/lib/toolchain"
)

// Sizes of the directories in memory: enough for a cold build cache or an npm
// install, and small enough that a runaway command gets ENOSPC before the machine
// runs out of memory.
const (
	tmpSize  = 2 << 30
	homeSize = 2 << 30
)

// Options are the input of a plan.
type Options struct {
	Roots       []confine.Root            // the project root first
	RootRule    func(confine.Root) string // the option behind a root; nil: unknown
	Tmp         string                    // seen as /tmp; "" for an empty /tmp
	OwnTmp      bool                      // Tmp is the session tmp, so that mount points may be made in it
	Overlays    []string                  // --overlay
	Toolchains  []toolchain.Entry
	Missing     []toolchain.Entry // caches that the host does not have yet, for a session to keep
	Masks       []string          // paths hidden inside the toolchains
	Rules       confine.Rules
	Protect     []Protected // paths in writable roots that are made read-only
	GitDirs     []string    // git directories of the host, shown through layers
	Submodules  []string    // unpopulated ones, shown through layers of which nothing lands
	Trial       bool        // writable roots are overlays of the session
	SessionBase string      // directory of all session directories, which no overlay may contain

	Table []mountinfo.Mount // of this process; nil: New reads it

	Bwrap       Binary
	Net         bool         // the host's network
	Gate        *gate.Config // without Net: a network with a gate; nil: a loopback of its own, which bwrap makes
	AllowNested bool
	Trace       bool // the filter stops system calls for a tracer, and these fail without it
	PassFDs     []int
	RunAs       int            // the project's owner, if root became that user
	Limits      string         // the command's limits, as options
	Rlimits     []setup.Rlimit // of each process
	NoProtect   bool           // no path is protected by default
	Require     []string       // guarantees without which New refuses
	Env         EnvPolicy
	Home        func(has func(program string) bool) Home // pk's files in the home, which may depend on the programs inside; nil: none
}

// New makes the plan, or refuses. It creates and changes no file.
func New(o Options) (*Plan, error) {
	if len(o.Roots) == 0 {
		return nil, &Refusal{Reason: "internal error: a plan without a project root"}
	}
	b := &builder{Options: o, user: currentUser(lookupEnv(o.Env.Caller, "HOME"), lookupEnv(o.Env.Caller, "USER")), missing: map[string]bool{}}
	b.links = resolver{}
	b.guard = newGuard(b.user.home, b.getenv, b.links)
	b.plan = &Plan{table: o.Table, Chdir: o.Roots[0].Path, Net: o.Net, Gate: o.Gate, AllowNested: o.AllowNested, PassFDs: o.PassFDs, RunAs: o.RunAs, Limits: o.Limits, Rlimits: o.Rlimits, Unprotected: o.NoProtect, UserIsRoot: b.user.uid == 0}
	for _, step := range []func() error{b.filter, b.refuse, b.roots, b.overlays, b.toolchains, b.typedNames, b.masks, b.defaults, b.applyRules, b.gitDirs, b.submodules, b.protect, b.environment, b.home, b.settings, b.arrange, b.mountPoints, b.hold} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b.plan, b.plan.Require(o.Require)
}

type builder struct {
	Options
	user  user
	guard *guard
	links resolver
	plan  *Plan

	typed   []string        // the overlay roots as the caller named them
	missing map[string]bool // protected paths that do not exist; with a slash, that are no directories
}

// filter adds the system call filter, if there is one for the processor.
func (b *builder) filter() error {
	make := seccomp.Filter
	if b.Trace {
		make = seccomp.Tracing
	}
	filter, err := make(b.AllowNested)
	if err != nil && b.Trace {
		return &Refusal{Reason: "cannot trace the command: " + err.Error(), Advice: "leave --trace out"}
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	b.plan.Filter = filter
	return nil
}

func (b *builder) add(mounts ...Mount) { b.plan.Mounts = append(b.plan.Mounts, mounts...) }

func (b *builder) getenv(name string) string { return lookupEnv(b.Env.Caller, name) }

// taken reports whether dest has been decided by an earlier, stronger rule.
func (b *builder) taken(dest string) bool {
	return slices.ContainsFunc(b.plan.Mounts, func(m Mount) bool { return m.Dest == dest })
}

// refuse checks every directory that the caller wants shown.
func (b *builder) refuse() error {
	if b.Tmp != "" && !b.OwnTmp {
		if err := b.refuseBelowTmp(); err != nil {
			return err
		}
	}
	if !enterable(b.Roots[0].Path) {
		return &Refusal{
			Reason: fmt.Sprintf("cannot start in %q: permission denied", b.Roots[0].Path),
			Advice: "run as the user that it belongs to",
		}
	}
	if err := b.resolveOverlays(); err != nil {
		return err
	}
	for _, root := range b.allRoots() {
		for _, own := range []string{"/proc", "/dev"} {
			if fsat.Within(root, own) {
				return &Refusal{Reason: fmt.Sprintf("cannot show %q: the sandbox has a %s of its own", root, own), Advice: "name a directory elsewhere"}
			}
		}
		if err := b.guard.refuse(root); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) allRoots() []string {
	var paths []string
	for _, r := range b.Roots {
		paths = append(paths, r.Path)
	}
	return append(paths, b.Overlays...)
}

// resolveOverlays replaces the overlay roots by the directories that they lead to, which
// are then checked and shown.
func (b *builder) resolveOverlays() error {
	var writable []string
	for _, r := range b.Roots {
		if r.Writable {
			writable = append(writable, r.Path)
		}
	}
	b.typed = b.Overlays
	resolved := make([]string, len(b.Overlays))
	for i, dir := range b.Overlays {
		trail, err := confine.Follow(dir)
		if err == nil {
			_, err = os.Stat(trail.Place)
		}
		if err != nil {
			return &Refusal{Reason: fmt.Sprintf("cannot overlay %q: %v", dir, cause(err)), Advice: "name an existing directory"}
		}
		if err := trail.EscapesThroughLink(writable); err != nil {
			return &Refusal{Reason: fmt.Sprintf("cannot overlay %q: %v", dir, err), Advice: fmt.Sprintf("name %q itself", trail.Place)}
		}
		resolved[i] = trail.Place
	}
	b.Overlays = resolved
	return nil
}

// refuseBelowTmp refuses roots below /tmp. Their mount points would have to be made in
// the directory that the caller gave as /tmp, and would stay there.
func (b *builder) refuseBelowTmp() error {
	for _, r := range b.Roots {
		if fsat.Within(r.Path, "/tmp") && r.Path != b.Tmp {
			return &Refusal{
				Reason: fmt.Sprintf("cannot show %q: it lies below /tmp, which means %q here", r.Path, b.Tmp),
				Advice: "leave --temp out, or move the directory out of /tmp",
			}
		}
	}
	return nil
}

// roots shows the roots of the workspace. A root given twice gets the wider access, as
// everywhere in the workspace.
func (b *builder) roots() error {
	if b.Tmp != "" {
		b.add(Mount{Op: OpWritable, Source: b.Tmp, Dest: "/tmp", Rule: "the session tmp is /tmp", Root: true, Own: b.OwnTmp})
	}
	for i, r := range b.Roots {
		m := Mount{Op: OpReadOnly, Source: r.Path, Dest: r.Path, Rule: b.rootRule(i, r), Root: true, Dev: r.Dev, Ino: r.Ino}
		if r.Writable {
			m.Op = OpWritable
			if b.Trial && r.Path != b.Tmp {
				if err := b.refuseTrial(r); err != nil {
					return err
				}
				m.Layer = new(overlay.Layers)
				m.Rule += trialRule
			}
		}
		if r.Path == b.Tmp && !b.OwnTmp && fsat.Within(r.Path, "/tmp") {
			continue // it is shown as /tmp; a mount point for it would have to be made in it
		}
		if at := slices.IndexFunc(b.plan.Mounts, func(m Mount) bool { return m.Dest == r.Path }); at < 0 {
			b.add(m)
		} else if r.Writable {
			b.plan.Mounts[at].Op, b.plan.Mounts[at].Layer, b.plan.Mounts[at].Rule = OpWritable, m.Layer, m.Rule
		}
	}
	return nil
}

// trialRule is appended to the rule of each root of a trial.
const trialRule = "; --trial: changes stay in the session"

// refuseTrial refuses a root that a trial cannot overlay.
func (b *builder) refuseTrial(r confine.Root) error {
	reason, advice := "", "leave --trial out"
	below := mountBelow(b.plan.Table(), r.Path)
	var fs unix.Statfs_t
	switch {
	case !r.Dir:
		reason, advice = "it is a file", "name its directory"
	case below != "":
		reason, advice = fmt.Sprintf("%q is mounted below it, and the kernel lays no overlay over that", below), fmt.Sprintf("umount %q, or name a root that does not hold it", below)
	case unix.Statfs(r.Path, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC && b.SessionBase != "" && onOverlay(b.SessionBase):
		reason, advice = "it and the session directories lie on an overlay, which carries no further one", "set XDG_CACHE_HOME to a directory on a disk or a volume"
	case b.NoProtect:
		return &Refusal{Reason: "cannot open git directories with --no-protect in a trial", Advice: "leave it out: commits are made in the session, and pk-apply lands them"}
	case len(b.Rules.AllowWrite) > 0:
		return &Refusal{Reason: "cannot hold to --allow-write in a trial", Advice: "leave it out: pk-apply lands the paths that you name"}
	}
	if reason == "" {
		return nil
	}
	return &Refusal{Reason: fmt.Sprintf("cannot try changes out in %q: %s", r.Path, reason), Advice: advice}
}

// onOverlay reports whether a directory, or the next one above that exists, lies on an
// overlay.
func onOverlay(dir string) bool {
	var fs unix.Statfs_t
	for unix.Statfs(dir, &fs) != nil && dir != "/" {
		dir = filepath.Dir(dir)
	}
	return fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// rootRule returns the option or default behind root number i.
func (b *builder) rootRule(i int, r confine.Root) string {
	given := ""
	if b.RootRule != nil {
		given = b.RootRule(r)
	}
	switch {
	case given != "":
		return given
	case i == 0:
		return "project root"
	case r.Path == b.Tmp:
		return "session tmp"
	case r.Writable:
		return "option --writable"
	}
	return "option --readable"
}

// overlays shows the overlay roots given by name. It refuses a directory that cannot be
// overlaid: the caller counts on writing there.
func (b *builder) overlays() error {
	for _, dir := range b.Overlays {
		if why := b.noOverlay(dir); why != "" {
			return &Refusal{Reason: fmt.Sprintf("cannot overlay %q: %s", dir, why), Advice: "show it with --readable or --writable"}
		}
		if !b.overlay(Mount{Op: OpOverlay, Source: dir, Dest: dir, Perms: mode(dir), Rule: overlayRule}) {
			return &Refusal{Reason: fmt.Sprintf("cannot overlay %q: it is a writable root", dir), Advice: "leave one of the two out"}
		}
	}
	return nil
}

// overlay adds an overlay. It replaces a readable root, so that one list can serve file
// tools, which read the host's copy, and the sandbox. It reports whether the overlay was
// added: a writable root stays.
func (b *builder) overlay(m Mount) bool {
	at := slices.IndexFunc(b.plan.Mounts, func(o Mount) bool { return o.Dest == m.Dest })
	switch {
	case at < 0:
		b.add(m)
	case b.plan.Mounts[at].Op == OpReadOnly:
		root := b.plan.Mounts[at]
		m.Root, m.Dev, m.Ino = root.Root, root.Dev, root.Ino
		b.plan.Mounts[at] = m
	}
	return at < 0 || b.plan.Mounts[at].Op == OpOverlay
}

// mode is the permission bits of dir, in octal.
func mode(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return "0700"
	}
	return fmt.Sprintf("%04o", info.Mode().Perm())
}

// noOverlay returns the reason why dir cannot be an overlay, or "".
func (b *builder) noOverlay(dir string) string {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "it is not a directory"
	}
	if b.SessionBase != "" && fsat.Within(b.SessionBase, dir) {
		return fmt.Sprintf("it contains the session directories, %q", b.SessionBase)
	}
	if below := mountBelow(b.plan.Table(), dir); below != "" {
		return fmt.Sprintf("%q is mounted below it", below)
	}
	return ""
}

// toolchains shows the directories that the table found on this machine. Unlike a
// named overlay, a cache that cannot be overlaid is shown read-only, with a warning.
func (b *builder) toolchains() error {
	var readOnly []string
	for _, e := range b.Toolchains {
		real, err := b.links.real(e.Path)
		if err != nil {
			continue // removed since the table was read
		}
		if b.guard.refuse(real) != nil {
			b.warn("%q is not shown: it would show a container's control socket", e.Path)
			continue
		}
		op := OpReadOnly
		if e.Kind == toolchain.Overlay {
			op = OpOverlay
			if b.noOverlay(real) != "" {
				op, readOnly = OpReadOnly, append(readOnly, e.Path)
			}
		}
		b.entry(e, real, op)
	}
	for _, e := range b.Missing {
		// No mount point is made in a tree of the host.
		if at := b.links.canonical(e.Path); !exists(at) && !b.rooted(at) && !b.taken(at) {
			b.add(Mount{Op: OpOverlay, Source: at, Dest: at, Perms: "0700", Missing: true, Rule: "toolchain " + e.Tool + ", not on the host yet"})
		}
	}
	// Last: a link may lie in a tree that a later row shows.
	for _, e := range b.Toolchains {
		b.addLinks(e.Path, "toolchain "+e.Tool)
	}
	b.plan.Degraded = readOnly
	if len(readOnly) > 0 {
		b.warn("read-only inside, as they cannot be overlaid: %q", readOnly)
	}
	return nil
}

// entry shows one row of the table at its resolved path.
func (b *builder) entry(e toolchain.Entry, real string, op Op) {
	rule := "toolchain " + e.Tool
	if above, ok := cover(b.plan.Mounts, real); ok && above.Op == OpWritable && above.Dest != "/tmp" {
		return // the caller made the tree around it writable
	}
	m := Mount{Op: op, Source: real, Dest: real, Rule: rule}
	if op == OpOverlay {
		m.Perms = mode(real)
		b.overlay(m)
	} else if !b.taken(real) {
		b.add(b.copied(m)...)
	}
}

// copied replaces the mount of a small file or tree by copies. It copies nothing into a
// tree of the host, which is there already, nor to a place with something to hide.
func (b *builder) copied(m Mount) []Mount {
	var st unix.Stat_t
	if m.Op != OpReadOnly || unix.Stat(m.Source, &st) != nil || b.rooted(m.Dest) {
		return []Mount{m}
	}
	if copyable(&st) {
		m.Op, m.Perms = OpCopy, "0444"
		return []Mount{m}
	}
	hides := func(mask string) bool { return fsat.Within(b.links.canonical(mask), m.Source) }
	if !fsat.Within(m.Source, "/etc") || slices.ContainsFunc(b.Masks, hides) {
		return []Mount{m}
	}
	return slices.DeleteFunc(small(m), func(part Mount) bool { return b.taken(part.Dest) || b.rooted(part.Dest) })
}

// linksOn returns the symbolic links along path, as links at their places.
func linksOn(path, rule string) []Mount {
	var links []Mount
	for _, l := range confine.Links(path) {
		links = append(links, Mount{Op: OpLink, Source: l.Target, Dest: l.Place, Rule: rule})
	}
	return links
}

// typedNames shows roots and overlay roots also under the names that the caller typed, if these lead
// through symbolic links: build directories and configuration hold such names.
func (b *builder) typedNames() error {
	add := func(name, path string) {
		if typed, err := filepath.Abs(name); name != "" && err == nil && typed != path {
			b.addLinks(typed, fmt.Sprintf("the name %q of a root", name))
		}
	}
	for _, r := range b.Roots {
		add(r.Name, r.Path)
	}
	for i, dir := range b.Overlays {
		add(b.typed[i], dir)
	}
	return nil
}

// addLinks adds the symbolic links along path that no tree of the host shows.
func (b *builder) addLinks(path, rule string) {
	for _, link := range linksOn(path, rule) {
		if !b.taken(link.Dest) && !b.rooted(link.Dest) && !fsat.Within(link.Dest, "/proc") && !fsat.Within(link.Dest, "/dev") {
			b.add(link)
		}
	}
}

// rooted reports whether path lies in a tree of the host that is shown. A session tmp
// does not count: mount points may be made in it.
func (b *builder) rooted(path string) bool {
	m, ok := cover(b.plan.Mounts, path)
	_, shown := m.host(path)
	return ok && shown && !(m.Dest == "/tmp" && b.OwnTmp)
}

// masks hides the credentials that lie inside a toolchain.
func (b *builder) masks() error {
	b.hideSessions()
	for _, path := range b.Masks {
		real, err := b.links.real(path)
		if err != nil || !b.rooted(real) || b.taken(real) {
			continue // not shown, so there is no need to hide it
		}
		info, err := os.Stat(real)
		if err != nil || hiddenAlready(info) {
			continue
		}
		m := Mount{Op: OpMask, Dest: real, Dir: info.IsDir(), Blank: true, Rule: "toolchain mask"}
		kept, all := settings.Read(real)
		if kept != nil {
			m.Data, m.Rule = kept, settingsRule
		}
		if !all {
			b.add(m)
		}
	}
	return nil
}

const settingsRule = "default: settings of npm and pip, without credentials"

// settings shows the settings of npm and pip, such as a registry and its certificate,
// unless the caller shows others there.
func (b *builder) settings() error {
	for _, path := range settings.Paths(b.user.home, b.getenv) {
		path = b.links.canonical(path)
		if b.taken(path) || b.rooted(path) {
			continue
		}
		if kept, _ := settings.Read(path); kept != nil {
			b.add(Mount{Op: OpData, Dest: path, Data: kept, Perms: "0644", Rule: settingsRule})
		}
	}
	return nil
}

// hideSessions hides the session directories in roots around them: they hold files of
// other commands. It uses an empty directory, not a mask: the session tmp is shown below
// it, and needs a mount point there.
func (b *builder) hideSessions() {
	if b.SessionBase == "" {
		return
	}
	if real, err := b.links.real(b.SessionBase); err == nil && b.rooted(real) && !b.taken(real) {
		b.add(Mount{Op: OpEmpty, Dest: real, Perms: "0700", Size: tmpSize, Rule: "default: session directories, which hold other commands' files"})
	}
}

// hiddenAlready reports whether a file is the empty one with which a sandbox around this
// process hides another. It has no name any more, so nothing can be mounted on it.
func hiddenAlready(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0 && st.Size == 0
}

// defaults adds the mounts of every sandbox, unless a root of the caller covers
// them.
func (b *builder) defaults() error {
	mounts := systemMounts()
	if b.Gate != nil && b.Gate.Allow {
		mounts = append(mounts, nameMounts()...)
	}
	for _, m := range etcMounts(b.links) {
		if !slices.ContainsFunc(mounts, func(own Mount) bool { return own.Dest == m.Dest }) {
			mounts = append(mounts, m)
		}
	}
	mounts = append(mounts, accountMounts(b.user)...)
	mounts = append(mounts, b.homeMounts()...)
	for _, m := range mounts {
		if !b.taken(m.Dest) && !b.rooted(m.Dest) {
			b.add(m)
		}
	}
	b.add(
		Mount{Op: OpProc, Dest: "/proc", Rule: "default"},
		Mount{Op: OpDev, Dest: "/dev", Size: tmpSize, Rule: "default"},
	)
	if b.plan.UserIsRoot {
		// The kernel's uid 0 can write its files with every capability dropped, core_pattern
		// among them. bwrap covers only directories that are writable by access(2), and this one
		// is not.
		b.add(Mount{Op: OpReadOnly, Source: "/proc/sys", Dest: "/proc/sys", Rule: "default: the caller is root"})
	}
	if exists("/proc/keys") && !b.AllowNested { // over it, no proc could be mounted inside
		b.add(Mount{Op: OpMask, Dest: "/proc/keys", Rule: "default: it names the caller's keys"})
	}
	if !b.taken("/tmp") {
		b.add(Mount{Op: OpEmpty, Dest: "/tmp", Perms: "1777", Size: tmpSize, Rule: "default: empty /tmp"})
	}
	b.shieldTmp()
	b.sealParents()
	return b.arrange()
}

// arrange sorts the mounts into the order in which they are made.
func (b *builder) arrange() error {
	sortMounts(b.plan.Mounts)
	b.plan.Mounts = merge(b.plan.Mounts)
	return nil
}

const shieldRule = "default: a root lies below it"

// shieldTmp puts an empty directory over an entry of the session tmp, if a root lies
// deeper below it. A command of the session may have left a symbolic link there, and the
// mount point of the root cannot be made behind a link.
func (b *builder) shieldTmp() {
	if !b.OwnTmp {
		return
	}
	for _, m := range slices.Clone(b.plan.Mounts) {
		rest, below := strings.CutPrefix(m.Dest, "/tmp/")
		top, _, deeper := strings.Cut(rest, "/")
		if below && deeper && !b.taken("/tmp/"+top) {
			b.add(Mount{Op: OpEmpty, Dest: "/tmp/" + top, Perms: "0755", Size: tmpSize, Rule: shieldRule})
		}
	}
}

// sealParents makes the directory around a root read-only if it would be a part of the
// empty home or of /tmp: "git worktree add ../x" must fail rather than lose its files. A
// hidden directory such as ~/.config, and one with a tool chain, stay writable: tools
// write there.
func (b *builder) sealParents() {
	for i, r := range b.Roots {
		dir := filepath.Dir(r.Path)
		around, ok := cover(b.plan.Mounts, dir)
		if i > 0 && !r.Writable || !ok || around.Op != OpEmpty || b.usedByTools(dir) || strings.HasPrefix(strings.TrimPrefix(dir, b.links.canonical(b.user.home)+"/"), ".") {
			continue
		}
		sealed := Mount{Op: OpEmpty, Dest: dir, Perms: "0755", Size: sealedSize, Sealed: true, Rule: "default: nothing beside a root is shown, or can be written"}
		switch {
		case around.Dest != dir:
			b.add(sealed)
		case around.Rule == shieldRule:
			at := slices.IndexFunc(b.plan.Mounts, func(m Mount) bool { return m.Dest == dir })
			b.plan.Mounts[at] = sealed
		}
	}
}

// sealedSize holds enough mount points.
const sealedSize = 1 << 20

// usedByTools reports whether a directory holds a mount other than roots and links.
func (b *builder) usedByTools(dir string) bool {
	return slices.ContainsFunc(b.plan.Mounts, func(m Mount) bool {
		return m.Dest != dir && fsat.Within(m.Dest, dir) && !slices.ContainsFunc(b.Roots, func(r confine.Root) bool { return fsat.Within(m.Dest, r.Path) }) && m.Op != OpLink && !m.Sealed
	})
}

const homeRule = "default: empty home"

// Vanishing lists directories of the empty home in which users expect files to stay: the
// home itself, and those in which tools install programs.
func (p *Plan) Vanishing() []string {
	at := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Op == OpEmpty && m.Rule == homeRule })
	if at < 0 {
		return nil
	}
	list := []string{p.Mounts[at].Dest}
	for _, name := range []string{".local/bin", ".local/lib", ".cargo/bin", "go/bin"} {
		dir := filepath.Join(list[0], name)
		if m, _ := cover(p.Mounts, dir); m.Dest == list[0] { // otherwise the host's is shown
			list = append(list, dir)
		}
	}
	return list
}

// homeMounts makes the home empty and writable, and so the directories for caches and
// settings that XDG variables move elsewhere. A dangling link on the way is replaced by a
// directory.
func (b *builder) homeMounts() []Mount {
	var mounts []Mount
	empty := func(dir, rule string) {
		at := b.links.canonical(dir)
		mounts = append(mounts, Mount{Op: OpEmpty, Dest: at, Perms: "0700", Size: homeSize, Rule: rule})
		for _, link := range linksOn(dir, rule) {
			if !fsat.Within(at, link.Dest) && !fsat.Within(link.Dest, "/proc") && !fsat.Within(link.Dest, "/dev") {
				mounts = append(mounts, link)
			}
		}
	}
	empty(b.user.home, homeRule)
	for _, name := range []string{"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"} {
		dir := filepath.Clean(b.getenv(name))
		if filepath.IsAbs(dir) && !fsat.Within(dir, "/proc") && !fsat.Within(dir, "/dev") && !fsat.Within(dir, b.user.home) && !fsat.Within(dir, "/tmp") && !fsat.Within("/usr", dir) && !fsat.Within("/etc", dir) {
			empty(dir, "default: empty "+name)
		}
	}
	return mounts
}

// mountPoints refuses a mount whose mount point would have to be made inside a tree of
// the host: it would stay there after the sandbox. In a session tmp, which ends with its
// session, one may be made; but not behind a symbolic link.
func (b *builder) mountPoints() error {
	for i, m := range b.plan.Mounts {
		above, _ := cover(b.plan.Mounts[:i], m.Dest)
		host, ok := above.host(m.Dest)
		if !ok || b.OwnTmp && m.Dest == b.Tmp {
			continue // the second is made before the sandbox
		}
		var st unix.Stat_t
		err := unix.Lstat(host, &st)
		if err == unix.ENOENT && above.Dest == "/tmp" && b.OwnTmp {
			continue
		}
		if err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return &Refusal{
				Reason: fmt.Sprintf("cannot show %q (%s): its mount point would have to be made in %q", m.Dest, m.Rule, above.Source),
				Advice: "name a root that does not hide it",
			}
		}
	}
	return nil
}

func (b *builder) hold() error {
	if b.OwnTmp {
		return b.plan.hold(b.Tmp)
	}
	return b.plan.hold("")
}

// environment filters the caller's variables, and drops directories of PATH that are
// missing inside.
func (b *builder) environment() error {
	own := []string{"HOME=" + b.user.home, "TMPDIR=/tmp"}
	for _, name := range []string{"USER", "LOGNAME"} {
		if said := b.getenv(name); said != "" && said != b.user.name { // su(1) keeps another user's
			own = append(own, name+"="+b.user.name)
		}
	}
	if b.getenv("PATH") == "" {
		own = append(own, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	if b.plan.UserIsRoot {
		own = append(own, "TAR_OPTIONS=--no-same-owner") // only one uid is mapped: chown fails
	}
	vars, err := b.Env.environ(own)
	if err != nil {
		return err
	}
	for i := range vars {
		if v := &vars[i]; v.Name == "PATH" {
			v.Value = strings.Join(b.present(filepath.SplitList(v.Value)), ":")
		}
		if v := &vars[i]; b.Gate != nil && b.Gate.Allow && isProxy(v.Name) && (v.Rule == callers || v.Rule == inherited) {
			*v = Var{Name: v.Name, Dropped: true, Rule: "option --net allow: the gate uses the caller's proxy"}
		}
		if !vars[i].Dropped {
			b.plan.Env = append(b.plan.Env, vars[i].Name+"="+vars[i].Value)
		}
	}
	b.plan.Vars = vars
	return nil
}

// Home holds the files that pk puts into the empty home, and their variables.
type Home struct {
	Files    []Mount // Dest is relative to the home
	Vars     []Var   // used if the caller sets no other value
	Warnings []string
}

// home adds files to the home, unless the caller shows the host's.
func (b *builder) home() error {
	if b.Home == nil {
		return nil
	}
	home := b.Home(func(program string) bool { return b.plan.FindCommand(program) == nil })
	b.plan.Warnings = append(b.plan.Warnings, home.Warnings...)
	for _, m := range home.Files {
		m.Dest = filepath.Join(b.links.canonical(b.user.home), m.Dest)
		if !b.taken(m.Dest) && !b.rooted(m.Dest) {
			b.add(m)
		}
	}
	if len(home.Vars) == 0 {
		return nil
	}
	b.Env.Usual = slices.Concat(b.Env.Usual, home.Vars)
	b.plan.Env = nil
	return b.environment()
}

func (b *builder) present(dirs []string) []string {
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, ok := b.plan.locate(dir)
		return !filepath.IsAbs(dir) || !ok
	})
}

func (b *builder) warn(format string, args ...any) {
	b.plan.Warnings = append(b.plan.Warnings, fmt.Sprintf(format, args...))
}

// OwnMounts is the table of mounts of this process.
func OwnMounts() []mountinfo.Mount {
	mounts, _ := mountinfo.Read("/proc/self/mountinfo") // without /proc bwrap fails too
	return mounts
}

// mountBelow returns a mount point below dir that is not in ignored, or "". In a user
// namespace the kernel refuses an overlay with a mount below its lower directory.
func mountBelow(mounts []mountinfo.Mount, dir string, ignored ...string) string {
	for _, m := range mounts {
		if m.Point != dir && fsat.Within(m.Point, dir) && !slices.Contains(ignored, m.Point) {
			return m.Point
		}
	}
	return ""
}
