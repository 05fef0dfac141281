package bwrap

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/internal/fsat"
)

// Access is the access of the command at a path.
type Access string

// The kinds of access.
const (
	Absent    Access = "absent"    // no file is there
	Hidden    Access = "hidden"    // the host has a file there, behind a mask
	ReadOnly  Access = "read-only" // it can be read, as far as its mode allows
	Writable  Access = "writable"  // it can be written, as far as its mode allows
	Overlaid  Access = "overlay"   // it looks writable; writes do not reach the host
	Scratch   Access = "scratch"   // writable, in memory, for as long as the sandbox lives
	Synthetic Access = "synthetic" // made by pk, or by the kernel
)

// access is the access at the mount's destination and below it.
func (m Mount) access() Access {
	switch m.Op {
	case OpWritable, OpPin:
		if m.trial() {
			return Overlaid
		}
		return Writable
	case OpOverlay:
		return Overlaid
	case OpEmpty:
		if m.Sealed {
			return ReadOnly
		}
		return Scratch
	case OpMask:
		if m.Data != nil {
			return Synthetic
		}
		return Hidden
	case OpData, OpProc, OpDev:
		return Synthetic
	}
	return ReadOnly
}

// Verdict describes a path in the sandbox, with the rule behind it.
type Verdict struct {
	Path   string // as the caller gave it
	Place  string // the resolved path inside
	Access Access
	Host   string // path on the host; "" for none
	Rule   string // the rule that decided
	Mount  string // the mount point of the deciding mount; "" if there is none
}

// Explain returns the verdict about one path. A relative path starts at the project root.
func (p *Plan) Explain(path string) Verdict {
	v := Verdict{Path: path}
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.Chdir, path)
	}
	host, place, ok := p.follow(path)
	v.Place, v.Host = place, host
	m, covered := cover(p.unpinned(), place)
	switch {
	case !covered:
		v.Access, v.Rule = ReadOnly, "default: a directory that leads to what is shown"
		if !ok {
			v.Access, v.Rule = Absent, "default: nothing shows it"
		}
		return v
	case m.Op == OpMask:
		v.Access = m.access()
	case !ok:
		v.Access = Absent
	default:
		v.Access = m.access()
	}
	v.Rule, v.Mount = m.Rule, m.Dest
	if w, ok := p.watching(m, place); ok && w.Way {
		v.Rule += "; moved aside if the command makes it a link: " + w.Rule
	} else if ok {
		v.Rule += "; moved aside if the command makes it: " + w.Rule
	}
	return v
}

// unpinned are the mounts without pins. A pin serves the mounts below it, and does not change the view.
func (p *Plan) unpinned() []Mount {
	return slices.DeleteFunc(slices.Clone(p.Mounts), func(m Mount) bool { return m.Op == OpPin })
}

// watching returns the watch of a place in the tree of m, or of a directory above it. Files in a directory on the way
// to a repository are not watched.
func (p *Plan) watching(m Mount, place string) (Watch, bool) {
	host, shown := m.host(place)
	at := slices.IndexFunc(p.Watched, func(w Watch) bool {
		return shown && w.Link == "" && m.Op == OpWritable && (host == w.Path || !w.Way && fsat.Within(host, w.Path))
	})
	if at < 0 {
		return Watch{}, false
	}
	return p.Watched[at], true
}

// Flags lists the properties of the sandbox that are not mounts, as options of bwrap or
// steps before it, each with its rule.
func (p *Plan) Flags() []Flag {
	flags := []Flag{
		{"--unshare-user", "default: a user of its own, without capabilities"},
		{"--unshare-all", "default: processes, IPC and host name of its own"},
	}
	if p.Net {
		flags = append(flags, Flag{"--share-net", "default: the host's network (--net host)"})
	}
	if p.Gate != nil {
		flags = append(flags, Flag{"network: " + p.Gate.String(), p.netRule()})
	}
	if !p.AllowNested {
		flags = append(flags, Flag{"--disable-userns", "default: no user namespaces inside (--allow-nested)"})
	}
	if p.Filter != nil {
		flags = append(flags, Flag{"--seccomp", "default: no keys, io_uring, bpf, perf events, userfaultfd, odd sockets, set-user-ID files; no typing into a terminal"})
	}
	if p.Limits != "" {
		flags = append(flags, Flag{"limits", "options " + p.Limits})
	}
	if p.RunAs != 0 {
		flags = append(flags, Flag{fmt.Sprintf("uid %d", p.RunAs), "default: the project's owner, as the caller is root"})
	}
	for _, fd := range p.PassFDs {
		flags = append(flags, Flag{fmt.Sprintf("descriptor %d", fd), "option --pass-fd"})
	}
	flags = append(flags,
		Flag{"--cap-drop ALL", "default: no capabilities"},
		Flag{"--new-session", "default: the caller's terminal cannot be typed into"},
		Flag{"--die-with-parent", "default: nothing outlives pk"},
		Flag{"session keyring", "default: a new and empty one"},
		Flag{"abstract sockets", "default: none of outside, where the kernel can (Linux 6.12)"},
		Flag{"read-only /", "default: nothing is written beside what is shown"},
	)
	return append(flags, p.Policy...)
}

// Flag is one property of the sandbox.
type Flag struct{ Text, Rule string }

// record is a part of a plan in JSON, on one line. Fields that do not apply are left out.
type record struct {
	Kind      string `json:"kind"` // mount, variable, flag, watch, socket, warning, verdict
	Op        Op     `json:"op,omitempty"`
	Dest      string `json:"dest,omitempty"`
	DestB64   []byte `json:"dest_base64,omitempty"`
	Source    string `json:"source,omitempty"`
	SourceB64 []byte `json:"source_base64,omitempty"`
	Access    Access `json:"access,omitempty"`
	Perms     string `json:"perms,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Held      bool   `json:"held,omitempty"`
	Name      string `json:"name,omitempty"`
	NameB64   []byte `json:"name_base64,omitempty"`
	Value     string `json:"value,omitempty"`
	ValueB64  []byte `json:"value_base64,omitempty"`
	Dropped   bool   `json:"dropped,omitempty"`
	Path      string `json:"path,omitempty"`
	PathB64   []byte `json:"path_base64,omitempty"`
	Place     string `json:"place,omitempty"`
	PlaceB64  []byte `json:"place_base64,omitempty"`
	Host      string `json:"host,omitempty"`
	HostB64   []byte `json:"host_base64,omitempty"`
	Mount     string `json:"mount,omitempty"`
	MountB64  []byte `json:"mount_base64,omitempty"`
	Rule      string `json:"rule,omitempty"`
	Text      string `json:"text,omitempty"`
}

// JSON returns the plan as lines of JSON, in the order of its steps.
func (p *Plan) JSON() []string {
	var lines []string
	for _, m := range p.Mounts {
		r := record{Kind: "mount", Op: m.Op, Access: m.access(), Perms: m.Perms, Size: m.Size, Held: m.Held, Rule: m.Rule}
		r.Dest, r.DestB64 = text(m.Dest)
		r.Source, r.SourceB64 = text(m.Source)
		lines = append(lines, r.line())
	}
	for _, v := range p.Vars {
		r := record{Kind: "variable", Dropped: v.Dropped, Rule: v.Rule}
		r.Name, r.NameB64 = text(v.Name)
		r.Value, r.ValueB64 = text(v.Value)
		lines = append(lines, r.line())
	}
	for _, f := range p.Flags() {
		lines = append(lines, record{Kind: "flag", Text: f.Text, Rule: f.Rule}.line())
	}
	for _, w := range p.Watched {
		r := record{Kind: "watch", Rule: w.Rule}
		r.Path, r.PathB64 = text(w.Path)
		r.Source, r.SourceB64 = text(w.Link)
		lines = append(lines, r.line())
	}
	for _, w := range p.Warnings {
		lines = append(lines, record{Kind: "warning", Text: w}.line())
	}
	return lines
}

// SocketsJSON formats the result of Sockets as lines of JSON.
func (p *Plan) SocketsJSON() []string {
	var lines []string
	found, complete := p.Sockets()
	for _, socket := range found {
		r := record{Kind: "socket", Rule: p.Explain(socket).Rule}
		r.Path, r.PathB64 = text(socket)
		lines = append(lines, r.line())
	}
	if !complete {
		lines = append(lines, record{Kind: "warning", Text: tooMany}.line())
	}
	return lines
}

// JSON is the verdict as one line.
func (v Verdict) JSON() string {
	r := record{Kind: "verdict", Access: v.Access, Rule: v.Rule}
	r.Path, r.PathB64 = text(v.Path)
	r.Place, r.PlaceB64 = text(v.Place)
	r.Host, r.HostB64 = text(v.Host)
	r.Mount, r.MountB64 = text(v.Mount)
	return r.line()
}

func (r record) line() string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		panic("internal error: a record that is not JSON: " + err.Error())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// text returns s for a field, or, if it is not UTF-8, for the field's _base64 twin.
func text(s string) (string, []byte) {
	if strings.ToValidUTF8(s, "") == s {
		return s, nil
	}
	return "", []byte(s)
}

// netRule returns the option behind the network.
func (p *Plan) netRule() string {
	if p.Gate.Allow {
		return "option --net allow: every other host is refused, and reported"
	}
	return "option --net none: a loopback of its own, which the commands of a session share"
}
