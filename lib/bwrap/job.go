package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pikuri/lib/gate"
	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/setup"
)

// maxWords is the number of arguments that bwrap takes, its own options and those of the
// command together.
const maxWords = 9000

// Job translates the plan, and the command, for the set-up program.
func (p *Plan) Job(bwrap Binary, argv []string) (*setup.Job, error) {
	j := &setup.Job{
		Program: bwrap.Path, Argv: argv, Env: p.plain(), Filter: p.Filter,
		Rlimits: p.Rlimits, Net: p.Gate,
	}
	var proc []Mount
	for i, m := range p.Mounts {
		switch {
		case m.Op == OpProc || i > 0 && fsat.Within(m.Dest, "/proc"):
			proc = append(proc, m) // bwrap mounts /proc, since it makes the PID namespace
		default:
			p.addTo(j, i)
		}
	}
	j.Options = p.options(proc)
	if words := len(j.Options) + len(argv); words > maxWords {
		return nil, &Refusal{
			Reason: fmt.Sprintf("bwrap takes %d words at most, and this would be %d", maxWords, words),
			Advice: "give the command fewer arguments, as with xargs -n 5000",
		}
	}
	return j, nil
}

// addTo adds mount i to the job.
func (p *Plan) addTo(j *setup.Job, i int) {
	m := p.Mounts[i]
	s := setup.Mount{At: m.Dest, Inode: m.inode(), Access: m.allowed()}
	switch m.Op {
	case OpReadOnly, OpWritable, OpProtect, OpPin:
		s.Op, s.From = setup.Bind, m.Source
		if m.trial() {
			s.Op, s.Session, s.Layer, s.Access = setup.Overlay, m.session, m.Layer, ""
		} else if p.keeps(i) {
			s.Op, s.From = setup.Keep, ""
		}
	case OpOverlay:
		s.Op, s.From, s.Session, s.Perms, s.Access = setup.Overlay, m.Source, p.shownAt(m), octal(m.Perms), ""
		if m.Missing {
			s.From = ""
		}
		if m.Layer != nil && m.Layer.Upper != "" {
			s.Layer = m.Layer
		}
	case OpCopy:
		s.Op, s.From, s.Perms, s.Access = setup.Copy, m.Source, octal(m.Perms), ""
	case OpData:
		s.Op, s.Data, s.Perms, s.Access = setup.File, m.Data, octal(m.Perms), ""
	case OpLink:
		s.Op, s.From, s.Access = setup.Link, m.Source, ""
	case OpEmpty:
		s.Op, s.Perms, s.Size, s.Access = setup.Empty, octal(m.Perms), m.Size, ""
		if m.Sealed {
			s.Access = setup.ReadOnly
		}
	case OpDev:
		s.Op, s.Size, s.Access = setup.Dev, m.Size, setup.ReadOnly
	case OpMask:
		s.Op, s.Access = setup.Hide, ""
		if m.Blank && !m.Dir {
			s.Op, s.Data = setup.Blank, m.Data
		}
	}
	if m.lower != "" && s.From == "" {
		// The path lies in an overlay, which has inodes of its own, so the set-up program checks
		// the host's file. A command of the session may have removed it.
		j.Unchanged = append(j.Unchanged, setup.Inode{Path: m.lower, Dev: m.Dev, Ino: m.Ino})
		s.Inode = setup.Inode{}
	}
	j.Mounts = append(j.Mounts, s)
}

// keeps reports whether the tree shows the same at the place of mount i without it. A
// writable part of a read-only tree is taken from the host: the tree's own mount cannot
// be written.
func (p *Plan) keeps(i int) bool {
	m := p.Mounts[i]
	if !m.Held || p.tops[i] == i || m.Op == OpWritable {
		return false
	}
	around := p.Mounts[coveredBy(p.Mounts[:i], m.Dest)]
	return m.Source == filepath.Join(around.Source, strings.TrimPrefix(m.Dest, around.Dest))
}

// inode is the inode that the set-up program must find.
func (m Mount) inode() setup.Inode {
	if !m.Held {
		return setup.Inode{}
	}
	return setup.Inode{Path: m.Source + m.Dest, Dev: m.Dev, Ino: m.Ino}
}

func (m Mount) allowed() setup.Access {
	switch {
	case m.Own:
		return setup.Own
	case m.Op == OpReadOnly || m.Op == OpProtect:
		return setup.ReadOnly
	}
	return setup.Writable
}

func octal(mode string) uint32 {
	n, _ := strconv.ParseUint(mode, 8, 12) // the plan made it
	return uint32(n)
}

// options are those of bwrap. The tree comes first, from the set-up program.
//
// --unshare-user is named in addition to --unshare-all, which only tries: as root on a
// machine without user namespaces bwrap would go on with every capability. --new-session
// keeps the command from typing into the caller's terminal and from signalling the
// caller's process group; a sandbox with a terminal of its own has a session of its own
// already.
func (p *Plan) options(proc []Mount) []string {
	words := []string{"--unshare-user", "--unshare-all"}
	if p.Net || p.Gate != nil { // bwrap is in the sandbox's network already
		words = append(words, "--share-net")
	}
	if !p.AllowNested {
		words = append(words, "--disable-userns")
	}
	words = append(words, "--die-with-parent")
	if !p.Terminal {
		words = append(words, "--new-session")
	}
	// The set-up program is uid 0 of its namespace.
	words = append(words, "--cap-drop", "ALL", "--uid", strconv.Itoa(os.Geteuid()), "--gid", strconv.Itoa(os.Getegid()))
	for _, kv := range p.widened() {
		name, value, _ := strings.Cut(kv, "=")
		words = append(words, "--setenv", name, value)
	}
	for _, m := range proc {
		switch m.Op {
		case OpProc:
			words = append(words, "--proc", m.Dest)
		case OpMask:
			words = append(words, "--ro-bind", "/dev/null", m.Dest)
		default:
			words = append(words, "--ro-bind", m.Source, m.Dest)
		}
	}
	return append(words, "--chdir", p.Chdir)
}

// plain is the environment of bwrap itself. bwrap runs on the host, and so does the
// set-up program: neither gets variables that make a program load code, even if the
// caller passes them to the command.
func (p *Plan) plain() []string {
	return slices.DeleteFunc(slices.Clone(p.Env), carriesMore)
}

// widened is the rest: bwrap sets it for the command only.
func (p *Plan) widened() []string {
	return slices.DeleteFunc(slices.Clone(p.Env), func(kv string) bool { return !carriesMore(kv) })
}

func carriesMore(kv string) bool {
	name, value, _ := strings.Cut(kv, "=")
	return dropped(name, value) != "" && !slices.Contains(ownNames, name)
}

// Printable returns a command line that makes the sandbox for argv, as the monitor does,
// from a job in its last word. It omits limits by cgroup, passed descriptors and the
// overlays of a session: only the monitor can add them.
func (p *Plan) Printable(bwrap Binary, argv []string) ([]string, error) {
	unshare := FindTrusted("unshare")
	if unshare == "" {
		return nil, errNoUnshare
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := p.Job(bwrap, argv)
	if err != nil {
		return nil, err
	}
	if job.Net != nil { // the address of a proxy may hold a password
		network := *job.Net
		network.Proxy = gate.Proxy{}
		job.Net = &network
	}
	text, err := bytejson.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return p.asOwner([]string{unshare, "--user", "--map-root-user", "--", self, setup.Mode.Name, string(text)})
}

// errNoUnshare refuses to make a sandbox without unshare(1). A Go program cannot enter a
// user namespace itself: it has several threads.
var errNoUnshare = &Refusal{Reason: "cannot make a sandbox: unshare is missing", Advice: "install util-linux"}

// asOwner puts a program before a line that changes root to the project's owner, if this
// process has become that user: the plan is the owner's, and not safe for root.
func (p *Plan) asOwner(line []string) ([]string, error) {
	if p.RunAs == 0 {
		return line, nil
	}
	setpriv := FindTrusted("setpriv")
	if setpriv == "" {
		return nil, &Refusal{
			Reason: fmt.Sprintf("cannot print a line that becomes uid %d, the owner of the project: setpriv is missing", p.RunAs),
			Advice: "install util-linux, or run as that user",
		}
	}
	return append([]string{setpriv, fmt.Sprintf("--reuid=%d", p.RunAs), fmt.Sprintf("--regid=%d", os.Getegid()), "--clear-groups", "--"}, line...), nil
}
