package trial

import (
	"bufio"
	"context"
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

	"pikuri/lib/workspace"
)

// Names in the directory of a layer.
const (
	undoDir   = "undo" // what landings have displaced
	undoneEnd = ".list"
)

// undo keeps what one landing displaces: a list with a JSON object for each path, in the
// order of the landing, and the contents of files by their hash.
type undo struct {
	dir    string
	number int64
	list   *os.File // nil until something is kept
}

// step is a line of the list.
type step struct {
	Old record `json:"old"`
	New record `json:"new"`
}

func (r *Root) newUndo(number int64) *undo {
	return &undo{dir: filepath.Join(r.Dir, undoDir), number: number}
}

// landings lists the numbers of those that can be undone, in ascending order.
func (r *Root) landings() ([]int64, error) {
	entries, err := os.ReadDir(filepath.Join(r.Dir, undoDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var numbers []int64
	for _, e := range entries {
		if text, ok := strings.CutSuffix(e.Name(), undoneEnd); ok {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (u *undo) name(number int64) string {
	return filepath.Join(u.dir, strconv.FormatInt(number, 10)+undoneEnd)
}

// keep keeps what a path stands for, before next takes its place.
func (u *undo) keep(ctx context.Context, ws *workspace.LocalWorkspace, rel string, old, next workspace.Entry) error {
	if u.list == nil {
		if err := os.MkdirAll(u.dir, 0o700); err != nil {
			return err
		}
		list, err := os.OpenFile(u.name(u.number), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		u.list = list
	}
	if old.Kind == workspace.KindFile && old.Hash != next.Hash {
		if err := u.copy(ctx, ws, rel, old.Hash); err != nil {
			return err
		}
	}
	line, err := json.Marshal(step{newRecord(rel, old), newRecord(rel, next)})
	if err != nil {
		return err
	}
	_, err = u.list.Write(append(line, '\n'))
	return err
}

// copy copies a file of the project, unless one of the same content is there.
func (u *undo) copy(ctx context.Context, ws *workspace.LocalWorkspace, rel, hash string) error {
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
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (u *undo) close() error {
	if u.list == nil {
		return nil
	}
	return u.list.Close()
}

// ErrNothingLanded says that there is nothing to undo.
var ErrNothingLanded = errors.New("nothing has landed that could be undone")

// Undo puts back what the last landing has displaced, where the project still has what
// landed. It is a landing itself, and to undo it lands the changes again.
func (t *Trial) Undo(dryRun bool, report func(r *Root, path string, err error)) error {
	var last int64
	all := map[*Root][]int64{}
	for _, r := range t.Roots {
		numbers, err := r.landings()
		if err != nil {
			return err
		}
		if all[r] = numbers; len(numbers) > 0 {
			last = max(last, numbers[len(numbers)-1])
		}
	}
	if last == 0 {
		return ErrNothingLanded
	}
	next := Number()
	for _, r := range t.Roots {
		if !slices.Contains(all[r], last) {
			continue
		}
		if err := r.undoOne(last, next, dryRun, func(path string, err error) { report(r, path, err) }); err != nil {
			return err
		}
	}
	return nil
}

// Number numbers a landing, which may be one of several roots.
func Number() int64 { return time.Now().UnixNano() }

func (r *Root) undoOne(last, next int64, dryRun bool, report func(path string, err error)) error {
	steps, err := r.steps(last)
	if err != nil {
		return err
	}
	ws, err := r.project()
	if err != nil {
		return err
	}
	defer ws.Close()
	if _, err := r.readLanded(); err != nil {
		return err
	}
	u := r.newUndo(next)
	for _, s := range slices.Backward(steps) {
		rel := string(s.Old.Path)
		err := error(nil)
		if !dryRun {
			err = r.putBack(ws, u, rel, s.New.entry(), s.Old.entry())
		}
		report(rel, err)
	}
	if dryRun {
		return nil
	}
	return errors.Join(u.close(), os.Remove(u.name(last)))
}

// steps reads a list. A line that a crash has cut is the last one, and nothing has landed
// for it.
func (r *Root) steps(number int64) ([]step, error) {
	u := &undo{dir: filepath.Join(r.Dir, undoDir)}
	f, err := os.Open(u.name(number))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var steps []step
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s step
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			steps = append(steps, s)
		}
	}
	return steps, lines.Err()
}

// putBack replaces what landed by what was there before. Nothing is done where the
// landing did not come to the path.
func (r *Root) putBack(ws *workspace.LocalWorkspace, u *undo, rel string, landed, was workspace.Entry) error {
	ctx := context.Background()
	now, err := workspace.EntryOf(ctx, ws, rel)
	if err != nil {
		return err
	}
	now.Size = 0
	if now == was {
		return nil
	}
	if now != landed {
		return &Refused{"it has changed in the project", true}
	}
	if err := u.keep(ctx, ws, rel, now, was); err != nil {
		return fmt.Errorf("cannot keep what it displaces: %w", err)
	}
	if err := r.noteLanded(rel, was); err != nil {
		return err
	}
	var content io.Reader
	if was.Kind == workspace.KindFile && (landed.Kind != workspace.KindFile || was.Hash != landed.Hash) {
		f, err := os.Open(filepath.Join(u.dir, was.Hash))
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	}
	err = workspace.Swap(ctx, ws, rel, now, was, content)
	if errors.Is(err, workspace.ErrChanged) {
		return &Refused{"it has changed in the project", true}
	}
	return err
}
