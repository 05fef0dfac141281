// Package workspacetest tests implementations of workspace.Workspace against their
// contract. Run is the whole suite; Checks are its parts, for tests that run them in
// another way.
package workspacetest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"pikuri/lib/workspace"
)

// Subject is a workspace under test. It is empty, and allows everything, but cannot be
// written if it has Behind.
type Subject struct {
	Workspace workspace.Workspace

	// Behind is the writable workspace behind a read-only one, in which tests prepare files;
	// nil for any other.
	Behind workspace.Workspace

	// Root is the directory of the workspace on the host, "" for none. No error may contain
	// it. If it is given, there may be links and FIFOs.
	Root string
}

// Check is one part of the suite.
type Check struct {
	Name string
	Run  func(t testing.TB, s Subject)
}

// Run runs every check that applies to the subject, each with a new one.
func Run(t *testing.T, subject func(t testing.TB) Subject) {
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) { check.Run(t, subject(t)) })
	}
}

// Checks returns the suite. A check that does not apply to a subject passes.
func Checks() []Check {
	var checks []Check
	for _, group := range []struct {
		parts []part
		suits func(s Subject) bool
	}{
		{reading, func(Subject) bool { return true }},
		{writing, func(s Subject) bool { return s.Behind == nil }},
		{swapping, func(s Subject) bool { return s.Behind == nil }},
		{swappingLinks, func(s Subject) bool { return s.Root != "" && s.Behind == nil }},
		{gitDirs, func(s Subject) bool { return s.Behind == nil }},
		{gitLinks, func(s Subject) bool { return s.Root != "" && s.Behind == nil }},
		{together, func(s Subject) bool { return s.Behind == nil }},
		{refusing, func(s Subject) bool { return s.Behind != nil }},
		{readingLinks, func(s Subject) bool { return s.Root != "" }},
		{writingLinks, func(s Subject) bool { return s.Root != "" && s.Behind == nil }},
	} {
		for _, p := range group.parts {
			checks = append(checks, Check{p.name, func(t testing.TB, s Subject) {
				if group.suits(s) {
					p.run(newCheck(t, s))
				}
			}})
		}
	}
	return checks
}

// rounds is the number of repetitions of a check of concurrency: $PK_ROUNDS, or few.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		return n
	}
	return 10
}

// part is a check without its subject.
type part struct {
	name string
	run  func(c *check)
}

// check is a check in progress.
type check struct {
	testing.TB
	ctx    context.Context
	ws     workspace.Workspace // under test
	behind workspace.Workspace // the tests prepare files there
	root   string
}

func newCheck(t testing.TB, s Subject) *check {
	c := &check{TB: t, ctx: context.Background(), ws: s.Workspace, behind: s.Behind, root: s.Root}
	if c.behind == nil {
		c.behind = c.ws
	}
	return c
}

// put prepares files: "name" or "name=content".
func (c *check) put(files ...string) {
	c.Helper()
	for _, file := range files {
		name, content, _ := strings.Cut(file, "=")
		if err := c.behind.Write(c.ctx, name, []byte(content)); err != nil {
			c.Fatalf("cannot prepare %q: %v", name, err)
		}
	}
}

// ok ends the check on an error.
func (c *check) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("unexpected error: %v", err)
	}
}

// is compares.
func is[T comparable](c *check, want, got T, what string) {
	c.Helper()
	if want != got {
		c.Errorf("%s: want %v, got %v", what, want, got)
	}
}

// same compares lists.
func (c *check) same(got []string, want ...string) {
	c.Helper()
	if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		c.Errorf("want %q, got %q", want, got)
	}
}

// holds requires a file to have a content.
func (c *check) holds(path, want string) {
	c.Helper()
	data, err := c.ws.Read(c.ctx, path)
	if err != nil {
		c.Errorf("%v", err)
	} else if string(data) != want {
		c.Errorf("%q holds %q, want %q", path, brief(data), brief([]byte(want)))
	}
}

func brief(data []byte) string {
	if len(data) > 100 {
		return string(data[:100]) + "…"
	}
	return string(data)
}

// gone requires a path to be missing.
func (c *check) gone(path string) {
	c.Helper()
	there, err := c.ws.Exists(c.ctx, path)
	if err != nil || there {
		c.Errorf("%q: there %v, error %v; want nothing", path, there, err)
	}
}

// fails requires an error to match a sentinel, to be an *Error, and to contain no secret
// of the host.
func (c *check) fails(err, want error) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Errorf("error %v, want %v", err, want)
		return
	}
	known, ok := errors.AsType[*workspace.Error](err)
	switch {
	case !ok:
		c.Errorf("%v is a %T, and no *workspace.Error", err, err)
	case known.Op == "":
		c.Errorf("%v names no operation", err)
	case c.root != "" && strings.Contains(strings.NewReplacer(strconv.Quote(known.Path), "", strconv.Quote(known.To), "").Replace(err.Error()), c.root):
		c.Errorf("%q tells where the workspace is", err)
	}
}

// names lists a directory.
func (c *check) names(dir string) []string {
	c.Helper()
	entries, err := c.ws.List(c.ctx, dir)
	c.ok(err)
	if entries == nil {
		c.Errorf("the list of %q is nil", dir)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// operation is an operation on one path.
type operation struct {
	name   string
	writes bool
	do     func(c *check, ctx context.Context, path string) error
}

// operations are all operations.
var operations = []operation{
	{"Read", false, func(c *check, ctx context.Context, path string) error { _, err := c.ws.Read(ctx, path); return err }},
	{"List", false, func(c *check, ctx context.Context, path string) error { _, err := c.ws.List(ctx, path); return err }},
	{"Exists", false, func(c *check, ctx context.Context, path string) error { _, err := c.ws.Exists(ctx, path); return err }},
	{"Stat", false, func(c *check, ctx context.Context, path string) error { _, err := c.ws.Stat(ctx, path); return err }},
	{"Open", false, func(c *check, ctx context.Context, path string) error {
		f, err := workspace.Open(ctx, c.ws, path)
		if err == nil {
			f.Close()
		}
		return err
	}},
	{"Entries", false, func(c *check, ctx context.Context, path string) error {
		for _, err := range workspace.Entries(ctx, c.ws, path) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Walk", false, func(c *check, ctx context.Context, path string) error {
		return workspace.Walk(ctx, c.ws, path, nothing)
	}},
	{"Write", true, func(c *check, ctx context.Context, path string) error { return c.ws.Write(ctx, path, []byte("PWNED")) }},
	{"Append", true, func(c *check, ctx context.Context, path string) error { return c.ws.Append(ctx, path, []byte("PWNED")) }},
	{"Delete", true, func(c *check, ctx context.Context, path string) error { return c.ws.Delete(ctx, path) }},
	{"RemoveAll", true, func(c *check, ctx context.Context, path string) error { return c.ws.RemoveAll(ctx, path) }},
	{"Rename from", true, func(c *check, ctx context.Context, path string) error { return c.ws.Rename(ctx, path, "dst") }},
	{"Rename to", true, func(c *check, ctx context.Context, path string) error {
		c.put("src=PWNED")
		return c.ws.Rename(ctx, "src", path)
	}},
	{"AtomicWrite", true, func(c *check, ctx context.Context, path string) error {
		return workspace.AtomicWrite(ctx, c.ws, path, []byte("PWNED"))
	}},
	{"Copy to", true, func(c *check, ctx context.Context, path string) error {
		c.put("src=PWNED")
		return workspace.Copy(ctx, c.ws, "src", path)
	}},
	{"Copy from", true, func(c *check, ctx context.Context, path string) error {
		return workspace.Copy(ctx, c.ws, path, "dst")
	}},
	{"Mkdir", true, func(c *check, ctx context.Context, path string) error { return workspace.Mkdir(ctx, c.ws, path) }},
	{"WriteExclusive", true, func(c *check, ctx context.Context, path string) error {
		return workspace.WriteExclusive(ctx, c.ws, path, []byte("PWNED"))
	}},
	{"Swap", true, func(c *check, ctx context.Context, path string) error {
		old, err := workspace.EntryOf(ctx, c.ws, path)
		if err != nil {
			return err
		}
		return workspace.Swap(ctx, c.ws, path, old, file("PWNED", 0o644), strings.NewReader("PWNED"))
	}},
}
