// Package gitland lands the work of a command in the host's git directories. The command works on a
// layer over each of them; from there land objects, references, HEAD, the index, states of a merge or
// rebase, and a few settings, each by its own rules. A guard keeps back commits that would make git on
// the host write a file which its programs run. Nothing that the host has is lost.
package gitland

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/overlay"
)

// Layer is the layer of an overlay over one git directory of the host. A command holds
// its lock Use until the work has landed.
type Layer struct {
	overlay.Layer
	GitDir  string `json:"git_dir"`        // the host's, absolute, without links
	Session string `json:"session"`        // names kept references and reflog entries
	Once    bool   `json:"once,omitempty"` // Dir is removed after the command

	// WorkTrees are those of the host's repositories that the command cannot replace. GitDirs
	// are the git directories that belong to them, and bare repositories: of the others, such
	// as that of a main work tree outside of the roots, HEAD, index and state stay as they
	// are.
	WorkTrees []string `json:"work_trees,omitempty"`
	GitDirs   []string `json:"git_dirs,omitempty"`

	// Checkouts are the work trees of git directories in GitDirs.
	Checkouts []Checkout `json:"checkouts,omitempty"`

	// Plain are unpopulated submodules of the git directory's: then the layer holds theirs,
	// and nothing of it lands. The host's git would use a repository of a command there.
	Plain []string `json:"plain,omitempty"`

	// State is the state directory, where running commands are noted.
	State string `json:"state,omitempty"`

	// View is the path at which this process sees the overlay that other commands of the
	// session use, or "".
	View string `json:"-"`

	adopts bool // of GitDir nothing is known or in use: it gets the index as it is
	shared bool // by the commands of a session
	lander lander
}

// Names in the directory of a layer.
const (
	recordFile = "record"
	tidyFile   = "tidying" // the record, when the layer is being tidied and nothing stays
	savedFile  = "layer"   // a Layer, as JSON
	onceDir    = "once-"   // begins the name of a layer for one command
	baseDir    = "base"    // Layer.Base
	packedDir  = "packed"  // Layer.packedThen
	nextIndex  = "next"    // an index of the base that is being made
	oldIndex   = "old-"    // begins the name of an index of the host's that is not needed any more
)

// LayerName is the name of the directory of a layer over a git directory. It ends in a
// digest of the path, which makes it unique.
func LayerName(gitDir string) string {
	name := filepath.Base(gitDir)
	if name == ".git" {
		name = filepath.Base(filepath.Dir(gitDir))
	}
	return "git-" + overlay.DirName(name, gitDir)
}

// OpenShared opens the layer that the commands of a session share, below the directory
// in, and makes it if it is missing. The caller closes the layer.
func OpenShared(in, gitDir, session string, plain ...string) (*Layer, error) {
	l := &Layer{Layer: overlay.Layer{Dir: filepath.Join(in, layerName(gitDir, plain))}, GitDir: gitDir, Plain: plain, Session: session, shared: true}
	err := l.open()
	if err == nil {
		err = l.Share(l.begin)
	}
	return l.opened(err)
}

// OpenOwn opens the layer over a git directory for a command without a session, below
// the directory in. Work that cannot land stays there for the next command. A command
// that runs at the same time gets an empty layer of its own. The caller closes the
// layer.
func OpenOwn(in, gitDir string, plain ...string) (*Layer, error) {
	l := &Layer{Layer: overlay.Layer{Dir: filepath.Join(in, layerName(gitDir, plain))}, GitDir: gitDir, Plain: plain, Session: "command"}
	l.SetFresh()
	err := l.open()
	if err == nil {
		err = l.Try(overlay.Use, unix.F_WRLCK)
	}
	if errors.Is(err, unix.EAGAIN) {
		l.CloseLock()
		l.Dir, l.Once = filepath.Join(l.Dir, onceDir+rand.Text()), true
		if err = l.open(); err == nil {
			err = l.Try(overlay.Use, unix.F_WRLCK)
		}
	}
	if err == nil && !l.InPlace() {
		l.CloseLock()
		return OpenOwn(in, gitDir, plain...)
	}
	if err == nil {
		err = l.begin()
	}
	return l.opened(err)
}

// Save records the layer in its directory, for Saved. The caller has opened the layer, and
// holds Starting.
func (l *Layer) Save() error {
	text, err := bytejson.Marshal(l)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	file := filepath.Join(l.Dir, savedFile)
	if known, err := os.ReadFile(file); err == nil && bytes.Equal(known, text) {
		return nil
	}
	return fsat.WriteFile(file, text)
}

// Saved lists the layers that commands have saved in a directory, sorted by git directory.
// The layers are not open.
func Saved(in string) ([]*Layer, error) {
	entries, err := os.ReadDir(in)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var list []*Layer
	for _, e := range entries {
		file := filepath.Join(in, e.Name(), savedFile)
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // another kind of overlay
		}
		if err != nil {
			return nil, err
		}
		l := &Layer{}
		if err := bytejson.Unmarshal(text, l); err != nil {
			return nil, fmt.Errorf("cannot read %q: %w", file, err)
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *Layer) int { return strings.Compare(a.GitDir, b.GitDir) })
	return list, nil
}

// Reopen opens a layer whose command was killed, to land from it.
func (l *Layer) Reopen() error {
	if _, err := os.Stat(l.GitDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := l.open()
	l.shared = true // another command may use it by now, exclusively too
	_, err = l.opened(err)
	return err
}

func (l *Layer) opened(err error) (*Layer, error) {
	if err == nil {
		return l, nil
	}
	l.CloseLock()
	return nil, fmt.Errorf("cannot prepare the layer over git directory %q: %w", l.GitDir, err)
}

// open makes the directories and opens the lock file.
func (l *Layer) open() error {
	info, err := os.Stat(l.GitDir)
	if err == nil {
		err = l.Layer.Open(info.Mode())
	}
	l.lander.layer, l.lander.repos = l, map[string]*repository{}
	return err
}

// Close ends the use of the layer.
func (l *Layer) Close() error {
	for _, r := range l.lander.repos {
		r.objects.Close()
	}
	return l.CloseLock()
}

// record is shared by the commands that use a layer.
type record struct {
	Since  int64                            `json:"since"`            // time of the mount, in ns
	Base   []byte                           `json:"base,omitempty"`   // the host's config then
	Refs   map[string]map[string]string     `json:"refs,omitempty"`   // refs.Options.Landed of each git directory
	Marks  map[string]map[string]state.Mark `json:"marks,omitempty"`  // state.Options.Landed of each
	Began  map[string]string                `json:"began,omitempty"`  // values of references, by path, before the first one landed
	Files  map[string]string                `json:"files,omitempty"`  // digests of other files that have landed
	Trees  map[string]string                `json:"trees,omitempty"`  // of the HEAD to which the base of an index belongs, by git directory; without one, as the commands began
	Moves  map[string]move                  `json:"moves,omitempty"`  // of the HEADs of git directories
	Torn   []string                         `json:"torn,omitempty"`   // git directories in which the host may have been committing then
	Config map[string]string                `json:"config,omitempty"` // digests of the host's configs for which the layer's were kept
	Told   []string                         `json:"told,omitempty"`   // messages already given

	GitDir string            `json:"git_dir,omitempty"` // identity of the host's git directory
	Place  string            `json:"place,omitempty"`   // its path
	Keep   []string          `json:"keep,omitempty"`    // paths that tidying leaves
	Phase  phase             `json:"phase,omitempty"`
	Waits  []waiting         `json:"waits,omitempty"`
	Held   map[string]int64  `json:"held,omitempty"`   // kept paths whose upper file is from an earlier mount: Since of that
	Stayed map[string]string `json:"stayed,omitempty"` // values that kept references had on the host before
}

// waiting is a ref below refs/pk for a commit that does not land before a rebase or the like
// has ended.
type waiting struct {
	Git string `json:"git"` // the git directory of the rebase, below the layer's
	Ref string `json:"ref"`
	ID  string `json:"id"`
}

// phase is the progress of the commands' work.
type phase string

const (
	used    phase = "used"    // what is in the upper layer is to land
	tidying phase = "tidying" // all has landed; landed changes are being removed from the upper layer
)

// empty reports whether a record of a tidied layer says nothing.
func (r *record) empty() bool {
	return len(r.Config)+len(r.Told)+len(r.Keep)+len(r.Held)+len(r.Waits) == 0
}

// since is the time of the mount through which a path was written.
func (r *record) since(rel string) int64 {
	if t, ok := r.Held[rel]; ok {
		return t
	}
	return r.Since
}

func (r *record) refs(git string) map[string]string {
	if r.Refs[git] == nil {
		r.Refs[git] = map[string]string{}
	}
	return r.Refs[git]
}

// began notes the value of a reference before one lands.
func (r *record) began(path, value string) {
	if r.Began == nil {
		r.Began = map[string]string{}
	}
	if _, known := r.Began[path]; !known {
		r.Began[path] = value
	}
}

// stayed notes the value with which a reference of the host's began that stays: git gc of the host's may drop the
// signs that it has moved.
func (r *record) stayed(path, value string) {
	if r.Stayed == nil {
		r.Stayed = map[string]string{}
	}
	r.Stayed[path] = value
}

// beginning returns the value that a reference had before the commands began, if the present
// one is as it landed; else it returns the present one.
func (r *record) beginning(git, name, now string) string {
	if old, known := r.Began[path.Join(git, name)]; known && r.refs(git)[name] == now {
		return old
	}
	return now
}

func (r *record) marks(git string) map[string]state.Mark {
	if r.Marks[git] == nil {
		r.Marks[git] = map[string]state.Mark{}
	}
	return r.Marks[git]
}

// begin notes the time before a fresh overlay is mounted. If the work of the last command
// could not land, the time of its mount still holds. A kept configuration ends with a
// change of the host's, and the whole layer with the git directory.
func (l *Layer) begin() error {
	old, err := l.load()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if l.Plain != nil {
		return l.save(old)
	}
	id, err := gitdir.Identity(l.GitDir)
	if err != nil {
		return err
	}
	if old.GitDir != "" && old.GitDir != id {
		if err := l.empty(); err != nil {
			return err
		}
		old = record{}
	}
	if old.Phase == tidying {
		if err := l.finish(&old, nil); err != nil {
			return err
		}
	}
	since := l.now() // before the base: what the host moves meanwhile has moved
	torn, err := l.keepBase(&old)
	if err != nil {
		return err
	}
	if old.Phase == used {
		if changed, err := l.changed(); err != nil {
			return err
		} else if changed && slices.Equal(torn, old.Torn) {
			return nil
		} else if changed {
			old.Torn = torn
			return l.save(old)
		}
	}
	if err := l.notePacked(); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(l.GitDir, "config"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s := record{Since: since, Base: config, Torn: torn, Config: old.Config, Told: old.Told, GitDir: id, Place: l.GitDir, Keep: old.Keep, Held: old.Held, Stayed: old.Stayed, Waits: old.Waits, Trees: old.Trees, Phase: used}
	for rel, digest := range old.Config {
		now, err := os.ReadFile(filepath.Join(l.GitDir, rel))
		if err == nil && digestOf(now) == digest {
			continue
		}
		delete(s.Config, rel)
		l.lander.told = append(l.lander.told, fmt.Sprintf("the host has changed %q: the configuration that stayed in the sandbox is gone", filepath.Join(l.GitDir, rel)))
		if err := os.Remove(filepath.Join(l.Upper(), rel)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if old.empty() { // ext4 flushes a file that replaces another
		_ = os.Remove(filepath.Join(l.Dir, recordFile))
	}
	return l.save(s)
}

// maxTick bounds a tick of the clock that file systems take a ctime from.
const maxTick = 20 * time.Millisecond

// now is the time of a mount. A HEAD, or another reference, that has changed in the same tick would count
// as changed after it.
func (l *Layer) now(references ...string) int64 {
	last := int64(0)
	look := func(file string) {
		var st unix.Stat_t
		if unix.Lstat(file, &st) == nil {
			last = max(last, st.Ctim.Nano())
		}
	}
	for _, git := range l.gitDirs() {
		look(filepath.Join(git, "HEAD"))
		look(filepath.Join(git, "logs/HEAD"))
	}
	for _, name := range references {
		look(filepath.Join(l.GitDir, name))
	}
	for limit := time.Now().Add(maxTick); refs.Now().UnixNano() <= last && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	return refs.Now().UnixNano()
}

// changed reports whether there is anything in the upper layer.
func (l *Layer) changed() (bool, error) {
	upper, err := l.openUpper()
	if err != nil {
		return false, err
	}
	defer unix.Close(upper)
	entries, err := fsat.Next(upper)
	return len(entries) > 0, err
}

// empty removes everything from the upper layer.
func (l *Layer) empty() error {
	upper, err := fsat.Openat(unix.AT_FDCWD, l.Upper(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	e := fsat.Eraser{Opener: fsat.Kernel()}
	return e.Empty(upper)
}

func (l *Layer) load() (r record, err error) {
	text, err := os.ReadFile(filepath.Join(l.Dir, recordFile))
	if err == nil {
		err = bytejson.Unmarshal(text, &r)
	} else if exists(filepath.Join(l.Dir, tidyFile)) {
		r.Phase, err = tidying, nil
	}
	if r.Refs == nil {
		r.Refs = map[string]map[string]string{}
	}
	if r.Marks == nil {
		r.Marks = map[string]map[string]state.Mark{}
	}
	if r.Files == nil {
		r.Files = map[string]string{}
	}
	if r.Config == nil {
		r.Config = map[string]string{}
	}
	return r, err
}

func (l *Layer) save(r record) error {
	gitlock.Step("record")
	text, err := bytejson.Marshal(&r)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return fsat.WriteFile(filepath.Join(l.Dir, recordFile), text)
}
