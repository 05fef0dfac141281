package gitconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func (h *home) find() []Repo {
	h.t.Helper()
	repos, err := Find(h.path("proj"), Limits{}, h.getenv)
	require.NoError(h.t, err)
	return repos
}

// describe is a repository on a line.
func describe(r Repo) string {
	line := fmt.Sprintf("%s .git=%s dir=%s common=%s", r.Kind, r.DotGit, r.GitDir, r.CommonDir)
	if r.Outside {
		line += " outside"
	}
	return line
}

// template is made once: a home with a repository that has a commit, and one
// outside to push to. It names nothing absolutely, so that it can be copied.
var template string

func TestMain(m *testing.M) {
	if os.Getenv(fenceVariable) != "" {
		insideFence()
	}
	dir, err := os.MkdirTemp("", "gitconfig")
	if err != nil {
		panic(err)
	}
	template = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

var makeTemplate = sync.OnceFunc(func() {
	h := &home{t: panicker{}, dir: template, env: []string{"HOME=" + template, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}}
	h.mkdir("proj")
	h.write(".gitconfig", "[user]\nname=N\nemail=E\n[protocol \"file\"]\nallow=always\n[init]\ndefaultBranch=main\n[advice]\ndetachedHead=false\n")
	h.git("", "init", "-q", "--bare", "origin.git")
	h.git("proj", "init", "-q")
	h.git("proj", "remote", "add", "origin", "../origin.git")
	h.commit("proj", "f")
	h.git("proj", "push", "-q", "-u", "origin", "main")
})

// panicker fails the template, which belongs to no test.
type panicker struct{ testing.TB }

func (panicker) Helper()                        {}
func (panicker) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (panicker) FailNow()                       { panic("template") }

// project copies the template.
func (h *home) project() {
	h.t.Helper()
	makeTemplate()
	require.NoError(h.t, os.RemoveAll(h.path("proj")))
	require.NoError(h.t, os.CopyFS(h.dir, os.DirFS(template)))
}

func (h *home) commit(dir, file string) {
	h.write(dir+"/"+file, "text\n")
	h.git(dir, "add", "-A")
	h.git(dir, "commit", "-q", "-m", file)
}

// submodule adds one whose repository is outside.
func (h *home) submodule(name string) {
	h.git("", "clone", "-q", "--bare", "origin.git", "sub.git")
	h.git("proj", "submodule", "add", "-q", "--name", name, h.path("sub.git"), "sub")
	h.git("proj", "commit", "-q", "-m", "sub")
}

func TestFind(t *testing.T) {
	root := "root .git=.git dir=.git common=.git"
	for _, test := range []struct {
		name string
		make func(h *home)
		want []string
	}{
		{"nothing", func(h *home) { require.NoError(h.t, os.RemoveAll(h.path("proj/.git"))) }, nil},
		{"a repository", func(h *home) {}, []string{root}},
		{"a submodule", func(h *home) { h.submodule("sub") }, []string{root, "submodule .git=sub/.git dir=.git/modules/sub common=.git/modules/sub"}},
		{"a submodule with slashes in its name", func(h *home) { h.submodule("a/b/c") }, []string{root, "submodule .git=sub/.git dir=.git/modules/a/b/c common=.git/modules/a/b/c"}},
		{"a submodule four levels down", func(h *home) {
			h.git("", "clone", "-q", "--bare", "origin.git", "sub.git")
			h.git("proj", "submodule", "add", "-q", h.path("sub.git"), "a/b/c/d")
		}, []string{root, "submodule .git=a/b/c/d/.git dir=.git/modules/a/b/c/d common=.git/modules/a/b/c/d"}},
		{"a worktree inside", func(h *home) { h.git("proj", "worktree", "add", "-q", "a/b/c/wt") },
			[]string{root, "worktree .git=a/b/c/wt/.git dir=.git/worktrees/wt common=.git"}},
		{"a worktree outside", func(h *home) { h.git("proj", "worktree", "add", "-q", "../wt") },
			[]string{root, "worktree .git= dir=.git/worktrees/wt common=.git"}},
		{"a worktree of a repository outside", func(h *home) {
			require.NoError(h.t, os.Rename(h.path("proj"), h.path("main")))
			h.git("main", "worktree", "add", "-q", "../proj")
		}, []string{"root .git=.git dir= common= outside"}},
		{"a separate git directory inside", func(h *home) {
			h.mkdir("proj/store")
			h.git("proj", "init", "-q", "--separate-git-dir", "store/git")
		},
			[]string{"root .git=.git dir=store/git common=store/git"}},
		{".git is a link inside", func(h *home) {
			h.mkdir("proj/store")
			require.NoError(h.t, os.Rename(h.path("proj/.git"), h.path("proj/store/git")))
			require.NoError(h.t, os.Symlink("store/git", h.path("proj/.git")))
		}, []string{"root .git=.git dir=store/git common=store/git"}},
		{".git is a link outside", func(h *home) {
			require.NoError(h.t, os.Rename(h.path("proj/.git"), h.path("git")))
			require.NoError(h.t, os.Symlink("../git", h.path("proj/.git")))
		}, []string{"root .git=.git dir= common= outside"}},
		{".git leads outside and back in", func(h *home) {
			require.NoError(h.t, os.Rename(h.path("proj/.git"), h.path("proj/git")))
			require.NoError(h.t, os.Symlink("proj", h.path("alias")))
			h.write("proj/.git", "gitdir: ../alias/git\n")
		}, []string{"root .git=.git dir=git common=git"}},
		{"nested", func(h *home) {
			h.git("proj", "clone", "-q", "../origin.git", "a")
			h.git("proj", "clone", "-q", "../origin.git", "b/c")
			h.git("proj", "clone", "-q", "../origin.git", "b/d/too-deep")
		}, []string{root, "nested .git=a/.git dir=a/.git common=a/.git", "nested .git=b/c/.git dir=b/c/.git common=b/c/.git"}},
		{"nested behind a link", func(h *home) {
			h.git("", "clone", "-q", "origin.git", "elsewhere")
			require.NoError(h.t, os.Symlink("../elsewhere", h.path("proj/a")))
		}, []string{root}},
		{"bare", func(h *home) {
			require.NoError(h.t, os.RemoveAll(h.path("proj")))
			h.git("", "clone", "-q", "--bare", "origin.git", "proj")
		}, []string{"bare .git= dir= common="}},
		{"bare, nested", func(h *home) { h.git("proj", "clone", "-q", "--bare", "../origin.git", "x.git") },
			[]string{root, "bare .git= dir=x.git common=x.git"}},
		{"a FIFO as .git", func(h *home) {
			require.NoError(h.t, os.RemoveAll(h.path("proj/.git")))
			require.NoError(h.t, unix.Mkfifo(h.path("proj/.git"), 0o644))
		}, nil},
		{"commondir is a loop", func(h *home) { h.write("proj/.git/commondir", ".") }, []string{root}},
		{"worktrees that lead to each other", func(h *home) {
			h.write("proj/.git/worktrees/a/commondir", "../b")
			h.write("proj/.git/worktrees/b/commondir", "../a")
		}, []string{root, "worktree .git= dir=.git/worktrees/a common=.git/worktrees/b", "worktree .git= dir=.git/worktrees/b common=.git/worktrees/a"}},
		{"a worktree that claims another's .git", func(h *home) {
			h.write("proj/.git/worktrees/a/gitdir", "/etc/passwd\n")
			h.write("proj/.git/worktrees/b/gitdir", h.path("proj/f")+"\n")
		}, []string{root, "worktree .git= dir=.git/worktrees/a common=.git/worktrees/a", "worktree .git= dir=.git/worktrees/b common=.git/worktrees/b"}},
		{"modules is a link", func(h *home) { require.NoError(h.t, os.Symlink("..", h.path("proj/.git/modules"))) }, []string{root}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			test.make(h)
			var got []string
			for _, r := range h.find() {
				got = append(got, describe(r))
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// lines are exec files on a line each.
func lines(repos []Repo) []string {
	var lines []string
	for _, r := range repos {
		for _, s := range r.ExecFiles() {
			line := s.Path
			for flag, set := range map[string]bool{" missing": !s.Exists, " dir": s.Dir, " link": s.Link, " watch": s.Watch} {
				if set {
					line += flag
				}
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestExecFiles(t *testing.T) {
	h := newHome(t)
	h.project()
	require.NoError(t, os.RemoveAll(h.path("proj/.git/branches")))
	require.NoError(t, os.RemoveAll(h.path("proj/.git/info")))
	require.NoError(t, os.Rename(h.path("proj/.git/hooks"), h.path("proj/kept")))
	require.NoError(t, os.Symlink("../kept", h.path("proj/.git/hooks")))
	got := lines(h.find())
	assert.Len(t, got, 11)
	for _, line := range []string{".git/config", ".git/hooks link", "kept dir", ".git/info/attributes missing", ".git/commondir missing", ".git/config.worktree missing"} {
		assert.Contains(t, got, line)
	}
}

// TestExecFilesCarryWhatWasSeen compares with stat, and pins with what lies between.
func TestExecFilesCarryWhatWasSeen(t *testing.T) {
	h := newHome(t)
	h.project()
	h.submodule("a/b")
	for _, r := range h.find() {
		for _, s := range r.ExecFiles() {
			var st unix.Stat_t
			err := unix.Lstat(h.path("proj/"+s.Path), &st)
			assert.Equal(t, s.Exists, err == nil, s.Path)
			if s.Exists {
				assert.Equal(t, identify(st), s.ID, s.Path)
			}
			var between []string
			for dir := filepath.Dir(s.Path); dir != "."; dir = filepath.Dir(dir) {
				if unix.Lstat(h.path("proj/"+dir), &st) == nil {
					between = append([]string{dir}, between...)
				}
			}
			var pins []string
			for _, p := range s.Pins {
				require.NoError(t, unix.Lstat(h.path("proj/"+p.Path), &st))
				assert.Equal(t, identify(st), p.ID)
				pins = append(pins, p.Path)
			}
			assert.Equal(t, between, pins, s.Path)
		}
	}
}

func TestFindGivesUpAloud(t *testing.T) {
	for _, test := range []struct {
		name   string
		make   func(h *home)
		limits Limits
		err    string
	}{
		{"many submodules", func(h *home) {
			for i := range 600 {
				h.write(fmt.Sprintf("proj/.git/modules/%d/HEAD", i), "ref: refs/heads/x\n")
			}
		}, Limits{}, `too many repositories at "{home}/proj/.git/modules/5`},
		{"deep submodules", func(h *home) { h.mkdir("proj/.git/modules" + strings.Repeat("/x", 40)) }, Limits{}, "too many levels of submodules"},
		{"many directories", func(h *home) {
			for i := range 20 {
				h.mkdir(fmt.Sprintf("proj/d%d", i))
			}
		}, Limits{Dirs: 40}, ""},
		{"more directories", func(h *home) {
			for i := range 20 {
				h.mkdir(fmt.Sprintf("proj/d%d/x/y", i))
			}
		}, Limits{Dirs: 30}, "too many directories"},
		{"a directory with many files", func(h *home) {
			for i := range 40 {
				h.write(fmt.Sprintf("proj/f%d", i), "")
			}
		}, Limits{Dirs: 30}, ""},
		{"no time", func(h *home) {
			for i := range 100 {
				h.mkdir(fmt.Sprintf("proj/d%d/x", i))
			}
		}, Limits{Time: time.Nanosecond}, "too many slow directories"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			test.make(h)
			repos, err := Find(h.path("proj"), test.limits, h.getenv)
			assert.NotEmpty(t, repos)
			if test.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, strings.ReplaceAll(test.err, "{home}", h.dir))
				assert.IsType(t, &LimitError{}, err)
			}
		})
	}
	_, err := Find("/nowhere", Limits{}, os.LookupEnv)
	assert.EqualError(t, err, "open /nowhere: no such file or directory")
}

// TestFindNamesNothingOutside plants names of all kinds and expects each exec file to
// be below the root, with no link on the way but the one that is named.
func TestFindNamesNothingOutside(t *testing.T) {
	h := newHome(t)
	h.project()
	h.mkdir("out/hooks")
	h.write("proj/.git/config", "[core]\nhooksPath=../out/hooks\nattributesFile=/etc/passwd\nfsmonitor=../../x\n[include]\npath=../../out/c\n[alias]\nx=!/bin/sh ./../proj/../out/x .. / . ./\n")
	require.NoError(t, os.RemoveAll(h.path("proj/.git/hooks")))
	require.NoError(t, os.Symlink(h.path("out/hooks"), h.path("proj/.git/hooks")))
	require.NoError(t, os.RemoveAll(h.path("proj/.git/info")))
	require.NoError(t, os.Symlink("../../out", h.path("proj/.git/info")))
	h.write("proj/.git/worktrees/w/gitdir", "/../../etc/.git\n")
	h.write("proj/.git/worktrees/w/commondir", "../../../../out\n")
	h.write("proj/.git/modules/m/HEAD", "")
	h.write("proj/.git/modules/m/config", "[core]\nworktree=../../../../out")
	repos := h.find()
	assert.Len(t, repos, 3)
	for _, line := range lines(repos) {
		assert.True(t, strings.HasPrefix(line, ".git/"), line)
		assert.NotContains(t, line, "..")
	}
	assert.Contains(t, lines(repos), ".git/hooks link")
	assert.Contains(t, lines(repos), ".git/info link")
}

// TestFindWhileThingsMove swaps directories for links as fast as it can. Find
// must never give out what is outside: an inode of there.
func TestFindWhileThingsMove(t *testing.T) {
	h := newHome(t)
	h.project()
	h.git("", "clone", "-q", "origin.git", "out")
	outside := map[ID]string{}
	require.NoError(t, filepath.WalkDir(h.path("out"), func(name string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(name, &st))
		outside[identify(st)] = name
		return err
	}))
	require.NoError(t, os.Symlink("../out/.git", h.path("proj/link")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, h.path("proj/.git"), unix.AT_FDCWD, h.path("proj/link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 300 {
		repos, err := Find(h.path("proj"), Limits{}, h.getenv)
		require.NoError(t, err)
		for _, r := range repos {
			for _, s := range r.ExecFiles() {
				assert.NotContains(t, outside, s.ID, s.Path)
				for _, p := range s.Pins {
					assert.NotContains(t, outside, p.ID, p.Path)
				}
			}
		}
	}
	close(stop)
	<-done
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	h := newHome(t)
	h.project()
	h.submodule("sub")
	require.NoError(t, os.Symlink("loop", h.path("proj/loop")))
	h.write("proj/.git/worktrees/w/gitdir", h.path("proj/loop/.git"))
	count := func() int { return len(must(os.ReadDir("/proc/self/fd"))) }
	h.find()
	before := count()
	for range 10 {
		h.find()
		_, _ = Load(h.path("proj"), h.getenv)
	}
	assert.Equal(t, before, count())
}

func BenchmarkFind(b *testing.B) {
	h := newHome(b)
	h.project()
	for i := range 20 {
		for j := range 10 {
			h.write(fmt.Sprintf("proj/d%d/e%d/f", i, j), "")
		}
	}
	for b.Loop() {
		if repos, err := Find(h.path("proj"), Limits{}, h.getenv); err != nil || len(repos) != 1 {
			b.Fatal(err)
		}
	}
}
