package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pikuri/lib/cli"
)

// answer is an answer of pk-fs. Each operation sets only its own fields.
type answer struct {
	Error     string   `json:"error"` // its hint names options of pk, which the model cannot give
	Text      string   `json:"text"`
	First     int      `json:"first"`
	Last      int      `json:"last"`
	Lines     *int     `json:"lines"`
	Bytes     int64    `json:"bytes"`
	SHA256    string   `json:"sha256"`
	Truncated bool     `json:"truncated"`
	Created   bool     `json:"created"`
	Diff      string   `json:"diff"`
	Replaced  int      `json:"replaced"`
	Matches   int      `json:"matches"`
	Paths     []string `json:"paths"`
	Entries   []entry  `json:"entries"`

	// These replace the fields whose content is not UTF-8.
	TextBytes  []byte   `json:"text_base64"`
	DiffBytes  []byte   `json:"diff_base64"`
	PathsBytes [][]byte `json:"paths_base64"`
}

type entry struct {
	Name, Type string
	NameBytes  []byte `json:"name_base64"`
	Size       int64
}

// readable replaces bytes by text, because a model reads only text.
func (a *answer) readable() {
	text := func(b []byte) string { return strings.ToValidUTF8(string(b), string(utf8.RuneError)) }
	a.Text += text(a.TextBytes)
	a.Diff += text(a.DiffBytes)
	for _, path := range a.PathsBytes {
		a.Paths = append(a.Paths, text(path))
	}
	for i := range a.Entries {
		a.Entries[i].Name += text(a.Entries[i].NameBytes)
	}
}

// file sends a request to pk-fs, and formats the answer.
func (s *server) file(ctx context.Context, f fields, text func(*answer) (string, fields)) (*mcp.CallToolResult, error) {
	a := &answer{}
	note, err := s.askFiles(ctx, f, a)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return failed("%v", err), nil
	case a.Error != "":
		return failed("%s%s", note, s.inside(a.Error, fmt.Sprint(f))), nil
	}
	a.readable()
	shown, meta := text(a)
	return said(note+shown, meta), nil
}

// fileTime bounds the wait for pk-fs once the caller has cancelled.
const fileTime = 2 * time.Second

// askFiles sends a request to pk-fs, which answers one at a time and cannot withdraw one. If
// pk-fs does not answer soon after the call is cancelled, askFiles ends it, and the next call
// starts a new one. pk-fs replaces files as a whole, so none is left half written. A call
// waits here for its turn, so that no other is lost with it.
func (s *server) askFiles(ctx context.Context, f fields, a *answer) (note string, err error) {
	select {
	case s.filing <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	done := func() { <-s.filing }
	c, _, note, err := s.files.get()
	if err != nil {
		done()
		return "", err
	}
	_, answered, err := c.send(f, nil)
	if err == nil {
		err = c.await(ctx, answered, a)
	}
	if ctx.Err() == nil {
		done()
		if err == errEnded {
			err = fmt.Errorf("%s ended before it had answered; the next call starts it anew", s.files.name)
		}
		return note, err
	}
	s.files.owe(note)
	open := err == ctx.Err() // there is no answer yet
	go func() {
		defer done()
		late, stop := context.WithTimeout(context.Background(), fileTime)
		defer stop()
		if open && c.await(late, answered, &answer{}) != nil {
			_ = c.cmd.Process.Kill()
			<-c.ended
		}
	}()
	return "", ctx.Err()
}

type readIn struct {
	Path   string `json:"path" jsonschema:"relative to the project root, or absolute"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines; 2000 if left out"`
}

func (s *server) read(ctx context.Context, _ *mcp.CallToolRequest, in readIn) (*mcp.CallToolResult, error) {
	f := request("read", in)
	f["numbers"] = true
	return s.file(ctx, f, func(a *answer) (string, fields) {
		meta := fields{"bytes": a.Bytes, "sha256": a.SHA256}
		text := lines(a.Text)
		switch {
		case a.Bytes == 0:
			text = "(empty)\n"
		case a.Lines != nil && a.Last < a.First:
			text = fmt.Sprintf("(there are only %s)\n", cli.Count(*a.Lines, "line", "lines"))
		case a.Lines != nil && (a.First > 1 || a.Last < *a.Lines):
			text += fmt.Sprintf("(lines %d-%d of %d)\n", a.First, a.Last, *a.Lines)
		case a.Truncated:
			text += fmt.Sprintf("(lines %d-%d; there are more)\n", a.First, a.Last)
		}
		return text, meta
	})
}

type writeIn struct {
	Path    string `json:"path" jsonschema:"relative to the project root, or absolute"`
	Content string `json:"content" jsonschema:"all of the file"`
}

func (s *server) write(ctx context.Context, _ *mcp.CallToolRequest, in writeIn) (*mcp.CallToolResult, error) {
	return s.file(ctx, request("write", in), func(a *answer) (string, fields) {
		did := "wrote"
		if a.Created {
			did = "made"
		}
		return fmt.Sprintf("%s %s: %d bytes, sha256 %s\n", did, in.Path, a.Bytes, a.SHA256), fields{"bytes": a.Bytes, "sha256": a.SHA256, "created": a.Created}
	})
}

type editIn struct {
	Path string `json:"path" jsonschema:"relative to the project root, or absolute"`
	Old  string `json:"old_string" jsonschema:"the text that is there now, exactly, without line numbers; once in the file unless replace_all"`
	New  string `json:"new_string" jsonschema:"the text that replaces old_string"`
	All  bool   `json:"replace_all,omitempty" jsonschema:"replace it wherever it is"`
}

func (s *server) edit(ctx context.Context, _ *mcp.CallToolRequest, in editIn) (*mcp.CallToolResult, error) {
	f := fields{"op": "edit", "path": in.Path, "old": in.Old, "new": in.New}
	if in.All {
		f["all"] = true
	}
	return s.file(ctx, f, func(a *answer) (string, fields) {
		return fmt.Sprintf("%s\nreplaced %d; sha256 %s\n", lines(a.Diff), a.Replaced, a.SHA256), fields{"replaced": a.Replaced, "sha256": a.SHA256}
	})
}

type listIn struct {
	Path string `json:"path,omitempty" jsonschema:"a directory; the project root if left out"`
}

func (s *server) list(ctx context.Context, _ *mcp.CallToolRequest, in listIn) (*mcp.CallToolResult, error) {
	return s.file(ctx, request("ls", in), func(a *answer) (string, fields) {
		var text strings.Builder
		for _, e := range a.Entries {
			switch e.Type {
			case "file":
				fmt.Fprintf(&text, "%s  %d\n", inALine(e.Name), e.Size)
			case "dir":
				fmt.Fprintf(&text, "%s/\n", inALine(e.Name))
			default:
				fmt.Fprintf(&text, "%s  (%s)\n", inALine(e.Name), e.Type)
			}
		}
		return cmp.Or(text.String(), "(empty)\n"), nil
	})
}

type globIn struct {
	Pattern string `json:"pattern" jsonschema:"such as **/*.go; * does not match a slash"`
	Path    string `json:"path,omitempty" jsonschema:"look below this directory; the project root if left out"`
}

func (s *server) glob(ctx context.Context, _ *mcp.CallToolRequest, in globIn) (*mcp.CallToolResult, error) {
	return s.file(ctx, request("glob", in), func(a *answer) (string, fields) {
		if len(a.Paths) == 0 {
			return "no file matches\n", nil
		}
		var text strings.Builder
		for _, path := range a.Paths {
			text.WriteString(inALine(path) + "\n")
		}
		return text.String() + cut(a), nil
	})
}

// inALine quotes a name that would look like several lines, or that a terminal would obey.
func inALine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

type grepIn struct {
	Pattern    string `json:"pattern" jsonschema:"a regular expression as RE2 has them: no backreferences, no lookaround"`
	Path       string `json:"path,omitempty" jsonschema:"a file or a directory; the project root if left out"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files that match, such as *.go"`
	Fixed      bool   `json:"fixed,omitempty" jsonschema:"the pattern is a text, not a regular expression"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Before     int    `json:"before,omitempty" jsonschema:"lines before each match"`
	After      int    `json:"after,omitempty" jsonschema:"lines after each match"`
	FilesOnly  bool   `json:"files_only,omitempty" jsonschema:"print the names of files with a match"`
	Limit      int    `json:"limit,omitempty" jsonschema:"how many matches; 250 if left out"`
}

func (s *server) grep(ctx context.Context, _ *mcp.CallToolRequest, in grepIn) (*mcp.CallToolResult, error) {
	return s.file(ctx, request("grep", in), func(a *answer) (string, fields) {
		if a.Text == "" {
			return "no match\n", nil
		}
		return lines(a.Text) + cut(a), fields{"matches": a.Matches}
	})
}

// cut returns the note for an incomplete list.
func cut(a *answer) string {
	if a.Truncated {
		return "(there are more)\n"
	}
	return ""
}
