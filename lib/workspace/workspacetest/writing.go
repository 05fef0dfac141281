package workspacetest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"pikuri/lib/workspace"
)

// writing are the checks that change the subject.
var writing = []part{
	{"write makes, and replaces", func(c *check) {
		c.ok(c.ws.Write(c.ctx, "d/e/f", []byte("a longer text")))
		c.holds("d/e/f", "a longer text")
		c.ok(c.ws.Write(c.ctx, "d/e/f", []byte("text")))
		c.holds("d/e/f", "text")
		c.ok(c.ws.Write(c.ctx, "d/e/f", nil))
		c.holds("d/e/f", "")
	}},
	{"what is written is a copy", func(c *check) {
		data := []byte("text")
		c.ok(c.ws.Write(c.ctx, "f", data))
		c.ok(c.ws.Append(c.ctx, "g", data))
		data[0] = 'X'
		c.holds("f", "text")
		c.holds("g", "text")
	}},
	{"append makes, and adds", func(c *check) {
		c.ok(c.ws.Append(c.ctx, "d/f", []byte("one ")))
		c.ok(c.ws.Append(c.ctx, "d/f", []byte("two")))
		c.ok(c.ws.Append(c.ctx, "d/f", nil))
		c.holds("d/f", "one two")
	}},
	{"a directory is no file to write", func(c *check) {
		c.put("d/f=text")
		for _, op := range operations {
			switch op.name {
			case "Write", "Append", "AtomicWrite", "Copy to", "Delete", "Rename to", "Copy from":
				c.fails(op.do(c, c.ctx, "d"), workspace.ErrIsDir)
			case "WriteExclusive":
				c.fails(op.do(c, c.ctx, "d"), workspace.ErrExist)
			}
		}
		for _, path := range []string{"", ".", "d/.."} {
			c.fails(c.ws.Write(c.ctx, path, nil), workspace.ErrIsDir)
			c.fails(c.ws.Append(c.ctx, path, nil), workspace.ErrIsDir)
			c.fails(c.ws.Delete(c.ctx, path), workspace.ErrIsDir)
			c.fails(workspace.AtomicWrite(c.ctx, c.ws, path, nil), workspace.ErrIsDir)
		}
		c.holds("d/f", "text")
	}},
	{"nothing is written below a file", func(c *check) {
		c.put("f=text")
		for _, op := range operations {
			switch op.name {
			case "Write", "Append", "AtomicWrite", "Copy to", "Rename to", "Mkdir", "WriteExclusive", "Rename from", "Copy from":
				c.fails(op.do(c, c.ctx, "f/x"), workspace.ErrNotDir)
				c.fails(op.do(c, c.ctx, "f/x/y"), workspace.ErrNotDir)
			}
		}
		c.ok(c.ws.Delete(c.ctx, "f/x"))
		c.ok(c.ws.RemoveAll(c.ctx, "f/x"))
		c.holds("f", "text")
		c.same(c.names("."), "f", "src")
	}},
	{"writing where a path leads out is refused", func(c *check) {
		c.put("d/f=text")
		for _, path := range c.waysOut() {
			for _, op := range operations {
				c.fails(op.do(c, c.ctx, path), workspace.ErrPathTraversal)
			}
		}
		if c.root != "" {
			c.untouched()
		}
		for _, op := range operations {
			c.fails(op.do(c, c.ctx, "a\x00b"), workspace.ErrInvalid)
		}
		c.holds("d/f", "text")
		c.same(c.names("."), "d", "src")
	}},
	{"rename moves, and replaces", func(c *check) {
		c.put("a=text", "old=old")
		c.ok(c.ws.Rename(c.ctx, "a", "d/e/b"))
		c.gone("a")
		c.holds("d/e/b", "text")
		c.ok(c.ws.Rename(c.ctx, "d/e/b", "old"))
		c.gone("d/e/b")
		c.holds("old", "text")
		c.ok(c.ws.Rename(c.ctx, "old", "./old"))
		c.holds("old", "text")
	}},
	{"rename of what is missing changes nothing", func(c *check) {
		c.put("b=text")
		for _, dst := range []string{"new/deep/f", "b"} {
			c.fails(c.ws.Rename(c.ctx, "missing", dst), workspace.ErrNotFound)
		}
		c.gone("new")
		c.holds("b", "text")
	}},
	{"rename never replaces a directory", func(c *check) {
		c.put("f=text", "d/g=text")
		c.ok(workspace.Mkdir(c.ctx, c.ws, "empty"))
		c.fails(c.ws.Rename(c.ctx, "f", "d"), workspace.ErrIsDir)
		c.fails(c.ws.Rename(c.ctx, "f", "empty"), workspace.ErrIsDir)
		c.fails(c.ws.Rename(c.ctx, "d", "empty"), workspace.ErrIsDir)
		c.holds("f", "text")
		c.holds("d/g", "text")
		c.same(c.names("empty"))
	}},
	{"rename moves a directory, or says that it does not", func(c *check) {
		c.put("d/e/f=text", "file=text")
		if !workspace.CapabilitiesOf(c.ws).RenameDir {
			c.fails(c.ws.Rename(c.ctx, "d", "new/d"), workspace.ErrIsDir)
			c.gone("new")
			c.holds("d/e/f", "text")
			return
		}
		c.fails(c.ws.Rename(c.ctx, "d", "d/e/d"), workspace.ErrInvalid)
		c.fails(c.ws.Rename(c.ctx, "d", "file"), workspace.ErrExist)
		c.ok(c.ws.Rename(c.ctx, "d", "new/d"))
		c.gone("d")
		c.holds("new/d/e/f", "text")
		c.ok(c.ws.Rename(c.ctx, "new/d", "new/d"))
		c.holds("new/d/e/f", "text")
	}},
	{"delete removes files only, and need not find any", func(c *check) {
		c.put("f", "d/g=text")
		c.ok(workspace.Mkdir(c.ctx, c.ws, "empty"))
		c.ok(c.ws.Delete(c.ctx, "f"))
		c.gone("f")
		c.ok(c.ws.Delete(c.ctx, "f"))
		c.ok(c.ws.Delete(c.ctx, "missing/f"))
		c.fails(c.ws.Delete(c.ctx, "d"), workspace.ErrIsDir)
		c.fails(c.ws.Delete(c.ctx, "empty"), workspace.ErrIsDir)
		c.holds("d/g", "text")
		c.same(c.names("."), "d", "empty")
	}},
	{"remove removes all, and need not find any", func(c *check) {
		c.put("d/e/f", "d/g", "dd/f=text", "f")
		c.ok(c.ws.RemoveAll(c.ctx, "d"))
		c.gone("d")
		c.gone("d/e/f")
		c.ok(c.ws.RemoveAll(c.ctx, "d"))
		c.ok(c.ws.RemoveAll(c.ctx, "f"))
		c.gone("f")
		c.ok(c.ws.RemoveAll(c.ctx, "missing/deep"))
		c.holds("dd/f", "text")
	}},
	{"a tree deeper than a path is long is removed", func(c *check) {
		deep := "d/" + strings.Repeat("n/", 200)
		c.put(deep+"f", "d/g", "keep=text")
		c.ok(c.ws.RemoveAll(c.ctx, "d"))
		c.same(c.names("."), "keep")
	}},
	{"the root is not removed, moved or replaced", func(c *check) {
		c.put("d/f=text", "g=text")
		for _, root := range []string{"", ".", "./", "d/..", "x/..", "./d/../."} {
			c.fails(c.ws.RemoveAll(c.ctx, root), workspace.ErrAccessDenied)
			c.fails(c.ws.Rename(c.ctx, root, "x"), workspace.ErrAccessDenied)
			c.fails(c.ws.Rename(c.ctx, "g", root), workspace.ErrAccessDenied)
		}
		c.holds("d/f", "text")
		c.holds("g", "text")
	}},
	{"directories stay when they are empty", func(c *check) {
		c.put("d/f")
		c.ok(c.ws.Delete(c.ctx, "d/f"))
		there, err := c.ws.Exists(c.ctx, "d")
		is(c, true, err == nil && there, "d is there")
		c.same(c.names("d"))
	}},
	{"mkdir", func(c *check) {
		c.ok(workspace.Mkdir(c.ctx, c.ws, "d/e/f"))
		c.ok(workspace.Mkdir(c.ctx, c.ws, "d/e/f"))
		c.ok(workspace.Mkdir(c.ctx, c.ws, "."))
		info, err := c.ws.Stat(c.ctx, "d/e/f")
		c.ok(err)
		is(c, true, info.IsDir(), "it is a directory")
		c.put("file=text")
		c.fails(workspace.Mkdir(c.ctx, c.ws, "file"), workspace.ErrExist)
	}},
	{"a done context changes nothing", func(c *check) {
		c.put("d/f=text", "src=PWNED")
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		for _, op := range operations {
			c.fails(op.do(c, ctx, "d/f"), context.Canceled)
		}
		c.holds("d/f", "text")
		c.same(c.names("d"), "f")
	}},
	{"atomic writes make, replace, and leave nothing else", func(c *check) {
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "d/e/f", []byte("old")))
		c.holds("d/e/f", "old")
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "d/e/f", []byte("new")))
		c.holds("d/e/f", "new")
		c.same(c.names("d/e"), "f")
		c.fails(workspace.AtomicWrite(c.ctx, c.ws, "d/e", nil), workspace.ErrIsDir)
		c.same(c.names("d"), "e")
	}},
	{"an exclusive write never replaces", func(c *check) {
		c.ok(workspace.WriteExclusive(c.ctx, c.ws, "d/f", []byte("one")))
		c.fails(workspace.WriteExclusive(c.ctx, c.ws, "d/f", []byte("two")), workspace.ErrExist)
		c.holds("d/f", "one")
		for _, atomic := range []bool{false, true} {
			_, err := workspace.Create(c.ctx, c.ws, "d/f", workspace.WriteOptions{Exclusive: true, Atomic: atomic})
			c.fails(err, workspace.ErrExist)
		}
		c.same(c.names("d"), "f")
	}},
	{"an exclusive write finds out at the end", func(c *check) {
		w, err := workspace.Create(c.ctx, c.ws, "f", workspace.WriteOptions{Exclusive: true, Atomic: true})
		c.ok(err)
		fmt.Fprint(w, "late")
		c.put("f=early")
		c.fails(w.Close(), workspace.ErrExist)
		c.holds("f", "early")
		c.same(c.names("."), "f")
	}},
	{"a conditional write wants what it saw", func(c *check) {
		c.put("f=one")
		one := workspace.HashOf([]byte("one"))
		c.ok(workspace.WriteIfUnchanged(c.ctx, c.ws, "f", []byte("two"), one))
		c.holds("f", "two")
		c.fails(workspace.WriteIfUnchanged(c.ctx, c.ws, "f", []byte("three"), one), workspace.ErrChanged)
		c.holds("f", "two")
		c.fails(workspace.WriteIfUnchanged(c.ctx, c.ws, "missing", []byte("x"), one), workspace.ErrNotFound)
		for _, hash := range []string{"", "x", strings.ToUpper(one), one + "0"} {
			c.fails(workspace.WriteIfUnchanged(c.ctx, c.ws, "f", []byte("x"), hash), workspace.ErrInvalid)
		}
		c.same(c.names("."), "f")
	}},
	{"options that contradict each other are invalid", func(c *check) {
		c.put("f=text")
		hash := workspace.HashOf([]byte("text"))
		for _, opts := range []workspace.WriteOptions{
			{Append: true, Exclusive: true}, {Append: true, Atomic: true}, {Append: true, IfHash: hash}, {Exclusive: true, IfHash: hash},
		} {
			_, err := workspace.Create(c.ctx, c.ws, "f", opts)
			c.fails(err, workspace.ErrInvalid)
		}
		c.holds("f", "text")
	}},
	{"a writer publishes, or gives up", func(c *check) {
		c.put("f=old")
		w, err := workspace.Create(c.ctx, c.ws, "f", workspace.WriteOptions{Atomic: true})
		c.ok(err)
		fmt.Fprint(w, "new ")
		fmt.Fprint(w, "text")
		c.holds("f", "old")
		c.same(c.names("."), "f")
		c.ok(w.Close())
		c.holds("f", "new text")
		c.ok(w.Abort())
		c.ok(w.Close())
		_, err = w.Write([]byte("x"))
		c.fails(err, workspace.ErrClosed)
		c.holds("f", "new text")

		w, err = workspace.Create(c.ctx, c.ws, "f", workspace.WriteOptions{Atomic: true})
		c.ok(err)
		fmt.Fprint(w, "newer")
		c.ok(w.Abort())
		c.ok(w.Close())
		c.holds("f", "new text")
		c.same(c.names("."), "f")
	}},
	{"a writer whose context ends publishes nothing", func(c *check) {
		c.put("f=old")
		ctx, cancel := context.WithCancel(c.ctx)
		w, err := workspace.Create(ctx, c.ws, "f", workspace.WriteOptions{Atomic: true})
		c.ok(err)
		fmt.Fprint(w, "new")
		cancel()
		_, err = w.Write([]byte("x"))
		c.fails(err, context.Canceled)
		c.fails(w.Close(), context.Canceled)
		c.holds("f", "old")
		c.same(c.names("."), "f")
	}},
	{"a writer appends", func(c *check) {
		c.put("f=one")
		w, err := workspace.Create(c.ctx, c.ws, "f", workspace.WriteOptions{Append: true})
		c.ok(err)
		fmt.Fprint(w, " two")
		fmt.Fprint(w, " three")
		c.ok(w.Close())
		c.holds("f", "one two three")
	}},
	{"a file that is open stays what it is", func(c *check) {
		c.put("f=old")
		f, err := workspace.Open(c.ctx, c.ws, "f")
		c.ok(err)
		defer f.Close()
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "f", []byte("new")))
		buf := make([]byte, 10)
		n, _ := f.Read(buf)
		is(c, "old", string(buf[:n]), "content")
	}},
	{"copy", func(c *check) {
		big := strings.Repeat("0123456789abcdef", 200_000)
		c.put("f="+big, "g=old")
		c.ok(workspace.Copy(c.ctx, c.ws, "f", "d/e"))
		c.ok(workspace.Copy(c.ctx, c.ws, "f", "g"))
		c.ok(workspace.Copy(c.ctx, c.ws, "f", "./f"))
		c.holds("d/e", big)
		c.holds("g", big)
		c.holds("f", big)
		c.fails(workspace.Copy(c.ctx, c.ws, "missing", "h"), workspace.ErrNotFound)
		c.gone("h")
		c.fails(workspace.Copy(c.ctx, c.ws, "d", "h"), workspace.ErrIsDir)
		c.fails(workspace.Copy(c.ctx, c.ws, "f", "d"), workspace.ErrIsDir)
		c.same(c.names("d"), "e")
	}},
	{"names of unfinished files are nobody's", func(c *check) {
		name := "d/.pk-ABCDEFGHIJKLMNOPQRSTUVWXYZ.tmp"
		c.put("f=text")
		for _, op := range operations {
			switch op.name {
			case "Write", "Append", "AtomicWrite", "Copy to", "Rename to", "WriteExclusive":
				c.fails(op.do(c, c.ctx, name), workspace.ErrInvalid)
			}
		}
		c.same(c.names("d"))
	}},
	{"capabilities do not change", func(c *check) {
		is(c, workspace.CapabilitiesOf(c.ws), workspace.CapabilitiesOf(c.ws), "capabilities")
		caps := workspace.CapabilitiesOf(c.ws)
		is(c, true, caps.AtomicRename && caps.ReadAfterWrite, "what this suite relies on")
	}},
}

// waysOut are paths that lead out, to a place where no file is in danger.
func (c *check) waysOut() []string {
	if c.root == "" {
		return []string{"../pk-no-such-directory/f", "/pk-no-such-directory/f", "d/../../pk-no-such-directory/f"}
	}
	out := c.outside()
	base := filepath.Base(out)
	return []string{out + "/f", out + "/new", "../" + base + "/f", "../" + base + "/new", "d/../../" + base + "/d/f", "../" + base + "/d"}
}

// together are the checks of several at once.
var together = []part{
	{"atomic writers never fail, and nobody reads half of it", func(c *check) {
		content := func(writer int) []byte { return []byte(strings.Repeat(strconv.Itoa(writer), 10_000+writer)) }
		valid := map[string]bool{}
		for writer := range 8 {
			valid[string(content(writer))] = true
		}
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "d/f", content(0)))
		var writers, readers sync.WaitGroup
		done := make(chan struct{})
		for range 2 {
			readers.Go(func() {
				for {
					data, err := c.ws.Read(c.ctx, "d/f")
					if err != nil || !valid[string(data)] {
						c.Errorf("read %d bytes, error %v", len(data), err)
						return
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		for writer := range 8 {
			writers.Go(func() {
				for range rounds() {
					if err := workspace.AtomicWrite(c.ctx, c.ws, "d/f", content(writer)); err != nil {
						c.Errorf("writer %d: %v", writer, err)
						return
					}
				}
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
		c.same(c.names("d"), "f")
	}},
	{"of several exclusive writers one succeeds", func(c *check) {
		for round := range rounds() {
			name := fmt.Sprintf("d/f%d", round)
			won := each(8, func(int) bool { return workspace.WriteExclusive(c.ctx, c.ws, name, []byte("x")) == nil })
			is(c, 1, won, "winners of "+name)
		}
	}},
	{"of several conditional writers none is lost", func(c *check) {
		c.put("n=0")
		each(4, func(int) bool {
			for added := 0; added < rounds(); {
				data, err := c.ws.Read(c.ctx, "n")
				n, _ := strconv.Atoi(string(data))
				if err == nil {
					err = workspace.WriteIfUnchanged(c.ctx, c.ws, "n", []byte(strconv.Itoa(n+1)), workspace.HashOf(data))
				}
				switch {
				case err == nil:
					added++
				case classChanged(err):
				default:
					c.Errorf("%v", err)
					return false
				}
			}
			return true
		})
		c.holds("n", strconv.Itoa(4*rounds()))
	}},
	{"what is appended at once is not mixed", func(c *check) {
		each(4, func(writer int) bool {
			line := []byte(strings.Repeat(strconv.Itoa(writer), 999) + "\n")
			for range rounds() {
				if err := c.ws.Append(c.ctx, "log", line); err != nil {
					c.Errorf("%v", err)
				}
			}
			return true
		})
		data, err := c.ws.Read(c.ctx, "log")
		c.ok(err)
		is(c, 4*1000*rounds(), len(data), "length")
		for line := range strings.Lines(string(data)) {
			if len(line) != 1000 || strings.Trim(line, line[:1]) != "\n" {
				c.Fatalf("mixed line %q", line)
			}
		}
	}},
	{"each operation at once with each other", func(c *check) {
		allowed := []error{workspace.ErrNotFound, workspace.ErrIsDir, workspace.ErrNotDir, workspace.ErrExist, workspace.ErrRaced, workspace.ErrInvalid, workspace.ErrChanged}
		each(len(operations), func(i int) bool {
			for round := range rounds() {
				path := []string{"d/f", "d", "d/e/g"}[round%3]
				err := operations[i].do(&check{TB: c.TB, ctx: c.ctx, ws: c.ws, behind: quiet{c.behind}}, c.ctx, path)
				if err != nil && !slices.ContainsFunc(allowed, func(want error) bool { return matches(err, want) }) {
					c.Errorf("%s of %q: %v", operations[i].name, path, err)
				}
			}
			return true
		})
		c.ok(workspace.Walk(c.ctx, c.ws, ".", nothing))
	}},
}

// quiet is a workspace for preparations, which must not fail.
type quiet struct{ workspace.Workspace }

func (q quiet) Write(ctx context.Context, path string, data []byte) error {
	_ = q.Workspace.Write(ctx, path, data)
	return nil
}

// each runs n at once and counts successes.
func each(n int, run func(i int) bool) int {
	var all sync.WaitGroup
	var mu sync.Mutex
	count := 0
	for i := range n {
		all.Go(func() {
			if run(i) {
				mu.Lock()
				count++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return count
}
