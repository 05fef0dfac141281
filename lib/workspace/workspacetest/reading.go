package workspacetest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"pikuri/lib/workspace"
)

func nothing(string, fs.DirEntry) error { return nil }

// reading are the checks that change nothing through the subject.
var reading = []part{
	{"what is written is read", func(c *check) {
		big := strings.Repeat("0123456789abcdef", 200_000)
		c.put("f=text", "d/e/g=deep", "empty", "big="+big)
		c.holds("f", "text")
		c.holds("d/e/g", "deep")
		c.holds("empty", "")
		c.holds("big", big)
	}},
	{"what is read is a copy", func(c *check) {
		c.put("f=text")
		data, err := c.ws.Read(c.ctx, "f")
		c.ok(err)
		data[0] = 'X'
		_ = append(data, "more"...)
		c.holds("f", "text")
	}},
	{"a missing file is not found", func(c *check) {
		for _, path := range []string{"f", "d/f"} {
			_, err := c.ws.Read(c.ctx, path)
			c.fails(err, workspace.ErrNotFound)
			_, err = c.ws.Stat(c.ctx, path)
			c.fails(err, workspace.ErrNotFound)
			c.gone(path)
		}
	}},
	{"a directory is no file to read", func(c *check) {
		c.put("d/f")
		for _, path := range []string{"d", "", "."} {
			_, err := c.ws.Read(c.ctx, path)
			c.fails(err, workspace.ErrIsDir)
			_, err = workspace.Open(c.ctx, c.ws, path)
			c.fails(err, workspace.ErrIsDir)
		}
	}},
	{"nothing is below a file", func(c *check) {
		c.put("f")
		c.gone("f/x")
		_, err := c.ws.Read(c.ctx, "f/x")
		c.fails(err, workspace.ErrNotDir)
		_, err = c.ws.List(c.ctx, "f")
		c.fails(err, workspace.ErrNotDir)
	}},
	{"a list is sorted and of one directory", func(c *check) {
		c.put("z", "m/x/y", "a", "m/b", "B", "aa")
		c.same(c.names("."), "B", "a", "aa", "m", "z")
		c.same(c.names("m"), "b", "x")
		c.same(c.names("m/x"), "y")
	}},
	{"the root is a directory, however it is called", func(c *check) {
		c.put("d/f=text")
		for _, path := range []string{"", ".", "./", "d/..", "./d/../", "d/../."} {
			c.same(c.names(path), "d")
			there, err := c.ws.Exists(c.ctx, path)
			is(c, true, err == nil && there, path)
			info, err := c.ws.Stat(c.ctx, path)
			c.ok(err)
			is(c, ".", info.Name(), "name of the root")
			is(c, true, info.IsDir(), "the root is a directory")
		}
	}},
	{"a missing directory is an empty one", func(c *check) {
		c.same(c.names("d"))
		c.same(c.names("d/e"))
		c.same(c.names("."))
	}},
	{"entries tell what they are", func(c *check) {
		c.put("d/f=12345", "d/e/x")
		entries, err := c.ws.List(c.ctx, "d")
		c.ok(err)
		if len(entries) != 2 {
			c.Fatalf("want e and f, got %v", entries)
		}
		e, f := entries[0], entries[1]
		is(c, true, e.IsDir() && e.Type() == fs.ModeDir, "e is a directory")
		is(c, false, f.IsDir() || f.Type() != 0, "f is none")
		info, err := f.Info()
		c.ok(err)
		is(c, int64(5), info.Size(), "size")
		is(c, "f", info.Name(), "name")
		info, err = e.Info()
		c.ok(err)
		is(c, true, info.IsDir(), "its description as well")
	}},
	{"stat", func(c *check) {
		c.put("d/f=12345")
		info, err := c.ws.Stat(c.ctx, "d/f")
		c.ok(err)
		is(c, "f", info.Name(), "name")
		is(c, int64(5), info.Size(), "size")
		is(c, false, info.IsDir(), "is a directory")
		is(c, true, info.Mode().IsRegular() && info.Mode().Perm()&0o400 != 0, "is a file to read")
		is(c, false, info.ModTime().IsZero(), "has no time")
		info, err = c.ws.Stat(c.ctx, "d/")
		c.ok(err)
		is(c, "d", info.Name(), "name")
		is(c, true, info.IsDir() && info.Mode().IsDir(), "is a directory")
		there, err := c.ws.Exists(c.ctx, "d")
		is(c, true, there && err == nil, "a directory is there")
	}},
	{"paths are cleaned first", func(c *check) {
		c.put("d/f=text")
		for _, path := range []string{"d//f", "./d/f", "d/./f", "d/f/", "d/../d/f", "missing/../d/f", "d/f/../f", "d/f/."} {
			c.holds(path, "text")
		}
	}},
	{"names are bytes", func(c *check) {
		for _, name := range []string{
			"..x", "...", "...x/y", "-x", "~", "$HOME", "a\nb", "a b", `a\b`, "*", "\xff\xfe", "é", "e\u0301", "C:x",
			strings.Repeat("n", 255), "con", " x ", "x.tmp", ".pk-x.tmp", "%2e%2e",
		} {
			for _, path := range []string{name, "d/" + name} {
				c.put(path + "=text")
				c.holds(path, "text")
			}
		}
		is(c, 20, len(c.names("d")), "how many there are")
		is(c, 21, len(c.names("")), "how many there are at the top")
	}},
	{"paths that lead out are refused", func(c *check) {
		c.put("d/f")
		for _, path := range []string{"..", "../x", "/", "/etc/passwd", "d/../..", "d/../../x", "../../../../etc/passwd", "./..", "//", "/d/f"} {
			for _, op := range operations {
				if !op.writes {
					c.fails(op.do(c, c.ctx, path), workspace.ErrPathTraversal)
				}
			}
		}
	}},
	{"paths that cannot be are invalid", func(c *check) {
		for _, path := range []string{"a\x00b", "a\x00/../b", strings.Repeat("n", 256), strings.Repeat("d/", 2048) + "f"} {
			for _, op := range operations {
				if !op.writes {
					c.fails(op.do(c, c.ctx, path), workspace.ErrInvalid)
				}
			}
		}
	}},
	{"errors hold what the caller said", func(c *check) {
		_, err := c.ws.Read(c.ctx, "./d/../missing")
		e, _ := errors.AsType[*workspace.Error](err)
		if e == nil || e.Path != "./d/../missing" || e.Op != "read" {
			c.Errorf("%#v", e)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			c.Errorf("%v is no fs.ErrNotExist", err)
		}
	}},
	{"nothing happens once the context is done", func(c *check) {
		c.put("d/f=text")
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		for _, op := range operations {
			if !op.writes {
				c.fails(op.do(c, ctx, "d"), context.Canceled)
			}
		}
		_, err := workspace.Glob(ctx, c.ws, "**")
		c.fails(err, context.Canceled)
		_, err = workspace.Hash(ctx, c.ws, "d/f")
		c.fails(err, context.Canceled)
	}},
	{"an open file ends with its context", func(c *check) {
		c.put("f=text")
		ctx, cancel := context.WithCancel(c.ctx)
		f, err := workspace.Open(ctx, c.ws, "f")
		c.ok(err)
		defer f.Close()
		cancel()
		_, err = f.Read(make([]byte, 1))
		c.fails(err, context.Canceled)
	}},
	{"a file is opened, read from anywhere, and closed", func(c *check) {
		c.put("f=0123456789")
		f, err := workspace.Open(c.ctx, c.ws, "f")
		c.ok(err)
		info, err := f.Stat()
		c.ok(err)
		is(c, int64(10), info.Size(), "size")
		is(c, "f", info.Name(), "name")
		_, err = f.Seek(-3, io.SeekEnd)
		c.ok(err)
		rest, err := io.ReadAll(f)
		c.ok(err)
		is(c, "789", string(rest), "the end")
		_, err = f.Seek(-1, io.SeekStart)
		c.fails(err, workspace.ErrInvalid)
		_, err = f.Seek(2, io.SeekStart)
		c.ok(err)
		var all strings.Builder
		n, err := io.Copy(&all, f)
		c.ok(err)
		is(c, "23456789", all.String(), "a copy")
		is(c, int64(8), n, "its length")
		c.ok(f.Close())
		_, err = f.Read(make([]byte, 1))
		c.fails(err, workspace.ErrClosed)
	}},
	{"entries are those of a list", func(c *check) {
		c.put("d/z", "d/a", "d/e/x")
		var names []string
		for entry, err := range workspace.Entries(c.ctx, c.ws, "d") {
			c.ok(err)
			names = append(names, entry.Name())
		}
		slices.Sort(names)
		c.same(names, "a", "e", "z")
		for range workspace.Entries(c.ctx, c.ws, "d") {
			break // a reader that stops gets no more
		}
	}},
	{"walk visits all in order", func(c *check) {
		c.put("b/y", "b/x/f", "a", "c")
		var seen []string
		c.ok(workspace.Walk(c.ctx, c.ws, ".", func(path string, e fs.DirEntry) error {
			if e.IsDir() {
				path += "/"
			}
			seen = append(seen, path)
			return nil
		}))
		c.same(seen, "a", "b/", "b/x/", "b/x/f", "b/y", "c")
		seen = nil
		c.ok(workspace.Walk(c.ctx, c.ws, "./b/", func(path string, e fs.DirEntry) error {
			seen = append(seen, path)
			return nil
		}))
		c.same(seen, "b/x", "b/x/f", "b/y")
	}},
	{"walk leaves out what it is told to", func(c *check) {
		c.put("b/y", "b/x/f", "a", "c")
		for _, row := range []struct {
			at   string
			err  error
			want []string
		}{
			{"b", fs.SkipDir, []string{"a", "b", "c"}},
			{"b/x", fs.SkipDir, []string{"a", "b", "b/x", "b/y", "c"}},
			{"a", fs.SkipDir, []string{"a", "b", "b/x", "b/x/f", "b/y", "c"}},
			{"b/x", fs.SkipAll, []string{"a", "b", "b/x"}},
		} {
			var seen []string
			c.ok(workspace.Walk(c.ctx, c.ws, ".", func(path string, e fs.DirEntry) error {
				seen = append(seen, path)
				if path == row.at {
					return row.err
				}
				return nil
			}))
			c.same(seen, row.want...)
		}
	}},
	{"walk ends with the error of its function", func(c *check) {
		c.put("a", "b")
		mine, count := errors.New("mine"), 0
		err := workspace.Walk(c.ctx, c.ws, ".", func(string, fs.DirEntry) error { count++; return mine })
		is(c, true, errors.Is(err, mine), "the error")
		is(c, 1, count, "calls")
	}},
	{"a walk of what is missing visits nothing", func(c *check) {
		c.ok(workspace.Walk(c.ctx, c.ws, "missing", func(path string, _ fs.DirEntry) error {
			c.Errorf("%q is visited", path)
			return nil
		}))
		c.put("f")
		c.fails(workspace.Walk(c.ctx, c.ws, "f", nothing), workspace.ErrNotDir)
	}},
	{"a tree is what walk visits", func(c *check) {
		c.put("b/x/f", "a")
		var seen []string
		for entry, err := range workspace.Tree(c.ctx, c.ws, ".") {
			c.ok(err)
			seen = append(seen, entry.Path)
		}
		c.same(seen, "a", "b", "b/x", "b/x/f")
	}},
	{"glob", func(c *check) {
		c.put("a.go", "src/b.go", "src/x/c.go", "src/d.txt", ".hidden", "a:b", "src.go/e")
		for pattern, want := range map[string][]string{
			"*.go": {"a.go"}, "**/*.go": {"a.go", "src/b.go", "src/x/c.go"}, "src/*.go": {"src/b.go"}, "src/x/c.go": {"src/x/c.go"},
			"*.rb": nil, "src": nil, "src/": {"src/b.go", "src/d.txt", "src/x/c.go"}, "./*.go": {"a.go"}, "*": {".hidden", "a.go", "a:b"},
			"a?b": {"a:b"}, "src/**/[bc].go": {"src/b.go", "src/x/c.go"}, "{a,src/b}.go": {"a.go", "src/b.go"}, ".": nil,
		} {
			got, err := workspace.Glob(c.ctx, c.ws, pattern)
			c.ok(err)
			if strings.Join(got, " ") != strings.Join(want, " ") {
				c.Errorf("%q: want %q, got %q", pattern, want, got)
			}
		}
	}},
	{"a pattern that is not understood is invalid", func(c *check) {
		for _, pattern := range []string{"a[", "", "/a", "../a", "a**", "{a"} {
			_, err := workspace.Glob(c.ctx, c.ws, pattern)
			c.fails(err, workspace.ErrInvalid)
		}
	}},
	{"a hash", func(c *check) {
		c.put("f=text")
		hash, err := workspace.Hash(c.ctx, c.ws, "f")
		c.ok(err)
		is(c, workspace.HashOf([]byte("text")), hash, "hash")
		is(c, "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1", hash, "which is SHA-256")
		_, err = workspace.Hash(c.ctx, c.ws, "missing")
		c.fails(err, workspace.ErrNotFound)
	}},
}

// refusing are the checks of a workspace that cannot be written.
var refusing = []part{
	{"nothing can be changed", func(c *check) {
		c.put("d/f=text", "src=PWNED")
		for _, op := range operations {
			for _, path := range []string{"d/f", "d", "new", "d/new", "new/new"} {
				if op.writes && !strings.HasPrefix(op.name, "Copy") {
					c.fails(op.do(c, c.ctx, path), workspace.ErrReadOnly)
				}
			}
		}
		c.fails(workspace.Copy(c.ctx, c.ws, "d/f", "d/g"), workspace.ErrReadOnly)
		c.holds("d/f", "text")
		c.same(c.names("."), "d", "src")
		c.same(c.names("d"), "f")
	}},
	{"what is changed behind it is seen", func(c *check) {
		c.put("f=old")
		c.holds("f", "old")
		c.put("f=new")
		c.holds("f", "new")
	}},
}
