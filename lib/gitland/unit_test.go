package gitland_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitland"
	"pikuri/lib/internal/gitlock"
)

// killAt is the step at which the process ends that TestKilledAtEachStep starts.
const killAt = "GITDIR_TEST_KILL_AT"

// If pk is killed at any step, the next landing completes that of work under way: HEAD, index and state belong
// together. With PK_ROUNDS above 1 it is each step, else some.
func TestKilledAtEachStep(t *testing.T) {
	stride := 5
	if rounds(1) > 1 {
		stride = 1
	}
	const conflict = "git checkout -q -b topic; echo t >a; git commit -qam t; echo t2 >a; echo n >n; git add n; git commit -qam t2; git checkout -q main; echo m >a; git commit -qam m; "
	for _, row := range []struct{ name, host, command string }{
		{"a merge stops", conflict, "! git merge -q topic"},
		{"a merge ends", conflict + "! git merge -q topic", "echo both >a; git add a; git commit -qm merged"},
		{"a merge is given up", conflict + "! git merge -q topic", "git merge --abort"},
		{"a merge without a commit", conflict + "git checkout -q topic~2; git branch -f main; git checkout -q main", "git merge -q --no-ff --no-commit topic"},
		{"picks stop", conflict + "git branch -f topic topic~2; git checkout -q topic; echo x >x; git add x; git commit -qm x; echo t >a; git commit -qam t; git checkout -q main", "! git cherry-pick topic~2..topic"},
		{"picks end", conflict + "! git cherry-pick topic~2..topic", "for n in 1 2; do echo $n >a; git add a; git cherry-pick --continue || :; done"},
		{"a rebase stops", conflict, "! git rebase -q topic"},
		{"a rebase ends", conflict + "git branch old; ! git rebase -q topic", "echo both >a; git add a; git rebase --continue"},
		{"a rebase is given up", conflict + "! git rebase -q topic", "git rebase --abort"},
		{"a commit", "echo u >u; git add u", "echo 2 >a; git commit -qm 2 a; echo 3 >a; echo b >b; git add b"},
		{"another branch", "git branch other; echo o >o; git add o; git commit -qm o", "git checkout -q other; echo b >b; git add b"},
		{"the user has staged something else", conflict + "! git merge -q topic; echo u >u; git add u", "echo both >a; git add a; git commit -qm merged -i a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, row.host, row.command)
			l := u.layer(t)
			told := l.LandLast()
			require.True(t, l.Landed(), told)
			require.NoError(t, l.Close())
			want, ended := u.holds(t), false
			for n := 1 + rand.IntN(stride); !ended; n += stride {
				l := u.layer(t)
				require.NoError(t, l.Close())
				text, err := json.Marshal(l)
				require.NoError(t, err)
				at := []int{n}
				if stride == 1 {
					at = append(at, 1+rand.IntN(12))
				}
				for i, step := range at {
					killed := exec.Command("/proc/self/exe", "-test.run=TestLandAlone")
					killed.Env = append(os.Environ(), "GITDIR_TEST_LAND="+string(text), killAt+"="+strconv.Itoa(step))
					if out, err := killed.CombinedOutput(); err != nil {
						require.ErrorContains(t, err, "killed", "%s", out)
					} else if i == 0 {
						ended = true
					}
				}
				then := u.holds(t)
				require.NoError(t, l.Reopen())
				told := l.LandLast()
				require.NoError(t, l.Close())
				all := assert.True(t, l.Landed(), told)
				if !assert.Equal(t, want, u.holds(t), "killed at steps %d, after which the host had:\n%s", at, then) || !all {
					break
				}
				if ended {
					assert.Greater(t, n, 5)
				}
			}
		})
	}
}

// A change that user and command have both taken back lands when the command makes it again.
func TestDoneAgain(t *testing.T) {
	const topic = "git checkout -q -b topic; echo t >a; git commit -qam t; git checkout -q main; "
	for _, row := range []struct{ name, host, command, undo string }{
		{"a merge", topic + "echo m >a; git commit -qam m", "! git merge -q topic", "git merge --abort"},
		{"a pick", topic + "echo m >a; git commit -qam m", "! git cherry-pick topic", "git cherry-pick --abort"},
		{"a rebase", topic + "echo m >a; git commit -qam m", "! git rebase -q topic", "git rebase --abort"},
		{"a branch that moves", topic, "git merge -q --ff-only topic", "git reset -q --hard HEAD~1"},
		{"another branch", topic, "git checkout -q topic", "git checkout -q main"},
		{"a new branch", topic, "git branch new topic", "git branch -q -D new"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, row.host, row.command)
			l := u.layer(t)
			assert.Empty(t, l.LandKept())
			want := u.holds(t)
			script(t, u.dir+"/project", row.undo)
			script(t, l.Upper(), "find . -type f ! -path './objects/*' | while read -r f; do rm $f; if [ -e "+l.GitDir+"/$f ]; then cp "+l.GitDir+"/$f $f; fi; done; rmdir rebase-merge sequencer 2>/dev/null || :")
			assert.NotEqual(t, want, u.holds(t))
			assert.Empty(t, l.LandKept())
			u.fill(t, "", l.Upper())
			script(t, u.dir, "cp "+u.tpl+"/work/a project")
			assert.Empty(t, l.LandKept())
			require.NoError(t, l.Close())
			assert.Equal(t, want, u.holds(t))
		})
	}
}

// unit is a repository with work under way, and the layer of a command that begins, ends or gives up such work.
type unit struct{ tpl, dir string }

func newUnit(t testing.TB, host, run string) *unit {
	u := &unit{t.TempDir(), ""}
	script(t, u.tpl, "git init -q -b main --template= project; cd project; echo 1 >a; git add a; git commit -qm 1; "+host+"\ngit status >/dev/null")
	script(t, u.tpl, "cp -a project work; cd work; git update-index -q --refresh || :; "+run)
	return u
}

// layer opens the layer with the command's changes over a new copy of the repository.
func (u *unit) layer(t testing.TB) *gitland.Layer {
	var err error
	u.dir, err = filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	script(t, u.dir, "cp -a "+u.tpl+"/project . && mkdir layers && find project -mindepth 1 -maxdepth 1 ! -name .git -exec rm -r {} + && cd "+u.tpl+"/work && find . -mindepth 1 -maxdepth 1 ! -name .git -exec cp -a -t "+u.dir+"/project {} +")
	tick(t)
	l, err := gitland.OpenShared(u.dir+"/layers", u.dir+"/project/.git", "unit")
	require.NoError(t, err)
	l.GitDirs, l.WorkTrees = []string{l.GitDir}, []string{u.dir + "/project"}
	u.fill(t, "", l.Upper())
	l.Started()
	return l
}

// fill writes the differences of a directory of the two git directories, as an overlay would.
func (u *unit) fill(t testing.TB, dir, upper string) {
	was, is := filepath.Join(u.tpl, "project/.git", dir), filepath.Join(u.tpl, "work/.git", dir)
	entries, err := os.ReadDir(is)
	require.NoError(t, err)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if _, err := os.Stat(filepath.Join(was, e.Name())); err == nil {
				u.fill(t, name, upper)
				continue
			}
		}
		one, err := os.ReadFile(filepath.Join(is, e.Name()))
		other, oerr := os.ReadFile(filepath.Join(was, e.Name()))
		if err != nil || oerr != nil || string(one) != string(other) {
			script(t, upper, "mkdir -p ./'"+dir+"' && cp -a '"+filepath.Join(is, e.Name())+"' ./'"+dir+"'")
		}
	}
	old, err := os.ReadDir(was)
	require.NoError(t, err)
	for _, e := range old {
		if _, err := os.Lstat(filepath.Join(is, e.Name())); err != nil {
			require.NoError(t, os.MkdirAll(filepath.Join(upper, dir), 0o755))
			require.NoError(t, unix.Mknod(filepath.Join(upper, dir, e.Name()), unix.S_IFCHR, 0))
		}
	}
}

// holds is the content of the repository.
func (u *unit) holds(t testing.TB) string {
	t.Helper()
	out, err := command(u.dir+"/project", `git for-each-ref; git symbolic-ref HEAD || git rev-parse HEAD; git ls-files -s; git status --porcelain
		cd .git; for f in *_HEAD MERGE_M* AUTO_MERGE rebase-merge/* sequencer/*; do if [ -f $f ] && [ $f != ORIG_HEAD ]; then echo "$f $(sha1sum <$f)"; fi; done
		find . -name '*.lock'`).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.ReplaceAll(string(out), u.dir, "DIR")
}

// endAt ends the process at a step.
func endAt(n int) {
	gitlock.Step = func(string) {
		if n--; n == 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}
