package gitsync

import (
	"context"
	"errors"
	"net"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/sandbox"
	"pikuri/lib/workspace"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// gitWorld is a repository to clone from, a workspace, and files that must not be
// touched.
type gitWorld struct {
	*testing.T
	*Client
	ws                                   *workspace.LocalWorkspace
	base, origin, root, outside, scratch string
	path                                 string // $PATH, before a test changes it
}

func newGitWorld(t *testing.T, change ...func(*Config)) *gitWorld {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	g := &gitWorld{
		T: t, base: base, origin: base + "/origin", root: base + "/root", outside: base + "/outside", scratch: base + "/scratch",
		path: os.Getenv("PATH"),
	}
	for _, dir := range []string{g.outside, g.scratch} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	g.sh(base, `git init -q -b main origin`)
	g.sh(g.origin, `mkdir -p d/e; echo one >f; echo one >d/f; echo one >d/e/f; echo one >gone; echo one >d/e/gone
		printf '#!/bin/sh\n' >run; chmod +x run; ln -s f link; ln -s d dlink; git add -A; git commit -qm one`)
	conf := Config{Protocols: []string{"file"}, Scratch: g.scratch}
	for _, c := range change {
		c(&conf)
	}
	g.ws, err = workspace.NewLocalWorkspace(g.root)
	require.NoError(t, err)
	t.Cleanup(func() { g.ws.Close() })
	g.Client = New(g.ws, conf)
	return g
}

// sh runs a script as the user of the test, whose git knows nothing but a name.
func (g *gitWorld) sh(dir, script string) string {
	g.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + g.path, "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	require.NoError(g, err, "%s\n%s", script, out)
	return string(out)
}

func (g *gitWorld) url() string { return "file://" + g.origin }

// clone clones the origin to "repo".
func (g *gitWorld) clone() {
	g.Helper()
	require.NoError(g, g.Clone(context.Background(), g.url(), "repo"))
}

// advance makes a second commit that does all that a commit can do to a tree.
func (g *gitWorld) advance() {
	g.Helper()
	g.sh(g.origin, `echo two >>f; echo two >d/f; rm gone d/e/gone; mkdir new; echo two >new/f; chmod +x f; chmod -x run
		ln -sf d/f link; rm -r d/e; echo file >d/e; rm dlink; mkdir dlink; echo two >dlink/f; ln -s nowhere dangling
		printf 'n\nl' >"$(printf 'new\nline')"; git add -A; git commit -qm two`)
}

// pristine keeps a clone that is behind the origin, for tests to copy.
func (g *gitWorld) pristine() {
	g.Helper()
	g.clone()
	g.sh(g.base, `mv root/repo pristine`)
	g.advance()
}

func (g *gitWorld) pull() error { return g.Pull(context.Background(), "repo") }

// same checks that the repository is a clone of the origin, as git itself sees it.
func (g *gitWorld) same() {
	g.Helper()
	assert.Equal(g, g.sh(g.origin, `git rev-parse HEAD`), g.sh(g.root+"/repo", `git rev-parse HEAD`))
	assert.Equal(g, "", g.sh(g.root+"/repo", `git status --porcelain`))
	assert.Equal(g, g.sh(g.origin, `find . -path ./.git -prune -o -printf '%P %M %l\n' | sort`),
		g.sh(g.root+"/repo", `find . -path ./.git -prune -o -printf '%P %M %l\n' | sort`))
	g.sh(g.root+"/repo", `git fsck --strict && git diff --exit-code origin/main`)
}

// clean checks that git has left no file.
func (g *gitWorld) clean() {
	g.Helper()
	left, err := os.ReadDir(g.scratch)
	require.NoError(g, err)
	assert.Empty(g, left)
	left, err = os.ReadDir(g.outside)
	require.NoError(g, err)
	assert.Empty(g, left, "outside")
}

// refuses checks an error, which must name no path of the host.
func (g *gitWorld) refuses(want, err error) {
	g.Helper()
	require.ErrorIs(g, err, want)
	assert.NotContains(g, err.Error(), g.base)
	assert.Less(g, len(err.Error()), 700)
	g.clean()
}

func TestGitCloneAndPull(t *testing.T) {
	g := newGitWorld(t)
	g.clone()
	g.same()
	head, err := g.Head(context.Background(), "repo")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(g.sh(g.origin, `git rev-parse HEAD`)), head)
	require.NoError(t, g.pull(), "nothing to do")
	g.advance()
	require.NoError(t, g.pull())
	g.same()
	g.sh(g.origin, `git rm -qr new; git commit -qm three; git pack-refs --all; git gc -q`)
	require.NoError(t, g.pull())
	g.same()
	g.clean()
}

func TestGitPullOfAPackedRepository(t *testing.T) {
	g := newGitWorld(t)
	g.clone()
	g.sh(g.root+"/repo", `git pack-refs --all; git gc -q`)
	require.NoFileExists(t, g.root+"/repo/.git/refs/heads/main")
	g.advance()
	require.NoError(t, g.pull())
	g.same()
}

func TestGitPullKeepsWhatItHasNothingToDoWith(t *testing.T) {
	g := newGitWorld(t)
	g.clone()
	g.sh(g.root+"/repo", `echo mine >untracked; echo mine >>run; git checkout -qb other; git checkout -q main`)
	g.sh(g.origin, `echo two >f; git commit -qam two`)
	require.NoError(t, g.pull())
	assert.Equal(t, " M run\n?? untracked\n", g.sh(g.root+"/repo", `git status --porcelain`))
	assert.Equal(t, "two\n", g.sh(g.root+"/repo", `cat f`))
}

// evil makes a repository in which git runs programs at each use. Each adds a line to
// the file "ran" in outside.
func (g *gitWorld) evil() {
	g.Helper()
	g.sh(g.root+"/repo", `
		touched() { printf '#!/bin/sh\necho "$0" >>'`+g.outside+`'/ran\nexit 1\n' >"$1"; chmod +x "$1"; }
		touched evil
		mkdir -p .git/hooks
		for h in applypatch-msg pre-commit post-checkout post-merge pre-auto-gc post-rewrite reference-transaction \
			post-index-change fsmonitor-watchman pre-merge-commit proc-receive update pre-receive; do touched .git/hooks/$h; done
		mkdir hooks; cp .git/hooks/* hooks/
		cat >>.git/config <<-EOF
		[core]
			fsmonitor = $PWD/evil
			hooksPath = $PWD/hooks
			sshCommand = $PWD/evil
			pager = $PWD/evil
			editor = $PWD/evil
			gitProxy = $PWD/evil
			askPass = $PWD/evil
			alternateRefsCommand = $PWD/evil
			attributesFile = $PWD/attributes
		[filter "evil"]
			smudge = $PWD/evil
			clean = $PWD/evil
			process = $PWD/evil
			required = true
		[diff "evil"]
			textconv = $PWD/evil
			command = $PWD/evil
		[diff]
			external = $PWD/evil
		[merge "evil"]
			driver = $PWD/evil
		[credential]
			helper = $PWD/evil
		[gpg]
			program = $PWD/evil
		[remote "origin"]
			uploadpack = $PWD/evil
			receivepack = $PWD/evil
			vcs = evil
			proxy = http://127.0.0.1:1
		[uploadpack]
			packObjectsHook = $PWD/evil
		[alias]
			config = !$PWD/evil
			clone = !$PWD/evil
		[url "ext::$PWD/evil "]
			insteadOf = file://
		[include]
			path = $PWD/included
		[protocol]
			allow = always
		[gc]
			auto = 1
		EOF
		printf '* filter=evil diff=evil merge=evil\n' >attributes
		mkdir -p .git/info; cp attributes .git/info/attributes
		printf '[core]\n\tfsmonitor = %s/evil\n' "$PWD" >included
		echo '/nonexistent/objects' >.git/objects/info/alternates`)
}

func TestGitRunsNothingThatTheRepositoryNames(t *testing.T) {
	g := newGitWorld(t)
	g.clone()
	g.evil()
	_, err := g.Head(context.Background(), "repo")
	require.NoError(t, err)
	g.advance()
	require.NoError(t, g.pull())
	assert.Equal(t, "one\ntwo\n", g.sh(g.root+"/repo", `cat f`))
	g.clean()

	// The trap works: git itself falls into it.
	cmd := exec.Command("git", "-C", g.root+"/repo", "status")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	_ = cmd.Run()
	assert.FileExists(t, g.outside+"/ran")
}

func TestGitTakesNothingFromTheCaller(t *testing.T) {
	g := newGitWorld(t)
	home := g.base + "/home"
	g.sh(g.base, `mkdir -p home/templates/hooks home/.config/git
		printf '#!/bin/sh\necho ran >>`+g.outside+`/ran\n' >evil; chmod +x evil
		cp evil home/templates/hooks/post-checkout
		printf '[init]\n\ttemplateDir = ~/templates\n[core]\n\tfsmonitor = `+g.base+`/evil\n[credential]\n\thelper = `+g.base+`/evil\n' >home/.gitconfig
		printf '[core]\n\thooksPath = ~/templates/hooks\n' >home/.config/git/config`)
	for name, value := range map[string]string{
		"HOME": home, "XDG_CONFIG_HOME": home + "/.config", "GIT_DIR": g.origin + "/.git", "GIT_WORK_TREE": g.outside,
		"GIT_INDEX_FILE": g.outside + "/index", "GIT_OBJECT_DIRECTORY": g.outside + "/objects", "GIT_TRACE": g.outside + "/trace",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": home + "/templates/hooks",
		"GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='" + g.base + "/evil'", "GIT_SSH_COMMAND": g.base + "/evil", "GIT_SSH": g.base + "/evil",
		"GIT_EXTERNAL_DIFF": g.base + "/evil", "GIT_TEMPLATE_DIR": home + "/templates", "GIT_EXEC_PATH": g.base, "GIT_ASKPASS": g.base + "/evil",
		"LD_PRELOAD": "/nonexistent.so", "PATH": g.base + ":" + os.Getenv("PATH"),
	} {
		t.Setenv(name, value)
	}
	g.sh(g.base, `cp evil git`)
	require.NoError(t, g.Clone(context.Background(), g.url(), "repo"))
	g.advance()
	require.NoError(t, g.pull())
	g.clean()
}

func TestGitDoesNotLookAboveTheDirectory(t *testing.T) {
	g := newGitWorld(t)
	g.sh(g.base, `git init -q; git commit -q --allow-empty -m enclosing; mkdir -p root/plain`)
	for _, dir := range []string{"plain", ".", ""} {
		_, err := g.Head(context.Background(), dir)
		g.refuses(workspace.ErrNotFound, err)
		g.refuses(workspace.ErrNotFound, g.Pull(context.Background(), dir))
	}
	_, err := g.Head(context.Background(), "missing")
	g.refuses(workspace.ErrNotFound, err)
	_, err = g.Head(context.Background(), "../origin")
	g.refuses(workspace.ErrPathTraversal, err)
}

// TestGitRepositoriesThatLeadElsewhere: each of them would have git read or write
// outside the workspace.
func TestGitRepositoriesThatLeadElsewhere(t *testing.T) {
	g := newGitWorld(t)
	g.pristine()
	for _, row := range []struct {
		name, script string
		want         error
		headWorks    bool
	}{
		{".git is a file", `mv .git ../moved; echo "gitdir: $PWD/../moved" >.git`, ErrGit, false},
		{".git is a file that leads out", `rm -r .git; echo "gitdir: $ORIGIN/.git" >.git`, ErrGit, false},
		{".git is a link", `mv .git ../moved; ln -s ../moved .git`, ErrGit, false},
		{".git is a link that leads out", `rm -r .git; ln -s $ORIGIN/.git .git`, ErrGit, false},
		{"the directory is a link that leads out", `cd ..; rm -r repo; ln -s $ORIGIN repo`, workspace.ErrPathTraversal, false},
		{"a common directory", `echo $ORIGIN/.git >.git/commondir`, ErrGit, false},
		{"HEAD is a link", `rm .git/HEAD; ln -s $ORIGIN/.git/HEAD .git/HEAD`, workspace.ErrPathTraversal, false},
		{"HEAD names a path", `echo 'ref: refs/heads/../../../../origin/.git/refs/heads/main' >.git/HEAD`, ErrGit, false},
		{"HEAD names a file", `echo 'ref: config' >.git/HEAD`, ErrGit, false},
		{"HEAD names itself", `mkdir -p .git/refs/heads; echo 'ref: refs/heads/main' >.git/refs/heads/main`, ErrGit, false},
		{"HEAD is a FIFO", `rm .git/HEAD; mkfifo .git/HEAD`, workspace.ErrNotRegular, false},
		{"HEAD is huge", `truncate -s 1G .git/HEAD`, workspace.ErrTooLarge, false},
		{"config is a link", `rm .git/config; ln -s $ORIGIN/.git/config .git/config`, workspace.ErrPathTraversal, true},
		{"config is a FIFO", `rm .git/config; mkfifo .git/config`, workspace.ErrNotRegular, true},
		{"config is a directory", `rm .git/config; mkdir .git/config`, workspace.ErrIsDir, true},
		{"config is no configuration", `echo '[' >.git/config`, ErrGit, true},
		{"another working tree", `git config core.worktree $OUTSIDE`, ErrGit, true},
		{"an extension", `git config extensions.worktreeConfig true`, ErrGit, true},
		{"objects lead out", `rm -r .git/objects/pack; ln -s $OUTSIDE .git/objects/pack`, workspace.ErrPathTraversal, true},
		{"all objects lead out", `rm -r .git/objects; ln -s $OUTSIDE .git/objects`, workspace.ErrPathTraversal, true},
		{"the index leads out", `rm .git/index; ln -s $OUTSIDE/x .git/index`, workspace.ErrPathTraversal, true},
		{"the lock leads out", `ln -s $OUTSIDE/x .git/index.lock`, workspace.ErrExist, true},
		{"a branch with a file for a directory", `rm -r .git/refs/remotes; echo >.git/refs/remotes`, workspace.ErrNotDir, true},
	} {
		g.sh(g.base, `rm -rf root/*; cp -a pristine root/repo`)
		g.sh(g.root+"/repo", "ORIGIN="+g.origin+" OUTSIDE="+g.outside+"; "+row.script)
		_, err := g.Head(context.Background(), "repo")
		if row.headWorks {
			assert.NoError(t, err, row.name)
		} else {
			assert.ErrorIs(t, err, row.want, row.name)
		}
		err = g.pull()
		assert.ErrorIs(t, err, row.want, row.name)
		if err != nil {
			assert.NotContains(t, err.Error(), g.base, row.name)
		}
		g.clean()
		if t.Failed() {
			t.Fatal(row.name)
		}
	}
}

// TestGitPullThroughPlantedLinks: a directory of the tree has been replaced by a
// link; git would write through it.
func TestGitPullThroughPlantedLinks(t *testing.T) {
	for _, target := range []string{"../../outside", "hidden"} {
		g := newGitWorld(t)
		g.clone()
		g.sh(g.root+"/repo", `mkdir hidden; rm -r d; ln -s `+target+` d`)
		g.sh(g.origin, `echo two >d/f; echo two >d/new; git add -A; git commit -qm two`)
		err := g.pull()
		require.Error(t, err)
		assert.NoFileExists(t, g.root+"/repo/hidden/new")
		g.clean()
	}
}

func TestGitPullRefuses(t *testing.T) {
	g := newGitWorld(t)
	g.pristine()
	for _, row := range []struct {
		name, script string
		want         error
	}{
		{"a change that is not committed", `echo mine >>f`, workspace.ErrChanged},
		{"a file that is removed, and not committed", `rm d/f`, workspace.ErrChanged},
		{"a file in the way", `mkdir new; echo mine >new/f`, workspace.ErrChanged},
		{"a directory in the way", `mkdir -p new/f`, workspace.ErrChanged},
		{"a file in the way of a directory", `echo mine >new`, workspace.ErrChanged},
		{"a file in a directory that goes", `echo mine >d/e/mine`, workspace.ErrChanged},
		{"an empty directory in one that goes", `mkdir d/e/mine`, workspace.ErrChanged},
		{"a changed file in a directory that goes", `echo mine >d/e/f`, workspace.ErrChanged},
		{"a changed link that becomes a directory", `ln -sfn . dlink`, workspace.ErrChanged},
		{"a FIFO in the way", `mkdir -p new; mkfifo new/f`, workspace.ErrChanged},
		{"a change that is staged", `echo mine >run; git add run`, workspace.ErrChanged},
		{"a commit of its own", `git commit -q --allow-empty -m mine`, ErrGit},
		{"no branch", `git checkout -q --detach`, ErrGit},
		{"a branch that follows none", `git checkout -qb mine`, ErrGit},
		{"a branch that is gone", `git config branch.main.merge refs/heads/nothere`, ErrGit},
		{"another git at work", `touch .git/index.lock`, workspace.ErrExist},
		{"an address that is none", `git config remote.origin.url --upload-pack=evil`, workspace.ErrInvalid},
		{"another protocol", `git config remote.origin.url https://example.invalid/x`, workspace.ErrAccessDenied},
		{"a program as protocol", `git config remote.origin.url "ext::sh -c 'echo x >$OUTSIDE/x'"`, workspace.ErrInvalid},
		{"a commit that is none", `printf '%040d\n' 1 >.git/refs/heads/main`, ErrGit},
	} {
		g.sh(g.base, `rm -rf root/*; cp -a pristine root/repo`)
		g.sh(g.root+"/repo", "OUTSIDE="+g.outside+"; "+row.script)
		before := g.sh(g.root+"/repo", `find . -path ./.git -prune -o -type f -exec cat {} + | cksum; cat .git/HEAD .git/refs/heads/main | cksum; cksum .git/index`)
		err := g.pull()
		assert.ErrorIs(t, err, row.want, row.name)
		after := g.sh(g.root+"/repo", `find . -path ./.git -prune -o -type f -exec cat {} + | cksum; cat .git/HEAD .git/refs/heads/main | cksum; cksum .git/index`)
		assert.Equal(t, before, after, row.name)
		g.clean()
		if t.Failed() {
			t.Fatal(row.name)
		}
	}
}

// TestGitPullTakesUpAnInterruptedOne: the files are the new ones, and nothing
// else is.
func TestGitPullTakesUpAnInterruptedOne(t *testing.T) {
	g := newGitWorld(t)
	g.clone()
	g.sh(g.root+"/repo", `cp .git/index ../index; cp .git/refs/heads/main ../main`)
	g.advance()
	require.NoError(t, g.pull())
	g.sh(g.root+"/repo", `cp ../index .git/index; cp ../main .git/refs/heads/main; echo one >f`)
	require.NoError(t, g.pull())
	g.same()
}

func TestGitCloneRefuses(t *testing.T) {
	g := newGitWorld(t)
	g.sh(g.root, `mkdir full empty; echo x >full/f; echo x >file; mkfifo fifo; ln -s ../outside out; ln -s ../outside/new outnew; ln -s loop loop; ln -s empty in`)
	for dest, want := range map[string]error{
		"full": workspace.ErrExist, "file": workspace.ErrExist, "fifo": workspace.ErrExist, ".": workspace.ErrAccessDenied, "": workspace.ErrAccessDenied, "file/below": workspace.ErrNotDir,
		"out": workspace.ErrPathTraversal, "out/x": workspace.ErrPathTraversal, "outnew": workspace.ErrPathTraversal, "loop": workspace.ErrPathTraversal, "in": workspace.ErrPathTraversal,
		"..": workspace.ErrPathTraversal, "/tmp/x": workspace.ErrPathTraversal, "a\x00b": workspace.ErrInvalid, ".git": workspace.ErrAccessDenied, "new/.git/x": workspace.ErrAccessDenied,
	} {
		g.refuses(want, g.Clone(context.Background(), g.url(), dest))
	}
	g.refuses(ErrGit, g.Clone(context.Background(), "file://"+g.base+"/nothing", "a/b/c"))
	assert.NoDirExists(t, g.root+"/a")
	require.NoError(t, g.Clone(context.Background(), g.url(), "empty"))
	require.NoError(t, g.Clone(context.Background(), g.url(), "made/on/the/way"))
	assert.FileExists(t, g.root+"/made/on/the/way/f")
	assert.NoDirExists(t, g.root+"/made/on/the/way/.git/hooks")
}

func TestDurableClone(t *testing.T) {
	g := newGitWorld(t)
	ws, err := workspace.NewLocalWorkspace(g.root, workspace.WithSync())
	require.NoError(t, err)
	defer ws.Close()
	g.Client = New(ws, g.conf)
	g.clone()
	g.same()
}

// TestGitCloneAcrossFileSystems: where it cannot be moved, it is copied.
func TestGitCloneAcrossFileSystems(t *testing.T) {
	var here, there unix.Stat_t
	require.NoError(t, unix.Stat(t.TempDir(), &here))
	require.NoError(t, unix.Stat("/dev/shm", &there))
	require.NotEqual(t, here.Dev, there.Dev, "the test needs two file systems")
	shm, err := os.MkdirTemp("/dev/shm", "pk-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(shm) })
	g := newGitWorld(t, func(c *Config) { c.Scratch = shm })
	g.clone()
	g.same()
	g.advance()
	require.NoError(t, g.pull())
	g.same()
	left, err := os.ReadDir(shm)
	require.NoError(t, err)
	assert.Empty(t, left)
	entries, err := os.ReadDir(g.root)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestGitScratchInTheWorkspaceIsRefused(t *testing.T) {
	g := newGitWorld(t, func(c *Config) { c.Scratch = filepath.Join(filepath.Dir(c.Scratch), "root") })
	err := g.Clone(context.Background(), g.url(), "repo")
	require.ErrorIs(t, err, ErrGit)
	left, err := os.ReadDir(g.root)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestGitAsksAboutAllOfATree: a guard that refuses one file keeps out the whole
// tree.
func TestGitAsksAboutAllOfATree(t *testing.T) {
	g := newGitWorld(t)
	denied := func(path string) *Client {
		return New(g.ws.Guarded(func(a workspace.Access) error {
			if a.Path == path && a.Write || strings.HasSuffix(a.Path, "/.git") || strings.Contains(a.Path, "/.git/") {
				return workspace.ErrAccessDenied
			}
			return nil
		}), g.conf)
	}
	g.refuses(workspace.ErrAccessDenied, denied("repo/d/e/f").Clone(context.Background(), g.url(), "repo"))
	g.refuses(workspace.ErrAccessDenied, denied("repo").Clone(context.Background(), g.url(), "repo"))
	assert.NoDirExists(t, g.root+"/repo")
	require.NoError(t, denied("other").Clone(context.Background(), g.url(), "repo"))
	g.advance()
	g.refuses(workspace.ErrAccessDenied, denied("repo/new/f").Pull(context.Background(), "repo"))
	g.refuses(workspace.ErrAccessDenied, denied("repo").Pull(context.Background(), "repo"))
	assert.NoFileExists(t, g.root+"/repo/new/f")
	_, err := denied("repo").Head(context.Background(), "repo")
	require.NoError(t, err)
	require.NoError(t, denied("other").Pull(context.Background(), "repo"))
	g.same()
}

// TestGitSwappingAttacker: the directory that a clone goes to, and one of a tree
// that is pulled, change places with links that lead out.
func TestGitSwappingAttacker(t *testing.T) {
	g := newGitWorld(t)
	g.clone()
	g.sh(g.root, `mkdir dir; ln -s ../outside link; ln -s ../../outside repo/link-out`)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, g.root+"/dir", unix.AT_FDCWD, g.root+"/link", unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, g.root+"/repo/d", unix.AT_FDCWD, g.root+"/repo/link-out", unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, g.root+"/repo/.git", unix.AT_FDCWD, g.root+"/repo/link-out", unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, g.root+"/repo/.git", unix.AT_FDCWD, g.root+"/repo/link-out", unix.RENAME_EXCHANGE)
		}
	}()
	g.sh(g.origin, `echo two >d/f; echo two >d/new; git add -A; git commit -qm two`)
	for range 4 {
		_ = g.Clone(context.Background(), g.url(), "dir/"+time.Now().Format("150405.000000000"))
		_ = g.pull()
	}
	close(stop)
	<-done
	g.clean()
}

func TestGitURLs(t *testing.T) {
	all := []string{"https", "http", "ssh", "git", "file"}
	for _, address := range []string{
		"https://example.com/a/b.git", "http://127.0.0.1:8080/x", "ssh://git@example.com/x", "git@example.com:a/b.git",
		"example.com:a/b", "git://example.com/x", "file:///srv/x", "https://[::1]/x", "https://example.com/ä",
	} {
		assert.NoError(t, checkURL(address, all), address)
	}
	for _, address := range []string{
		"", " ", "\t", "-upload-pack=evil", "--upload-pack=evil", " --upload-pack=evil", "ext::sh -c x", "ext::sh", "fd::3", "/srv/x", "./x", "../x",
		"x", "x/y", "https://", "https:///x", "https://user@example.com/x", "https://user:pw@example.com/x",
		"ssh://git:pw@example.com/x", "ssh://-oProxyCommand=evil/x", "-oProxyCommand=evil:x", "git@-evil:x", "git@host:-x",
		"ssh://-x@host/x", "https://example.com/a b", "https://example.com/\nx", "https://example.com/\x00", "https://example.com/\u202e", "https://example.com/\xff",
		"host::x", "https::https://example.com", "https://" + strings.Repeat("a", maxURL), "persistent-https://x/y", "FTP://x/y", "rad://x",
	} {
		err := checkURL(address, all)
		assert.Error(t, err, address)
	}
	for _, address := range []string{"http://x/y", "git@example.com:x", "ssh://x/y", "git://x/y", "file:///x"} {
		assert.ErrorIs(t, checkURL(address, []string{"https"}), workspace.ErrAccessDenied, address)
	}
	for address, want := range map[string]string{
		"https://user:pw@example.com:8443/p/q?r#s": "https://example.com:8443", "git://example.com/x": "git://example.com",
		"ftp://example.com/x": "ftp://example.com", "example.com/x": "example.com", "example.com": "example.com", "not-a-url": "not-a-url",
		" ": "", "/path": "", "://broken": "", "git@example.com:x": "", "https://example.com": "https://example.com",
	} {
		assert.Equal(t, want, RedactURL(address), address)
	}
}

// httpOrigin serves the origin by git's own protocol.
func (g *gitWorld) httpOrigin() string {
	g.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	require.NoError(g, err)
	server := httptest.NewServer(&cgi.Handler{
		Path: strings.TrimSpace(string(path)) + "/git-http-backend", Root: "/",
		Env:    []string{"GIT_PROJECT_ROOT=" + g.base, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		Stderr: new(strings.Builder),
	})
	g.Cleanup(server.Close)
	return server.URL
}

func TestGitByHTTP(t *testing.T) {
	g := newGitWorld(t, func(c *Config) { c.Protocols = []string{"http"} })
	url := g.httpOrigin()
	require.NoError(t, g.Clone(context.Background(), url+"/origin", "repo"))
	g.same()
	g.advance()
	require.NoError(t, g.pull())
	g.same()
	err := g.Clone(context.Background(), url+"/secret-name", "none")
	g.refuses(ErrGit, err)
	assert.NotContains(t, err.Error(), "secret-name")
	g.refuses(workspace.ErrAccessDenied, g.Clone(context.Background(), g.url(), "none"))
}

// TestGitStopsWithItsContext: the other side never answers.
func TestGitStopsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	g := newGitWorld(t, func(c *Config) { c.Protocols, c.Timeout = []string{"http"}, 0 })
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = listener.Accept()
		cancel()
	}()
	g.refuses(context.Canceled, g.Clone(ctx, "http://"+listener.Addr().String()+"/x", "repo"))
	g.refuses(context.Canceled, g.Clone(ctx, "http://"+listener.Addr().String()+"/x", "repo"))

	limited := newGitWorld(t, func(c *Config) { c.Protocols, c.Timeout = []string{"http"}, 500*time.Millisecond })
	limited.refuses(context.DeadlineExceeded, limited.Clone(context.Background(), "http://"+listener.Addr().String()+"/x", "repo"))
}

func TestGitFilesAreBounded(t *testing.T) {
	g := newGitWorld(t, func(c *Config) { c.MaxFileBytes = 1 << 20 })
	g.sh(g.origin, `head -c 3000000 /dev/urandom >big; git add big; git commit -qm big`)
	err := g.Clone(context.Background(), g.url(), "repo")
	g.refuses(ErrGit, err)
	assert.NoDirExists(t, g.root+"/repo")
}

func TestGitErrorsAreWhole(t *testing.T) {
	g := newGitWorld(t)
	err := g.Clone(context.Background(), "file:///no/such/place", "repo")
	e, ok := errors.AsType[*workspace.Error](err)
	require.True(t, ok)
	assert.Equal(t, "clone into", e.Op)
	assert.Equal(t, "repo", e.Path)
	g.refuses(ErrGit, err)
}

type violations []workspace.ViolationRecord

func (v *violations) LogViolation(_ context.Context, r workspace.ViolationRecord) { *v = append(*v, r) }

func TestPolicy(t *testing.T) {
	ctx := context.Background()
	g := newGitWorld(t)
	require.NoError(t, os.Mkdir(g.root+"/secret", 0o755))
	require.NoError(t, os.Symlink("secret", g.root+"/alias"))
	var told violations
	scoped := func(opts ...workspace.ScopedOption) *Client {
		ws, err := workspace.NewScopedWorkspace(g.ws, opts...)
		require.NoError(t, err)
		return New(ws, g.conf)
	}
	s := scoped(workspace.WithAllowWrite("**"), workspace.WithDenyRead("secret"),
		workspace.WithMandatoryDeny("never", "**/d/e", "**/.git"), workspace.WithViolationLogger(&told))
	g.refuses(workspace.ErrAccessDenied, s.Clone(ctx, g.url(), "never"))
	g.refuses(workspace.ErrAccessDenied, s.Clone(ctx, g.url(), "never/below"))
	g.refuses(workspace.ErrAccessDenied, s.Clone(ctx, g.url(), "repo")) // for d/e in it
	assert.NoDirExists(t, g.root+"/repo")
	require.Len(t, told, 3)
	assert.Equal(t, "clone into", told[0].Operation)
	assert.Equal(t, "repo/d/e", told[2].Resolved)

	require.NoError(t, g.Clone(ctx, g.url(), "repo"))
	require.NoError(t, g.Clone(ctx, g.url(), "secret/repo"))
	head, err := s.Head(ctx, "repo")
	require.NoError(t, err)
	assert.Len(t, head, 40)
	for _, dir := range []string{"secret/repo", "alias/repo"} {
		_, err = s.Head(ctx, dir)
		g.refuses(workspace.ErrAccessDenied, err)
	}
	g.advance()
	g.refuses(workspace.ErrAccessDenied, s.Pull(ctx, "repo"))
	assert.Equal(t, "one\n", g.sh(g.root+"/repo", `cat f`))

	narrow := scoped(workspace.WithAllowWrite("repo/**"))
	g.refuses(workspace.ErrAccessDenied, narrow.Clone(ctx, g.url(), "elsewhere"))
	require.NoError(t, narrow.Pull(ctx, "repo"))
	g.same()
}

func TestWorkspacesWithoutADirectory(t *testing.T) {
	ctx := context.Background()
	g := newGitWorld(t)
	g.clone()
	for name, ws := range map[string]workspace.Workspace{
		"memory": workspace.NewMemWorkspace(), "a read-only view": workspace.ReadOnly(g.ws), "none": nil,
	} {
		c := New(ws, g.conf)
		g.refuses(workspace.ErrUnsupported, c.Clone(ctx, g.url(), "new"))
		g.refuses(workspace.ErrUnsupported, c.Pull(ctx, "repo"))
		_, err := c.Head(ctx, "repo")
		g.refuses(workspace.ErrUnsupported, err)
		assert.NoDirExists(t, g.root+"/new", name)
	}
}
