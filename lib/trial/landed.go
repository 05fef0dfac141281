package trial

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
	"pikuri/lib/workspace"
)

// states are the last entry that pk has put at a path and, until that is confirmed, the one
// before: it is still there if pk was killed. The user has changed neither.
type states struct {
	entries []workspace.Entry
	open    bool // the last is not confirmed
}

func (s states) matches(now workspace.Entry) bool {
	now.Size = 0
	return slices.Contains(s.entries, now)
}

// record is a line of the file of landed changes.
type record struct {
	Path   []byte         `json:"path"`
	Kind   workspace.Kind `json:"kind"`
	Perm   uint32         `json:"perm,omitempty"`
	Hash   string         `json:"hash,omitempty"`
	Target []byte         `json:"target,omitempty"`
	Done   bool           `json:"done,omitempty"` // the landing is complete, and the entry is as recorded
}

func newRecord(rel string, e workspace.Entry) record {
	return record{Path: []byte(rel), Kind: e.Kind, Perm: uint32(e.Perm), Hash: e.Hash, Target: []byte(e.Target)}
}

func (r record) entry() workspace.Entry {
	return workspace.Entry{Kind: r.Kind, Perm: fs.FileMode(r.Perm), Hash: r.Hash, Target: string(r.Target)}
}

// noteLanded notes the entry that is about to land at a path.
func (r *Root) noteLanded(rel string, e workspace.Entry) error {
	line, err := json.Marshal(newRecord(rel, e))
	if err != nil {
		return err
	}
	r.addLanded(rel, e)
	return r.addNote(append(line, '\n'))
}

func (r *Root) addLanded(rel string, e workspace.Entry) {
	e.Size = 0
	known := append(r.landed[rel].entries, e)
	r.landed[rel] = states{known[max(0, len(known)-2):], true}
}

// confirmLanded notes the entry that is there after a landing: if its group could not be
// kept, the group has no permissions.
func (r *Root) confirmLanded(rel string, e workspace.Entry) error {
	e.Size = 0
	line := newRecord(rel, e)
	line.Done = true
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	r.landed[rel] = states{[]workspace.Entry{e}, false}
	return r.addNote(append(text, '\n'))
}

// addNote appends to the notes of landed entries, in one write. They stay open until endNotes.
func (r *Root) addNote(text []byte) (err error) {
	if r.notes == nil {
		if r.notes, err = os.OpenFile(filepath.Join(r.Dir, landedFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	_, err = r.notes.Write(text)
	return err
}

func (r *Root) endNotes() error {
	if r.notes == nil {
		return nil
	}
	err := r.notes.Close()
	r.notes = nil
	return err
}

// readLanded reads the notes of landed entries. Only the last line can be cut by a crash,
// and then its entry has not landed.
func (r *Root) readLanded() error {
	f, err := os.Open(filepath.Join(r.Dir, landedFile))
	r.landed = map[string]states{}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line record
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err != nil:
		case line.Done:
			r.landed[string(line.Path)] = states{[]workspace.Entry{line.entry()}, false}
		default:
			r.addLanded(string(line.Path), line.entry())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot read what has landed: %w", err)
	}
	return nil
}

// project is the project's directory as a workspace in which git directories can be
// written: List has refused changes there.
func (r *Root) project() (*workspace.LocalWorkspace, error) {
	fd, err := r.openProject()
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), r.Path)
	defer dir.Close()
	return workspace.NewLocalWorkspaceFrom(dir, workspace.WithGitDirs(), workspace.WithOneFileSystem(), workspace.WithoutSymlinks())
}

// entryNow is the project's entry at a path. A workspace counts an entry as missing, too,
// where a name above is no directory, as when somebody exchanges it meanwhile. Here that is
// ErrChanged: by it, no removal has landed.
func (r *Root) entryNow(rel string) (workspace.Entry, error) {
	ws, err := r.project()
	if err != nil {
		return workspace.Entry{}, err
	}
	defer ws.Close()
	e, err := workspace.EntryOf(context.Background(), ws, rel)
	if err != nil || e.Kind != workspace.KindMissing {
		return e, err
	}
	fd, err := r.openProject()
	if err != nil {
		return e, err
	}
	defer unix.Close(fd)
	if _, err := lstatBelow(fd, rel); !errors.Is(err, unix.ENOENT) {
		return e, workspace.ErrChanged
	}
	return e, nil
}

// Before is the project's entry at the path of an item.
func (i Item) Before() (workspace.Entry, error) {
	if i.Old.Mode == 0 {
		return workspace.Entry{}, nil
	}
	return i.Root.entryNow(i.Path)
}

// After is the trial's entry at the path of an item, without a hash if that is Unread.
func (i Item) After() (workspace.Entry, error) {
	switch {
	case i.New.Mode == 0:
		return workspace.Entry{}, nil
	case i.Unread:
		return workspace.Entry{Kind: workspace.KindFile, Perm: workspacePerm(i.New.Mode)}, nil
	case i.Repository:
		return i.Root.repositoryEntry(i.Path), nil
	}
	fd, err := i.Root.openUpper()
	if err != nil {
		return workspace.Entry{}, err
	}
	dir := os.NewFile(uintptr(fd), i.Root.Upper())
	defer dir.Close()
	ws, err := workspace.NewLocalWorkspaceFrom(dir, workspace.WithGitDirs(), workspace.WithOneFileSystem(), workspace.WithoutSymlinks())
	if err != nil {
		return workspace.Entry{}, err
	}
	defer ws.Close()
	return workspace.EntryOf(context.Background(), ws, i.Path)
}

// workspacePerm is the permission bits of a mode.
func workspacePerm(mode uint32) fs.FileMode { return fs.FileMode(mode & 0o777) }

// OpenBefore opens the project's content at the path of an item: of a symbolic link, its
// target.
func (i Item) OpenBefore() (io.ReadCloser, error) {
	fd, err := i.Root.openProject()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return openContent(fd, i.Path)
}

// OpenAfter opens the trial's content at the path of an item.
func (i Item) OpenAfter() (io.ReadCloser, error) {
	fd, err := i.Root.openUpper()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return openContent(fd, i.Path)
}

// lstatBelow returns the status of a path below an open directory. It follows no symbolic
// link.
func lstatBelow(top int, rel string) (*unix.Stat_t, error) {
	dir, err := fsat.Kernel().Open(top, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return fsat.Lstat(dir, path.Base(rel))
}

// openContent opens a file or a link below an open directory, through no link.
func openContent(root int, rel string) (io.ReadCloser, error) {
	dir, err := fsat.Kernel().Open(root, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	if target, err := fsat.ReadLink(dir, path.Base(rel)); err == nil {
		return io.NopCloser(strings.NewReader(target)), nil
	}
	seen, err := fsat.Openat(dir, path.Base(rel), unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	f, _, err := overlay.Open(seen)
	return f, err
}

// HasLanded reports whether the project's entry at an absolute path has landed there.
func (t *Trial) HasLanded(path string) bool {
	r, rel := t.Find(path)
	if r == nil {
		return false
	}
	if r.landed == nil {
		if r.readLanded() != nil {
			return false
		}
	}
	known := r.landed[rel]
	if known.entries == nil {
		return false
	}
	now, err := r.entryNow(rel)
	return err == nil && known.matches(now)
}
