package workspacetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

func matches(err, want error) bool { return errors.Is(err, want) }
func classChanged(err error) bool  { return errors.Is(err, workspace.ErrChanged) }

// link makes a symbolic link in the workspace, past it; {root} and {out} are the
// workspace and a directory outside.
func (c *check) link(name, target string) {
	c.Helper()
	path := filepath.Join(c.root, name)
	c.ok(os.MkdirAll(filepath.Dir(path), 0o755))
	c.ok(os.Symlink(strings.NewReplacer("{root}", c.root, "{out}", c.outside()).Replace(target), path))
}

// outside is a directory beside the workspace, with a secret in it.
func (c *check) outside() string {
	c.Helper()
	dir := c.root + "-outside"
	if _, err := os.Lstat(dir); err == nil {
		return dir
	}
	c.ok(os.MkdirAll(dir+"/d", 0o755))
	c.ok(os.WriteFile(dir+"/f", []byte("SECRET"), 0o644))
	c.ok(os.WriteFile(dir+"/d/f", []byte("SECRET"), 0o644))
	c.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// fifo makes a FIFO. An implementation that waits for its other end gets one after
// a moment, so that it fails rather than hangs.
func (c *check) fifo(name string) {
	c.Helper()
	path := c.root + "/" + name
	c.ok(unix.Mkfifo(path, 0o644))
	done := make(chan struct{})
	c.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			for _, end := range []int{unix.O_WRONLY, unix.O_RDONLY} {
				if fd, err := unix.Open(path, end|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
					unix.Close(fd)
				}
			}
		}
	}()
}

// untouched requires the directory outside to be unchanged.
func (c *check) untouched() {
	c.Helper()
	var seen []string
	dir := c.outside()
	c.ok(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var data []byte
			data, err = os.ReadFile(path)
			path += "=" + string(data)
		}
		seen = append(seen, strings.TrimPrefix(path, dir))
		return err
	}))
	c.same(seen, "", "/d", "/d/f=SECRET", "/f=SECRET")
}

// outLinks are links that lead out, by name, with the path to request through them. They
// lead only to the test's own directory outside: a broken implementation carries the
// requests out there, and the test may run as root.
var outLinks = []struct{ name, target, path string }{
	{"lout", "{out}/f", "lout"},
	{"dangling", "{out}/new", "dangling"},
	{"danglingup", "../{base}-outside/new", "danglingup"},
	{"ldout", "{out}", "ldout/f"},
	{"ldout2", "{out}", "ldout2/new"},
	{"ldout3", "{out}/d", "ldout3/../f"},
	{"ldangling", "{out}/newdir", "ldangling/f"},
	{"chain1", "chain2", "chain1"},
	{"chain2", "d/chain3", "chain2"},
	{"d/chain3", "{out}/new", "d/chain3"},
	{"up", "..", "up/{base}-outside/new"},
	{"upup", "../../../../../../../../../../../..{out}/f", "upup"},
	{"abs", "{out}/d/f", "abs"},
	{"slash", "/", "slash{out}/f"},
	{"evil", "{root}-outside/f", "evil"},
	{"inout", "{root}/d/../../{base}-outside/new", "inout"},
	{"proc", "/proc/self/root{out}/f", "proc"},
	{"procfd", "/proc/self/fd", "procfd/0"},
	{"loop", "loop", "loop"},
	{"loop1", "loop2/x", "loop1"},
	{"loop2", "loop1/x", "loop2"},
}

func (c *check) makeOutLinks() {
	c.Helper()
	c.put("d/f=text")
	for _, l := range outLinks {
		c.link(l.name, strings.ReplaceAll(l.target, "{base}", filepath.Base(c.root)))
	}
}

// wideLinks lead to directories that hold more than the test's own. They are only for
// reading.
var wideLinks = []struct{ name, target string }{{"parent", ".."}, {"parent2", "{root}/.."}, {"top", "/"}}

// typed is a path of outLinks as a request gives it.
func (c *check) typed(path string) string {
	return strings.NewReplacer("{out}", c.outside(), "{base}", filepath.Base(c.root)).Replace(path)
}

// actsOnLink are the operations that do not follow the last link.
var actsOnLink = []string{"Delete", "RemoveAll", "Rename from", "Rename to", "WriteExclusive", "Swap"}

// readingLinks are checks of links and special files that change nothing.
var readingLinks = []part{
	{"no link leads a reader out", func(c *check) {
		c.makeOutLinks()
		for _, l := range outLinks {
			path := c.typed(l.path)
			if l.name == "ldout3" {
				continue // lexically it is not a link at all
			}
			for _, op := range operations {
				if !op.writes {
					c.fails(op.do(c, c.ctx, path), workspace.ErrPathTraversal)
				}
			}
		}
		for _, l := range wideLinks {
			c.link(l.name, l.target)
			for _, op := range operations {
				if !op.writes {
					c.fails(op.do(c, c.ctx, l.name), workspace.ErrPathTraversal)
				}
			}
		}
		c.untouched()
	}},
	{"links that stay inside are followed", func(c *check) {
		c.put("d/f=text", "d/e/g=deep")
		for name, target := range map[string]string{
			"rel": "d/f", "dir": "d", "abs": "{root}/d/f", "absdir": "{root}/d", "d/up": "../d/f", "d/e/top": "../..", "again": "dir",
			"backin": "../{base}/d/f", "absdots": "{root}/d/e/../f", "self": ".", "slashes": "d//e/.././f", "d/e/abs": "{root}",
		} {
			c.link(name, strings.ReplaceAll(target, "{base}", filepath.Base(c.root)))
		}
		for _, path := range []string{
			"rel", "dir/f", "abs", "absdir/f", "d/up", "d/e/top/d/f", "again/f", "dir/up", "backin", "absdots", "self/self/rel",
			"slashes", "d/e/abs/rel", "absdir/e/top/abs",
		} {
			c.holds(path, "text")
			info, err := c.ws.Stat(c.ctx, path)
			c.ok(err)
			is(c, true, info.Mode().IsRegular(), path)
			is(c, filepath.Base(path), info.Name(), "name")
		}
		c.same(c.names("again"), "e", "f", "up")
		c.same(c.names("d/e/abs/absdir/e"), "abs", "g", "top")
	}},
	{"forty links are followed, and no more", func(c *check) {
		c.put("l0=text")
		for i := range 41 {
			c.link("l"+strconv.Itoa(i+1), "l"+strconv.Itoa(i))
		}
		c.holds("l40", "text")
		_, err := c.ws.Read(c.ctx, "l41")
		c.fails(err, workspace.ErrPathTraversal)
	}},
	{"a link that leads to nothing inside is not found", func(c *check) {
		c.link("dangling", "nothing")
		c.link("missing", "no/../where")
		for _, path := range []string{"dangling", "missing", "dangling/x"} {
			_, err := c.ws.Read(c.ctx, path)
			c.fails(err, workspace.ErrNotFound)
			c.gone(path)
		}
	}},
	{"walks see links and do not follow them", func(c *check) {
		c.put("d/f")
		c.link("ld", "d")
		c.link("d/top", "..")
		c.link("out", "{out}")
		var seen []string
		for entry, err := range workspace.Tree(c.ctx, c.ws, ".") {
			c.ok(err)
			path := entry.Path
			if entry.Type()&fs.ModeSymlink != 0 {
				path += "@"
			}
			info, err := entry.Info()
			c.ok(err)
			is(c, entry.Type(), info.Mode().Type(), path)
			seen = append(seen, path)
		}
		c.same(seen, "d", "d/f", "d/top@", "ld@", "out@")
		found, err := workspace.Glob(c.ctx, c.ws, "**")
		c.ok(err)
		c.same(found, "d/f", "d/top", "ld", "out")
	}},
	{"special files are refused at once", func(c *check) {
		c.fifo("fifo")
		c.link("lfifo", "fifo")
		ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
		defer cancel()
		for _, path := range []string{"fifo", "lfifo"} {
			_, err := c.ws.Read(ctx, path)
			c.fails(err, workspace.ErrNotRegular)
			_, err = workspace.Open(ctx, c.ws, path)
			c.fails(err, workspace.ErrNotRegular)
			info, err := c.ws.Stat(ctx, path)
			c.ok(err)
			is(c, fs.ModeNamedPipe, info.Mode().Type(), "type")
		}
		entries, err := c.ws.List(ctx, ".")
		c.ok(err)
		is(c, fs.ModeNamedPipe, entries[0].Type(), "type in a list")
	}},
}

// writingLinks are checks of links and special files that change things.
var writingLinks = []part{
	{"no link leads a writer out", func(c *check) {
		for _, op := range operations {
			if !op.writes {
				continue
			}
			c.ok(removeBelow(c.root))
			c.makeOutLinks()
			for _, l := range outLinks {
				if l.name == "ldout3" {
					continue
				}
				err := op.do(c, c.ctx, c.typed(l.path))
				switch {
				case l.path != l.name || !slices.Contains(actsOnLink, op.name):
					c.fails(err, workspace.ErrPathTraversal)
				case op.name == "WriteExclusive":
					c.fails(err, workspace.ErrExist)
				default:
					c.ok(err) // it applies to the link
				}
			}
			c.untouched()
		}
	}},
	{"links that stay inside are written through", func(c *check) {
		c.put("d/f=old", "d/g=old", "d/h=old", "d/i=old")
		for _, name := range []string{"f", "g", "h", "i", "new1", "new2", "deep/new3"} {
			c.link("l"+filepath.Base(name), "d/"+name)
		}
		c.ok(c.ws.Write(c.ctx, "lf", []byte("new")))
		c.ok(c.ws.Append(c.ctx, "lg", []byte(" new")))
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "lh", []byte("new")))
		c.ok(workspace.Copy(c.ctx, c.ws, "lf", "li"))
		c.ok(c.ws.Write(c.ctx, "lnew1", []byte("new")))
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "lnew2", []byte("new")))
		c.ok(c.ws.Write(c.ctx, "lnew3", []byte("new")))
		for name, want := range map[string]string{"f": "new", "g": "old new", "h": "new", "i": "new", "new1": "new", "new2": "new", "deep/new3": "new"} {
			c.holds("d/"+name, want)
			info, err := os.Lstat(c.root + "/l" + filepath.Base(name))
			c.ok(err)
			is(c, fs.ModeSymlink, info.Mode().Type(), "the link stays")
		}
	}},
	{"rename, delete and remove act on a link itself", func(c *check) {
		c.put("d/f=text", "g=text")
		c.link("ld", "d")
		c.link("lf", "d/f")
		c.link("loop", "loop")
		c.link("out", "{out}")
		c.link("out2", "{out}")
		c.ok(c.ws.Rename(c.ctx, "ld", "ld2"))
		c.holds("ld2/f", "text")
		c.ok(c.ws.Rename(c.ctx, "g", "lf"))
		info, err := os.Lstat(c.root + "/lf")
		c.ok(err)
		is(c, true, info.Mode().IsRegular(), "the link is replaced")
		for _, path := range []string{"ld2", "loop", "out"} {
			c.ok(c.ws.Delete(c.ctx, path))
		}
		c.ok(c.ws.RemoveAll(c.ctx, "out2"))
		c.same(c.names("."), "d", "lf")
		c.holds("d/f", "text")
		c.untouched()
	}},
	{"rename does not replace a file with a link to it", func(c *check) {
		c.put("d/f=text", "g=text")
		c.link("l", "d/f")
		c.link("l2", "l")
		c.link("dir", "d")
		c.link("up", "./dir/../d/f")
		c.ok(os.Link(c.root+"/g", c.root+"/g2"))
		for _, names := range [][2]string{{"l", "d/f"}, {"l2", "d/f"}, {"l2", "dir/f"}, {"up", "d/f"}, {"dir", "d"}, {"g", "g2"}, {"g2", "g"}} {
			c.fails(c.ws.Rename(c.ctx, names[0], names[1]), workspace.ErrInvalid)
		}
		c.same(c.names("."), "d", "dir", "g", "g2", "l", "l2", "up")
		c.holds("l2", "text")
		c.holds("up", "text")
		c.holds("g", "text")
		c.ok(c.ws.Rename(c.ctx, "d/f", "l"))
		c.holds("l2", "text")
	}},
	{"remove does not follow the links in a tree", func(c *check) {
		c.put("d/e/f", "keep/f=text")
		c.link("d/e/out", "{out}")
		c.link("d/in", "../keep")
		c.ok(c.ws.RemoveAll(c.ctx, "d"))
		c.same(c.names("."), "keep")
		c.holds("keep/f", "text")
		c.untouched()
	}},
	{"a file with a name outside is not written through", func(c *check) {
		dir := c.outside()
		for _, op := range operations {
			if !op.writes || op.name == "Mkdir" {
				continue
			}
			c.ok(removeBelow(c.root))
			c.ok(os.Link(dir+"/f", c.root+"/hard"))
			_ = op.do(c, c.ctx, "hard")
			c.untouched()
		}
		c.ok(removeBelow(c.root))
		c.ok(os.Link(dir+"/f", c.root+"/hard"))
		if err := c.ws.Write(c.ctx, "hard", []byte("PWNED")); !workspace.CapabilitiesOf(c.ws).AtomicWrite {
			c.fails(err, workspace.ErrAccessDenied)
		}
		c.untouched()
		c.ok(removeBelow(c.root))
		c.ok(os.Link(dir+"/f", c.root+"/hard"))
		c.fails(c.ws.Append(c.ctx, "hard", []byte("PWNED")), workspace.ErrAccessDenied)
		c.ok(workspace.AtomicWrite(c.ctx, c.ws, "hard", []byte("new")))
		c.holds("hard", "new")
		c.untouched()
	}},
	{"special files are not written, and can be removed", func(c *check) {
		for _, name := range []string{"fifo", "fifo2"} {
			c.fifo(name)
		}
		for _, op := range operations {
			switch op.name {
			case "Write", "Append", "AtomicWrite", "Copy to", "Copy from":
				c.fails(op.do(c, c.ctx, "fifo"), workspace.ErrNotRegular)
			}
		}
		c.ok(c.ws.Delete(c.ctx, "fifo"))
		c.ok(c.ws.RemoveAll(c.ctx, "fifo2"))
		c.gone("fifo")
		c.gone("fifo2")
	}},
	{"the mode of a file is kept", func(c *check) {
		c.put("f", "src")
		for _, mode := range []fs.FileMode{0o600, 0o755, 0o640} {
			c.ok(os.Chmod(c.root+"/f", mode))
			c.ok(workspace.AtomicWrite(c.ctx, c.ws, "f", []byte("new")))
			info, err := c.ws.Stat(c.ctx, "f")
			c.ok(err)
			is(c, mode, info.Mode(), "mode after AtomicWrite")
			c.ok(c.ws.Write(c.ctx, "f", []byte("newer")))
			info, err = c.ws.Stat(c.ctx, "f")
			c.ok(err)
			is(c, mode, info.Mode(), "mode after Write")
		}
		c.ok(os.Chmod(c.root+"/src", 0o700))
		c.ok(workspace.Copy(c.ctx, c.ws, "src", "new"))
		info, err := c.ws.Stat(c.ctx, "new")
		c.ok(err)
		is(c, fs.FileMode(0o700), info.Mode(), "mode of a copy")
	}},
}

// removeBelow empties a directory of the host.
func removeBelow(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}
