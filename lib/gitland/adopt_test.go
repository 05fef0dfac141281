package gitland

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir"
	"pikuri/lib/internal/gitlock"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAdopt(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .`)
	g.command(func() {
		g.Sh(`repo ../o; git clone -q ../o a/b; cd a/b; git config remote.origin.url https://example.org/o; echo x >f; mkdir sub; echo y >sub/g; git add .; git commit -qm second
			git tag -a -m tag v1; git branch other; echo z >>f; echo new >h; git add h; arm .git; git config core.pager evil; mkdir .git/hooks; cp "$HOOK" .git/hooks/post-checkout
			echo '* filter=evil' >.git/info/attributes 2>/dev/null || true`)
	})
	want := ""
	g.command(func() {
		want = g.Git("a/b", "log", "--all", "--format=%H %D") + g.Git("a/b", "-c", "core.fsmonitor=", "status", "--porcelain=v2")
	})
	a, err := Adopt(g.State, g.Path("a/b"))
	require.NoError(t, err)
	assert.Equal(t, g.Path("a/b/.git"), a.GitDir)
	assert.Equal(t, g.Path("a/b/.git.fenced"), a.Rest)
	assert.False(t, g.Runs("a/b", "checkout", "-q", "-B", "third"))
	g.Git("a/b", "checkout", "-q", "main")
	g.Git("a/b", "branch", "-q", "-D", "third")
	assert.Equal(t, want, g.Git("a/b", "log", "--all", "--format=%H %D")+g.Git("a/b", "status", "--porcelain=v2"))
	assert.Empty(t, g.Git("a/b", "fsck", "--full"))
	assert.Equal(t, strings.Fields(`core.repositoryformatversion=0 core.filemode=true core.bare=false core.logallrefupdates=true
		branch.main.remote=origin branch.main.merge=refs/heads/main remote.origin.url=https://example.org/o remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*`),
		strings.Fields(g.Git("a/b", "config", "--local", "--list")))
	assert.NoFileExists(t, g.Path("a/b/.git/hooks/post-checkout"))
	assert.NoFileExists(t, g.Path("a/b/.git/info/attributes"))
	r := g.begin()
	repos, _, err := gitdir.Find(g.Root, r.List)
	require.NoError(t, err)
	if assert.Len(t, repos, 2) {
		assert.Equal(t, g.Path("a/b"), repos[1].WorkTree)
	}
	assert.Empty(t, r.Restored)
	_, err = Adopt(g.State, g.Path("a/b"))
	assert.ErrorContains(t, err, "a command runs")
	made, err := r.End()
	require.NoError(t, err)
	assert.Empty(t, made)
	left, err := os.ReadDir(g.Path("a/b"))
	require.NoError(t, err)
	assert.Len(t, left, 5, "%v", left)
}

func TestAdoptOtherKinds(t *testing.T) {
	for _, row := range []struct{ name, script, dir, branch string }{
		{"bare", `repo o; git clone -q --bare o m; git -C m config remote.origin.url https://example.org/o`, "m", "main"},
		{"sha256", `git init -q --object-format=sha256 a; git -C a commit -q --allow-empty -m first`, "a", "main"},
		{"detached", `repo a; git -C a checkout -q --detach`, "a", "HEAD"},
		{"packed", `repo a; git -C a gc -q`, "a", "main"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.command(func() { g.Sh(row.script) })
			a, err := Adopt(g.State, g.Path(row.dir))
			require.NoError(t, err)
			if row.name == "bare" {
				assert.Equal(t, []string{`the url of the remote "origin" is now "https://example.org/o"`}, a.Told)
			} else {
				assert.Empty(t, a.Told)
			}
			assert.Empty(t, g.Git(row.dir, "fsck", "--full"))
			assert.Equal(t, "first", g.Git(row.dir, "log", "--format=%s"))
			assert.Equal(t, row.branch, g.Git(row.dir, "rev-parse", "--abbrev-ref", "HEAD"))
			require.NoError(t, os.RemoveAll(a.Rest))
			g.Git(row.dir, "fsck", "--full")
		})
	}
}

// Index, stashes and work under way are as they were.
func TestAdoptAsItIs(t *testing.T) {
	const three = `git init -q a; cd a; for i in 1 2 3; do echo $i >f$i; git add .; git commit -qm $i; done; `
	for name, script := range map[string]string{
		"detached at an older commit": three + `git checkout -q --detach HEAD~1`,
		"staged removals and renames": three + `git rm -q --cached f1; git mv f2 g; echo new >new; git add new`,
		"a submodule":                 `repo l; ` + three + `git -c protocol.file.allow=always submodule add -q ../l lib; git commit -qm lib`,
		"a new submodule":             `repo l; ` + three + `git -c protocol.file.allow=always submodule add -q ../l lib`,
		"stashes":                     three + `echo s >f1; git stash -q; echo t >t; git add t; git stash -q`,
		"a merge":                     three + `git checkout -q -b side HEAD~2; echo s >f2; git add f2; git commit -qm s; git merge -q main || true`,
		"a bisect":                    three + `git bisect start HEAD HEAD~2 >../said; test -e .git/refs/bisect/bad`,
		"a bisect of a branch":        three + `git checkout -q -b side; git commit -q --allow-empty -m 4; git bisect start --term-new=slow --term-old=fast >../said; git bisect slow >../said; git bisect fast HEAD~3 >../said; git bisect skip >../said`,
		"a bisect without a branch":   three + `git branch -q -m other; git checkout -q --detach; git bisect start HEAD HEAD~2 >../said; git bisect skip >../said || true`,
		"a bisect without a checkout": three + `git bisect start --no-checkout HEAD HEAD~2 >../said`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			want := ""
			look := func() string {
				bisect, _ := g.TryGit("a", "bisect", "log")
				return g.Git("a", "log", "--all", "--format=%s %D") + g.Git("a", "-c", "core.fsmonitor=", "status", "--porcelain=v2", "--branch", "--ignore-submodules", "-uno") + g.Git("a", "stash", "list") + g.Git("a", "ls-files", "-s") +
					g.Git("a", "for-each-ref") + g.Git("a", "rev-parse", "HEAD") + bisect
			}
			g.command(func() { g.Sh(script); want = look() })
			a, err := Adopt(g.State, g.Path("a"))
			require.NoError(t, err)
			for _, line := range a.Told {
				assert.Contains(t, line, `the configuration "submodule.lib.active", "submodule.lib.url"`)
			}
			assert.Equal(t, want, look())
		})
	}
}

// SIGKILL while a repository is adopted leaves it as it was, or adopted.
func TestAdoptionThatIsKilled(t *testing.T) {
	for _, kind := range []string{"", "--bare"} {
		for step := 1; ; step++ {
			g := newGround(t)
			g.command(func() { g.Sh(`repo o; git clone -q ` + kind + ` o a; git -C a branch b`) })
			adopt := exec.Command("/proc/self/exe", "-test.run=^TestAdoptAlone$")
			adopt.Env = append(os.Environ(), fmt.Sprintf("ADOPT=%d %s %s", step, g.State, g.Path("a")))
			killed := adopt.Run() != nil
			g.command(func() { assert.Equal(t, "first", g.Git("a", "log", "-1", "--format=%s")) })
			if _, err := Adopt(g.State, g.Path("a")); err != nil {
				require.ErrorContains(t, err, "no repository that a command has made")
			}
			assert.Equal(t, "first", g.Git("a", "log", "-1", "--format=%s", "b"))
			assert.Empty(t, g.Git("a", "fsck", "--full"))
			left, err := filepath.Glob(g.Path("*/.pk-adopt-*/*"))
			require.NoError(t, err)
			assert.Empty(t, left)
			if !killed {
				break
			}
		}
	}
}

// TestAdoptAlone is the process that is killed.
func TestAdoptAlone(t *testing.T) {
	var step int
	var state, dir string
	if n, _ := fmt.Sscan(os.Getenv("ADOPT"), &step, &state, &dir); n == 0 {
		return
	}
	gitlock.Step = func(string) {
		if step--; step == 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	_, err := Adopt(state, dir)
	require.NoError(t, err)
}

// A repository of a command's does not get its name back at the place of a submodule in a branch of
// an adopted one: git enters it after a checkout.
func TestAdoptNotesSubmodules(t *testing.T) {
	link := `id=$(git rev-parse HEAD); git update-index --add --cacheinfo 160000,$id,%s; git commit -qm link; git branch t; git reset -q --hard HEAD~; `
	for _, row := range []struct{ name, place, later, want string }{
		{"there before", "n", "", "a/n"},
		{"made later", "d/n", "repo d/n", "a/d/n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .`)
			g.command(func() {
				g.Sh(`repo a; cd a; ` + fmt.Sprintf(link, row.place))
				if row.later == "" {
					g.Sh(`cd a; repo n`)
				}
			})
			a, err := Adopt(g.State, g.Path("a"))
			require.NoError(t, err)
			g.command(func() {
				if row.later != "" {
					g.Sh(`cd a; ` + row.later)
				}
			})
			r := g.begin()
			var got []string
			for _, u := range r.Unpopulated {
				rel, _ := filepath.Rel(g.Root, u.Dir)
				got = append(got, rel)
				assert.Equal(t, a.GitDir, u.GitDir)
			}
			assert.Equal(t, []string{row.want}, got)
			assert.NoFileExists(t, g.Path(row.want+"/.git"))
			_, err = r.End()
			require.NoError(t, err)
		})
	}
}

func TestAdoptRefuses(t *testing.T) {
	for _, row := range []struct{ name, script, want string }{
		{"not made by a command", `mkdir a`, "no repository that a command has made"},
		{"a .git file", `git init -q --separate-git-dir=gd a`, "not a directory"},
		{"without a HEAD", `repo a; rm a/.git/HEAD`, "HEAD"},
		{"HEAD leads elsewhere", `repo a; echo ref: refs/heads/../../x >a/.git/HEAD`, "git accepts no ref"},
		{"HEAD is a branch that a prompt runs", `repo a; git -C a checkout -q -b 'x$(x)'`, "run by a prompt"},
		{"HEAD is a branch that may be a commit", `repo a; git -C a checkout -q -b abcdef1`, "taken for another thing"},
		{"HEAD is no branch", `repo a; echo ref: refs/tags/x >a/.git/HEAD`, "no branch"},
		{"HEAD is a link", `repo a; ln -sf /etc/hostname a/.git/HEAD`, "HEAD"},
		{"HEAD is a commit that is not there", `repo a; echo 1111111111111111111111111111111111111111 >a/.git/HEAD`, "does not have"},
		{"a partial clone", `repo a; git -C a config extensions.partialClone origin`, "extensions.partialclone"},
		{"a partial clone of today's git", `repo a; git -C a config remote.origin.promisor true`, "remote.origin.promisor"},
		{"the config is a FIFO", `repo a; rm a/.git/config; mkfifo a/.git/config`, "config"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.command(func() { g.Sh(row.script) })
			_, err := Adopt(g.State, g.Path("a"))
			require.ErrorContains(t, err, row.want)
			assert.NoFileExists(t, g.Path("a/.git"))
			left, err := os.ReadDir(g.Path("a"))
			require.NoError(t, err)
			assert.LessOrEqual(t, len(left), 1)
		})
	}
}

// Without a command before it there is nothing to adopt.
func TestAdoptBeforeAnyCommand(t *testing.T) {
	dir := t.TempDir()
	_, err := Adopt(dir+"/none", dir)
	assert.ErrorContains(t, err, "it is no repository that a command has made")
}
