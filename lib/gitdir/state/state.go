// Package state lands the files beside refs and index: ORIG_HEAD, FETCH_HEAD, messages,
// and the state of a merge, rebase, cherry-pick, revert or bisect under way. Each
// file is known by its name and checked by its grammar: when git on the host continues
// from it, it runs no program and writes to no place that it would not for the user. All
// other files of the layer are ignored. The state of git am stays: its patches may change
// any file.
package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/overlay"
)

// Options are facts about the host's objects. Without a function, no ID is known. An ID
// is lower-case hexadecimal.
type Options struct {
	HexLen int                             // digits of an ID: 40 or 64
	Exists func(id string) bool            // in the host's object database, now, and the host may check it out
	Kind   func(id string) (string, error) // "commit", "tree" and so on
	Pick   func(id string, back bool) bool // the host may apply the changes of this commit to its HEAD, or take them back
	Whole  func(short string) string       // the ID for which git takes that beginning of one, or ""

	// Branch is the branch to which the host's HEAD leads, "" for none. Follows reports whether
	// a commit is, or follows, the one that the host has there; or without rebase, on the branch
	// of the command's HEAD, or at its own HEAD if that is detached. All are as before the command.
	Branch  string
	Follows func(id string, rebase bool) bool

	Fresh   func(branch string) bool // the host did not have it
	Fetched func(id string) string   // why the host must not get a commit of others, or ""

	Try bool // change nothing

	// Begin, if not nil, is called before the changes of a group with their marks, for Recognize.
	Begin func(marks map[string]Mark) error

	// Keep keeps a commit of the host's that nothing else may refer to: the user's changes
	// that `git rebase --autostash` has put away. It is called before the file that names it
	// is removed or replaced.
	Keep func(id string) error

	// Since returns the start of the command that found a name as the host had it. A file of the
	// host that changed later stays, unless it is as this package wrote it. With the zero time no
	// file of the host is replaced or removed.
	Since func(name string) time.Time

	// Landed holds the results of earlier calls for the same mount of the layer, by name.
	// Calls add to it. A state that landed once and that the user then ended on the host does
	// not come back. A file that the command made, that landed, and that the command then
	// removed leaves no whiteout: it is removed because of that mark. So callers that empty
	// the layer themselves clear the marks. It may be nil for a single call.
	Landed map[string]Mark
}

// Mark is the result of a call for one name.
type Mark struct {
	Layer, Host [sha256.Size]byte // zero: removed
	Had         bool              // by the host, before the first call
	Below       []string          // files in its directory at that time
}

// Result names the changes. Both lists are in a fixed order.
type Result struct {
	Landed []string // files and directories that were written or removed, or with Try would be
	Stays  []Stay
}

// Stay is a name that remains in the layer only.
type Stay struct{ Name, Why string }

// item is a name in a git directory that may land.
type item struct {
	name  string
	check check            // of a file
	spare bool             // without it the others land
	files map[string]check // of a directory
}

// groups land as a whole or not at all: if a rebase stays, the host's git must not see
// its cherry-pick as a separate one. Messages come first, so that a call that is killed
// leaves nothing under way without its message.
var groups = [][]item{
	{{name: "ORIG_HEAD", check: head("commit")}},
	{{name: "FETCH_HEAD", check: fetchHead}},
	{{name: "MERGE_RR", check: empty}},
	{
		{name: "MERGE_MSG", check: text},
		{name: "SQUASH_MSG", check: text},
		{name: "MERGE_MODE", check: word("", "no-ff")},
		{name: "MERGE_AUTOSTASH", check: picked},
		{name: "AUTO_MERGE", check: head("tree"), spare: true},
		{name: "rebase-merge", files: rebaseMerge},
		{name: "rebase-apply", files: map[string]check{}},
		{name: "sequencer", files: sequencer},
		{name: "MERGE_HEAD", check: heads},
		{name: "CHERRY_PICK_HEAD", check: head("commit")},
		{name: "REVERT_HEAD", check: head("commit")},
		{name: "REBASE_HEAD", check: head("commit")},
	},
	{
		{name: "BISECT_TERMS", check: bisectTerms},
		{name: "BISECT_NAMES", check: bisectNames},
		{name: "BISECT_LOG", check: bisectLog},
		{name: "BISECT_ANCESTORS_OK", check: empty},
		{name: "BISECT_FIRST_PARENT", check: word("")},
		{name: "BISECT_EXPECTED_REV", check: head("commit")},
		{name: "BISECT_HEAD", check: head("commit")},
		{name: "BISECT_START", check: bisectStart},
	},
}

// Names are the names in a git directory that Land checks.
var Names = names()

func names() (list []string) {
	for _, group := range groups {
		for _, item := range group {
			list = append(list, item.name)
		}
	}
	return list
}

// lander is one call.
type lander struct {
	Options
	host, upper, stage int
	result             Result
}

// stageName is a directory in the host's git directory for new files, and for old
// directories that were exchanged. A later call removes that of a killed one.
const stageName = "pk-landing.tmp"

// Land lands all that it knows. host is the path of a git directory that no sandbox writes
// to; upper is the upper layer over it, which may be hostile and may change meanwhile.
// Callers hold a lock of their own on the git directory: a second call at the same time
// would remove the first one's new files.
//
// If a file of a group cannot land, the whole group stays. An error is a failure to
// read or write; names may have landed before.
func Land(host string, upper int, o Options) (_ Result, err error) {
	if o.HexLen != 40 && o.HexLen != 64 {
		return Result{}, fmt.Errorf("internal error: object IDs of %d digits", o.HexLen)
	}
	l := &lander{Options: o, upper: upper, stage: -1}
	if l.host, err = fsat.Openat(unix.AT_FDCWD, host, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return Result{}, fmt.Errorf("cannot open %q: %w", host, err)
	}
	defer unix.Close(l.host)
	if _, err := fsat.Lstat(l.host, stageName); err == nil {
		eraseStage(l.host)
	}
	defer func() {
		if l.stage >= 0 {
			unix.Close(l.stage)
			eraseStage(l.host)
		}
	}()
	for _, group := range groups {
		if err := l.group(group); err != nil {
			return l.result, fmt.Errorf("%q: %w", host, err)
		}
	}
	return l.result, nil
}

func eraseStage(host int) {
	e := fsat.Eraser{Opener: fsat.Kernel()}
	_ = e.Remove(host, stageName) // the next call tries again
}

// change is the change of one name by a group.
type change struct {
	name string
	old  bool    // the host has a file of that name
	new  content // absent: remove it
	mark Mark

	host    content // before
	changed time.Time
	own     bool // the host's is as an earlier call wrote it
}

func (l *lander) group(items []item) error {
	var changes []change
	var stays []Stay
	for _, it := range items {
		c, err := l.plan(it)
		var judged refusal
		switch {
		case errors.As(err, &judged):
			stays = append(stays, Stay{it.name, err.Error()})
		case err != nil:
			return fmt.Errorf("%q: %w", it.name, err)
		case c != nil:
			changes = append(changes, *c)
		}
	}
	for i := 0; i < len(changes) && len(stays) == 0 && !l.Try; i++ {
		if err := l.keepStash(changes[i]); err != nil {
			stays = append(stays, Stay{changes[i].name, fmt.Sprintf("cannot keep the changes that git has put away: %s", err)})
		}
	}
	if len(stays) > 0 {
		for _, c := range changes {
			if c.name != stays[0].Name {
				stays = append(stays, Stay{c.name, fmt.Sprintf("it belongs to %q, which stays", stays[0].Name)})
			}
		}
		l.result.Stays = append(l.result.Stays, stays...)
		return nil
	}
	if l.Begin != nil && len(changes) > 0 && !l.Try {
		marks := map[string]Mark{}
		for _, c := range changes {
			marks[c.name] = c.mark
		}
		if err := l.Begin(marks); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if l.Try {
			l.result.Landed = append(l.result.Landed, c.name)
			continue
		}
		if err := l.apply(c); err != nil {
			return fmt.Errorf("%q: %w", c.name, err)
		}
	}
	return nil
}

// plan compares a name in the layer with the host's, and returns nil if there is
// nothing to do. A refusal is a state that stays.
func (l *lander) plan(it item) (*change, error) {
	c, err := l.compare(it)
	if err != nil || c == nil {
		return nil, err
	}
	if it.spare && c.new.kind == file && l.judge(it, c.new, c.host) != nil {
		c.new, c.mark.Host = content{kind: absent}, removed
	}
	if c.host.sum() == c.mark.Host {
		l.remember(c)
		return nil, nil
	}
	if err := l.judge(it, c.new, c.host); err != nil {
		return nil, refusal{err}
	}
	if c.old && !c.own && !it.spare && !c.changed.Before(l.Since(c.name)) {
		return nil, refusal{errors.New("the host changed it meanwhile")}
	}
	return c, nil
}

// compare returns nil if the layer does not have a name, or if it has landed.
func (l *lander) compare(it item) (*change, error) {
	layer, err := l.readLayer(it)
	if err != nil {
		return nil, err
	}
	mark, marked := l.Landed[it.name]
	vanished := layer.kind == untouched && marked && !mark.Had && mark.Host != removed
	if layer.kind == untouched && !vanished || layer.kind != untouched && marked && mark.Layer == layer.sum() {
		return nil, nil
	}
	old, changed, err := l.readHost(it)
	if err != nil {
		return nil, err
	}
	own := marked && mark.Host == old.sum()
	if vanished {
		if !own {
			if old.kind == absent && !l.Try { // both have ended it: what the command then begins is another one
				delete(l.Landed, it.name)
			}
			return nil, nil
		}
		layer.kind = absent
	}
	if !marked {
		mark.Had, mark.Below = old.kind != absent, slices.Sorted(maps.Keys(old.files))
	}
	c := &change{name: it.name, old: old.kind != absent, host: old, changed: changed, own: own, new: layer.over(old, mark.Below)}
	mark.Layer, mark.Host = layer.sum(), c.new.sum()
	c.mark = mark
	return c, nil
}

// judge checks the content of a file, or of each file of a directory. The removal of a
// name makes git run nothing.
func (l *lander) judge(it item, c, old content) error {
	if it.files == nil {
		if c.kind == absent {
			return nil
		}
		return it.check(l, c.data, old.data)
	}
	if len(it.files) == 0 && len(c.files) > 0 {
		return errors.New("its patches may change any file")
	}
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		check := it.files[name]
		if check == nil {
			return fmt.Errorf("%q is not known", name)
		}
		if err := check(l, c.files[name], old.files[name]); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// Wrote reports whether a file of the host's is as an earlier call has landed it.
func Wrote(host, name string, landed map[string]Mark) bool {
	data, _, err := overlay.ReadFile(unix.AT_FDCWD, filepath.Join(host, name), 0, maxFile)
	mark, marked := landed[name]
	return err == nil && marked && mark.Host == content{kind: file, data: data}.sum()
}

// Recognize adds to landed those marks of a call that was killed whose files it had written.
func Recognize(host string, begun, landed map[string]Mark) error {
	fd, err := fsat.Openat(unix.AT_FDCWD, host, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("cannot open %q: %w", host, err)
	}
	defer unix.Close(fd)
	l := &lander{host: fd}
	for _, group := range groups {
		for _, it := range group {
			mark, is := begun[it.name]
			if !is {
				continue
			}
			if has, _, err := l.readHost(it); err == nil && has.sum() == mark.Host {
				landed[it.name] = mark
			}
		}
	}
	return nil
}

// Picks yields the IDs of the commits that work under way in a git directory of the host's has
// still to apply, or to take back, as its files have them: rebase-merge, sequencer or
// MERGE_AUTOSTASH.
func Picks(host, name string) iter.Seq2[string, bool] {
	return func(yield func(id string, back bool) bool) {
		for _, file := range []string{name + "/git-rebase-todo", name + "/todo", name + "/autostash", name} {
			data, _, _ := overlay.ReadFile(unix.AT_FDCWD, filepath.Join(host, file), 0, maxFile)
			for line := range strings.Lines(string(data)) {
				words := append([]string{"pick"}, strings.Fields(line)...)
				if len(words) > 2 {
					words = words[1:]
				}
				if len(words) > 2 && (words[1] == "-C" || words[1] == "-c") {
					words = words[1:]
				}
				if len(words) > 1 && isHex(words[1]) && !yield(words[1], words[0] == "revert") {
					return
				}
			}
		}
	}
}

// keepStash keeps the changes that git has put away, if the host's state names them and the
// new state does not. Git also forgets them when it has put them back, which looks the same.
func (l *lander) keepStash(c change) error {
	old, is := c.host.autostash(c.name)
	if now, _ := c.new.autostash(c.name); l.Keep == nil || !is || now == old {
		return nil
	}
	return l.Keep(old)
}

func (c content) autostash(name string) (id string, is bool) {
	data := c.files["autostash"]
	if name == "MERGE_AUTOSTASH" {
		data = c.data
	}
	id = strings.TrimSpace(string(data))
	return id, id != ""
}

// apply writes under another name and renames, so that git sees the old state or the new
// one, and so that it follows no link of that name.
func (l *lander) apply(c change) error {
	if l.stage < 0 {
		if err := unix.Mkdirat(l.host, stageName, 0o700); err != nil {
			return fmt.Errorf("cannot make %q: %w", stageName, err)
		}
		var err error
		if l.stage, err = fsat.Openat(l.host, stageName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
			return err
		}
	}
	if err := l.publish(c); err != nil {
		return err
	}
	l.remember(&c)
	l.result.Landed = append(l.result.Landed, c.name)
	return nil
}

func (l *lander) publish(c change) error {
	gitlock.Step("state")
	switch c.new.kind {
	case absent:
		return unix.Renameat(l.host, c.name, l.stage, c.name)
	case file:
		if err := writeFile(l.stage, c.name, c.new.data); err != nil {
			return err
		}
		return unix.Renameat(l.stage, c.name, l.host, c.name)
	}
	if err := writeDir(l.stage, c.name, c.new.files); err != nil {
		return err
	}
	if !c.old {
		return fsat.RenameFresh(l.stage, c.name, l.host, c.name)
	}
	err := fsat.Exchange(l.stage, c.name, l.host, c.name)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// NFS and some FUSE file systems cannot exchange names.
	if err := unix.Renameat(l.host, c.name, l.stage, c.name+".old"); err != nil {
		return err
	}
	return unix.Renameat(l.stage, c.name, l.host, c.name)
}

func (l *lander) remember(c *change) {
	if l.Landed != nil {
		l.Landed[c.name] = c.mark
	}
}

func writeDir(dir int, name string, files map[string][]byte) error {
	if err := unix.Mkdirat(dir, name, 0o777); err != nil {
		return err
	}
	fd, err := fsat.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for name, data := range files {
		if err := writeFile(fd, name, data); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(dir int, name string, data []byte) error {
	fd, err := fsat.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(fsat.Fill(fd, data), unix.Close(fd))
}

// refusal is the reason why a state stays.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// kinds of content.
const (
	untouched = iota // the layer does not have the name
	absent           // removed in the layer; not there on the host
	file
	directory
	foreign // the host's is a link or a special file
)

// content is the content at a name. In the layer, a nil file of a directory was removed.
type content struct {
	kind   int
	data   []byte
	files  map[string][]byte
	opaque bool // no file of the host's directory is visible
}

// over returns the merged view of a name in the layer. Of the host's directory it has the
// files that were there when the layer was mounted.
func (c content) over(host content, below []string) content {
	if c.kind != directory {
		return c
	}
	merged := content{kind: directory, files: map[string][]byte{}}
	for _, name := range below {
		if data, ok := host.files[name]; ok && !c.opaque {
			merged.files[name] = data
		}
	}
	for name, data := range c.files {
		if data == nil {
			delete(merged.files, name)
		} else {
			merged.files[name] = data
		}
	}
	return merged
}

// removed is the sum of an absent name.
var removed [sha256.Size]byte

func (c content) sum() [sha256.Size]byte {
	if c.kind == absent {
		return removed
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %v %d\n", c.kind, c.opaque, len(c.data))
	h.Write(c.data)
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		data := c.files[name]
		fmt.Fprintf(h, "%q %v %d\n", name, data == nil, len(data))
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
