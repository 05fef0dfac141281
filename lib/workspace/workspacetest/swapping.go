package workspacetest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pikuri/lib/workspace"
)

// file is an entry with a content.
func file(content string, perm fs.FileMode) workspace.Entry {
	return workspace.Entry{Kind: workspace.KindFile, Perm: perm, Size: int64(len(content)), Hash: workspace.HashOf([]byte(content))}
}

func dir(perm fs.FileMode) workspace.Entry {
	return workspace.Entry{Kind: workspace.KindDir, Perm: perm}
}

func link(target string) workspace.Entry {
	return workspace.Entry{Kind: workspace.KindLink, Target: target}
}

var missing workspace.Entry

// swap swaps, with a content for files.
func (c *check) swap(path string, old, next workspace.Entry, content string) error {
	return workspace.Swap(c.ctx, c.ws, path, old, next, strings.NewReader(content))
}

// stands requires a path to be an entry.
func (c *check) stands(path string, want workspace.Entry) {
	c.Helper()
	got, err := workspace.EntryOf(c.ctx, c.ws, path)
	c.ok(err)
	is(c, want, got, path)
}

// swapping are the checks of conditional replacement.
var swapping = []part{
	{"an entry describes what is there", func(c *check) {
		c.put("d/f=text")
		e, err := workspace.EntryOf(c.ctx, c.ws, "d/f")
		c.ok(err)
		is(c, file("text", e.Perm), e, "a file")
		e, err = workspace.EntryOf(c.ctx, c.ws, "./d/x/..")
		c.ok(err)
		is(c, dir(e.Perm), e, "a directory")
		e, err = workspace.EntryOf(c.ctx, c.ws, ".")
		c.ok(err)
		is(c, dir(e.Perm), e, "the root")
		for _, path := range []string{"x", "x/y", "d/f/x", "d/f/x/y"} {
			c.stands(path, missing)
		}
	}},
	{"swap creates, replaces and deletes a file", func(c *check) {
		c.ok(c.swap("d/e/f", missing, file("one", 0o640), "one"))
		c.stands("d/e/f", file("one", 0o640))
		c.ok(c.swap("d/e/f", file("one", 0o640), file("two", 0o755), "two"))
		c.stands("d/e/f", file("two", 0o755))
		c.holds("d/e/f", "two")
		c.ok(c.swap("d/e/f", file("two", 0o755), missing, ""))
		c.stands("d/e/f", missing)
		c.same(c.names("d/e"))
	}},
	{"swap takes any content without a hash", func(c *check) {
		big := strings.Repeat("0123456789", 300_000)
		c.ok(c.swap("f", missing, workspace.Entry{Kind: workspace.KindFile, Perm: 0o600}, big))
		c.stands("f", file(big, 0o600))
		c.ok(c.swap("f", file(big, 0o600), workspace.Entry{Kind: workspace.KindFile, Perm: 0o600}, ""))
		c.stands("f", file("", 0o600))
	}},
	{"swap changes a mode alone", func(c *check) {
		c.ok(c.swap("f", missing, file("text", 0o644), "text"))
		c.ok(workspace.Swap(c.ctx, c.ws, "f", file("text", 0o644), file("text", 0o755), nil))
		c.stands("f", file("text", 0o755))
		c.ok(c.swap("d", missing, dir(0o750), ""))
		c.ok(c.swap("d/f", missing, file("x", 0o644), "x"))
		c.ok(c.swap("d", dir(0o750), dir(0o700), ""))
		c.stands("d", dir(0o700))
		c.holds("d/f", "x")
	}},
	{"swap of what is the same checks", func(c *check) {
		c.put("f=text", "d/f")
		for _, path := range []string{"f", "d", "x", "x/y"} {
			e, err := workspace.EntryOf(c.ctx, c.ws, path)
			c.ok(err)
			c.ok(workspace.Swap(c.ctx, c.ws, path, e, e, nil))
			c.stands(path, e)
		}
		c.fails(c.swap("f", file("other", 0o644), file("other", 0o644), ""), workspace.ErrChanged)
	}},
	{"swap makes and removes directories", func(c *check) {
		c.ok(c.swap("d", missing, dir(0o755), ""))
		c.ok(c.swap("d/e", missing, dir(0o700), ""))
		c.stands("d/e", dir(0o700))
		c.fails(c.swap("d", dir(0o755), missing, ""), workspace.ErrChanged)
		c.stands("d/e", dir(0o700))
		c.ok(c.swap("d/e", dir(0o700), missing, ""))
		c.ok(c.swap("d", dir(0o755), missing, ""))
		c.gone("d")
		c.same(c.names("."))
	}},
	{"swap changes a type", func(c *check) {
		c.ok(c.swap("f", missing, file("text", 0o644), "text"))
		c.ok(c.swap("f", file("text", 0o644), dir(0o755), ""))
		c.stands("f", dir(0o755))
		c.ok(c.swap("f/g", missing, file("x", 0o600), "x"))
		c.fails(c.swap("f", dir(0o755), file("text", 0o644), "text"), workspace.ErrChanged)
		c.stands("f/g", file("x", 0o600))
		c.ok(c.swap("f/g", file("x", 0o600), missing, ""))
		c.ok(c.swap("f", dir(0o755), file("new", 0o644), "new"))
		c.stands("f", file("new", 0o644))
		c.same(c.names("."), "f")
	}},
	{"swap of what is not old changes nothing", func(c *check) {
		c.ok(c.swap("f", missing, file("text", 0o644), "text"))
		c.ok(c.swap("d", missing, dir(0o755), ""))
		all := []workspace.Entry{missing, file("text", 0o600), file("other", 0o644), dir(0o755), dir(0o700), link("f"), {Kind: workspace.KindOther}}
		for _, path := range []string{"f", "d", "x", "x/y", "f/x"} {
			there, err := workspace.EntryOf(c.ctx, c.ws, path)
			c.ok(err)
			for _, old := range all {
				for _, next := range []workspace.Entry{missing, file("new", 0o644), dir(0o711), old} {
					if old == there || path == "f/x" && old == missing {
						continue
					}
					if err := c.swap(path, old, next, "new"); !classChanged(err) {
						c.Errorf("%q, %+v to %+v: %v", path, old, next, err)
					}
					c.stands(path, there)
				}
			}
		}
		c.fails(c.swap("f/x", missing, file("x", 0o644), "x"), workspace.ErrNotDir)
		c.same(c.names("."), "d", "f")
		c.same(c.names("d"))
		c.gone("x")
	}},
	{"swap publishes only the content that it is to", func(c *check) {
		c.ok(c.swap("f", missing, file("text", 0o644), "text"))
		c.fails(c.swap("f", file("text", 0o644), file("new", 0o644), "newer"), workspace.ErrInvalid)
		c.fails(c.swap("g", missing, file("new", 0o644), ""), workspace.ErrInvalid)
		broken := io.MultiReader(strings.NewReader("ne"), brokenReader{})
		c.fails(workspace.Swap(c.ctx, c.ws, "f", file("text", 0o644), file("new", 0o644), broken), errBroken)
		c.stands("f", file("text", 0o644))
		c.same(c.names("."), "f")
	}},
	{"entries that cannot be are invalid", func(c *check) {
		c.put("f=text")
		for _, e := range []workspace.Entry{
			{Kind: -1}, {Kind: 5}, {Perm: 0o644}, {Hash: workspace.HashOf(nil)}, {Target: "x"}, {Kind: workspace.KindDir, Hash: "x"},
			{Kind: workspace.KindFile, Hash: "x"}, {Kind: workspace.KindFile, Perm: fs.ModeSetuid | 0o755, Hash: workspace.HashOf(nil)},
			{Kind: workspace.KindLink}, {Kind: workspace.KindLink, Target: "a\x00b"}, {Kind: workspace.KindLink, Target: strings.Repeat("x", 4096)},
			{Kind: workspace.KindLink, Target: "x", Perm: 0o777},
		} {
			c.fails(c.swap("f", e, missing, ""), workspace.ErrInvalid)
			c.fails(c.swap("x", missing, e, ""), workspace.ErrInvalid)
		}
		c.fails(c.swap("f", workspace.Entry{Kind: workspace.KindFile, Perm: 0o644}, missing, ""), workspace.ErrInvalid)
		c.fails(c.swap("x", missing, workspace.Entry{Kind: workspace.KindOther}, ""), workspace.ErrInvalid)
		c.fails(workspace.Swap(c.ctx, c.ws, "x", missing, file("x", 0o644), nil), workspace.ErrInvalid)
		c.holds("f", "text")
		c.gone("x")
	}},
	{"the root is not swapped, nor a reserved name made", func(c *check) {
		for _, root := range []string{"", ".", "x/.."} {
			e, err := workspace.EntryOf(c.ctx, c.ws, root)
			c.ok(err)
			c.fails(c.swap(root, e, missing, ""), workspace.ErrAccessDenied)
			c.fails(c.swap(root, e, dir(0o700), ""), workspace.ErrAccessDenied)
			c.fails(c.swap(root, missing, dir(0o700), ""), workspace.ErrAccessDenied)
		}
		for _, name := range []string{".pk-" + strings.Repeat("A", 26) + ".tmp", ".pk-" + strings.Repeat("A", 78) + "-f.swap"} {
			c.fails(c.swap(name, missing, file("x", 0o644), "x"), workspace.ErrInvalid)
			c.fails(c.swap(name, missing, dir(0o755), ""), workspace.ErrInvalid)
			c.fails(c.ws.Write(c.ctx, name, nil), workspace.ErrInvalid)
		}
		c.same(c.names("."))
	}},
	{"a context that ends while content is read changes nothing", func(c *check) {
		c.ok(c.swap("f", missing, file("text", 0o644), "text"))
		ctx, cancel := context.WithCancel(c.ctx)
		content := io.MultiReader(strings.NewReader("n"), readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF }), strings.NewReader("ew"))
		c.fails(workspace.Swap(ctx, c.ws, "f", file("text", 0o644), file("new", 0o644), content), context.Canceled)
		c.stands("f", file("text", 0o644))
		c.same(c.names("."), "f")
	}},
	{"recover finds nothing where nothing was left", func(c *check) {
		c.put("d/f=text")
		for _, path := range []string{".", "d", "x"} {
			kept, err := workspace.Recover(c.ctx, c.ws, path)
			c.ok(err)
			c.same(kept)
		}
		c.same(c.names("d"), "f")
	}},
	{"of several swaps of one entry one succeeds", func(c *check) {
		c.ok(c.swap("n", missing, file("0", 0o644), "0"))
		for round := range rounds() {
			old, next := strings.Repeat("x", round), strings.Repeat("x", round+1)
			if round == 0 {
				old = "0"
			}
			won := each(8, func(int) bool { return c.swap("n", file(old, 0o644), file(next, 0o644), next) == nil })
			is(c, 1, won, "winners")
		}
		c.same(c.names("."), "n")
	}},
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(buf []byte) (int, error) { return f(buf) }

// swappingLinks are checks of links and special files.
var swappingLinks = []part{
	{"swap makes, replaces and deletes links", func(c *check) {
		out := c.outside()
		c.ok(c.swap("l", missing, link("d/f"), ""))
		c.stands("l", link("d/f"))
		c.ok(c.swap("l", link("d/f"), link(out+"/f"), ""))
		c.stands("l", link(out+"/f"))
		c.fails(c.swap("l", link("d/f"), missing, ""), workspace.ErrChanged)
		c.ok(c.swap("l", link(out+"/f"), file("text", 0o644), "text"))
		c.stands("l", file("text", 0o644))
		c.ok(c.swap("l", file("text", 0o644), link(out+"/f"), ""))
		c.ok(c.swap("l", link(out+"/f"), dir(0o755), ""))
		c.ok(c.swap("l", dir(0o755), link("loop"), ""))
		c.ok(c.swap("l", link("loop"), missing, ""))
		c.same(c.names("."))
		c.untouched()
	}},
	{"swap follows no link on the way, wherever it leads", func(c *check) {
		c.put("d/f=text")
		c.link("ld", "d")
		c.link("out", "{out}")
		c.link("here", ".")
		for _, path := range []string{"ld/f", "ld/x", "out/f", "here/d/f", "here/here/x", "d/../ld/f"} {
			_, err := workspace.EntryOf(c.ctx, c.ws, path)
			c.fails(err, workspace.ErrPathTraversal)
			_, err = workspace.Recover(c.ctx, c.ws, filepath.Dir(path))
			c.fails(err, workspace.ErrPathTraversal)
			for _, old := range []workspace.Entry{missing, file("text", 0o644)} {
				c.fails(c.swap(path, old, file("PWNED", 0o644), "PWNED"), workspace.ErrPathTraversal)
				c.fails(c.swap(path, old, missing, ""), workspace.ErrPathTraversal)
			}
		}
		c.holds("d/f", "text")
		c.untouched()
	}},
	{"special files are described, deleted and replaced", func(c *check) {
		other := workspace.Entry{Kind: workspace.KindOther}
		c.fifo("a")
		c.fifo("b")
		c.stands("a", other)
		c.fails(c.swap("a", file("x", 0o644), missing, ""), workspace.ErrChanged)
		c.ok(c.swap("a", other, missing, ""))
		c.ok(c.swap("b", other, file("text", 0o644), "text"))
		c.same(c.names("."), "b")
		c.holds("b", "text")
	}},
	{"other names of a file are left alone", func(c *check) {
		out := c.outside()
		c.ok(os.Link(out+"/f", c.root+"/hard"))
		secret, err := workspace.EntryOf(c.ctx, c.ws, "hard")
		c.ok(err)
		open := secret
		open.Perm = 0o666
		c.fails(workspace.Swap(c.ctx, c.ws, "hard", secret, open, nil), workspace.ErrAccessDenied)
		text, err := os.ReadFile(out + "/f")
		c.ok(err)
		c.ok(c.swap("hard", secret, open, string(text)))
		c.ok(c.swap("hard", open, file("new", 0o644), "new"))
		c.holds("hard", "new")
		info, err := os.Stat(out + "/f")
		c.ok(err)
		is(c, secret.Perm, info.Mode(), "the mode of the other name")
		c.untouched()
	}},
	{"no bit of a mode but the permissions is set", func(c *check) {
		c.ok(c.swap("f", missing, file("text", 0o644), "text"))
		c.ok(c.swap("d", missing, dir(0o755), ""))
		c.ok(os.Chmod(c.root+"/f", fs.ModeSetuid|fs.ModeSetgid|0o644))
		c.ok(os.Chmod(c.root+"/d", fs.ModeSticky|0o755))
		c.ok(c.swap("f", file("text", 0o644), file("text", 0o755), ""))
		c.ok(c.swap("d", dir(0o755), dir(0o711), ""))
		for name, want := range map[string]fs.FileMode{"f": 0o755, "d": fs.ModeDir | fs.ModeSticky | 0o711} {
			info, err := os.Lstat(filepath.Join(c.root, name))
			c.ok(err)
			is(c, want, info.Mode(), name)
		}
		c.ok(os.Chmod(c.root+"/f", fs.ModeSetuid|0o755))
		c.ok(c.swap("f", file("text", 0o755), file("new", 0o755), "new"))
		info, err := os.Lstat(c.root + "/f")
		c.ok(err)
		is(c, fs.FileMode(0o755), info.Mode(), "a replacement")
	}},
}
