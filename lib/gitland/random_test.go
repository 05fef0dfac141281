package gitland_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/gittest"
	"pikuri/lib/gitland"
)

// rounds is $PK_ROUNDS, or few.
func rounds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		return n
	}
	return few
}

// place is a repository of the host's, and a directory of pk's.
type place struct{ dir, gitDir, layers string }

// template is a repository with work in it, and the layer that one command would have
// left.
type template struct{ dir string }

func newTemplate(t testing.TB) template {
	dir := t.TempDir()
	script(t, dir, `
		git init -q -b main --template= lib; cd lib; git commit -q --allow-empty -m lib; cd ..
		git init -q -b main --template= project; cd project
		for n in 1 2 3 4 5; do echo $n >>a; mkdir -p d; echo $n >d/f$n; git add .; git commit -qm $n; done
		git branch topic HEAD~2; git tag -a -m v1 v1; git -c protocol.file.allow=always submodule --quiet add ../lib mod; git commit -qm mod
		git worktree add -q -b wt ../wt; mkdir .git/hooks .git/info; echo x >.git/info/exclude; echo exit >.git/hooks/pre-push
		git branch packed; git pack-refs --all; git repack -dq; git commit -q --allow-empty -m loose
		cp -a ../project ../work; cd ../work
		echo w >>a; git commit -qam w; git branch new; git commit -q --amend -m again; echo s >>a; git stash -q; git notes add -m n; git tag t
		git checkout -q topic; echo t >>a; git commit -qam t; git remote add origin https://example.org/a.git; git update-ref refs/remotes/origin/main HEAD
		git -C mod checkout -q -b m; git -C mod commit -q --allow-empty -m m; git rebase -q main >/dev/null 2>&1 || :; echo both >a; git add a; true`)
	script(t, dir, `cd work/.git && find . -type f | while read -r f; do if cmp -s "$f" "../../project/.git/$f"; then rm -f "$f"; fi; done; find . -type d -empty -delete; git -C ../../project status >/dev/null`)
	return template{dir}
}

func script(t testing.TB, dir, text string) {
	t.Helper()
	cmd := command(dir, "set -e\n"+text)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", text, out)
}

func command(dir, text string) *exec.Cmd {
	cmd := exec.Command("timeout", "-k1", "60", "sh", "-c", text)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_TEMPLATE_DIR=", "GIT_EDITOR=true", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	return cmd
}

// tick waits until the clock that file systems take a ctime from has passed all times that
// files have now.
func tick(tb testing.TB) {
	for begun, now := time.Now().UnixNano(), (unix.Timespec{}); now.Nano() <= begun; {
		require.NoError(tb, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
	}
}

func (t template) place(tb testing.TB) place {
	tb.Helper()
	dir, err := os.MkdirTemp(tb.TempDir(), "")
	require.NoError(tb, err)
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(tb, err)
	script(tb, dir, "cp -a "+t.dir+"/project "+t.dir+"/wt . && mkdir layers && echo outside >outside && cd project && git worktree repair ../wt >/dev/null 2>&1")
	tb.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", dir).Run() })
	return place{dir, dir + "/project/.git", dir + "/layers"}
}

// land lands the files that fill writes, as a session's command would.
func (p place) land(fill func(upper string)) ([]string, error) {
	l, err := gitland.OpenShared(p.layers, p.gitDir, "random")
	if err != nil {
		return nil, err
	}
	l.GitDirs = p.gitDirs()
	fill(l.Upper())
	l.Started()
	return l.LandLast(), l.Close()
}

func (p place) gitDirs() []string {
	return []string{p.gitDir, p.gitDir + "/modules/mod", p.gitDir + "/worktrees/wt"}
}

// said is git's output about the repository: its faults, and its commits.
func (p place) said(t testing.TB) (wrong string, commits []string) {
	t.Helper()
	cmd := command(p.dir+"/project", `
		git fsck --full 2>&1 | grep -vE '^(dangling|notice)'
		git status >/dev/null || echo status; git -C ../wt status >/dev/null || echo worktree; git for-each-ref >/dev/null || echo refs
		git rev-parse -q --verify HEAD >/dev/null || git symbolic-ref -q HEAD >/dev/null || echo HEAD
		find .git -name '*.lock' -o -type l -o -type p
		echo --; git rev-list --all --reflog HEAD 2>/dev/null || git rev-list --all --reflog`)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	wrong, list, ok := strings.Cut(string(out), "--\n")
	if err != nil || !ok {
		wrong += fmt.Sprint(err)
	}
	return wrong + errs.String(), strings.Fields(list)
}

// With any upper layer, the host's repository stays valid, keeps all its content, and
// gets only files that may land. Ten seeds at a time land in one repository; PK_SEED is
// the first of PK_ROUNDS seeds.
func TestRandomLayers(t *testing.T) {
	tpl := newTemplate(t)
	first, atATime := rand.Uint64N(1<<40), 10
	if n, err := strconv.ParseUint(os.Getenv("PK_SEED"), 10, 64); err == nil {
		first, atATime = n, rounds(1)
	}
	failed := 0
	for i := 0; i < rounds(30) && failed < 10; i += atATime {
		p := tpl.place(t)
		lasting := gittest.Lasting(t, p.gitDir)
		_, before := p.said(t)
		var errs []error
		for seed := first + uint64(i); seed < first+uint64(i+atATime); seed++ {
			r := gittest.NewRandom(t, seed, p.dir+"/outside", tpl.dir+"/work/.git")
			began := time.Now()
			_, err := p.land(r.Layer)
			errs = append(errs, err)
			assert.Less(t, time.Since(began), 20*time.Second, "seed %d", seed)
			require.NoError(t, exec.Command("chmod", "-R", "u+rwx", p.layers).Run())
			require.NoError(t, os.RemoveAll(p.layers))
			require.NoError(t, os.Mkdir(p.layers, 0o755))
		}
		wrong, after := p.said(t)
		text, err := os.ReadFile(p.dir + "/outside")
		require.NoError(t, err)
		ok := assert.Empty(t, wrong[:min(len(wrong), 2000)])
		ok = assert.Subset(t, after, before, "commits were lost") && ok
		ok = assert.Empty(t, gittest.Differences(lasting, gittest.Lasting(t, p.gitDir))) && ok
		ok = assert.Equal(t, "outside\n", string(text[:min(len(text), 200)])) && ok
		if !ok {
			failed++
			t.Logf("PK_SEED=%d PK_ROUNDS=%d; errors %v", first+uint64(i), atATime, errs)
		}
		if os.Getenv("PK_VERBOSE") != "" {
			t.Log(i, len(after)-len(before), errs)
		}
		require.NoError(t, os.RemoveAll(p.dir))
	}
}

// The user switches branches at the moment before a command that does.
func TestSwitchedJustBefore(t *testing.T) {
	p := newTemplate(t).place(t)
	head := p.gitDir + "/HEAD"
	for range 20 {
		require.NoError(t, os.WriteFile(head, []byte("ref: refs/heads/topic\n"), 0o644))
		told, err := p.land(func(upper string) {
			require.NoError(t, os.WriteFile(upper+"/HEAD", []byte("ref: refs/heads/packed\n"), 0o644))
		})
		require.NoError(t, err)
		require.Empty(t, told)
		text, err := os.ReadFile(head)
		require.NoError(t, err)
		require.Equal(t, "ref: refs/heads/packed\n", string(text))
	}
}

// A command's index, U, lands while the host's index changes.
func TestIndexBesideTheHosts(t *testing.T) {
	tpl := newTemplate(t)
	const remove = "GIT_INDEX_FILE=U git rm -q --cached d/f5; "
	for _, row := range []struct {
		name, script string
		forge        bool // the ID of a tree in U, which had been the host's
		told         string
		cached       string // the differences from HEAD then
	}{
		{"the command's alone", remove, false, "", "d/f5"},
		{"the host writes only what files look like", remove + "touch -d 2001-01-01 a; git update-index --refresh", false, "", "d/f5"},
		{"the host has staged something", remove + "echo host >a; git add a", false, "", "a d/f5"},
		{"the host has staged another change", remove + "git update-index --chmod=+x d/f5", false, "the host has staged another change of \"d/f5\"", "d/f5"},
		{"both have staged the same", remove + "git rm -q --cached d/f5", false, "", "d/f5"},
		{"a forged tree over unchanged entries", "GIT_INDEX_FILE=U git update-index --chmod=+x a", true, "", "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := tpl.place(t)
			script(t, p.dir+"/project", "git read-tree HEAD")
			trees, err := command(p.dir+"/project", "git rev-parse HEAD:d $(git log -1 --format=%H --grep='^2$'):d").Output()
			require.NoError(t, err)
			ids, err := hex.DecodeString(strings.Join(strings.Fields(string(trees)), ""))
			require.NoError(t, err)
			require.Len(t, ids, 40)
			tick(t)
			told, err := p.land(func(upper string) {
				index := upper + "/index"
				script(t, p.dir+"/project", "cp .git/index "+index+"; sleep 0.02; "+strings.ReplaceAll(row.script, "=U ", "="+index+" "))
				if row.forge {
					data, err := os.ReadFile(index)
					require.NoError(t, err)
					at := bytes.LastIndex(data, ids[:20])
					require.Positive(t, at)
					copy(data[at:], ids[20:])
					sum := sha1.Sum(data[:len(data)-20])
					require.NoError(t, os.WriteFile(index, append(data[:len(data)-20], sum[:]...), 0o644))
				}
			})
			require.NoError(t, err)
			if row.told == "" {
				assert.Empty(t, told)
			} else {
				assert.Contains(t, strings.Join(told, "\n"), row.told)
			}
			out, err := command(p.dir+"/project", "echo $(git diff --cached --name-only); git ls-tree -r --name-only $(git write-tree) | wc -l; git ls-files | wc -l").Output()
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.Len(t, lines, 3, "%s", out)
			assert.Equal(t, row.cached, lines[0])
			assert.Equal(t, lines[1], lines[2], "the trees that git takes from the index")
			wrong, _ := p.said(t)
			assert.Empty(t, wrong)
		})
	}
}

// If pk is killed while it lands, the repository is valid; landing again has the same
// result as without the kill.
func TestKilledWhileLanding(t *testing.T) {
	if os.Getenv("GITDIR_TEST_LAND") != "" {
		t.Skip("the process that is killed")
	}
	tpl := newTemplate(t)
	whole := tpl.place(t)
	_, err := whole.land(tpl.fill(t))
	require.NoError(t, err)
	want := whole.holds(t)
	assert.Contains(t, want, "again", "nothing has landed")
	takes := 100 * time.Millisecond
	for i := range rounds(15) {
		p := tpl.place(t)
		_, before := p.said(t)
		lasting := gittest.Lasting(t, p.gitDir)
		l, err := gitland.OpenShared(p.layers, p.gitDir, "random")
		require.NoError(t, err)
		l.GitDirs = p.gitDirs()
		tpl.fill(t)(l.Upper())
		l.Started()
		require.NoError(t, l.Close())
		text, err := json.Marshal(l)
		require.NoError(t, err)

		killed := exec.Command("/proc/self/exe", "-test.run=TestLandAlone")
		killed.Env = append(os.Environ(), "GITDIR_TEST_LAND="+string(text))
		require.NoError(t, killed.Start())
		time.Sleep(rand.N(takes)) // a random moment
		_ = killed.Process.Kill()
		_ = killed.Wait()
		wrong, after := p.said(t)
		if !strings.Contains(wrong, ".lock\n") {
			assert.Empty(t, wrong, "round %d", i)
		}
		assert.Subset(t, after, before)
		assert.Empty(t, differing(lasting, gittest.Lasting(t, p.gitDir)), "round %d", i)

		again := exec.Command("/proc/self/exe", "-test.run=TestLandAlone")
		again.Env = killed.Env
		start := time.Now()
		out, err := again.CombinedOutput()
		takes = time.Since(start)
		require.NoError(t, err, "%s", out)
		wrong, _ = p.said(t)
		assert.Empty(t, wrong, "round %d, landed again", i)
		assert.Empty(t, differing(lasting, gittest.Lasting(t, p.gitDir)), "round %d, landed again", i)
		assert.Equal(t, strings.ReplaceAll(want, whole.dir, "DIR"), strings.ReplaceAll(p.holds(t), p.dir, "DIR"), "round %d", i)
	}
}

// differing leaves out locks and temporary files, which the next landing removes or
// writes again, and temporary objects, which git's gc removes as it does its own.
func differing(before, after map[string]string) []string {
	for name := range after {
		if strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".pk") || strings.Contains(name, "tmp") {
			delete(after, name)
		}
	}
	return gittest.Differences(before, after)
}

// TestLandAlone is the process that TestKilledWhileLanding kills.
func TestLandAlone(t *testing.T) {
	text := os.Getenv("GITDIR_TEST_LAND")
	if text == "" {
		return
	}
	if n, err := strconv.Atoi(os.Getenv(killAt)); err == nil {
		endAt(n)
	}
	var l gitland.Layer
	require.NoError(t, json.Unmarshal([]byte(text), &l))
	require.NoError(t, l.Reopen())
	for _, line := range l.LandLast() {
		assert.NotContains(t, line, "cannot land")
	}
	require.NoError(t, l.Close())
}

// fill writes the changes of a command into an upper layer.
func (tpl template) fill(t testing.TB) func(string) {
	return func(upper string) { script(t, upper, "cp -a "+tpl.dir+"/work/.git/. .") }
}

// holds is the content of a repository.
func (p place) holds(t testing.TB) string {
	t.Helper()
	out, err := command(p.dir+"/project", "git for-each-ref; git symbolic-ref HEAD || git rev-parse HEAD; git log --all --format='%H %s'; git stash list; git ls-files -s; git status; git config --list; git -C mod log --all --format=%s").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
