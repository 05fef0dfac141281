package trial

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/workspace"
)

// Names in the directory of a layer.
const (
	undoDir    = "undo"    // the entries that landings have displaced
	landedList = ".landed" // ends the name of the list of a landing, which begins with its number
	undoneList = ".undone" // the same for entries that undo has put back, and that can land again
)

// undo keeps the entries that one landing displaces: a list with a JSON object for each
// path, in the order of the landing, and the contents of files by their hash.
type undo struct {
	dir  string
	name string   // of the list
	list *os.File // nil until there is an entry
	last int64    // where its last line begins
}

// step is a line of the list.
type step struct {
	Old record `json:"old"`
	New record `json:"new"`
}

func (r *Root) newUndo(number int64, suffix string) *undo {
	dir := filepath.Join(r.Dir, undoDir)
	return &undo{dir: dir, name: filepath.Join(dir, strconv.FormatInt(number, 10)+suffix)}
}

// numbers lists the numbers of the landings with a kind of list, in ascending order.
func (r *Root) numbers(suffix string) ([]int64, error) {
	entries, err := os.ReadDir(filepath.Join(r.Dir, undoDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var numbers []int64
	for _, e := range entries {
		if text, ok := strings.CutSuffix(e.Name(), suffix); ok {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// keep keeps the entry at a path, before next takes its place.
func (u *undo) keep(ctx context.Context, ws *workspace.LocalWorkspace, rel string, old, next workspace.Entry) error {
	if old.Kind == workspace.KindFile && old.Hash != next.Hash {
		if err := u.copy(ctx, ws, rel, old.Hash); err != nil {
			return err
		}
	}
	return u.add(step{newRecord(rel, old), newRecord(rel, next)})
}

// add adds to the list.
func (u *undo) add(s step) error {
	if u.list == nil {
		if err := os.MkdirAll(u.dir, 0o700); err != nil {
			return err
		}
		list, err := os.OpenFile(u.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		u.list = list
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if u.last, err = u.list.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	_, err = u.list.Write(append(line, '\n'))
	return err
}

// forget removes the last line of the list after a failed Swap, unless the new entry is in its place
// all the same: then the copy of the old one is still needed.
func (u *undo) forget(ctx context.Context, ws *workspace.LocalWorkspace, rel string, next workspace.Entry) error {
	now, err := workspace.EntryOf(ctx, ws, rel)
	now.Size, next.Size = 0, 0
	if err != nil || now == next {
		return nil
	}
	return u.list.Truncate(u.last)
}

// copy copies a file of the project, which has a hash, unless a copy of the same content
// exists.
func (u *undo) copy(ctx context.Context, ws *workspace.LocalWorkspace, rel, hash string) error {
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return err
	}
	name := filepath.Join(u.dir, hash)
	if _, err := os.Lstat(name); err == nil {
		return nil
	}
	in, err := ws.Open(ctx, rel)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum, sparse := sha256.New(), &fsat.Sparse{File: out}
	_, err = io.Copy(io.MultiWriter(sparse, sum), in)
	if err := errors.Join(err, sparse.End(), out.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != hash {
		return &Refused{"it has changed in the project", true} // while it was copied
	}
	return os.Rename(name+".new", name)
}

func (u *undo) close() error {
	if u.list == nil {
		return nil
	}
	return u.list.Close()
}

// Errors of Undo and Redo.
var (
	ErrNothingLanded = errors.New("nothing has landed that could be undone")
	ErrNothingUndone = errors.New("nothing has been undone that could land again")
)

// Undo puts back the entries that the last landing that was not undone has displaced,
// where the project still has the landed ones. Other paths stay for the next call.
func (t *Trial) Undo(dryRun bool, report func(r *Root, path string, err error)) error {
	return t.replay(true, dryRun, report)
}

// Redo lands again the entries that the last Undo has removed.
func (t *Trial) Redo(dryRun bool, report func(r *Root, path string, err error)) error {
	return t.replay(false, dryRun, report)
}

func (t *Trial) replay(undo, dryRun bool, report func(r *Root, path string, err error)) error {
	from, number := undoneList, int64(0)
	if undo {
		from = landedList
	}
	all := map[*Root][]int64{}
	for _, r := range t.Roots {
		numbers, err := r.numbers(from)
		if err != nil {
			return err
		}
		all[r] = numbers
		for _, n := range numbers { // Undo begins with the last, Redo with the first
			if number == 0 || undo == (n > number) {
				number = n
			}
		}
	}
	switch {
	case number == 0 && undo:
		return ErrNothingLanded
	case number == 0:
		return ErrNothingUndone
	}
	for _, r := range t.Roots {
		if !slices.Contains(all[r], number) {
			continue
		}
		if err := r.replay(number, undo, dryRun, func(path string, err error) { report(r, path, err) }); err != nil {
			return err
		}
	}
	return nil
}

// Number numbers a landing, which may be one of several roots.
func Number() int64 { return time.Now().UnixNano() }

// replay goes through the list of one landing, from its end: both lists are in the order in which the
// steps were done. A step goes to the other list before it is done; one that fails stays.
func (r *Root) replay(number int64, undo, dryRun bool, report func(path string, err error)) error {
	from, to := r.newUndo(number, undoneList), r.newUndo(number, landedList)
	if undo {
		from, to = to, from
	}
	steps, err := readSteps(from.name)
	if err != nil {
		return err
	}
	ws, err := r.project()
	if err != nil {
		return err
	}
	defer ws.Close()
	if err := r.readLanded(); err != nil {
		return err
	}
	var recovered error
	if !dryRun {
		recovered = r.recoverAll(ws)
	}
	slices.Reverse(steps)
	var left []step
	for _, s := range steps {
		err := r.turn(ws, to, s, undo, dryRun)
		if err != nil {
			left = append(left, s)
		}
		report(string(s.Old.Path), err)
	}
	if dryRun {
		return nil
	}
	if err := errors.Join(to.close(), r.endNotes()); err != nil {
		return errors.Join(recovered, err)
	}
	slices.Reverse(left)
	return errors.Join(recovered, from.replace(left))
}

// replace writes a list anew.
func (u *undo) replace(steps []step) error {
	if len(steps) == 0 {
		return os.Remove(u.name)
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, s := range steps {
		if err := lines.Encode(s); err != nil {
			return err
		}
	}
	return fsat.WriteFile(u.name, text.Bytes())
}

// readSteps reads a list. Only the last line can be cut by a crash, and its step was not
// done.
func readSteps(name string) ([]step, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var steps []step
	seen := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s step
		if !seen[lines.Text()] && json.Unmarshal(lines.Bytes(), &s) == nil {
			steps = append(steps, s)
		}
		seen[lines.Text()] = true // a call that was killed has written it too
	}
	return steps, lines.Err()
}

// turn replaces a landed entry by the one before it, or the other way round. It does
// nothing where that has been done.
func (r *Root) turn(ws *workspace.LocalWorkspace, to *undo, s step, undo, dryRun bool) error {
	ctx, rel := context.Background(), string(s.Old.Path)
	expected, want := s.Old.entry(), s.New.entry()
	if undo {
		expected, want = want, expected
	}
	now, err := workspace.EntryOf(ctx, ws, rel)
	if err != nil {
		return err
	}
	now.Size = 0
	if now != want && now != expected && !r.landed[rel].matches(now) { // its mode may have changed when it landed
		return &Refused{"it has changed in the project", true}
	}
	if dryRun {
		return nil
	}
	if now.Kind == workspace.KindFile && now.Hash != want.Hash {
		if err := to.copy(ctx, ws, rel, now.Hash); err != nil {
			return fmt.Errorf("cannot keep what it displaces: %w", err)
		}
	}
	if err := to.add(s); err != nil {
		return err
	}
	if now == want {
		return nil
	}
	if err := r.noteLanded(rel, want); err != nil {
		return err
	}
	var content io.Reader
	if want.Kind == workspace.KindFile && (now.Kind != workspace.KindFile || want.Hash != now.Hash) {
		f, err := os.Open(filepath.Join(to.dir, want.Hash))
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	}
	err = workspace.Swap(ctx, ws, rel, now, want, content)
	if errors.Is(err, workspace.ErrChanged) {
		err = &Refused{"it has changed in the project", true}
	}
	if err != nil {
		return errors.Join(err, to.forget(ctx, ws, rel, want))
	}
	return r.confirmLanded(rel, want)
}
