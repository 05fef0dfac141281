package workspacetest

import (
	"os"
	"path/filepath"

	"pikuri/lib/workspace"
)

// refusedToWrite requires every operation that writes path to be refused.
func (c *check) refusedToWrite(path string) {
	c.Helper()
	for _, op := range operations {
		if !op.writes || op.name == "Copy from" {
			continue
		}
		err := op.do(c, c.ctx, path)
		if op.name == "Swap" && matches(err, workspace.ErrPathTraversal) {
			continue // it follows no link at all
		}
		c.fails(err, workspace.ErrAccessDenied)
	}
}

// gitDirs are the checks of files that git on the host would run or follow.
var gitDirs = []part{
	{"no git directory is written", func(c *check) {
		for _, path := range []string{".git", ".git/config", "a/.GIT/hooks/x", "./a/../.git/x", "git~1/x", ".git./x"} {
			c.refusedToWrite(path)
		}
		c.gone(".git")
		c.gone("a")
		c.ok(c.ws.Write(c.ctx, ".gitignore", nil))
		c.ok(c.ws.Write(c.ctx, ".github/x.git", nil))
	}},
	{"nothing becomes a git directory by its contents", func(c *check) {
		c.put("b/HEAD=ref: refs/heads/x", "b/objects/x=")
		c.refusedToWrite("b/refs/heads/x")
		c.gone("b/refs")
		c.refusedToWrite("b/commondir")
		c.ok(c.ws.Write(c.ctx, "b/other", nil))
		c.ok(c.ws.RemoveAll(c.ctx, "b"))
		c.put("objects/x=", "refs/x=")
		c.refusedToWrite("HEAD")
		c.ok(c.ws.Write(c.ctx, "objects/y", nil))
	}},
	{"a git directory as a workspace is not written", func(c *check) {
		sub, err := workspace.Sub(c.ctx, c.ws, ".git")
		if err == nil {
			err = sub.Write(c.ctx, "config", nil)
		}
		c.fails(err, workspace.ErrAccessDenied)
		c.gone(".git")
	}},
}

// gitLinks are checks of existing repositories.
var gitLinks = []part{
	{"a git directory can be read", func(c *check) {
		c.repository("r/.git")
		c.holds("r/.git/HEAD", "x")
		c.refusedToWrite("r/.git/HEAD")
		c.holds("r/.git/HEAD", "x")
		sub, err := workspace.Sub(c.ctx, c.ws, "r/.git")
		if err == nil {
			err = sub.Delete(c.ctx, "HEAD")
		}
		c.fails(err, workspace.ErrAccessDenied)
		c.holds("r/.git/HEAD", "x")
	}},
	{"no link leads a writer into a git directory", func(c *check) {
		c.repository(".git")
		c.repository("real")
		c.link("to", ".git")
		c.link("a", "{root}/.git/config")
		for _, path := range []string{"to/config", "to/hooks/x", "real/config", "real/hooks/x"} {
			c.refusedToWrite(path)
		}
		c.fails(c.ws.Write(c.ctx, "a", nil), workspace.ErrAccessDenied)
		c.ok(c.ws.Delete(c.ctx, "to"))
	}},
	{"a .git that is a link is one", func(c *check) {
		c.repository("real")
		c.link(".git", "real")
		c.refusedToWrite(".git/config")
		c.refusedToWrite("real/config")
	}},
	{"a work tree is moved and removed with its git directory", func(c *check) {
		c.repository("r/.git")
		if err := c.ws.Rename(c.ctx, "r", "s"); err != nil {
			c.fails(err, workspace.ErrIsDir)
			c.ok(os.Rename(filepath.Join(c.root, "r"), filepath.Join(c.root, "s")))
		}
		c.fails(c.ws.Rename(c.ctx, "s", ".git"), workspace.ErrAccessDenied)
		c.holds("s/.git/HEAD", "x")
		c.ok(c.ws.RemoveAll(c.ctx, "s"))
		c.gone("s")
	}},
}

// repository makes a git directory behind the workspace.
func (c *check) repository(dir string) {
	c.Helper()
	for _, d := range []string{"objects", "refs"} {
		c.ok(os.MkdirAll(filepath.Join(c.root, dir, d), 0o755))
	}
	c.ok(os.WriteFile(filepath.Join(c.root, dir, "HEAD"), []byte("x"), 0o644))
}
