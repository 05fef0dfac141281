package quarantine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/session"
)

func ground(t *testing.T) (base, project string) {
	dir := t.TempDir()
	base, project = dir+"/base", dir+"/project"
	require.NoError(t, os.MkdirAll(base, 0o700))
	require.NoError(t, os.MkdirAll(project+"/.git", 0o755))
	return base, project
}

func TestEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		plant func(t *testing.T, git string)
		gone  string // below .git; "" if nothing is moved
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"a file", func(t *testing.T, git string) { require.NoError(t, os.WriteFile(git+"/commondir", nil, 0o600)) }, "commondir"},
		{"a directory", func(t *testing.T, git string) { require.NoError(t, os.MkdirAll(git+"/hooks/x", 0o700)) }, "hooks"},
		{"a directory that cannot be written", func(t *testing.T, git string) {
			require.NoError(t, os.MkdirAll(git+"/hooks/x", 0o700))
			require.NoError(t, os.Chmod(git+"/hooks", 0o500))
		}, "hooks"},
		{"a file in a directory that cannot be written", func(t *testing.T, git string) {
			require.NoError(t, os.WriteFile(git+"/commondir", nil, 0o600))
			require.NoError(t, os.Chmod(git, 0o555))
		}, "commondir"},
		{"a file in a directory that cannot be entered", func(t *testing.T, git string) {
			require.NoError(t, os.WriteFile(git+"/commondir", nil, 0o600))
			require.NoError(t, os.Chmod(git, 0))
		}, "commondir"},
		{"a link in the place of a missing directory", func(t *testing.T, git string) { require.NoError(t, os.Symlink("..", git+"/a")) }, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base, project := ground(t)
			git := project + "/.git"
			t.Cleanup(func() { os.Chmod(git, 0o700) })
			n, err := Begin(base, Note{Names: []string{git + "/commondir", git + "/hooks", git + "/a/b/hooks"}, Session: "workspace-x"})
			require.NoError(t, err)
			test.plant(t, git)
			before, err := os.Stat(git)
			require.NoError(t, err)
			done, err := n.End(Report{})
			require.NoError(t, done.Told())
			moved := done.Moved
			require.NoError(t, err)
			after, err := os.Stat(git)
			require.NoError(t, err)
			assert.Equal(t, before.Mode(), after.Mode(), "the mode is given back")
			notes, err := os.ReadDir(base + "/journal")
			require.NoError(t, err)
			assert.Empty(t, notes)
			if test.gone == "" {
				assert.Empty(t, moved)
				return
			}
			require.Len(t, moved, 1)
			assert.Equal(t, filepath.Join(git, test.gone), moved[0].From)
			require.NoError(t, os.Chmod(git, 0o700))
			_, err = os.Lstat(moved[0].From)
			assert.ErrorIs(t, err, os.ErrNotExist)
			_, err = os.Lstat(moved[0].To)
			assert.NoError(t, err)
		})
	}
}

func TestModesThatLetOthersIn(t *testing.T) {
	base, project := ground(t)
	mode, err := ModeOf(project + "/.git")
	require.NoError(t, err)
	n, err := Begin(base, Note{Modes: []Mode{mode}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, os.Chmod(project+"/.git", 0o777))
	_, err = n.End(Report{})
	require.NoError(t, err)
	info, err := os.Stat(project + "/.git")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
}

// A command that was killed leaves its note unlocked.
func TestRecover(t *testing.T) {
	base, project := ground(t)
	hooks := project + "/.git/hooks"
	n, err := Begin(base, Note{Names: []string{hooks}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(hooks, 0o700))

	done, err := Recover(base)
	require.NoError(t, done.Told())
	moved := done.Moved
	require.NoError(t, err)
	assert.Empty(t, moved, "its command runs")
	assert.DirExists(t, hooks)

	require.NoError(t, n.file.Close())
	done, err = Recover(base)
	require.NoError(t, done.Told())
	moved = done.Moved
	require.NoError(t, err)
	require.Len(t, moved, 1)
	assert.NoDirExists(t, hooks)
	done, err = Recover(base)
	require.NoError(t, done.Told())
	moved = done.Moved
	require.NoError(t, err)
	assert.Empty(t, moved)
}

// A repository that a killed command has made is told once, though two names change.
func TestRecoverTellsOnce(t *testing.T) {
	base, _ := ground(t)
	project, state := t.TempDir(), filepath.Join(base, session.GitDir)
	require.NoError(t, os.MkdirAll(state, 0o700))
	looked, err := gitdir.Look(state, project, nil)
	require.NoError(t, err)
	run, err := gitdir.Begin(state, looked)
	require.NoError(t, err)
	git := project + "/a/.git"
	for _, name := range []string{"/objects", "/refs"} {
		require.NoError(t, os.MkdirAll(git+name, 0o700))
	}
	require.NoError(t, os.WriteFile(git+"/HEAD", []byte("ref: refs/heads/main\n"), 0o600))
	require.NoError(t, run.Lock().Close())
	done, err := Recover(base)
	require.NoError(t, done.Told())
	require.NoError(t, err)
	assert.FileExists(t, git+".fenced/HEAD.fenced")
	assert.Len(t, done.Git, 1)
}

// A tree that is too deep to be looked through is closed, and no later command has to do with it.
func TestTreeThatIsTooDeep(t *testing.T) {
	base, project := ground(t)
	skills := project + "/.claude/skills"
	for _, moved := range []string{skills, project + "/.vscode"} {
		n, err := Begin(base, Note{Names: []string{moved}, Session: "workspace-x"})
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(moved, 0o700))
		if moved == skills {
			deepen(t, moved)
		}
		done, err := n.End(Report{})
		require.NoError(t, err)
		require.NoError(t, done.Told())
		require.Len(t, done.Moved, 1)
		info, err := os.Stat(done.Moved[0].To)
		require.NoError(t, err)
		assert.Equal(t, moved == skills, info.Mode().Perm() == 0, info.Mode())
		assert.Equal(t, moved == skills, len(done.Git) == 1, done.Git)
	}
	done, err := Recover(base)
	require.NoError(t, err)
	assert.Empty(t, done.Git)
}

// deepen makes directories in each other, longer than any path.
func deepen(t *testing.T, dir string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	for range 700 {
		name := strings.Repeat("d", 200)
		require.NoError(t, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

func TestNotesThatAreNotPks(t *testing.T) {
	for _, text := range []string{"", "{", `{"names":["VICTIM"],"session":"../elsewhere"}`, `{"names":["VICTIM"],"session":"journal"}`, `{"names":["VICTIM"]}`} {
		base, project := ground(t)
		require.NoError(t, os.Mkdir(base+"/journal", 0o700))
		require.NoError(t, os.WriteFile(base+"/journal/x", []byte(strings.ReplaceAll(text, "VICTIM", project)), 0o600))
		_, err := Recover(base)
		assert.ErrorContains(t, err, "removed", text)
		assert.DirExists(t, project+"/.git", text)
		_, err = Recover(base)
		assert.NoError(t, err, "it is told once")
	}
}

func TestABaseThatAnotherUserCanReplace(t *testing.T) {
	base, project := ground(t)
	n, err := Begin(base, Note{Names: []string{project + "/.git"}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, n.file.Close())
	require.NoError(t, os.Chmod(filepath.Dir(base), 0o777))
	_, err = Recover(base)
	assert.ErrorContains(t, err, "other users can replace")
	require.NoError(t, os.Chmod(filepath.Dir(base), 0o700))
	require.NoError(t, os.Chmod(base, 0o770))
	_, err = Recover(base)
	assert.ErrorContains(t, err, "other users can replace")
	assert.DirExists(t, project+"/.git")
}

func TestLinksThatWereReplaced(t *testing.T) {
	base, project := ground(t)
	hooks := project + "/.git/hooks"
	require.NoError(t, os.Symlink("../githooks", hooks))
	n, err := Begin(base, Note{Links: []Link{{hooks, "../githooks"}}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, os.Remove(hooks))
	require.NoError(t, os.Mkdir(hooks, 0o700))
	done, err := n.End(Report{})
	require.NoError(t, done.Told())
	moved := done.Moved
	require.NoError(t, err)
	require.Len(t, moved, 1)
	target, err := os.Readlink(hooks)
	require.NoError(t, err)
	assert.Equal(t, "../githooks", target)
}

func TestBytesThatAreNotUTF8(t *testing.T) {
	base, project := ground(t)
	odd := project + "/\xff"
	n, err := Begin(base, Note{Names: []string{odd}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, n.file.Close())
	require.NoError(t, os.Mkdir(odd, 0o700))
	done, err := Recover(base)
	require.NoError(t, done.Told())
	moved := done.Moved
	require.NoError(t, err)
	require.Len(t, moved, 1)
	assert.Equal(t, odd, moved[0].From)
}

// The set-up program marks the end of a sandbox whose monitor was killed.
func TestFilesThatCameAfterTheSandbox(t *testing.T) {
	base, project := ground(t)
	hooks, config, link := project+"/.git/hooks", project+"/.git/config.worktree", project+"/link"
	n, err := Begin(base, Note{Names: []string{hooks, config}, Links: []Link{{link, "before"}}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(hooks, 0o700))
	tick(t, project)
	require.NoError(t, n.file.Chmod(0o400))
	require.NoError(t, n.file.Close())
	tick(t, project)
	require.NoError(t, os.WriteFile(config, nil, 0o600))
	require.NoError(t, os.Symlink("after", link))
	require.NoError(t, os.Chmod(hooks, 0o755)) // which the command can lead others to do
	done, err := Recover(base)
	require.NoError(t, done.Told())
	moved := done.Moved
	require.NoError(t, err)
	require.Len(t, moved, 1)
	assert.Equal(t, hooks, moved[0].From)
	assert.FileExists(t, config, "the user made it")
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "after", target, "and this")
}

// tick waits for the clock of the file system.
func tick(t *testing.T, dir string) {
	now := func() int64 {
		f, err := os.CreateTemp(dir, "")
		require.NoError(t, err)
		defer os.Remove(f.Name())
		info, err := f.Stat()
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return info.ModTime().UnixNano()
	}
	for begun := now(); now() == begun; {
	}
}

// A command begins while the file of another one is at a protected place, and makes it again
// once the other has ended. The end of the other takes its file away, with the protection.
func TestInherit(t *testing.T) {
	write := func(t *testing.T, name, text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
	link := func(t *testing.T, target, name string) {
		require.NoError(t, os.RemoveAll(name))
		require.NoError(t, os.Symlink(target, name))
	}
	for _, test := range []struct {
		name   string
		first  func(p string) Note                 // the state before both
		plant  func(t *testing.T, p string)        // by each
		second func(p string) (n Note, s []string) // the state that the second one finds
		right  func(t *testing.T, p string)
	}{
		{"a file", func(p string) Note { return Note{Names: []string{p + "/f"}} },
			func(t *testing.T, p string) { write(t, p+"/f", "evil") },
			func(p string) (Note, []string) { return Note{}, []string{p + "/f"} },
			func(t *testing.T, p string) { assert.NoFileExists(t, p+"/f") }},
		{"a link", func(p string) Note { return Note{Names: []string{p + "/f"}} },
			func(t *testing.T, p string) { link(t, "evil", p+"/f") },
			func(p string) (Note, []string) { return Note{Links: []Link{{p + "/f", "evil"}}}, nil },
			func(t *testing.T, p string) { assert.NoFileExists(t, p+"/f") }},
		{"a link above", func(p string) Note { return Note{Names: []string{p + "/d/f"}} },
			func(t *testing.T, p string) {
				require.NoError(t, os.MkdirAll(p+"/evil", 0o700))
				write(t, p+"/evil/f", "")
				link(t, "evil", p+"/d")
			},
			func(p string) (Note, []string) {
				return Note{Links: []Link{{p + "/d", "evil"}}}, []string{p + "/evil/f"}
			},
			func(t *testing.T, p string) { assert.NoFileExists(t, p+"/d/f") }},
		{"a link that was there", func(p string) Note { return Note{Links: []Link{{p + "/l", "good"}}} },
			func(t *testing.T, p string) { link(t, "evil", p+"/l") },
			func(p string) (Note, []string) { return Note{Links: []Link{{p + "/l", "evil"}}}, nil },
			func(t *testing.T, p string) {
				target, err := os.Readlink(p + "/l")
				require.NoError(t, err)
				assert.Equal(t, "good", target)
			}},
		{"a mode", func(p string) Note { m, _ := ModeOf(p); return Note{Modes: []Mode{m}} },
			func(t *testing.T, p string) { require.NoError(t, os.Chmod(p, 0o777)) },
			func(p string) (Note, []string) { m, _ := ModeOf(p); return Note{Modes: []Mode{m}}, nil },
			func(t *testing.T, p string) {
				m, err := ModeOf(p)
				require.NoError(t, err)
				assert.Zero(t, m.Mode&0o022)
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			base, project := ground(t)
			begin := func(n Note) *Note {
				n.Session = "workspace-x"
				begun, err := Begin(base, n)
				require.NoError(t, err)
				return begun
			}
			end := func(n *Note) {
				_, err := n.End(Report{})
				require.NoError(t, err)
			}
			link(t, "good", project+"/l")
			first := begin(test.first(project))
			test.plant(t, project)
			others, err := Others(base)
			require.NoError(t, err)
			n, seen := test.second(project)
			n.Inherit(others, seen)
			second := begin(n)
			end(first)
			test.right(t, project)
			test.plant(t, project)
			end(second)
			test.right(t, project)
		})
	}
	others, err := Others(t.TempDir() + "/missing")
	assert.NoError(t, err)
	assert.Empty(t, others)
}

// A repository at a protected name would work in the quarantine too, also if pk is killed when it has moved it.
func TestMovedRepositories(t *testing.T) {
	for _, killed := range []bool{false, true} {
		base, project := ground(t)
		planted := project + "/.devcontainer"
		n, err := Begin(base, Note{Names: []string{planted}, Session: "workspace-x"})
		require.NoError(t, err)
		bare := planted + "/docs"
		for _, dir := range []string{bare, planted + "/work/.git"} {
			require.NoError(t, os.MkdirAll(dir+"/objects", 0o700))
			require.NoError(t, os.Mkdir(dir+"/refs", 0o700))
			require.NoError(t, os.WriteFile(dir+"/HEAD", []byte("ref: refs/heads/main\n"), 0o600))
		}
		into := filepath.Join(base, "workspace-x", session.AsideDir)
		to := into + "/12345678-.devcontainer"
		if killed {
			require.NoError(t, os.MkdirAll(into, 0o700))
			require.NoError(t, os.Rename(planted, to))
			require.NoError(t, n.file.Close())
			_, err = Recover(base)
		} else {
			var done Report
			done, err = n.End(Report{})
			require.NoError(t, done.Told())
			require.Len(t, done.Moved, 1)
			to = done.Moved[0].To
		}
		require.NoError(t, err)
		assert.FileExists(t, to+"/docs/HEAD.fenced")
		assert.NoFileExists(t, to+"/docs/HEAD")
		assert.NoDirExists(t, to+"/work/.git")
	}
}

func TestRecoverTakesTheTmp(t *testing.T) {
	base, _ := ground(t)
	tmp := filepath.Join(base, "workspace-x", session.TmpDir)
	require.NoError(t, os.MkdirAll(tmp+"/r", 0o700))
	n, err := Begin(base, Note{Session: "workspace-y", Tmp: "workspace-x"})
	require.NoError(t, err)
	_, err = Recover(base)
	require.NoError(t, err)
	assert.DirExists(t, tmp, "its command runs")
	require.NoError(t, n.file.Close())
	_, err = Recover(base)
	require.NoError(t, err)
	assert.NoDirExists(t, tmp)
}
