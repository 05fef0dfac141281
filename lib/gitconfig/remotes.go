package gitconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitlock"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// lockTime is how long another git may hold the lock: git itself waits as long for
// packed-refs, and for a configuration not at all.
const lockTime = time.Second

// maxStays bounds the keys that are named: a command may have made thousands.
const maxStays = 64

// LandRemotes carries upstreams and remotes over from a layer's copy of a repository's
// configuration to the host's file: branch.*.remote, merge and rebase, and remote.*.url,
// pushurl, fetch and tagOpt, with URLs of other machines. Nothing else in the host's file
// changes by a byte. It replaces the file under git's lock, and runs no git.
//
// The layer is hostile. base is the text that it was copied from: later changes of the
// host stay. nil means that the host has changed nothing.
//
// stays names the keys whose differences were not carried over, sorted, each once.
func LandRemotes(host string, base, layer []byte) (changed []Change, stays []string, err error) {
	host, err = filepath.EvalSymlinks(host) // as git does, which locks the file itself
	if err != nil {
		return nil, nil, err
	}
	l, err := landOn(host, base, layer)
	if err != nil || bytes.Equal(l.before, l.after) {
		gitlock.Sweep(host) // a process that has done it may have been killed before it unlocked
		return nil, l.stays, err
	}
	lock, err := gitlock.Acquire(host, time.Now().Add(lockTime))
	if err != nil {
		return nil, l.stays, err
	}
	l, err = landOn(host, base, layer)
	if err == nil && !bytes.Equal(l.before, l.after) {
		err = lock.Replace(l.after, time.Time{})
	}
	if err = errors.Join(err, lock.Release()); err != nil {
		l.changed = nil
	}
	return l.changed, l.stays, err
}

// Change is a key of the host's file that has got other values.
type Change struct {
	Key      string
	Old, New []string
}

// Remote returns the part of a key by which it names a remote, or a branch; and the name
// of the variable, such as "remote.url".
func (c Change) Remote() (of, variable string) {
	section, sub, name, _ := splitKey(c.Key)
	return sub, section + "." + name
}

// PreviewRemotes returns the text of the host's file before and after LandRemotes,
// without changing it.
func PreviewRemotes(host string, base, layer []byte) (before, after []byte, err error) {
	if host, err = filepath.EvalSymlinks(host); err != nil {
		return nil, nil, err
	}
	l, err := landOn(host, base, layer)
	return l.before, l.after, err
}

// landing is the host's file before and after.
type landing struct {
	before, after []byte
	changed       []Change
	stays         []string
}

func landOn(host string, base, layer []byte) (l landing, err error) {
	l.before, err = readAt(unix.AT_FDCWD, host, 0, maxFile)
	if err != nil {
		return landing{}, fmt.Errorf("cannot read %q: %w", host, err)
	}
	if base == nil {
		base = l.before
	}
	if err := l.land(base, layer); err != nil {
		return l, fmt.Errorf("cannot change %q: %w", host, err)
	}
	return l, nil
}

// settings are the entries of a file by key.
type settings map[string][]Entry

func (s settings) same(other settings, key string) bool { return sameValues(s[key], other[key]) }

func (s settings) values(key string) (values []string) {
	for _, e := range s[key] {
		values = append(values, e.Value)
	}
	return values
}

func sameValues(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(a, b Entry) bool { return a.Value == b.Value && a.NoValue == b.NoValue })
}

func byKey(entries []Entry) settings {
	s := settings{}
	for _, e := range entries {
		s[e.Key] = append(s[e.Key], e)
	}
	return s
}

// land applies the changes from base to layer that may land to the host's text.
func (l *landing) land(base, layer []byte) (err error) {
	if len(layer) > maxFile {
		return overlay.ErrTooLarge
	}
	var files [3]settings
	for i, text := range [][]byte{l.before, base, layer} {
		entries, err := Parse([]string{"host", "base", "layer"}[i], text)
		if err != nil {
			return err
		}
		files[i] = byKey(entries)
	}
	var edits settings
	edits, l.stays = choose(files[0], files[1], files[2])
	for _, key := range slices.Sorted(maps.Keys(edits)) {
		l.changed = append(l.changed, Change{key, files[0].values(key), edits.values(key)})
	}
	l.after, err = rewrite(l.before, edits)
	return err
}

// choose compares the files and returns the new values of the keys that land.
func choose(host, base, layer settings) (edits settings, stays []string) {
	edits = settings{}
	keys := maps.Clone(base)
	maps.Copy(keys, layer)
	var differ []string
	for key := range keys {
		if layer.same(base, key) || layer.same(host, key) {
			continue
		}
		differ = append(differ, key)
		if host.same(base, key) && mayLand(key, layer[key]) {
			edits[key] = layer[key]
		}
	}
	// Git takes the name of a remote without a URL for a path, and runs the hooks that
	// it finds there. So no remote loses its last URL, none begins without one, and no
	// branch follows a missing remote.
	hasURL := func(remote string) bool {
		url := "remote." + remote + ".url"
		values, edited := edits[url]
		if !edited {
			values = host[url]
		}
		return len(values) > 0
	}
	for _, section := range []string{"remote", "branch"} {
		var without []string
		for key, values := range edits {
			of, remote, name, _ := splitKey(key)
			if of == "branch" {
				remote = "."
				if name == "remote" && len(values) > 0 {
					remote = values[0].Value
				}
			}
			if of == section && remote != "." && !hasURL(remote) {
				without = append(without, key)
			}
		}
		for _, key := range without {
			delete(edits, key)
		}
	}
	for _, key := range differ {
		if _, lands := edits[key]; !lands {
			stays = append(stays, printable(key))
		}
	}
	slices.Sort(stays)
	if more := len(stays) - maxStays; more > 0 {
		stays = append(stays[:maxStays], fmt.Sprintf("and %d more", more))
	}
	return edits, stays
}

// printable is a key that is safe for a terminal.
func printable(key string) string {
	if quoted := strconv.Quote(key); quoted[1:len(quoted)-1] != strings.ReplaceAll(key, `"`, `\"`) {
		return quoted
	}
	return key
}

// mayLand reports whether these values, or none, of a key may land.
func mayLand(key string, values []Entry) bool {
	section, sub, name, hasSub := splitKey(key)
	if !hasSub || !gitplace.IsBranch(sub) || section == "remote" && !gitplace.IsPlain(sub) {
		return false
	}
	several := false
	var valid func(value string) bool
	switch section + "." + name {
	case "branch.remote":
		valid = func(v string) bool { return v == "." || gitplace.IsBranch(v) }
	case "branch.merge":
		several = true // an octopus
		valid = isBranch
	case "branch.rebase":
		valid = func(v string) bool { return v == "true" || v == "false" || v == "merges" }
	case "remote.url", "remote.pushurl":
		several = true // push goes to all of them
		valid = mayLandURL
	case "remote.fetch":
		several = true
		valid = func(v string) bool { return isRefspec(sub, v) }
	case "remote.tagopt":
		valid = func(v string) bool { return v == "--tags" || v == "--no-tags" }
	default:
		return false
	}
	for _, e := range values {
		if e.NoValue || !valid(e.Value) || !gitplace.IsPlain(e.Value) {
			return false
		}
	}
	return several || len(values) <= 1
}

// mayLandURL refuses ".." as well: the user's url.*.insteadOf may make a local path of
// a URL's beginning.
func mayLandURL(s string) bool {
	u, ok := parseURL(s)
	return ok && (u.scheme != "" || u.user != "") && strings.Trim(u.path, "/") != "" && !slices.Contains(strings.Split(u.path, "/"), "..")
}

func isBranch(ref string) bool {
	name, ok := strings.CutPrefix(ref, "refs/heads/")
	return ok && gitplace.IsBranch(name)
}

// isRefspec accepts a refspec that fetches branches to the remote's own refs, or tags
// without overwriting any.
func isRefspec(remote, spec string) bool {
	if spec == "refs/tags/*:refs/tags/*" {
		return true
	}
	from, to, _ := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
	name, ok := strings.CutPrefix(from, "refs/heads/")
	return ok && (name == "*" || gitplace.IsBranch(name)) && to == "refs/remotes/"+remote+"/"+name
}

// splice is a change of a text.
type splice struct {
	start, end int
	text       string
}

// rewrite changes the values of keys, and leaves the rest as it is. The result is read
// again: it is an error if anything else would be different.
func rewrite(text []byte, edits settings) ([]byte, error) {
	if len(edits) == 0 {
		return text, nil
	}
	p, err := parse("host", text)
	if err != nil {
		return nil, err
	}
	var splices []splice
	added := map[string]string{}   // lines by section
	line := func(key string) int { // in the layer, whose order new keys have
		if len(edits[key]) == 0 {
			return 0
		}
		return edits[key][0].Line
	}
	byLine := func(a, b string) int { return cmp.Or(line(a)-line(b), strings.Compare(a, b)) }
	for _, key := range slices.SortedFunc(maps.Keys(edits), byLine) {
		values := edits[key]
		for i, e := range p.entries {
			if e.Key != key {
				continue
			}
			span := p.spans[i]
			switch {
			case len(values) == 0:
				splices = append(splices, removal(text, span))
				continue
			case !sameValues(values[:1], []Entry{e}):
				line := strings.TrimLeft(formatLine(values[0]), "\t")
				_, _, name, _ := splitKey(key)
				splices = append(splices, splice{span[0] + len(name), span[1], line[len(name):]})
			}
			values = values[1:]
		}
		for _, e := range values {
			added[sectionOf(key)] += formatLine(e)
		}
	}
	// New sections follow the lines of the last one: both are at the end of the text.
	isNew := func(section string) int {
		if slices.ContainsFunc(p.headers, func(h header) bool { return h.section == section }) {
			return 0
		}
		return 1
	}
	byPlace := func(a, b string) int { return cmp.Or(isNew(a)-isNew(b), strings.Compare(a, b)) }
	for _, section := range slices.SortedFunc(maps.Keys(added), byPlace) {
		splices = append(splices, p.insertion(text, section, added[section]))
	}
	slices.SortStableFunc(splices, func(a, b splice) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, s := range splices {
		out = append(append(out, text[at:s.start]...), s.text...)
		at = s.end
	}
	out = append(out, text[at:]...)
	return out, verify(p.entries, out, edits)
}

// removal deletes a whole line, or the part behind a header on it.
func removal(text []byte, span [2]int) splice {
	start, end := span[0], span[1]
	for start > 0 && (text[start-1] == ' ' || text[start-1] == '\t') {
		start--
	}
	if start > 0 && text[start-1] != '\n' {
		return splice{start, end, "\n"}
	}
	return splice{start, end, ""}
}

// insertion adds lines at the end of a section, or a section at the end.
func (p *parser) insertion(text []byte, section, lines string) splice {
	at, last := len(text), -1
	for i, h := range p.headers {
		if h.section == section {
			last = i
		}
	}
	if last < 0 {
		lines = formatHeader(section+".") + lines
	} else {
		h := p.headers[last]
		entries := len(p.entries)
		if last+1 < len(p.headers) {
			entries = p.headers[last+1].entries
		}
		if at = h.end; entries > h.entries {
			at = p.spans[entries-1][1]
		} else if at < len(text) && text[at] == '\n' {
			at++
		}
	}
	if at > 0 && text[at-1] != '\n' {
		lines = "\n" + lines
	}
	return splice{at, at, lines}
}

func verify(old []Entry, text []byte, edits settings) error {
	if len(text) > maxFile {
		return overlay.ErrTooLarge
	}
	entries, err := Parse("host", text)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	edited := func(e Entry) bool { _, ok := edits[e.Key]; return ok }
	others := func(entries []Entry) []Entry { return slices.DeleteFunc(slices.Clone(entries), edited) }
	same := slices.EqualFunc(others(old), others(entries), func(a, b Entry) bool {
		return a.Key == b.Key && sameValues([]Entry{a}, []Entry{b})
	})
	now := byKey(entries)
	for key := range edits {
		same = same && now.same(edits, key)
	}
	if !same {
		return errors.New("its form is too unusual to be changed")
	}
	return nil
}
