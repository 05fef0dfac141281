// Package edit changes text files of a workspace. File replaces a text that occurs once;
// Parse and Check read a patch.
//
// The package reads a file, changes it in memory, and puts it in place with workspace.Swap.
// If another process has changed the file meanwhile, the file stays, and the error is
// workspace.ErrChanged.
package edit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"pikuri/lib/gitpatch"
	"pikuri/lib/workspace"
)

// maxFile bounds a file: it is in memory twice.
const maxFile = 64 << 20

// Replacement is one edit: New takes the place of Old.
type Replacement struct {
	Old, New string
	All      bool   // each Old, and not the only one
	IfHash   string // unless "": the workspace.HashOf the expected content
}

// Result is the outcome of an edit.
type Result struct {
	Old, New []byte // its content
	Replaced int
}

// Hash is the workspace.HashOf the new content.
func (r *Result) Hash() string { return workspace.HashOf(r.New) }

// Diff returns the change as a unified diff, with name as the path.
func (r *Result) Diff(name string) []byte {
	return gitpatch.Unified(name, name, r.Old, r.New)
}

// File replaces a text of a file, which keeps its permissions. The path must not lead
// through symbolic links. File fails with a *MatchError unless the text occurs exactly once,
// or with All at least once.
//
// If all lines of the file end in CR LF, and the replacement has no CR, CR LF stands for
// each LF of it.
func File(ctx context.Context, ws workspace.Workspace, path string, r Replacement) (*Result, error) {
	failed := func(err error) (*Result, error) { return nil, workspace.NewError("edit", path, err) }
	switch {
	case r.Old == "":
		return failed(&workspace.Error{Err: workspace.ErrInvalid, Detail: "the old text is empty"})
	case r.Old == r.New:
		return failed(&workspace.Error{Err: workspace.ErrInvalid, Detail: "the old text and the new one are the same"})
	}
	now, err := read(ctx, ws, path)
	if err != nil {
		return failed(err)
	}
	if r.IfHash != "" && r.IfHash != now.entry.Hash {
		return failed(workspace.ErrChanged)
	}
	text, n, err := replace(now.data, r)
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return failed(workspace.ErrTooLarge)
	}
	next := now.entry
	next.Hash, next.Size = workspace.HashOf(text), int64(len(text))
	if err := workspace.Swap(ctx, ws, path, now.entry, next, bytes.NewReader(text)); err != nil {
		return failed(err)
	}
	return &Result{now.data, text, n}, nil
}

// content is the content of a file, and its entry.
type content struct {
	entry workspace.Entry
	data  []byte
	isNew bool // in a patch: the file is made with the caller's umask
}

func read(ctx context.Context, ws workspace.Workspace, path string) (*content, error) {
	f, err := workspace.Open(ctx, ws, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, reason(workspace.ErrTooLarge)
	}
	var data bytes.Buffer
	data.Grow(int(info.Size()) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(f, maxFile+1)); err != nil {
		return nil, err
	}
	if data.Len() > maxFile {
		return nil, reason(workspace.ErrTooLarge)
	}
	return &content{entry: workspace.Entry{
		Kind: workspace.KindFile, Perm: info.Mode().Perm(), Size: int64(data.Len()), Hash: workspace.HashOf(data.Bytes()),
	}, data: data.Bytes()}, nil
}

// replace returns the text with the replacement, and the number of replaced places.
func replace(text []byte, r Replacement) ([]byte, int, error) {
	old, with := []byte(r.Old), []byte(r.New)
	if !strings.Contains(r.Old+r.New, "\r") && endsInCRLF(text) {
		old, with = toCRLF(old), toCRLF(with)
	}
	places := find(text, old)
	if len(places) == 0 || len(places) > 1 && !r.All {
		return nil, 0, &MatchError{Lines: lineNumbers(text, places)}
	}
	n := 1
	if r.All {
		n = bytes.Count(text, old)
	}
	return bytes.Replace(text, old, with, n), n, nil
}

// find returns the places of part in text. They may overlap: "aa" occurs twice in "aaa".
func find(text, part []byte) []int {
	var places []int
	for from := 0; len(places) < maxPlaces; {
		at := bytes.Index(text[from:], part)
		if at < 0 {
			break
		}
		places = append(places, from+at)
		from += at + 1
	}
	return places
}

// maxPlaces bounds the places that an error names.
const maxPlaces = 20

// endsInCRLF reports whether all lines end in CR LF.
func endsInCRLF(text []byte) bool {
	n := bytes.Count(text, []byte("\r\n"))
	return n > 0 && n == bytes.Count(text, []byte("\n"))
}

func toCRLF(text []byte) []byte {
	return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
}

func lineNumbers(text []byte, places []int) []int {
	var lines []int
	line, counted := 1, 0
	for _, at := range places {
		line += bytes.Count(text[counted:at], []byte("\n"))
		counted = at
		lines = append(lines, line)
	}
	return lines
}

// MatchError reports a text that is missing, or occurs several times.
type MatchError struct {
	Lines []int // where it begins; 20 at most
}

func (e *MatchError) Error() string {
	if len(e.Lines) == 0 {
		return "the old text is not there"
	}
	return "the old text is there several times: " + told(e.Lines)
}

func told(lines []int) string {
	var words []string
	for _, n := range slices.Compact(slices.Clone(lines)) {
		words = append(words, fmt.Sprint(n))
	}
	text := "line " + words[0]
	if len(words) > 1 {
		text = "lines " + strings.Join(words, ", ")
	}
	if len(lines) >= maxPlaces {
		text += " and so on"
	}
	return text
}
