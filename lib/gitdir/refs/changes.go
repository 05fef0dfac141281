package refs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Changes compares the layer with the host and returns the refs that the command changed,
// sorted by name, HEAD first. upper is the layer's upper directory, which lies over
// h.Common. An error is about the host, or a layer that is too big; the layer's own
// defects are in the second result. Changes removes locks on the host's refs that a
// killed process of pk left.
//
// A file in the layer is not always a change: git-pack-refs(1) moves values to
// packed-refs and leaves whiteouts, for example. The cost is that of the layer, not of
// the host's refs, unless the layer has a packed-refs or has removed a directory.
func Changes(h Host, upper int, o Options) ([]Change, []Refused, error) {
	r, err := newReader(h)
	if err != nil {
		return nil, nil, err
	}
	if h.reftable() {
		return nil, []Refused{{Name: "refs", Reason: errReftable.Error()}}, nil
	}
	below, err := h.below()
	if err != nil {
		return nil, nil, err
	}
	h.Sweep()
	o.Session = sessionPart(o.Session)
	var v *view
	for range maxReads {
		v = &view{reader: r, layer: layer{upper}, o: &o, below: below,
			logs: maxLogs, loose: map[string]value{}, hidden: map[string]bool{}, failed: map[string]bool{}}
		if err := v.collect(); err != nil {
			return nil, nil, err
		}
		if f, _ := v.readHead(); f == v.headFile {
			break
		}
	}
	changes, err := v.changes()
	return changes, v.refused, err
}

// maxReads bounds the repeated reads of the layer because HEAD changed meanwhile: a
// command is renaming a branch, for example.
const maxReads = 3

// view is the command's view: the layer over the host.
type view struct {
	*reader
	layer  layer
	o      *Options
	below  string  // the path of the worktree's own files
	packs  packed  // the layer's packed-refs
	packed bool    // the layer has one, or has removed the host's
	then   *packed // the host's as the commands began, once read

	headFile file
	headErr  error

	loose   map[string]value // in the layer
	hidden  map[string]bool  // the host's loose ref is not seen; false: because of a file or directory in its place
	failed  map[string]bool  // neither changed nor deleted, as the layer cannot be read
	refused []Refused
	keep    bool // no ref is deleted
	entries int
	logs    int64 // bytes of logs that may still be read
}

// refuse records a defect of the layer. Its ref stays as it is.
func (v *view) refuse(name string, format string, args ...any) {
	v.failed[name] = true
	v.refused = append(v.refused, Refused{Name: name, Reason: fmt.Sprintf(format, args...)})
}

// collect reads the layer. A command may be at work in it: git makes a branch before
// HEAD leads to it, and writes packed-refs before it removes loose refs, so they are
// read in the opposite order.
func (v *view) collect() error {
	v.headFile, v.headErr = v.readHead()
	if err := v.walk("refs", "refs"); err != nil {
		return err
	}
	if v.below != "." {
		for _, dir := range ownDirs {
			if err := v.walk(dir, path.Join(v.below, dir)); err != nil {
				return err
			}
		}
	}
	v.collectPacked()
	return nil
}

func (v *view) readHead() (file, error) { return v.layer.read(path.Join(v.below, head), maxRef) }

// collectPacked reads the layer's packed-refs. If it is invalid, no ref counts as
// deleted: it may have held them all.
func (v *view) collectPacked() {
	f, err := v.layer.read("packed-refs", maxPacked)
	if err == nil && f.hidden {
		v.packs, err = parsePacked(f.data, v.HexLen)
	}
	if err != nil {
		v.refuse("packed-refs", "%v", err)
		v.keep = true
	}
	v.packed = f.hidden && err == nil
}

// walk collects the loose refs of a directory of the layer.
func (v *view) walk(name, at string) error {
	fd, hidden, err := v.layer.open(at)
	if err != nil {
		v.refuse(name, "%v", err)
		v.keep = true
		return nil
	}
	if hidden {
		// git never removes it, so the command has removed the repository.
		if name == "refs" {
			v.refuse(name, "the command removed the directory, so no ref is deleted on the host")
			v.keep = true
		}
		if err := v.hide(name); err != nil {
			return err
		}
	}
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	return v.directory(fd, name, hidden, 1)
}

func (v *view) directory(fd int, name string, hidden bool, depth int) error {
	if depth > maxDepth {
		v.refuse(name, "the directory is too deep")
		return nil
	}
	return fsat.Each(fd, func(e fsat.Entry) error {
		if v.entries++; v.entries > maxEntries {
			if !v.keep {
				v.refuse("refs", "the command has made more than %d files there", maxEntries)
			}
			v.keep = true // those that were not read
			return nil
		}
		child := name + "/" + e.Name
		if strings.HasPrefix(e.Name, ".") || strings.HasSuffix(e.Name, ".lock") ||
			v.below != "." && name == "refs" && PerWorktree(child) {
			return nil // git does not read the former
		}
		return v.entry(fd, e.Name, child, hidden, depth)
	})
}

func (v *view) entry(dir int, base, name string, hidden bool, depth int) error {
	st, err := fsat.Lstat(dir, base)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // a command is still at work; the next call decides
	case err != nil:
		v.refuse(name, "%v", err)
		return nil
	case overlay.IsWhiteout(st):
		return v.hide(name)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return v.subdirectory(dir, base, name, hidden, depth)
	}
	data, _, err := overlay.ReadFile(dir, base, unix.O_NOFOLLOW, maxRef)
	if err == nil {
		v.loose[name], err = parseValue(string(data), v.HexLen)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		delete(v.loose, name)
		v.refuse(name, "%v", err)
		v.refused[len(v.refused)-1].Broken = err != unix.EACCES
		return nil
	}
	if info, err := os.Lstat(v.file(name)); err == nil && info.IsDir() {
		return v.cover(name, false)
	}
	return nil
}

func (v *view) subdirectory(dir int, base, name string, hidden bool, depth int) error {
	fd, err := openDir(dir, base)
	if err != nil {
		v.refuse(name, "cannot open the directory: %v", err)
		return nil
	}
	defer unix.Close(fd)
	if !hidden && overlay.IsOpaque(fd) {
		hidden = true
		if err := v.hide(name); err != nil {
			return err
		}
	}
	if info, err := os.Lstat(v.file(name)); err == nil && !info.IsDir() {
		if _, hidden := v.hidden[name]; !hidden {
			v.hidden[name] = false
		}
	}
	return v.directory(fd, name, hidden, depth+1)
}

// hide records that the command removed the host's loose refs at a path and below it.
func (v *view) hide(name string) error { return v.cover(name, true) }

// cover records that the host's loose refs at a path and below it are not seen.
func (v *view) cover(name string, removed bool) error {
	v.hidden[name] = removed
	return v.reader.loose(name, func(ref string) {
		if v.below == "." || PerWorktree(name) || !PerWorktree(ref) {
			v.hidden[ref] = removed
		}
	})
}

// seen returns the value of a ref in the command's view.
func (v *view) seen(name string, now entry) (value, error) {
	if loose, ok := v.loose[name]; ok {
		return loose, nil
	}
	landed, ours := v.o.Landed[name]
	// The mount does not show a file that the host got later: a ref that pk landed is seen
	// only if the layer has it.
	_, hidden := v.hidden[name]
	if now.loose && !hidden && !(ours && landed == now.String()) {
		return now.value, nil
	}
	if PerWorktree(name) {
		return value{}, nil
	}
	packs := v.packs
	if !v.packed {
		var err error
		if packs, err = v.reader.packed(); err != nil {
			return value{}, err
		}
	}
	return value{id: packs.get(name)}, nil
}

// candidates returns the names of the refs that may have changed.
func (v *view) candidates() ([]string, error) {
	names := map[string]bool{}
	for name := range v.loose {
		names[name] = true
	}
	for name := range v.hidden {
		names[name] = true
	}
	for name := range v.o.Landed {
		names[name] = name != head && name != stashLog && name != headLog && name != packedRefs
	}
	if v.packed {
		host, err := v.reader.packed()
		if err != nil {
			return nil, err
		}
		// git sorts the host's file, but other programs may have written it: each line
		// is checked here.
		if host, err = parsePacked(host.header+host.refs, v.HexLen); err != nil {
			return nil, fmt.Errorf("the host's packed-refs: %w", err)
		}
		var more []string
		if differences(host, v.packs, func(name string) { more = append(more, name) }); len(more) > maxEntries {
			v.refuse("packed-refs", "it changes more than %d refs", maxEntries)
			v.packed, v.keep, more = false, true, nil
		}
		for _, name := range more {
			names[name] = true
		}
	}
	if f, err := v.layer.read("logs/"+stash, maxLog); err == nil && f.hidden {
		names[stash] = true
	}
	var sorted []string
	for name, is := range names {
		if is && !v.failed[name] {
			sorted = append(sorted, name)
		}
	}
	sort.Strings(sorted)
	return sorted, nil
}

func (v *view) changes() ([]Change, error) {
	var changes []Change
	h, err := v.head() // first: without HEAD nothing is deleted
	if err != nil {
		return nil, err
	}
	names, err := v.candidates()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		c, err := v.change(name)
		if err != nil {
			return nil, err
		}
		if c != nil {
			changes = append(changes, *c)
		}
	}
	switch {
	case h == nil:
	case h.Target == "" || !v.failed[h.Target]:
		changes = slices.Insert(changes, 0, *h)
	case h.newValue() != h.oldValue():
		v.refuse(head, "its branch %q does not land", h.Target)
	}
	return changes, nil
}

// change returns the change of one ref, nil if there is none.
func (v *view) change(name string) (*Change, error) {
	now, err := v.read(name)
	if err != nil {
		v.refuse(name, "%v", err)
		return nil, nil
	}
	if !now.loose && now.value != (value{}) {
		now.changed = v.packedSince(v.o)
	}
	seen, err := v.seen(name, now)
	if err != nil {
		return nil, err
	}
	old, known, olds := v.started(name, now, v.o)
	c := &Change{Name: name, Old: old.id, OldTarget: old.target, New: seen.id, Target: seen.target, Moved: !known}
	if name == stash {
		if c.newValue() == (value{}) && !v.removed(name, now) {
			return nil, nil
		}
		return v.stashed(c, now)
	}
	removed := seen == value{}
	if _, own := v.loose[name]; seen == now.value && (own || removed) {
		v.agree(name, now)
	}
	if seen == now.value || known && seen == old || removed && !v.removed(name, now) {
		return nil, nil
	}
	if err := v.check(c); err != nil {
		if name != "refs/pk" && !strings.HasPrefix(name, ours) || !removed {
			v.refuse(name, "%v", err)
		}
		return nil, nil
	}
	c.Log, _, err = v.newLog(name)
	if !known && len(c.Log) == 0 && slices.Contains(olds, seen.id) {
		return nil, err // packed or copied in the layer, moved by the host
	}
	if stale, err := v.guess(c, now); stale || err != nil {
		return nil, err
	}
	c.start = startOf(c, olds)
	return c, err
}

// guess looks at a change that only the layer's packed-refs shows: with one reference, git writes all of
// them there, also those that the host has moved or deleted since. It reports whether the value is the
// host's of then.
func (v *view) guess(c *Change, now entry) (stale bool, err error) {
	_, loose := v.loose[c.Name]
	_, began := v.o.Began[c.Name]
	_, landed := v.o.Landed[c.Name]
	gone := now.value == value{}
	if loose || !v.packed || c.New == "" || began || landed || !c.Moved && !gone {
		return false, nil
	}
	then, err := v.packedThen()
	if err != nil {
		return false, err
	}
	was, had := then.get(c.Name), v.mayHaveHad(c.Name)
	if len(c.Log) == 0 && (was == c.New || gone && was == "" && v.hidden[c.Name]) {
		return true, nil
	}
	switch {
	case gone:
		c.Old, c.guessed = was, was != "" || had
	case was == now.id && !had: // the host has packed it anew
		c.Moved = false
	default:
		c.guessed = len(c.Log) == 0
	}
	return false, nil
}

// mayHaveHad reports whether the host may have had a file for a reference as the command began: git leaves a
// whiteout in its place, or above if it removes the directory too. If the file has gone since, the host's
// directory has changed.
func (v *view) mayHaveHad(name string) bool {
	at := name
	for ; at != "." && !v.hidden[at]; at = path.Dir(at) {
	}
	if at == name || at == "." {
		return at == name
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := os.Lstat(v.file(dir)); err == nil && info.IsDir() {
			return !ctime(info).Before(v.o.since(name))
		}
	}
	return true
}

// packedThen returns the host's packed-refs as the commands began.
func (v *view) packedThen() (packed, error) {
	if v.then == nil {
		v.then = &packed{hexLen: v.HexLen}
		data, err := os.ReadFile(v.o.Packed)
		if v.o.Packed == "" || notThere(err) {
			return *v.then, nil
		}
		if err != nil {
			return packed{}, err
		}
		if *v.then, err = openPacked(string(data), v.HexLen); err != nil {
			return packed{}, fmt.Errorf("the copy %q of the host's packed-refs: %w", v.o.Packed, err)
		}
	}
	return *v.then, nil
}

// startOf returns the ID with which the command started, or "". If the host has moved the
// ref, the layer's log decides: the host may have moved it before the command changed it.
func startOf(c *Change, olds []string) string {
	switch {
	case !c.Moved:
		return c.Old
	case len(c.Log) > 0:
		return c.Log[0].Old
	case len(olds) > 0:
		return olds[len(olds)-1]
	}
	return ""
}

// removed reports whether the command removed a ref that it does not see. Without
// a whiteout, a ref can be missing from the layer's packed-refs because the host
// packed it later; but git removes the log of a ref with it.
func (v *view) removed(name string, now entry) bool {
	if v.keep || now.value == (value{}) {
		return false
	}
	if _, landed := v.o.Landed[name]; landed || v.hidden[name] || now.changed.Before(v.o.since(name)) {
		return true
	}
	f, err := v.layer.read(v.layerLog(name), 0)
	return err == nil && f.hidden && !f.exists
}

// check applies the rules for names and targets.
func (v *view) check(c *Change) error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if c.Target != "" {
		return checkTarget(c.Name, c.Target)
	}
	return nil
}

// newLog returns the lines of the layer's log that the host's lacks. An invalid log, or one
// too many, counts as none: the ref lands with a line of pk's. The second result is the log's
// SHA-256.
func (v *view) newLog(name string) ([]LogEntry, string, error) {
	f, err := v.layer.read(v.layerLog(name), min(maxLog, v.logs))
	if err != nil || !f.exists {
		return nil, "", nil
	}
	v.logs -= int64(len(f.data))
	if info, err := os.Stat(v.log(name)); err == nil {
		if v.logs -= info.Size(); v.logs < 0 {
			return nil, "", nil
		}
	}
	host, err := v.readLog(name)
	if err != nil {
		return nil, "", err
	}
	return newEntries(f.data, host, v.o.Session, v.HexLen), sum(f.data), nil
}

func (v *view) layerLog(name string) string {
	if PerWorktree(name) {
		return path.Join(v.below, "logs", name)
	}
	return path.Join("logs", name)
}

// stashed completes the change of refs/stash. Its log is the list of stashes, so all of
// it lands.
func (v *view) stashed(c *Change, now entry) (*Change, error) {
	removed := c.newValue() == value{}
	f, err := v.layer.read(v.layerLog(stash), maxLog)
	if err != nil {
		v.refuse(stash, "its log: %v", err)
		return nil, nil
	}
	host, err := v.readLog(stash)
	if err != nil {
		return nil, err
	}
	c.logSum = sum(f.data)
	if c.newValue() == now.value && (!f.hidden || f.data == host) {
		return nil, nil
	}
	if c.newValue() == c.oldValue() && !c.Moved && (!f.hidden || v.o.Landed[stashLog] == c.logSum) {
		return nil, nil // only the host has changed it
	}
	for line := range strings.Lines(f.data) {
		e, err := parseEntry(strings.TrimSuffix(line, "\n"), v.HexLen)
		if err != nil {
			v.refuse(stash, "its log: %v", err)
			return nil, nil
		}
		c.Log = append(c.Log, e)
	}
	emptied := !removed && len(c.Log) == 0 && host != ""
	if emptied && c.newValue() == now.value { // git reflog expire: it drops no value of other references either
		v.refuse(stash, "its log is empty, and the host's lists stashes")
		v.refused[len(v.refused)-1].Broken = true
		return nil, nil
	}
	if c.Target != "" || emptied || !removed && len(c.Log) > 0 && c.Log[len(c.Log)-1].New != c.New {
		v.refuse(stash, "its log does not end with its value")
		return nil, nil
	}
	return c, nil
}

// head returns the change of HEAD. Its log may change without HEAD itself: a commit
// changes the branch.
func (v *view) head() (*Change, error) {
	now, err := v.read(head)
	if err != nil {
		return v.refuseHead("%v", err)
	}
	f, err := v.headFile, v.headErr
	seen := now.value
	switch {
	case err != nil:
		return v.refuseHead("%v", err)
	case f.hidden && !f.exists:
		return v.refuseHead("the command removed HEAD")
	case f.exists:
		if seen, err = parseValue(f.data, v.HexLen); err != nil {
			return v.refuseHead("%v", err)
		}
	}
	old, known, _ := v.startedHead(now)
	c := &Change{Name: head, Old: old.id, OldTarget: old.target, New: seen.id, Target: seen.target, Moved: !known}
	if c.Target != "" {
		if err := checkTarget(head, c.Target); err != nil {
			return v.refuseHead("%v", err)
		}
	}
	if c.Log, c.logSum, err = v.newLog(head); err != nil {
		return nil, err
	}
	if !f.exists || known && seen == old {
		// The command has not switched.
		c.Old, c.OldTarget, c.New, c.Target, c.Moved = now.id, now.target, now.id, now.target, false
	}
	if f.exists && seen == now.value {
		v.agree(head, now)
	}
	if c.newValue() == now.value && (len(c.Log) == 0 || v.o.Landed[headLog] == c.logSum) {
		return nil, nil
	}
	return c, nil
}

// agree notes that host and command have both taken back a change that had landed: the same one, made again, is
// another change.
func (v *view) agree(name string, now entry) {
	if _, landed := v.o.Landed[name]; landed {
		v.o.Landed[name] = now.String()
	}
}

// startedHead is started for HEAD: its log holds no targets.
func (v *view) startedHead(now entry) (value, bool, []string) {
	if landed, ok := v.o.Landed[head]; ok {
		return parseLanded(landed), true, nil
	}
	return now.value, now.value == value{} || now.changed.Before(v.o.since(head)), nil
}

// refuseHead refuses HEAD, and all deletions: without HEAD the layer is no
// repository any more.
func (v *view) refuseHead(format string, args ...any) (*Change, error) {
	v.keep = true
	v.refuse(head, format, args...)
	return nil, nil
}
