package fence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/gitdir"
)

func TestPinned(t *testing.T) {
	for _, value := range []string{"/home/u/go", "/home/u/go:/srv/go", "/srv/go", "1.2", ""} {
		t.Setenv("PK_TEST_MOVES", value)
		assert.Empty(t, pinned("/home/u").Getenv("PK_TEST_MOVES"), "%q", value)
	}
	t.Setenv("PATH", "/srv/bin")
	assert.Equal(t, "/srv/bin", pinned("/home/u").Getenv("PATH"))
	assert.Equal(t, "/home/u", pinned("/home/u/").Home)
}

func TestPinnedGit(t *testing.T) {
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("HOME", "/home/other")
	for _, f := range []*Fence{{Config: Config{Pinned: true}}, {}} {
		value, set := f.gitenv()("GIT_CONFIG_COUNT")
		assert.Equal(t, !f.Pinned, set)
		assert.Equal(t, !f.Pinned, value != "")
		home, _ := f.gitenv()("HOME")
		assert.Equal(t, !f.Pinned, home == "/home/other")
	}
}

// A name that a command has chosen is pasted into a shell.
func TestAdviceForAShell(t *testing.T) {
	assert.Equal(t, "make it readable: chmod u+rwx '/p/$(id)'", gitAdvice(&fs.PathError{Op: "open", Path: "/p/$(id)", Err: fs.ErrPermission}))
	look := func(name string) string {
		return gitAdvice(fmt.Errorf("x: %w", &gitdir.LookError{Name: name, Err: syscall.EACCES}))
	}
	assert.Equal(t, "make it readable: chmod u+rwx '/p/$(id)/.git'", look("/p/$(id)/.git"))
	if os.Geteuid() != 0 { // root may read everything
		n := t.TempDir() + "/n"
		assert.NoError(t, os.MkdirAll(n+"/.git", 0o755))
		assert.NoError(t, os.Chmod(n+"/.git", 0))
		assert.Equal(t, "make it readable: chmod u+rwx "+n+"/.git", gitAdvice(&fs.PathError{Op: "look in", Path: n, Err: syscall.EACCES}))
		assert.NoError(t, os.Chmod(n, 0))
		defer os.Chmod(n, 0o755)
		assert.Equal(t, "make it readable: chmod u+rwx "+n, look(n+"/.git"))
	}
	for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.ENOSPC, syscall.EFBIG} {
		assert.Empty(t, gitAdvice(fmt.Errorf("cannot write the list of git directories: %w", errno)))
	}
	assert.Equal(t, "name a narrower root", gitAdvice(errors.New("there are more than 2000000 directories")))
	assert.Equal(t, "move it out of the repository: git worktree move '/p/`id`' PATH", moveAdvice("/p/`id`"))
}
