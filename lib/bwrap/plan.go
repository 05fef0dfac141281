// Package bwrap plans a sandbox. A Plan lists the mounts of the sandbox and their access,
// with the rule behind each. The job of the set-up program (Job), the printed line,
// --explain, and the search for the command all come from one plan. It does not describe
// how a sandbox is made, so that another engine can read it later.
package bwrap

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gate"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/mountinfo"
	"pikuri/lib/overlay"
	"pikuri/lib/setup"
)

// Op is the kind of a mount.
type Op string

// The operations of a plan.
const (
	OpReadOnly Op = "read-only" // the host's Source, not writable
	OpWritable Op = "writable"  // the host's Source, writable
	OpOverlay  Op = "overlay"   // the host's Source; writes go to the session, or to memory
	OpCopy     Op = "copy"      // a small file of the host, copied in when the sandbox starts
	OpData     Op = "data"      // a file with content from pk
	OpLink     Op = "link"      // a symbolic link to Source
	OpEmpty    Op = "empty"     // an empty directory in memory, writable
	OpMask     Op = "mask"      // a path inside a root that is hidden
	OpProtect  Op = "protect"   // a path inside a writable root that is made read-only
	OpPin      Op = "pin"       // a directory in a writable root, made a mount point so that it cannot be renamed
	OpProc     Op = "proc"      // the sandbox's own processes
	OpDev      Op = "dev"       // null, zero, full, random, urandom, tty, pts; shm is writable
)

// Mount is a file or directory of the sandbox.
type Mount struct {
	Op     Op
	Dest   string // path in the sandbox: absolute, clean
	Source string // host path; for OpLink the text of the link
	Data   []byte // OpData: the content
	Dir    bool   // OpMask: a directory is hidden, not a file
	Blank  bool   // OpMask: the file seems to hold Data, which may be empty: tools stop at a file that they cannot read
	Perms  string // octal: the mode of a new file or directory
	Sealed bool   // OpEmpty: read-only once all mounts in it are made
	Size   int64  // OpEmpty and OpDev: its capacity in bytes
	Rule   string // its reason, for messages

	// Root: it is a root of the workspace, or a writable part of one.
	Root bool
	Own  bool // it is pk's own, so that mount points may be made in it

	Missing bool            // OpOverlay: the host does not have Source
	Layer   *overlay.Layers // OpOverlay of a git directory, OpWritable of a trial: its layers, set by Lay

	// Held: a command that runs elsewhere may change Source or Dest, so the set-up program
	// mounts it by descriptor, and only if the file is still this inode.
	Held     bool
	Dev, Ino uint64

	session string // with Layer: its path in the session's mount namespace
	seenAt  string // OpOverlay: the path at which this process sees the merged directory
	upper   string // OpWritable of a trial: the session's upper directory, or ""
	lower   string // path on the host, for a mount in an overlay, which has inodes of its own
}

// Plan is the content of a sandbox. The same input makes the same plan.
type Plan struct {
	Mounts      []Mount  // parents before children
	Env         []string // NAME=VALUE, sorted by name
	Vars        []Var    // the same with their rules, and the dropped ones
	Chdir       string
	Net         bool           // the host's network
	Gate        *gate.Config   // without Net: the network with a gate; nil: only a loopback of its own
	AllowNested bool           // user namespaces may be made inside
	RunAs       int            // the project's owner, if root became that user; otherwise 0
	UserIsRoot  bool           // the caller is uid 0, which needs more restrictions
	Filter      []byte         // the filter for bwrap --seccomp; nil if there is none for the processor
	PassFDs     []int          // descriptors of the caller's that the command gets
	Limits      string         // the command's limits, as options; "" without limits
	Policy      []Flag         // options from policies, for Flags
	Rlimits     []setup.Rlimit // of each process
	Watched     []Watch
	Unprotected bool     // --no-protect was given
	Degraded    []string // caches that could not be overlaid, and are read-only
	Session     *Session // the session of the overlays; nil: each overlay is the command's own
	Terminal    bool     // the sandbox has a terminal of its own
	Warnings    []string
	NotHidden   []string // patterns that deny and do not hide all that they cover: it is shown behind a link

	tops  []int             // by mount: the mount in whose tree it is held, itself if in none
	table []mountinfo.Mount // of this process; nil until it is read
}

// Table is the table of mounts of this process, read once.
func (p *Plan) Table() []mountinfo.Mount {
	if p.table == nil {
		p.table = OwnMounts()
	}
	return p.table
}

// Var is a variable of the environment.
type Var struct {
	Name    string
	Value   string // "" of a dropped variable
	Dropped bool   // the caller has it, the sandbox does not
	Rule    string // the rule, for messages
}

// Watch is a name in a writable root that cannot be a mount point, because it is missing
// or a symbolic link. When the command has ended, lib/quarantine checks those that were
// missing.
type Watch struct {
	Path string
	Link string // target of the link; "" if the name was missing
	Rule string
	File bool // a directory there does no harm
	Way  bool // nor does a file, unless it says where a repository is
}

// Refusal is a sandbox that must not be made as described, with the line to type instead.
type Refusal struct {
	Reason string
	Advice string
}

func (r *Refusal) Error() string { return r.Reason }

// Hint is the line to type instead, or "".
func (r *Refusal) Hint() string { return r.Advice }

// Unavailable is a machine that cannot make a sandbox, with the change that it needs.
type Unavailable Refusal

func (u *Unavailable) Error() string { return u.Reason }

// Hint is the change that the machine needs, or "".
func (u *Unavailable) Hint() string { return u.Advice }

// sortMounts puts parents before children, since mounts are made in order and a
// later mount hides those below it. Equal destinations keep their order.
func sortMounts(mounts []Mount) {
	slices.SortStableFunc(mounts, func(a, b Mount) int { return comparePaths(a.Dest, b.Dest) })
}

// comparePaths orders paths by component, so that "/a/b" comes before "/a-b".
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// cover returns the mount that decides the view at path: the one with the longest
// destination at or above it.
func cover(mounts []Mount, path string) (Mount, bool) {
	i := coveredBy(mounts, path)
	if i < 0 {
		return Mount{}, false
	}
	return mounts[i], true
}

// coveredBy is the index of the mount that cover returns, or -1.
func coveredBy(mounts []Mount, path string) int {
	best := -1
	for i := range mounts { // by index, to copy no mount
		if fsat.Within(path, mounts[i].Dest) && (best < 0 || len(mounts[i].Dest) >= len(mounts[best].Dest)) {
			best = i
		}
	}
	return best
}

// seen reports whether the sandbox shows the host's path at dest: another mount may cover
// it there.
func (p *Plan) seen(host, dest string) bool {
	top, ok := cover(p.Mounts, dest)
	if !ok {
		return false
	}
	at, shown := top.host(dest)
	return shown && at == host
}

// host returns the host path behind path in the tree that m shows, for the operations
// that show a tree of the host.
func (m Mount) host(path string) (string, bool) {
	switch m.Op {
	case OpReadOnly, OpWritable, OpOverlay, OpProtect, OpPin:
		if m.upper != "" {
			if at, ok := m.written(path); ok {
				return at, true
			}
		}
		if m.seenAt != "" {
			return filepath.Join(m.seenAt, strings.TrimPrefix(path, m.Dest)), true
		}
		return filepath.Join(m.Source, strings.TrimPrefix(path, m.Dest)), true
	case OpCopy:
		return m.Source, path == m.Dest
	}
	return "", false
}

// trial reports whether m is a root of a trial.
func (m Mount) trial() bool { return m.Op == OpWritable && m.Layer != nil }

// written is the path in a trial's upper layer of a changed entry, or a missing path for a
// removed one. It serves messages; the kernel decides about access.
func (m Mount) written(path string) (string, bool) {
	at := filepath.Join(m.upper, strings.TrimPrefix(path, m.Dest))
	var st unix.Stat_t
	switch err := unix.Lstat(at, &st); {
	case err == unix.ENOTDIR, err == nil && overlay.IsWhiteout(&st):
		return "/proc/nonexistent", true
	case err == nil && at != m.upper:
		return at, true
	}
	return "", false
}

// merge drops every mount that shows the same as the mount above it: each costs time in
// every start. A readable root inside a writable one goes too: a workspace allows an
// access if any of its roots does.
func merge(mounts []Mount) []Mount {
	var kept []Mount
	for _, m := range mounts {
		above, ok := cover(kept, m.Dest)
		if ok && adds(above, m) || !ok {
			kept = append(kept, m)
		}
	}
	return kept
}

// adds reports whether m changes the view that above gives.
func adds(above, m Mount) bool {
	host, ok := above.host(m.Dest)
	if !ok || host != m.Source {
		return true
	}
	return m.Op == OpPin || m.Op != OpReadOnly && m.Op != above.Op || above.Op == OpOverlay
}
