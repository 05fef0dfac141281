package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// rounds is the number of rounds in this pass; all is that of the four passes.
func rounds(all int) int {
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil {
		return n
	}
	return (all + 3) / 4
}

// landing starts pk-apply --all, and ends when it has ended.
func (g *ground) landing(t *testing.T) (ended chan clitest.Outcome) {
	ended = make(chan clitest.Outcome, 1)
	go func() { ended <- clitest.Finish(t, g.Command("pk-apply", "--session", sessionName, "--all")) }()
	return ended
}

// A user saves all files again and again while they land. Each file holds the last
// that was saved afterwards, or it has been kept under a name beside it.
func TestSavedWhileItLands(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	const files = 60
	for round := range rounds(8) {
		g := newGround(t, b)
		g.host(t, fmt.Sprintf(`for n in $(seq %d); do echo old >f$n; done; mkdir aside`, files))
		g.trial(t, fmt.Sprintf(`for n in $(seq %d); do case $((n %% 4)) in 0) rm f$n;; 1) chmod 755 f$n;; *) echo trial >f$n;; esac; done`, files))
		ended := g.landing(t)
		last := map[string]string{}
		var got clitest.Outcome
		order := rand.Perm(files)
		for n, running := 0, true; running; n++ {
			select {
			case got = <-ended:
				running = false
			default:
			}
			name := fmt.Sprint("f", order[n%files]+1)
			text := fmt.Sprintf("saved %d", n)
			g.Write(t, g.Project+"/aside/x", text)
			require.NoError(t, os.Rename(g.Project+"/aside/x", g.Project+"/"+name))
			last[name] = text
		}
		for name, text := range last {
			var there []string
			found, err := filepath.Glob(g.Project + "/" + name + "*")
			require.NoError(t, err)
			for _, f := range found {
				if f == g.Project+"/"+name || strings.HasPrefix(f, g.Project+"/"+name+".pk-kept-") {
					content, err := os.ReadFile(f)
					require.NoError(t, err)
					there = append(there, string(content))
				}
			}
			assert.Contains(t, there, text, "%s in round %d: %+v", name, round, got)
		}
		assert.NotContains(t, strings.Join(tree(t, g.Project), "\n"), "/.pk-")
	}
}

// A process exchanges a directory for a link while files land below: a link to outside,
// or to another directory of the project. Nothing changes there.
func TestLinkPlantedWhileItLands(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for round := range rounds(8) {
		g := newGround(t, b)
		target := []string{"../out", "own"}[round%2]
		g.host(t, `mkdir -p d/e ../out own; cp -r d/e ../out; cp -r d/e own; for n in $(seq 40); do echo 1 >d/e/f$n; echo 1 >../out/e/f$n; echo 1 >own/e/f$n; done; ln -s `+target+` link`)
		out := append(manifest(t, g.dir+"/out"), manifest(t, g.Project+"/own")...)
		g.trial(t, `for n in $(seq 40); do case $((n % 4)) in 0) rm d/e/f$n;; 1) chmod 755 d/e/f$n;; *) echo 2 >d/e/f$n;; esac; echo n >d/e/n$n; done; mkdir d/e/m; echo n >d/e/m/n`)
		ended := g.landing(t)
		dir, err := os.Open(g.Project)
		require.NoError(t, err)
		swaps := 0
		for running := true; running || swaps%2 == 1; swaps++ {
			require.NoError(t, unix.Renameat2(int(dir.Fd()), "d", int(dir.Fd()), "link", unix.RENAME_EXCHANGE))
			select {
			case <-ended:
				running = false
			default:
			}
		}
		dir.Close()
		assert.Equal(t, out, append(manifest(t, g.dir+"/out"), manifest(t, g.Project+"/own")...))
		got := g.apply(t, "--overwrite", "--all")
		assert.Zero(t, got.Status, "%+v", got)
		g.host(t, `test "$(ls -A d/e | wc -l)" = 71; test "$(cat d/e/f2)" = 2; ! test -e d/e/f40`)
		g.done(t)
	}
}

// A landing is killed at any moment, several times. The next one has the result of a
// landing that was not killed.
func TestKilled(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	const script = `rm d/x*; chmod 700 c[0-9]*; mkdir -p n{1..12}/m; for n in {1..12}; do echo 2 >>m$n; echo n >n$n/m/f; echo 2 >big$n; done
		rm -r gone; mkdir gone; echo n >gone/n; rm to-dir; mkdir to-dir; echo n >to-dir/n; rm -r to-file; echo f >to-file; ln -sf m1 l; rm -r whole; chmod 500 closed
		git add .; git commit -qm agent; git checkout -q -b side; git tag t`
	var length time.Duration
	killed := 0
	for round := range rounds(20) {
		g := newGround(t, b, "gone/a/b: 1", "gone/c: 1", "to-dir: 1", "to-file/x: 1", "l => m2", "whole/a/b/c: 1", "closed/x: 1")
		g.host(t, `mkdir d; for n in $(seq 12); do echo 1 >m$n; echo 1 >d/x$n; echo 1 >c$n; done; head -c 200000 /dev/zero | tee $(seq -f big%g 12) >/dev/null; git init -q; git add .; git commit -qm 1`)
		direct := g.copied(t)
		g.in(t, direct, script)
		g.trial(t, script)
		if round == 0 {
			begun := time.Now()
			require.Zero(t, g.apply(t, "--all").Status)
			length = time.Since(begun)
		}
		for range 4 {
			cmd := g.Command("pk-apply", "--session", sessionName, "--all")
			require.NoError(t, cmd.Start())
			time.Sleep(time.Duration(rand.Int64N(int64(length / 2))))
			require.NoError(t, cmd.Process.Kill())
			if cmd.Wait() != nil {
				killed++
			}
		}
		got := g.apply(t, "--all")
		assert.Zero(t, got.Status, got.Stderr)
		assert.Empty(t, got.Stderr)
		sameTree(t, tree(t, direct), tree(t, g.Project))
		assert.Equal(t, g.in(t, direct, gitState), g.host(t, gitState))
		g.done(t)
		g.trial(t, `test -z "$(git status --porcelain)"; test -e gone/n; ! test -e gone/a; ! test -e whole`)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("killed %d landings of %v", killed, length)
}

// A landing that was killed before its git part, and a command that runs then.
func TestKilledThenWorkedOn(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for range rounds(8) {
		g := newGround(t, b)
		g.host(t, `for n in $(seq 30); do echo 1 >f$n; done`)
		g.trial(t, `for n in $(seq 30); do echo 2 >f$n; echo 2 >n$n; done`)
		cmd := g.Command("pk-apply", "--session", sessionName, "--all")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		g.trial(t, `for n in $(seq 30); do test "$(cat f$n n$n)" = "$(printf '2\n2')" || exit 3; done; rm f1 n1 n2; echo 3 >f2; echo 3 >n3`)
		got := g.apply(t, "--all")
		assert.Zero(t, got.Status, got.Stderr)
		g.host(t, `! test -e f1; ! test -e n1; ! test -e n2; test "$(cat f2 n3 f4 n4 | tr '\n' ' ')" = "3 3 2 2 "; test "$(ls -A | wc -l)" = 57`)
		g.done(t)
	}
}

// SIGKILL of a landing that holds locks of git: the next command of pk removes these, whatever the project, and no
// lock of the user's.
func TestKilledWithLocks(t *testing.T) {
	b := clitest.NewBox(t)
	const commit = `id=$(git commit-tree -p HEAD -m 2 HEAD^{tree}) && echo $id >.git/refs/heads/main` // without a lock
	for _, row := range []struct {
		name    string
		landing []string
		next    string
	}{
		{"pk-apply, then pk-sweep", []string{"pk-apply", "--session", sessionName, "--all"}, "pk-sweep"},
		{"pk-apply, then a command", []string{"pk-apply", "--session", sessionName, "--all"}, "pk-bwrap --bwrap " + os.Getenv("PK_TEST_BWRAP") + " -- true"},
		{"pk-bash, then pk-sweep", []string{"pk-bash", "-y", "--", commit}, "pk-sweep"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, b)
			g.host(t, `git init -q; git commit -q --allow-empty -m 1; mkdir ../other; touch .git/refs/heads/main.lock`)
			g.trial(t, commit)
			cmd := g.Command(row.landing[0], row.landing[1:]...)
			require.NoError(t, cmd.Start())
			for _, err := os.Lstat(g.Project + "/.git/index.lock"); err != nil; _, err = os.Lstat(g.Project + "/.git/index.lock") {
				require.NoError(t, unix.Kill(cmd.Process.Pid, 0))
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, cmd.Process.Kill()) // while it waits for the branch
			_ = cmd.Wait()
			g.AwaitOrphans(t)
			require.FileExists(t, g.Project+"/.git/index.lock")
			g.in(t, g.dir+"/other", row.next)
			left := g.host(t, `find .git -name '*.lock'; touch a; git add a`)
			assert.Equal(t, ".git/refs/heads/main.lock\n", left)
			g.host(t, `rm .git/refs/heads/main.lock`)
		})
	}
}
