// Package bwrap plans a sandbox. A Plan says what the sandbox shows and what may be
// written in it, and which rule decided. The job of the set-up program (Job), the
// printed line, --explain, and the answer to "is this command there" all come from
// one plan. It does not say how a sandbox is made, so that another engine can read
// it later.
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

// Op is what a mount does at its destination.
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
	OpMask     Op = "mask"      // something inside a root that must not be seen
	OpProtect  Op = "protect"   // something inside a writable root that must not be written
	OpPin      Op = "pin"       // a directory in a writable root, made a mount point so that it cannot be renamed
	OpProc     Op = "proc"      // the sandbox's own processes
	OpDev      Op = "dev"       // null, zero, full, random, urandom, tty, pts; shm is writable
)

// Mount is one thing that the sandbox shows.
type Mount struct {
	Op     Op
	Dest   string // where it is seen: absolute, clean
	Source string // host path; for OpLink the text of the link
	Data   []byte // OpData: the content
	Dir    bool   // OpMask: a directory is hidden, not a file
	Blank  bool   // OpMask: the file seems to hold Data, which may be empty: tools stop at a file that they cannot read
	Perms  string // octal: of what the mount makes anew
	Sealed bool   // OpEmpty: nothing can be written once all mounts in it are made
	Size   int64  // OpEmpty and OpDev: the most it may hold, in bytes
	Rule   string // what caused it, for people

	// Root: it is a root of the workspace, or a part of one that is written.
	Root bool
	Own  bool // it is pk's own, so that mount points may be made in it

	Missing bool            // OpOverlay: the host does not have Source
	Layer   *overlay.Layers // OpOverlay of a git directory, OpWritable of a trial: where writes go, once Lay has said so

	// Held: a command that runs elsewhere may change Source or Dest, so the mount is
	// made by descriptor, and only if the file is still this inode.
	Held     bool
	Dev, Ino uint64

	session string // with Layer: where the session's mount namespace has it
	seenAt  string // OpOverlay: where this process sees what the sandbox will
	upper   string // OpWritable of a trial: where the session has what was written, or ""
	lower   string // of what is mounted in an overlay, whose inodes are its own: where the host has it
}

// Plan is the content of a sandbox. The same input makes the same plan.
type Plan struct {
	Mounts      []Mount  // parents before children
	Env         []string // NAME=VALUE, sorted by name
	Vars        []Var    // the same with what decided, and what the sandbox does not get
	Chdir       string
	Net         bool           // the host's network
	Gate        *gate.Config   // without Net: the network with a gate; nil: none but a loopback of its own
	AllowNested bool           // user namespaces may be made inside
	RunAs       int            // the project's owner, whom root became; 0: nobody
	UserIsRoot  bool           // the caller is uid 0, which needs more closing
	Filter      []byte         // what bwrap --seccomp takes; nil where no filter is known
	PassFDs     []int          // descriptors of the caller's that the command gets
	Limits      string         // what the command may use, as options; "" for no limit
	Policy      []Flag         // options that policies gave, for Flags
	Rlimits     []setup.Rlimit // of each process
	Watched     []Watch
	Unprotected bool     // --no-protect was given
	Degraded    []string // caches that could not be overlaid, and are read-only
	Session     *Session // whose overlays are shown; nil: each overlay is the command's own
	Terminal    bool     // the sandbox has a terminal of its own
	Warnings    []string

	tops  []int             // by mount: in whose tree it is held, itself if in none
	table []mountinfo.Mount // of this process; nil until it is asked for
}

// Table is the table of mounts of this process, which is read once.
func (p *Plan) Table() []mountinfo.Mount {
	if p.table == nil {
		p.table = OwnMounts()
	}
	return p.table
}

// Var is a variable of the environment.
type Var struct {
	Name    string
	Value   string // "" of what is dropped
	Dropped bool   // the caller has it, the sandbox does not
	Rule    string // what decided, for people
}

// Watch is a name in a writable root that nothing can be mounted on, because it is
// missing or is a symbolic link. When the command has ended, lib/quarantine looks at
// those that were missing.
type Watch struct {
	Path string
	Link string // where the link leads; "" when nothing was there
	Rule string
}

// Refusal is a sandbox that must not be made as described, with what to type
// instead.
type Refusal struct {
	Reason string
	Advice string
}

func (r *Refusal) Error() string { return r.Reason }

// Hint is what to type instead, or "".
func (r *Refusal) Hint() string { return r.Advice }

// Unavailable is a machine on which no sandbox can be made, with what to change.
type Unavailable Refusal

func (u *Unavailable) Error() string { return u.Reason }

// Hint is what to change, or "".
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

// cover returns the mount that decides what is seen at path: the one with the
// longest destination at or above it.
func cover(mounts []Mount, path string) (Mount, bool) {
	i := coveredBy(mounts, path)
	if i < 0 {
		return Mount{}, false
	}
	return mounts[i], true
}

// coveredBy is the place of the mount that cover returns, or -1.
func coveredBy(mounts []Mount, path string) int {
	best := -1
	for i := range mounts { // without copies of each
		if fsat.Within(path, mounts[i].Dest) && (best < 0 || len(mounts[i].Dest) >= len(mounts[best].Dest)) {
			best = i
		}
	}
	return best
}

// seen reports whether the host's path is what the sandbox shows at dest:
// something else may cover it there.
func (p *Plan) seen(host, dest string) bool {
	top, ok := cover(p.Mounts, dest)
	if !ok {
		return false
	}
	at, shown := top.host(dest)
	return shown && at == host
}

// host returns the host path behind path in the tree that m shows, for the
// operations that show a tree of the host.
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

// written is where the upper layer of a trial has what is seen at path, if that was
// written, or a place where nothing is if it was removed. The kernel decides in the end.
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

// merge drops every mount that shows the same as the mount above it: each costs time
// in every start. A readable root inside a writable one goes too, since a workspace
// allows whatever any of its roots allows.
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

// adds reports whether m shows anything that above does not.
func adds(above, m Mount) bool {
	host, ok := above.host(m.Dest)
	if !ok || host != m.Source {
		return true
	}
	return m.Op == OpPin || m.Op != OpReadOnly && m.Op != above.Op || above.Op == OpOverlay
}
