// Package refs reads the refs, HEAD and reflogs of a git directory, and finds the
// changes that a command made to them in an overlay's upper layer. It makes these
// changes in the git directory as git does: with lock files, compare and swap, and
// reflogs.
//
// The git directory is trusted. The layer is not: a command made it, and another
// one may be changing it. Only the "files" format of refs is known; a repository
// with reftables is refused.
package refs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitlock"
)

// Host is a git directory of the host. Paths are absolute.
type Host struct {
	Common string // holds refs, packed-refs, logs
	Git    string // holds HEAD; Common, or Common/worktrees/NAME of a linked worktree
	HexLen int    // of an object ID: 40 or 64
}

// Change is a ref or HEAD whose value in the layer differs from the one with which the
// command started. A value is an object ID or a target; with neither there is no ref.
// Changes of logs alone exist only for HEAD and refs/stash.
type Change struct {
	Name      string
	Old, New  string // object IDs in lower-case hex
	OldTarget string // of a symbolic ref, such as refs/heads/main
	Target    string
	Moved     bool       // the host has changed the ref meanwhile; Old is a guess
	Aside     string     // why the host's value stays and the new one is kept below refs/pk; "": it need not
	Log       []LogEntry // only in the layer's log; of refs/stash: all of it
	logSum    string     // SHA-256 of the layer's log, of HEAD and refs/stash
	start     string     // the ID with which the command started, as far as the logs show; may be empty
	guessed   bool       // the layer's packed-refs alone has the new value, which may be the host's of then
}

// Refused is an entry of the layer that is not a valid change. The name may hold any bytes
// of a file's name.
type Refused struct {
	Name, Reason string
	Broken       bool // the file holds no value, or no list: the next command has the host's
}

// Options of Changes and Apply.
type Options struct {
	Session string // named in reflogs, and part of refs/pk/SESSION/…

	// Kind returns the type of an object on the host, such as "commit". A ref to an unknown
	// object is refused.
	Kind func(id string) (string, error)

	// Sharing is that of the repository.
	Sharing gitlock.Sharing

	// Clean, if not nil, reports whether git on the host may check out a commit. A line of a
	// log that leads to another does not land.
	Clean func(id string) bool

	// Switch, if not nil, reports whether HEAD may go to a commit of the host's: git finds one
	// by the text of a switch in the log of HEAD.
	Switch func(id string) bool

	// Made, if not nil, reports whether the command has made or deleted a branch: the log of HEAD
	// does not name it.
	Made func(branch string) bool

	// Going, if not nil, reports whether another Apply is to delete a reference: none waits for that in vain.
	Going func(name string) bool

	// IsAncestor, if not nil, reports whether commit a is in the history of one of others:
	// of commits, or of tags of such. It may fail to find it.
	IsAncestor func(a string, others ...string) bool

	// Since is the time from Now before the layer was mounted. A ref whose file has an older
	// ctime has the value with which the command started.
	Since time.Time

	// Held is the same for single refs and HEAD whose files in the layer are from an
	// earlier mount.
	Held map[string]time.Time

	// Began holds values of references with which the command started, in the form of Landed.
	// A reference that still has that value is not changed.
	Began map[string]string

	// Packed is the path of a copy of the host's packed-refs of then. Without such a file there was none, or
	// it is not known.
	Packed string

	// Landed holds the values that Apply has landed since then: object IDs, or
	// "ref: " and a target, or "" for a deletion; the SHA-256 of logs/HEAD and
	// logs/refs/stash; and two ctimes of packed-refs, from Apply and before. Apply adds
	// to it. Each worktree needs its own. A caller that
	// removes a ref's file from the layer must delete its entry: else the ref counts
	// as a deletion of the command's.
	Landed map[string]string

	// Locking, if not nil, is called with a file of the host's before Apply locks it.
	Locking func(file string)

	Committer string // "Name <mail>" for entries in reflogs; may be empty
}

// since is the time before which the host's ref has the value with which a command
// started.
func (o *Options) since(name string) time.Time {
	if t, ok := o.Held[name]; ok {
		return t
	}
	return o.Since
}

// Outcome of a change.
type Outcome int

const (
	Refuse Outcome = iota // nothing was changed; Reason has the reason
	Landed                // the host's ref has the new value
	Kept                  // the host moved the ref; the new value, if any, is in the ref Result.Kept
)

func (o Outcome) String() string {
	return [...]string{"refused", "landed", "kept"}[o]
}

// Result is the outcome of one change. Values have the form of Options.Landed.
type Result struct {
	Name     string
	Outcome  Outcome
	Kept     string // a ref below refs/pk
	Trash    string // the ref below refs/pk/trash that holds the old value
	Reason   string
	Aside    string // of the change
	Old, New string // Old is the host's value before
}

// Value returns the object ID of a ref or of HEAD on the host, or the ref to which it leads.
func Value(h Host, name string) (id, target string, err error) {
	r, err := newReader(h)
	if err != nil {
		return "", "", err
	}
	now, err := r.read(name)
	return now.id, now.target, err
}

// Own returns the commits of the host's branches, and of its stash.
func Own(h Host) (ids []string, err error) {
	r, err := newReader(h)
	if err != nil {
		return nil, err
	}
	p, err := r.packed()
	if err != nil {
		return nil, err
	}
	p.each(func(name, id string) bool {
		if strings.HasPrefix(name, heads) {
			ids = append(ids, id)
		}
		return true
	})
	err = filepath.WalkDir(filepath.Join(h.Common, heads), func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // it may be gone
		}
		if name, err := filepath.Rel(h.Common, file); err == nil {
			if now, err := r.readLoose(name); err == nil {
				ids = append(ids, now.id)
			}
		}
		return nil
	})
	stashes, failed := Stashes(h)
	return append(ids, stashes...), errors.Join(err, failed)
}

// A Remote is a remote branch of the host's.
type Remote struct{ Name, ID string }

// RemotesNamed returns the remote branches that may have one of some names: which part of a
// reference names the remote, its configuration says.
func RemotesNamed(h Host, names []string) (map[string][]Remote, error) {
	r, err := newReader(h)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	found := map[string][]Remote{}
	var failed error
	add := func(ref string) {
		rest, is := strings.CutPrefix(ref, remotes)
		for is {
			if _, rest, is = strings.Cut(rest, "/"); is && wanted[rest] {
				now, err := r.read(ref)
				if failed = errors.Join(failed, err); now.id != "" && !slices.Contains(found[rest], Remote{ref, now.id}) {
					found[rest] = append(found[rest], Remote{ref, now.id})
				}
			}
		}
	}
	err = r.loose(strings.TrimSuffix(remotes, "/"), add)
	p, perr := r.packed() // after the loose ones: git removes these when it has packed them
	if perr == nil {
		p.each(func(name, _ string) bool { add(name); return true })
	}
	return found, errors.Join(err, perr, failed)
}

// Tips returns the IDs to which references of the host's lead, and its detached HEADs. changed has
// the results of Changed for the files and directories that it has read, before that; before is
// that of the last time. References that have not changed since are left out.
func Tips(h Host, before map[string]int64) (ids []string, changed map[string]int64) {
	r, err := newReader(h)
	if err != nil {
		return nil, nil
	}
	changed = map[string]int64{}
	has := map[string]bool{"": true}
	add := func(id string) {
		if !has[id] {
			has[id], ids = true, append(ids, id)
		}
	}
	isNew := func(name string) bool {
		changed[name] = Changed(h.Common, name)
		return before == nil || before[name] != changed[name]
	}
	file := func(name string) {
		if now, err := r.readLoose(name); err == nil {
			add(now.id)
		}
	}
	below := map[string][]string{} // directories of references, as they were
	for name := range before {
		below[filepath.Dir(name)] = append(below[filepath.Dir(name)], name)
	}
	var walk func(dir string)
	walk = func(dir string) {
		last := before[dir]
		fresh := isNew(dir)
		if !fresh { // it has the same directories
			for _, sub := range below[dir] {
				walk(sub)
			}
			return
		}
		entries, _ := os.ReadDir(filepath.Join(h.Common, dir))
		for _, e := range entries {
			name := dir + "/" + e.Name()
			switch {
			case e.IsDir():
				walk(name)
			case last == 0 || Changed(h.Common, name) >= last:
				file(name)
			}
		}
	}
	isNew("worktrees")
	for _, git := range gitDirs(h.Common) {
		walk(git + "refs")
	}
	for _, name := range Texts(h.Common) {
		if isNew(name) {
			idsIn(filepath.Join(h.Common, name), h.HexLen, add)
		}
	}
	if isNew("logs/" + stash) {
		stashes, _ := Stashes(h)
		for _, id := range stashes {
			add(id)
		}
	}
	if isNew(packedRefs) {
		if p, err := r.packed(); err == nil {
			p.each(func(_, id string) bool { add(id); return true })
		}
	}
	return ids, changed
}

// gitDirs lists the directories that have a HEAD, with a slash, below the common one.
func gitDirs(common string) []string {
	list := []string{""}
	worktrees, _ := os.ReadDir(filepath.Join(common, "worktrees"))
	for _, e := range worktrees {
		list = append(list, "worktrees/"+e.Name()+"/")
	}
	return list
}

// Texts lists the files in which a git directory, and those of its work trees, name commits beside
// their references: HEAD, FETCH_HEAD and the like, the log of HEAD, and the work under way. It leaves
// out messages, in which people name commits of other repositories.
func Texts(common string) (names []string) {
	for _, git := range gitDirs(common) {
		entries, _ := os.ReadDir(filepath.Join(common, git))
		for _, e := range entries {
			if name := e.Name(); !e.IsDir() && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" && !strings.HasSuffix(name, "MSG") {
				names = append(names, git+name)
			}
		}
		names = append(names, git+"logs/HEAD")
		for _, dir := range []string{"rebase-merge", "rebase-apply", "sequencer"} {
			names = append(names, git+dir)
			entries, _ := os.ReadDir(filepath.Join(common, git, dir))
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), "message") && e.Name() != "patch" {
					names = append(names, git+dir+"/"+e.Name())
				}
			}
		}
	}
	return names
}

// maxText bounds the bytes that are read of a text, from its end.
const maxText = 64 << 10

// idsIn calls add with the IDs at the beginnings of the lines of a file.
func idsIn(file string, hexLen int, add func(id string)) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxText {
		_, _ = f.Seek(-maxText, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, maxText))
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		for _, word := range words[:min(len(words), 3)] { // "OLD NEW", "pick ID", "merge -C ID"; a subject follows
			if len(word) == hexLen && strings.Trim(word, "0123456789abcdef") == "" && strings.Trim(word, "0") != "" {
				add(word)
			}
		}
	}
}

// Changed returns the ctime of a file or directory below a git directory, in nanoseconds, or -1.
func Changed(common, name string) int64 {
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(common, name), &st) != nil {
		return -1
	}
	return st.Ctim.Nano()
}

// Stashes returns the commits of the host's stash, the oldest first.
func Stashes(h Host) (ids []string, err error) {
	r, err := newReader(h)
	if err != nil {
		return nil, err
	}
	log, err := r.readLog(stash)
	for line := range strings.Lines(log) {
		if e, bad := parseEntry(strings.TrimSuffix(line, "\n"), h.HexLen); bad == nil {
			ids = append(ids, e.New)
		}
	}
	return ids, err
}

// Switched returns the names from which and to which HEAD was switched, as its log has them, and
// says of those from which it was that they are.
func Switched(h Host) (map[string]bool, error) {
	r, err := newReader(h)
	if err != nil {
		return nil, err
	}
	log, err := r.readLog(head)
	names := map[string]bool{}
	for line := range strings.Lines(log) {
		if _, text, ok := strings.Cut(line, moving); ok {
			from, to, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " to ")
			if names[from] = true; !names[to] {
				names[to] = false
			}
		}
	}
	return names, err
}

// fewNames is how many references are looked for one by one.
const fewNames = 16

// Has reports which of some references the host has. Of many it reads the directories.
func Has(h Host, names ...string) (map[string]bool, error) {
	r, err := newReader(h)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	listed := map[string]map[string]bool{} // names in directories
	for _, name := range names {
		if dir, base := filepath.Split(r.file(name)); len(names) > fewNames && !r.folding {
			in, known := listed[dir]
			if !known {
				in = namesIn(dir)
				listed[dir] = in
			}
			if in != nil && !in[base] {
				continue
			}
		}
		now, err := r.readLoose(name)
		if err != nil {
			return nil, err
		}
		has[name] = now.value != value{}
	}
	p, err := r.packed() // after the loose ones: git removes these when it has packed them
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		has[name] = has[name] || !PerWorktree(name) && p.get(name) != ""
	}
	return has, nil
}

// namesIn lists a directory; nil means that it cannot be read.
func namesIn(dir string) map[string]bool {
	f, err := os.Open(dir)
	if notThere(err) {
		return map[string]bool{}
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil
	}
	in := map[string]bool{}
	for _, name := range names {
		in[name] = true
	}
	return in
}

// Now returns the time of the clock that file systems take a ctime from. It may
// be some milliseconds behind time.Now.
func Now() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}

// value is the value of a ref. The zero value means that there is no ref.
type value struct{ id, target string }

func (v value) String() string {
	if v.target != "" {
		return "ref: " + v.target
	}
	return v.id
}

// content is the text of a file that holds a value.
func (v value) content() []byte { return []byte(v.String() + "\n") }

func parseLanded(s string) value {
	if target, ok := strings.CutPrefix(s, "ref: "); ok {
		return value{target: target}
	}
	return value{id: s}
}

// newValue returns the value in the layer.
func (c *Change) newValue() value { return value{c.New, c.Target} }

func (c *Change) oldValue() value { return value{c.Old, c.OldTarget} }
