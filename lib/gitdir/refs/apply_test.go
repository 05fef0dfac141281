package refs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitlock"
)

// Two writers of one branch, git and Apply, append numbered commits by compare
// and swap. No update may be lost: each success is in the log, in an unbroken chain.
func TestRaceWithGit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 0; for i in $(seq 40); do c $i; done; git update-ref refs/heads/race HEAD; git pack-refs --all")
	ids := strings.Fields(w.git("rev-list", "HEAD"))
	w.options.Kind = func(string) (string, error) { return "commit", nil }
	w.options.IsAncestor = nil
	var done sync.WaitGroup
	git := 0
	done.Go(func() {
		for i := range 40 {
			cmd := exec.Command("git", "-c", "core.filesRefLockTimeout=2000", "update-ref", "--stdin", "--create-reflog")
			cmd.Dir, cmd.Env = w.tree, environment("/none")
			now, err := os.ReadFile(w.host + "/refs/heads/race")
			old := strings.TrimSpace(string(now))
			if err != nil {
				old = ids[0]
			}
			if i%2 == 0 { // without an old value the update succeeds, however busy the machine is
				old = ""
			}
			cmd.Stdin = strings.NewReader(strings.TrimSpace("update refs/heads/race "+ids[i%40]+" "+old) + "\n")
			if cmd.Run() == nil {
				git++
			}
			if i%10 == 5 {
				cmd = exec.Command("git", "pack-refs", "--all")
				cmd.Dir, cmd.Env = w.tree, environment("/none")
				_ = cmd.Run()
			}
		}
	})
	landed := 0
	r, err := newReader(w.hostDir())
	require.NoError(t, err)
	for i := range 200 {
		now, err := r.read("refs/heads/race")
		require.NoError(t, err)
		results, err := Apply(w.hostDir(), []Change{{Name: "refs/heads/race", Old: now.id, New: ids[(i*7+1)%40]}}, w.options)
		require.NoError(t, err)
		if results[0].Outcome == Landed && results[0].Old != results[0].New {
			landed++
		}
	}
	done.Wait()

	log, err := r.readLog("refs/heads/race")
	require.NoError(t, err)
	last, changes, mine := "", 0, 0
	for line := range strings.Lines(log) {
		e, err := parseEntry(strings.TrimSuffix(line, "\n"), 40)
		require.NoError(t, err)
		if last != "" {
			require.Equal(t, last, e.Old, line)
		}
		if strings.HasPrefix(e.Message, "pk: ") {
			mine++
		}
		last = e.New
		changes++
	}
	assert.Equal(t, last, w.at("refs/heads/race"))
	assert.Equal(t, landed, mine)
	assert.Positive(t, landed)
	assert.Positive(t, git)
	w.sound(nil)
}

// A commit that does not land yet has a ref until another one has it.
func TestKeepBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; c 2; git checkout -q --detach; c 3; c 4; git checkout -q main")
	h, third, fourth := w.hostDir(), w.at("HEAD@{2}"), w.at("HEAD@{1}")
	for _, row := range []struct{ id, want string }{
		{w.at("HEAD~1"), ""},
		{third, "refs/pk/s1/heads/main"},
		{fourth, "refs/pk/s1/heads/main"},
		{fourth, ""},
		{third, ""},
	} {
		kept, err := KeepBack(h, row.id, "refs/heads/main", w.options)
		require.NoError(t, err)
		assert.Equal(t, row.want, kept)
	}
	w.git("pack-refs", "--all")
	letGo := func(id string) bool {
		gone, err := LetGo(h, "refs/pk/s1/heads/main", id, w.options)
		require.NoError(t, err)
		return gone
	}
	assert.False(t, letGo(fourth), "no other ref has it")
	assert.Equal(t, fourth, w.at("refs/pk/s1/heads/main"))
	w.git("update-ref", "refs/heads/main", fourth)
	assert.True(t, letGo(third), "it has another commit")
	assert.Equal(t, fourth, w.at("refs/pk/s1/heads/main"))
	assert.True(t, letGo(fourth))
	assert.Equal(t, "", w.git("for-each-ref", "refs/pk"))
	assert.NoFileExists(t, w.host+"/logs/refs/pk/s1/heads/main")
	w.sound(nil)
}

// A process is killed at each step in turn. The next one completes the work, and nothing
// is lost.
func TestKilled(t *testing.T) {
	if at := os.Getenv("PK_REFS_KILL"); at != "" {
		killed(t, at)
		return
	}
	t.Parallel()
	start := newWorld(t, "c 1; c 2; git branch gone HEAD~1; git branch d/e; git tag v1; git pack-refs --all; c 3; echo x >>f; git stash -q; git branch far; git checkout -q far; c far; git checkout -q main")
	start.session("git commit -q --amend -m amended; git branch -q -D gone far; git tag -f v1 HEAD; git branch -m d/e d; git checkout -q -b new; git stash drop -q; echo y >>f; git stash -q; c new; git pack-refs --all")
	before := start.reachable()
	for round := 1; ; round += 5 { // each step takes too long
		dir := t.TempDir()
		run(t, "", "cp", "-a", start.tree, dir)
		w := *start
		w.t, w.tree = t, filepath.Join(dir, "host")
		w.host = w.tree + "/.git"
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(environment("/none"), "PK_REFS_KILL="+strconv.Itoa(round), "PK_REFS_HOST="+w.host, "PK_REFS_UPPER="+w.upper)
		out, err := cmd.CombinedOutput()
		ended := err == nil
		if !ended {
			require.Contains(t, err.Error(), "killed", "%s", out)
		}
		// Every commit is there at once, and after the next landing all is in place.
		now := w.reachable()
		for id := range before {
			require.Containsf(t, now, id, "commit %s is lost in round %d", id, round)
		}
		w.options.Since = time.Now().Add(time.Hour)
		w.options.Landed, w.options.IsAncestor = map[string]string{}, nil // as in the killed process
		lines := w.land()
		require.Equal(t, w.refs(w.copy), w.refs(w.tree), "round %d: %q", round, lines)
		if ended || round%8 == 1 {
			run(t, w.tree, "git", "fsck", "--full", "--strict", "--no-dangling")
		}
		locks := run(t, w.host, "find", ".", "-name", "*.lock")
		require.Empty(t, locks)
		if ended {
			require.Greater(t, round, 60)
			return
		}
	}
}

func killed(t *testing.T, at string) {
	n, err := strconv.Atoi(at)
	require.NoError(t, err)
	gitlock.Step = func(string) {
		if n--; n == 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	w := &world{t: t, host: os.Getenv("PK_REFS_HOST"), upper: os.Getenv("PK_REFS_UPPER")}
	w.options = Options{Session: "s1", Since: time.Now().Add(time.Hour), Kind: func(string) (string, error) { return "commit", nil }}
	w.land()
}

func TestLocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; c 2")
	l, err := gitlock.Acquire(w.host+"/refs/heads/main", time.Now())
	require.NoError(t, err)
	cmd := exec.Command("git", "update-ref", "refs/heads/main", "HEAD~1")
	cmd.Dir, cmd.Env = w.tree, environment("/none")
	require.Error(t, cmd.Run(), "git respects it")
	require.NoError(t, l.Release())
	w.git("update-ref", "refs/heads/main", "HEAD~1")
}

func TestSharedRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "git config core.sharedRepository group; c 1")
	require.NoError(t, filepath.WalkDir(w.host, func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return os.Chmod(file, fs.ModeSetgid|0o775)
		}
		return err
	}))
	w.session("git branch a/b")
	w.land()
	for name, want := range map[string]fs.FileMode{"refs/heads/a": fs.ModeDir | fs.ModeSetgid | 0o775, "refs/heads/a/b": 0o664,
		"logs/refs/heads/a/b": 0o664, "logs/refs/heads/a": fs.ModeDir | fs.ModeSetgid | 0o775} {
		info, err := os.Lstat(filepath.Join(w.host, name))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode(), name)
	}
}

func TestLinkedWorktree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; c 2")
	w.sh(w.tree, "git worktree add -q ../wt -b side HEAD~1")
	w.options.Since = time.Now().Add(time.Hour)
	h := Host{w.host, w.host + "/worktrees/wt", 40}
	w.put("worktrees/wt/HEAD", "ref: refs/heads/main\n")
	w.put("worktrees/wt/logs/HEAD", fmt.Sprintf("%s %s A <a> 1 +0000\tcheckout: moving from side to main\n", w.at("side"), w.at("main")))
	w.put("worktrees/wt/refs/bisect/bad", w.at("side")+"\n")
	w.put("refs/bisect/good", w.at("side")+"\n")
	w.put("refs/heads/x", w.at("side")+"\n")
	w.put("HEAD", "ref: refs/heads/x\n")
	fd, err := unix.Open(w.upper, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	changes, refused, err := Changes(h, fd, w.options)
	require.NoError(t, err)
	assert.Empty(t, refused)
	results, err := Apply(h, changes, w.options)
	require.NoError(t, err)
	require.Len(t, results, 3)
	for i, name := range []string{"HEAD", "refs/bisect/bad", "refs/heads/x"} {
		assert.Equal(t, Landed, results[i].Outcome, results[i].Reason)
		assert.Equal(t, name, results[i].Name)
	}
	wt := filepath.Dir(w.tree) + "/wt"
	assert.Equal(t, w.at("side"), strings.TrimSpace(run(t, wt, "git", "rev-parse", "refs/bisect/bad")))
	assert.Equal(t, "side\n", run(t, wt, "git", "rev-parse", "--abbrev-ref", "@{-1}"))
	assert.Equal(t, "main", w.git("branch", "--show-current"))
	assert.NoFileExists(t, w.host+"/refs/bisect/good")
	w.sound(nil)
}

func TestRefusedHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1")
	_, err := Apply(w.hostDir(), nil, Options{})
	require.ErrorContains(t, err, "internal error")
	_, err = Apply(Host{"x", "x", 40}, nil, w.options)
	require.Error(t, err)
	_, err = Apply(Host{w.host, w.tree, 40}, nil, w.options)
	require.Error(t, err)
	require.NoError(t, os.Mkdir(w.host+"/reftable", 0o755))
	w.put("refs/heads/x", w.at("HEAD"))
	assert.Equal(t, []string{"refused refs: " + errReftable.Error()}, w.land())
	results, err := Apply(w.hostDir(), []Change{{Name: "refs/heads/x", New: w.at("HEAD")}}, w.options)
	require.NoError(t, err)
	assert.Equal(t, errReftable.Error(), results[0].Reason)
}

// On a file system that ignores case, two names of refs can be one file.
func TestIgnoredCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; git branch Foo; git branch bar; git pack-refs --all")
	r, err := newReader(w.hostDir())
	require.NoError(t, err)
	assert.False(t, r.folding)
	r.folding = true
	tx := &transaction{reader: r}
	require.ErrorContains(t, tx.conflict("refs/heads/foo", false), `the host has the ref "refs/heads/Foo"`)
	require.NoError(t, tx.conflict("refs/heads/new", false))
}

// The log of HEAD names a branch from which it was switched only if the host keeps it and the command
// has not made it; no line lands twice.
func TestBranchBefore(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, session, want string }{
		{"the host's", "git checkout -q old; git checkout -q main", "old"},
		{"one that the command has made", "git checkout -q -b new; git checkout -q main", "ID"},
		{"one that the command has made and deleted", "git checkout -q -b new; git checkout -q main; git branch -q -D new", "ID"},
		{"the host's that the command deletes", "git checkout -q old; git checkout -q main; git branch -q -D old", "ID"},
		{"a detached HEAD", "git checkout -q --detach; git checkout -q main", "ID"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "c 1; git branch old")
			w.options.Made = func(branch string) bool { return branch == "refs/heads/new" }
			for _, script := range []string{row.session, "c 2"} {
				w.session(script)
				changes, _ := w.changes()
				_, err := Apply(w.hostDir(), changes, w.options)
				require.NoError(t, err)
			}
			text := strings.ReplaceAll(w.git("log", "-g", "--format=%gs"), w.at("main~1"), "ID")
			assert.Contains(t, text, "checkout: moving from "+row.want+" to main")
			assert.Equal(t, 2, strings.Count(text, "checkout: moving from"), text)
		})
	}
}
