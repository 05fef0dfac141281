package gitdir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// names lists the names that were changed, below the root.
func (g ground) names(made []Inert) []string {
	var names []string
	for _, n := range made {
		rel, err := filepath.Rel(g.Root, filepath.Join(n.Dir, n.Name))
		require.NoError(g, err)
		names = append(names, rel)
	}
	slices.Sort(names)
	return names
}

// A command makes repositories that run a program on the host. git on the host
// must not run it once the command has ended, and in the next command all works.
func TestInert(t *testing.T) {
	for _, row := range []struct {
		name, before, script string
		want                 []string
		probes               string // directories in which git would run the program
	}{
		{"at the root", ``, `repo .; arm .git; mkdir sub`, []string{".git", ".git/HEAD"}, ". sub"},
		{"below", `repo .`, `repo a/b/c; arm a/b/c/.git; mkdir a/b/c/sub`, []string{"a/b/c/.git", "a/b/c/.git/HEAD"}, "a/b/c a/b/c/sub"},
		{"bare at the root", ``, `git init -q --bare .; git config core.bare false; git config core.worktree .; arm .`, []string{"HEAD"}, "."},
		{"bare at the root, its .git renamed away", ``, `repo .; arm .git; mv .git/* .; rmdir .git; git config --file config core.bare false; git config --file config core.worktree .`, []string{"HEAD"}, "."},
		{"bare below", `repo .`, `git init -q --bare a/m; git config --file a/m/config core.bare false; git config --file a/m/config core.worktree .; arm a/m`, []string{"a/m/HEAD"}, "a/m"},
		{".git is a file", `repo .`, `mkdir x; git init -q --separate-git-dir=x/gd a; arm x/gd`, []string{"a/.git", "x/gd/HEAD"}, "a"},
		{".git is a link", `repo .`, `mkdir a; repo o; arm o/.git; ln -s ../o/.git a/.git`, []string{"a/.git", "o/.git", "o/.git/HEAD"}, "a o"},
		{"commondir without objects beside it", `repo .`, `repo o; arm o/.git; mkdir d; mv o/.git/HEAD d; echo ../o/.git >d/commondir; echo 'gitdir: ../d' >o/x; mkdir a; mv o/x a/.git`,
			[]string{"a/.git", "d/HEAD", "o/.git"}, "a"},
		{"a linked worktree", `repo .`, `repo o; git -C o worktree add -q ../w; arm o/.git`, []string{"o/.git", "o/.git/HEAD", "o/.git/worktrees/w/HEAD", "w/.git"}, "o w"},
		{"a repository within a bare one", ``, `git init -q --bare m; repo m/w; arm m/w/.git`, []string{"m/HEAD", "m/w/.git", "m/w/.git/HEAD"}, "m/w"},
		{"in a .git without HEAD", ``, `mkdir -p .git/x; repo .git/x; arm .git/x/.git`, []string{".git", ".git/x/.git", ".git/x/.git/HEAD"}, ""},
		{"a prepared .git without HEAD", ``, `repo a; arm a/.git; rm a/.git/HEAD`, []string{"a/.git"}, ""},
		{"in a directory that it closed", `repo .`, `repo a/b/c; arm a/b/c/.git; chmod 0 a/b`, []string{"a/b/c/.git", "a/b/c/.git/HEAD"}, "a/b/c"},
		{"all closed", `repo .`, `repo a/b/c; arm a/b/c/.git; chmod 0 a/b/c/.git a/b/c a/b a`, []string{"a/b/c/.git", "a/b/c/.git/HEAD"}, "a/b/c"},
		{"read-only", `repo .`, `repo a/b; arm a/b/.git; chmod 0555 a/b/.git a/b a`, []string{"a/b/.git", "a/b/.git/HEAD"}, "a/b"},
		{"a directory that cannot be listed", `repo .`, `repo a/b; arm a/b/.git; chmod 0311 a`, []string{"a/b/.git", "a/b/.git/HEAD"}, "a/b"},
		{"names with newlines", ``, "repo 'a\nb/c'; arm 'a\nb/c/.git'", []string{"a\nb/c/.git", "a\nb/c/.git/HEAD"}, ""},
		{"forty levels deep", ``, `d=$(printf 'd/%.0s' $(seq 40)); repo $d; arm $d/.git`, []string{strings.Repeat("d/", 40) + ".git", strings.Repeat("d/", 40) + ".git/HEAD"}, strings.Repeat("d/", 40)},
		{"HEAD is a FIFO", ``, `repo a; rm a/.git/HEAD; mkfifo a/.git/HEAD`, []string{"a/.git", "a/.git/HEAD"}, ""},
		{"HEAD is a directory", ``, `repo a; rm a/.git/HEAD; mkdir a/.git/HEAD`, []string{"a/.git", "a/.git/HEAD"}, ""},
		{"HEAD is a hard link", ``, `repo a; arm a/.git; ln a/.git/HEAD h`, []string{"a/.git", "a/.git/HEAD"}, "a"},
		{"HEAD.fenced exists", ``, `repo a; arm a/.git; echo mine >a/.git/HEAD.fenced; mkdir a/.git.fenced`, []string{"a/.git", "a/.git/HEAD"}, "a"},
		{"a known repository moved by its parent", `repo a/b`, `mv a z; repo a/b; arm a/b/.git`, []string{"a/b/.git", "a/b/.git/HEAD"}, "a/b"},
		{"a known repository replaced", `repo a/b`, `mv a/b/.git a/gone; repo a/b; arm a/b/.git`, []string{"a/b/.git", "a/b/.git/HEAD", "a/gone/HEAD"}, "a/b"},
		{"a directory of the user's completed", `repo a; mv a/.git/HEAD h`, `arm a/.git; mv h a/.git/HEAD`, []string{"a/.git", "a/.git/HEAD"}, "a"},
		{"a .git file of the user's written by another name", `repo .; git worktree add -q w; ln w/.git other`, `repo o; arm o/.git; echo "gitdir: $PWD/o/.git" >other`, []string{"o/.git", "o/.git/HEAD", "w/.git"}, "w o"},
		{"a .git file that leads outside", `repo ../o`, `mkdir a; echo "gitdir: $PWD/../o/.git" >a/.git`, []string{"a/.git"}, ""},
		{"a repository that the user has emptied", `repo a`, `repo o; mv o/.git/* a/.git; rmdir o/.git; arm a/.git`, []string{"a/.git", "a/.git/HEAD"}, "a"},
		{"below a .GIT", `repo .`, `repo .GIT/x; arm .GIT/x/.git; repo .Git; git init -q --bare .giT`, []string{".GIT/x/.git", ".GIT/x/.git/HEAD", ".Git/.git", ".Git/.git/HEAD", ".giT/HEAD"}, ".GIT/x"},
		{"a commondir of the user's that leads nowhere", `repo .; repo a; mkdir b; cp a/.git/HEAD b; rm -rf a/.git/*; mv b/HEAD a/.git; echo ../../gone >a/.git/commondir`, `repo o; mv o/.git gone; rm gone/HEAD; arm gone`, []string{"a/.git", "a/.git/HEAD"}, "a"},
		{"a .git file of the user's that leads nowhere", `repo .; mkdir a s; echo 'gitdir: ../s' >a/.git; cp .git/HEAD s; echo ../gone >s/commondir`, `repo o; mv o/.git gone; rm gone/HEAD; arm gone`, []string{"a/.git", "s/HEAD"}, "a"},
		{"the work tree of the user's that is gone", `repo .; git worktree add -q w; mv w/.git t; rm -rf w`, `mkdir w; cp t w/.git`, []string{"w/.git"}, ""},
		{"a work tree in another place", `repo .; git worktree add -q w`, `mkdir v; cp w/.git v`, []string{"v/.git"}, ""},
		{"a work tree of the user's through a link", `repo .; git worktree add -q w; rm w/.git`, `ln -s .git l; echo "gitdir: $PWD/l/worktrees/w" >w/.git; mkdir d; ln -s ../w d/l; rm w/.git; echo "gitdir: ../d/l/../.git/worktrees/w" >w/.git`, []string{"w/.git"}, ""},
		{".git is a FIFO", ``, `mkdir a; mkfifo a/.git`, nil, ""},
		{"an older one in the place of a directory", `repo ../o; arm ../o/.git; mkdir -p a/b; sleep 0.05`, `mv -T ../o a/b`, []string{"a/b/.git", "a/b/.git/HEAD"}, "a/b"},
		{"an older one below the place of a directory", `repo ../o/c/d; arm ../o/c/d/.git; mkdir -p a/b; sleep 0.05`, `mv -T ../o a/b`, []string{"a/b/c/d/.git", "a/b/c/d/.git/HEAD"}, "a/b/c/d"},
		{"an older bare one below the place of a directory", `git init -q --bare ../o/m; git config --file ../o/m/config core.bare false; git config --file ../o/m/config core.worktree .; arm ../o/m; mkdir -p a/b; sleep 0.05`,
			`mv -T ../o a/b`, []string{"a/b/m/HEAD"}, "a/b/m"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(row.before)
			g.command(func() {})
			if strings.Contains(row.name, "emptied") {
				g.Sh(`find a/.git -mindepth 1 -delete`)
			}
			probes := strings.Fields(row.probes)
			made := g.command(func() {
				g.Sh(row.script)
			})
			assert.Equal(t, row.want, g.names(made))
			_ = os.Chmod(g.Path("a"), 0o755)
			_ = os.Chmod(g.Path("a/b"), 0o755)
			for _, probe := range probes {
				assert.False(t, g.Runs(probe, "status"), "on the host in %q", probe)
				assert.False(t, g.Runs("..", "-C", g.Path(probe), "status"), "git -C %q", probe)
			}
			again := g.command(func() {
				for _, probe := range probes {
					_ = os.Chmod(g.Path(probe), 0o755)
					_ = os.Chmod(g.Path(probe+"/.git"), 0o755)
					assert.True(t, g.Runs(probe, "status"), "in the next command in %q", probe)
				}
			})
			assert.Equal(t, row.want, g.names(again))
			for _, probe := range probes {
				assert.False(t, g.Runs(probe, "status"), "on the host in %q, after the next command", probe)
			}
		})
	}
}

// Only a repository can be adopted.
func TestLine(t *testing.T) {
	for script, want := range map[string]string{
		`repo a`:                          "the repository %q works in the sandbox alone",
		`git init -q a; mkfifo a/.git/x`:  "the repository %q works in the sandbox alone",
		`mkdir a; echo gitdir: x >a/.git`: "the repository %q works in the sandbox alone",
		`mkdir a; ln -s x a/.git`:         "the repository %q works in the sandbox alone",
		`mkdir a; touch a/.git`:           "%q leads to no repository",
		`mkdir a; echo hello >a/.git`:     "%q leads to no repository",
		`mkdir a; seq 5000 >a/.git`:       "%q leads to no repository",
		`mkdir -p a/.git/x`:               "%q leads to no repository",
	} {
		t.Run(script, func(t *testing.T) {
			g := newGround(t)
			made := g.command(func() { g.Sh(script) })
			require.NotEmpty(t, made)
			name := "a"
			if strings.HasPrefix(want, "%q") {
				name = "a/.git"
			}
			assert.Contains(t, made[0].Line(""), fmt.Sprintf(want, g.Path(name)))
		})
	}
	assert.Contains(t, Inert{Dir: "/a", Name: ".git", kept: "="}.Line(""), "leads to no repository")
	assert.Contains(t, Inert{Dir: "/a", Name: ".git", kept: "=gitdir: x"}.Line(""), "git-adopt")
}

// A directory that folds case lists .git as it was first written.
func TestAnotherSpelling(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; mkdir -p .GIT/x other`)
	l := newList(g.Root, "")
	require.NoError(t, l.Quick())
	assert.Len(t, l.dirs, 4)
	fd, err := unix.Open(g.Root, unix.O_PATH, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(g.Path(".GIT"), &st))
	l.fd, l.dirs = fd, nil
	w := &walker{List: l, depth: -1, gits: map[[2]uint64]bool{{st.Dev, st.Ino}: true}}
	require.NoError(t, w.read(&around{fd: fd}, ".GIT", -1, 1))
	assert.Empty(t, l.dirs, "with the host's git directory")
	l.fd = -1
}

// On a full disk a full directory takes no longer name.
func TestFullDisk(t *testing.T) {
	defer func() { renameFresh = fsat.RenameFresh }()
	for _, row := range []struct{ name, script, probe string }{
		{"below", `repo a; arm a/.git`, "a"},
		{"bare", `git init -q --bare a; git config --file a/config core.bare false; git config --file a/config core.worktree .; arm a`, "a"},
		{".git is a file", `git init -q --separate-git-dir=gd a; arm gd`, "a"},
		{".git is a link", `mkdir a; repo o; arm o/.git; ln -s ../o/.git a/.git`, "a"},
		{"HEAD is a link", `repo a; rm a/.git/HEAD; ln -s refs/heads/main a/.git/HEAD; arm a/.git`, "a"},
		{"commondir", `repo .o; arm .o/.git; mkdir d a; mv .o/.git/HEAD d; echo ../.o/.git >d/commondir; echo 'gitdir: ../d' >a/.git`, "a"},
		{"HEAD is long", `repo a; dd if=/dev/zero bs=9000 count=1 2>/dev/null | tr '\000' ' ' >>a/.git/HEAD; arm a/.git`, ""},
	} {
		g := newGround(t)
		g.Sh(`repo .`)
		renameFresh = func(int, string, int, string) error { return unix.ENOSPC }
		made := g.command(func() {
			g.Sh(row.script)
			assert.True(t, row.probe == "" || g.Runs(row.probe, "status"), row.name)
		})
		assert.NotEmpty(t, made, row.name)
		assert.False(t, g.Runs("a", "status"), row.name)
		renameFresh = fsat.RenameFresh
		if row.name == "below" {
			require.NoError(t, Release(g.State, g.Path("a"), func(made, head Inert, ready func(string) error) (string, error) {
				assert.DirExists(t, filepath.Join(made.Dir, made.Fenced))
				text, removed := head.Removed()
				assert.True(t, removed)
				assert.Equal(t, "ref: refs/heads/main\n", text)
				return g.Path("a/.git"), nil
			}))
			continue
		}
		g.command(func() {
			assert.True(t, row.probe == "" || g.Runs(row.probe, "status"), "%s, in the next command", row.name)
		})
		assert.False(t, g.Runs("a", "status"), row.name)
	}
}

// No path leads to a repository that is too deep, but descriptors do.
func TestTooDeep(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; mkdir -p a/b c; mkdir f`)
	g.command(func() {})
	names := slices.Repeat([]string{strings.Repeat("d", 200)}, 25)
	names[0] = "deep"
	var below int
	descend := func() {
		dir, err := unix.Open(g.Root, unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		for _, name := range names {
			_ = unix.Mkdirat(dir, name, 0o755)
			next, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
			require.NoError(t, err)
			unix.Close(dir)
			dir = next
		}
		below = dir
	}
	made := g.command(func() {
		g.Sh(`repo s; arm s/.git; repo u/v; arm u/v/.git; git init -q --bare w/m`)
		descend()
		for _, name := range []string{"s", "u", "w"} {
			require.NoError(t, unix.Renameat(unix.AT_FDCWD, g.Path(name), below, name))
		}
	})
	assert.Len(t, made, 5, "two of each .git, and the bare one")
	assert.ErrorIs(t, unix.Faccessat(below, "s/.git/HEAD", unix.F_OK, 0), unix.ENOENT)
	assert.ErrorIs(t, unix.Faccessat(below, "w/m/HEAD", unix.F_OK, 0), unix.ENOENT)
	assert.Len(t, g.command(func() { assert.NoError(t, unix.Faccessat(below, "s/.git/HEAD", unix.F_OK, 0)) }), 5)
	made = g.command(func() {
		for name, to := range map[string]string{"s": "a/b", "u": "c", "w": "f"} {
			require.NoError(t, unix.Renameat(below, name, unix.AT_FDCWD, g.Path(to)))
		}
	})
	assert.Equal(t, []string{"a/b/.git", "a/b/.git/HEAD", "c/v/.git", "c/v/.git/HEAD", "f/m/HEAD"}, g.names(made))
	assert.False(t, g.Runs("a/b", "status"))
	assert.False(t, g.Runs("c/v", "status"))

	// A repository of the user's that is too deep for git is none, and stays.
	g.Sh(`rm -rf a c f; repo s`)
	require.NoError(t, unix.Renameat(unix.AT_FDCWD, g.Path("s"), below, "s"))
	assert.Empty(t, g.command(func() {}))
	unix.Close(below)

	g.Settle()
	r := g.begin()
	names = slices.Repeat([]string{strings.Repeat("d", 250)}, maxPath/250+2)
	names[0] = "e"
	descend()
	unix.Close(below)
	told, err := r.End()
	require.NoError(t, err)
	require.Len(t, told, 1)
	assert.Equal(t, fmt.Sprintf(`"%s" has directories that are too deep for git, and pk looks for no repository there: remove them`, g.Path("e")), told[0].Line(""))
	assert.Empty(t, g.command(func() {}), "told once")
	g.Sh(`rm -rf e`)
	assert.Empty(t, g.command(func() {}))
}

// A second command begins when the first one has put a directory in the place of another one.
func TestPutThereMeanwhile(t *testing.T) {
	for name, dirs := range map[string]int{"few directories": 0, "many directories": alwaysAll} {
		g := newGround(t)
		g.Sh(fmt.Sprintf(`repo ../o/x/y/z/w; arm ../o/x/y/z/w/.git; mkdir a; mkdir d; cd d; mkdir $(seq %d) a`, dirs))
		g.command(func() {})
		g.Settle()
		first := g.begin()
		g.Sh(`mv -T ../o a`)
		g.Settle()
		second := g.begin()
		_, err := second.End()
		require.NoError(t, err)
		made, err := first.End()
		require.NoError(t, err)
		assert.Equal(t, []string{"a/x/y/z/w/.git", "a/x/y/z/w/.git/HEAD"}, g.names(made), name)
	}
}

// The user makes directories anew between two commands, as git checkout does. The second one works in them.
func TestMadeAnew(t *testing.T) {
	for _, script := range []string{`repo a/b/c/d/e`, `repo a/b/c/d`, `git init -q --bare a/b/c/d/m`} {
		g := newGround(t)
		g.Sh(`mkdir -p a/b/c/d/e n; cd n; mkdir $(seq ` + fmt.Sprint(alwaysAll) + `)`)
		g.command(func() {})
		g.Sh(`mv a old; ` + script + `; mkdir -p a/b/c/d; rm -rf old`)
		assert.Empty(t, g.command(func() { g.Sh(`date >a/f; date >a/b/c/d/f`) }), script)
	}
}

// The next command finds its repository complete.
func TestRestored(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo ../o; repo .`)
	g.command(func() {
		g.Sh(`git clone -q ../o a; git -C a -c protocol.file.allow=always submodule -q add "$PWD/../o" s; git -C a commit -qm s; echo kept >a/.git/HEAD.fenced`)
	})
	assert.NotContains(t, g.Git(".", "status", "--porcelain", "-uall"), "a/.git.fenced/")
	_, err := g.TryGit("a", "rev-parse", "--verify", "-q", "HEAD:s")
	assert.Error(t, err, "git takes the repository around it")
	g.command(func() {
		assert.Equal(t, "a", filepath.Base(g.Git("a", "rev-parse", "--show-toplevel")))
		assert.Empty(t, g.Git("a", "status", "--porcelain", "--ignore-submodules=none"))
		g.Git("a", "fsck", "--full")
		g.Git("a/s", "log")
		text, err := os.ReadFile(g.Path("a/.git/HEAD.fenced"))
		require.NoError(t, err)
		assert.Equal(t, "kept\n", string(text))
	})
}

// Of very many repositories, a part does not come back; all are inert.
func TestVeryManyRepositories(t *testing.T) {
	defer func(n int) { maxRecords = n }(maxRecords)
	maxRecords = 4
	g := newGround(t)
	made := g.command(func() { g.Sh(`for n in a b c d e; do repo $n; done`) })
	last := 0
	for _, n := range made {
		if strings.Contains(n.Line(""), "worked for this command alone: later ones have 4 names back at most") {
			last++
		}
	}
	assert.Equal(t, 10-maxRecords, last)
	assert.Len(t, recordsOf(g), maxRecords)
	g.command(func() { g.Sh(`test $(ls -d */.git | wc -l) = 2`) })
	g.Sh(`test $(ls -d */.git.fenced | wc -l) = 5`)
}

// Files of the work tree at which git would wait or crash are out of its way; those of the user's stay.
func TestFilesThatGitCannotRead(t *testing.T) {
	for script, want := range map[string][]string{
		`rm .gitignore; mkfifo .gitignore .gitattributes .mailmap .gitmodules`:   {".gitattributes", ".gitignore", ".gitmodules", ".mailmap"},
		`mkfifo .git-blame-ignore-revs a/.git-blame-ignore-revs`:                 {".git-blame-ignore-revs", "a/.git-blame-ignore-revs"},
		`head -c 1100000 /dev/zero | tr "\\0" "\n" >.mailmap`:                    {".mailmap"},
		`head -c 1000000 /dev/zero | tr "\\0" "\n" >.mailmap`:                    nil,
		`mkfifo a/b/c/.gitignore`:                                                {"a/b/c/.gitignore"},
		`mkdir d; mkfifo d/.gitignore; mv d a/b`:                                 {"a/b/d/.gitignore"},
		`mkfifo a/p; ln a/p a/.gitignore`:                                        {"a/.gitignore"},
		`rm a/.gitattributes; mkfifo a/.gitattributes; chmod 0 a/.gitattributes`: {"a/.gitattributes"},
		`mkfifo p; ln -s p .gitmodules`:                                          {".gitmodules"},
		`rm .gitignore; mkfifo p; ln -s p .gitignore; ln -s p a/.mailmap`:        nil, // git follows none
		`mkfifo a/.git-blame; echo x >.gitignore; echo x >.gitmodules`:           nil,
		`truncate -s 2T a/b/.gitignore .mailmap`:                                 {".mailmap", "a/b/.gitignore"},
		`truncate -s 2T .gitignore`:                                              {".gitignore"},
		`truncate -s 2T a/.gitattributes`:                                        {"a/.gitattributes"},
		`truncate -s 2T a/b/e/.gitignore; touch a/b/e/x`:                         {"a/b/e/.gitignore"},
		`yes "[attr]a b" | head -n 1001 >.gitattributes`:                         {".gitattributes"},
		`yes "[attr]a b" | head -n 1000 >.gitattributes`:                         nil,
		`seq 2000 | tr "\n" " " >a/.gitattributes`:                               nil,
		`truncate -s 2T .x`:                                                      nil,
		`mv users/.gitignore users/x`:                                            nil,
		`touch users/x`:                                                          nil,
	} {
		t.Run(script, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; mkdir -p a/b/c a/b/e users; echo x | tee a/.gitattributes .gitignore >a/b/e/.gitignore; mkfifo users/.gitignore`)
			g.command(func() {})
			made := g.command(func() { g.Sh(script) })
			var names []string
			for _, n := range made {
				names = append(names, strings.TrimPrefix(n.Repository(), g.Root+"/"))
				assert.NoFileExists(t, n.Repository())
				_, err := os.Lstat(g.Path(names[len(names)-1] + FencedSuffix))
				assert.NoError(t, err)
				assert.Contains(t, n.Line(""), "git on the host would wait for it")
			}
			slices.Sort(names)
			assert.Equal(t, want, names)
			if !strings.Contains(script, "users") {
				g.Sh(`rm users/.gitignore`)
				g.Git(".", "status")
				g.Git(".", "log", "--use-mailmap")
			}
			assert.Empty(t, g.command(func() { g.Sh(`touch a/x`) }))
			assert.Empty(t, recordsOf(g), "nothing is given back")
		})
	}
}

func recordsOf(g ground) []Inert {
	g.Helper()
	records, err := recordsIn(g.State)
	require.NoError(g, err)
	return records
}

// The user's own work between two commands stays as it is.
func TestTheUsersOwn(t *testing.T) {
	g := newGround(t)
	g.Sh(`mkdir -p d; cd d; mkdir $(seq ` + fmt.Sprint(alwaysAll) + `)`)
	g.command(func() {})
	for name, script := range map[string]string{
		"at the top": `repo a`, "two levels down": `repo b/c`, "deep": `repo d/1/2/3/4`, "bare": `git init -q --bare d/2/m.git`, "a worktree": `repo d/3; git -C d/3 worktree add -q ../5/w`,
	} {
		g.Sh(script)
		assert.Empty(t, g.command(func() { g.Sh(`date >f`) }), name)
		assert.Empty(t, g.command(func() { g.Sh(`date >f`) }), name)
	}
	r := g.begin()
	assert.Equal(t, []string{"a", "b/c", "d/1/2/3/4", "d/2/m.git", "d/3", "d/5/w"}, g.repos(r))
	_, err := r.End()
	require.NoError(t, err)
	assert.Empty(t, g.command(func() { g.Git("d/3", "commit", "-q", "--allow-empty", "-m", "second") }), "a known one changes")
	g.Sh(`repo d/9/9/9`)
	made := g.command(func() { g.Sh(`git -C d/9/9/9 config core.fsmonitor false`) })
	assert.Len(t, made, 2, "one that was not covered, and that the command changed")
	g.Sh(`rm -rf a/.git; repo a; repo d/7`)
	assert.Equal(t, g.names(made), g.names(g.command(func() {})), "nothing else")
	r = g.begin()
	assert.Contains(t, g.repos(r), "a")
	_, err = r.End()
	require.NoError(t, err)
}

// The user makes a repository where an inert one is: both stay.
func TestTheUserTakesThePlace(t *testing.T) {
	g := newGround(t)
	g.command(func() { g.Sh(`repo a; arm a/.git`) })
	g.Sh(`repo a`)
	assert.False(t, g.Runs("a", "status"))
	g.Settle()
	r := g.begin()
	assert.ErrorContains(t, r.Warning, "a")
	assert.Equal(t, []string{"a"}, g.repos(r))
	made, err := r.End()
	require.NoError(t, err)
	assert.Empty(t, made)
	g.Sh(`rm -rf a/.git`)
	g.command(func() { assert.True(t, g.Runs("a", "status")) })
}

// A command closes a directory with a repository of the host's: the next one must not
// treat it as gone.
func TestClosedRepositories(t *testing.T) {
	if os.Geteuid() == 0 {
		return
	}
	for _, dir := range []string{"a", "a/b", "a/b/c/d", "a/b/c/d/.git"} {
		g := newGround(t)
		g.Sh(`repo a/b/c/d`)
		g.command(func() { g.Sh(`chmod 0 ` + dir) })
		r, err := g.tryBegin(g.Root)
		if err == nil {
			_, _, err = Find(g.Root, r.List)
		}
		assert.ErrorIs(t, err, unix.EACCES, dir)
		g.Sh(`chmod 755 ` + dir)
		r = g.begin()
		assert.Equal(t, []string{"a/b/c/d"}, g.repos(r))
	}
}

func TestClosedFromTheStart(t *testing.T) {
	g := newGround(t)
	g.Sh(`mkdir -p a/b; chmod 0 a`)
	g.command(func() {})
	made := g.command(func() { g.Sh(`chmod 700 a; repo a/b; chmod 0 a`) })
	assert.Equal(t, []string{"a/b/.git", "a/b/.git/HEAD"}, g.names(made))
	info, err := os.Stat(g.Path("a"))
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm(), "as the command left it")
}

func TestTwoCommands(t *testing.T) {
	g := newGround(t)
	require.NoError(t, os.MkdirAll(g.Path("sub"), 0o755))
	g.Settle()
	first := g.begin()
	second, err := g.tryBegin(g.Path("sub"))
	require.NoError(t, err)
	g.Sh(`repo a; repo sub/b; arm sub/b/.git`)
	third := g.begin()
	assert.Empty(t, g.repos(third), "what another one has made meanwhile is not the host's")
	made, err := third.End()
	require.NoError(t, err)
	assert.Empty(t, made)
	made, err = first.End()
	require.NoError(t, err)
	assert.Empty(t, made)
	assert.True(t, g.Runs("sub/b", "status"), "the second one needs it")
	made, err = second.End()
	require.NoError(t, err)
	assert.Equal(t, []string{"a/.git", "a/.git/HEAD", "sub/b/.git", "sub/b/.git/HEAD"}, g.names(made))
	assert.False(t, g.Runs("sub/b", "status"))
	notes, err := notesIn(g.State)
	require.NoError(t, err)
	assert.Empty(t, notes)
}

// Something looks at the root while the repositories of a command are there. They stay the
// command's, although their directories do not change any more.
func TestSeenMeanwhile(t *testing.T) {
	for name, meanwhile := range map[string]func(g ground){
		"by a description": func(g ground) {
			_, err := Look(g.State, g.Root, nil)
			require.NoError(g, err)
		},
		"by another command": func(g ground) {
			_, err := g.begin().End()
			require.NoError(g, err)
		},
		"by a command in a part of it": func(g ground) {
			r, err := g.tryBegin(g.Path("sub"))
			require.NoError(g, err)
			assert.Empty(g, g.repos(r), "not the host's")
			_, err = r.End()
			require.NoError(g, err)
		},
		"by the host's git": func(g ground) {
			_, err := Look(g.State, g.Root, nil)
			require.NoError(g, err)
			g.Sh(`mkdir sub/b/x; git init -q --bare sub/m.git/x; touch sub/m.git`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`mkdir sub`)
			g.Settle()
			r := g.begin()
			g.Sh(`repo sub/b; git init -q --bare sub/m.git`)
			g.Settle()
			meanwhile(g)
			g.Sh(`arm sub/b/.git`)
			made, err := r.End()
			require.NoError(t, err)
			assert.Subset(t, g.names(made), []string{"sub/b/.git", "sub/b/.git/HEAD", "sub/m.git/HEAD"})
			assert.False(t, g.Runs("sub/b", "status"))
		})
	}
}

// A repository of the host's counts as the host's for all who look at it while a command
// that has it under a layer runs, and pk lands there.
func TestChangedMeanwhile(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo sub; repo sub/deep/a; git init -q --bare sub/m.git`)
	g.Settle()
	r := g.begin()
	g.Sh(`for d in sub sub/deep/a; do git -C $d commit -q --allow-empty -m second; done; git -C sub/m.git branch x 2>/dev/null || touch sub/m.git/refs/heads/x`)
	g.Settle()
	for _, root := range []string{"sub", "sub/deep", ""} {
		beside, err := g.tryBegin(g.Path(root))
		require.NoError(t, err)
		repos, _, err := Find(g.Path(root), beside.List)
		require.NoError(t, err)
		assert.Len(t, repos, map[string]int{"sub": 3, "sub/deep": 1, "": 3}[root], root)
		made, err := beside.End()
		require.NoError(t, err)
		assert.Empty(t, made)
	}
	made, err := r.End()
	require.NoError(t, err)
	assert.Empty(t, made)
}

// A command has no layer over a repository that it did not know. It changes that after
// something else has seen it.
func TestNotCovered(t *testing.T) {
	g := newGround(t)
	g.Sh(`mkdir -p d; cd d; mkdir $(seq ` + fmt.Sprint(alwaysAll) + `)`)
	g.command(func() {})
	g.Sh(`repo d/1/2/3; git init -q --bare d/1/2/m.git`)
	g.Settle()
	kept := g.begin()
	_, err := kept.Keep()
	require.NoError(t, err)
	assert.Empty(t, g.command(func() {}))
	g.Sh(`arm d/1/2/3/.git; touch d/1/2/m.git/x`)
	made, err := kept.End()
	require.NoError(t, err)
	assert.Equal(t, []string{"d/1/2/3/.git", "d/1/2/3/.git/HEAD", "d/1/2/m.git/HEAD"}, g.names(made))

	g.Sh(`repo a`)
	l, err := Look(g.State, g.Root, nil)
	require.NoError(t, err)
	g.Sh(`repo b`)
	other, err := Look(g.State, g.Root, nil)
	require.NoError(t, err)
	_, _, err = Find(g.Root, l)
	require.NoError(t, err)
	g.Settle()
	r, err := Begin(g.State, l)
	require.NoError(t, err)
	assert.NotSame(t, other, r.List)
	g.Sh(`arm a/.git; arm b/.git`)
	made, err = r.End()
	require.NoError(t, err)
	assert.NotContains(t, g.names(made), "a/.git")
	assert.Contains(t, g.names(made), "b/.git", "made between the look and the start")
}

// A submodule whose .git is a directory is known by the index alone.
func TestCoveredByTheIndex(t *testing.T) {
	g := newGround(t)
	g.Sh(`mkdir -p d; cd d; mkdir $(seq ` + fmt.Sprint(alwaysAll) + `)`)
	g.command(func() {})
	g.Sh(`repo .; repo d/1/2/3/s; git add d/1/2/3/s 2>/dev/null; mkdir -p d/2/3; git init -q --separate-git-dir=d/2/3/store d/1/2/3/t; git -C d/1/2/3/t commit -q --allow-empty -m x; git add d/1/2/3/t 2>/dev/null`)
	g.Settle()
	r := g.begin()
	g.Sh(`git -C d/1/2/3/s commit -q --allow-empty -m landed; git -C d/1/2/3/t commit -q --allow-empty -m landed`)
	beside := g.begin()
	repos, _, err := Find(g.Root, beside.List)
	require.NoError(t, err)
	for _, repo := range repos {
		assert.NotEmpty(t, repo.GitDir, repo.WorkTree)
	}
	for _, run := range []*Run{r, beside} {
		made, err := run.End()
		require.NoError(t, err)
		assert.Empty(t, made)
	}
}

// A list is needed as long as a command runs that was planned by it.
func TestListsOfRunningCommandsStay(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo a`)
	r := g.begin()
	all := func(string) bool { return true }
	require.NoError(t, SweepLists(g.State, all))
	assert.FileExists(t, listFile(g.State, g.Root))
	_, err := r.End()
	require.NoError(t, err)
	require.NoError(t, SweepLists(g.State, all))
	assert.NoFileExists(t, listFile(g.State, g.Root))
}

// A command has left processes, which make a repository after all other commands have ended.
// The note of one of these was older and due.
func TestKeptBesideOthers(t *testing.T) {
	g := newGround(t)
	ended, other := g.begin(), g.begin()
	_, err := ended.End()
	require.NoError(t, err)
	kept := g.begin()
	_, err = kept.Keep()
	require.NoError(t, err)
	_, err = other.End()
	require.NoError(t, err)
	g.Settle()
	g.Sh(`repo a; arm a/.git`)
	made, err := kept.End()
	require.NoError(t, err)
	assert.Equal(t, []string{"a/.git", "a/.git/HEAD"}, g.names(made))
	assert.False(t, g.Runs("a", "status"))
	notes, err := notesIn(g.State)
	require.NoError(t, err)
	assert.Empty(t, notes)
}

// A command begins between another one's look at the tree and its search.
func TestLookBeforeACommand(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; repo a/b/c; git add a 2>/dev/null; rm -rf a; repo k`)
	require.NoError(t, os.Mkdir(g.State, 0o700))
	l, err := Look(g.State, g.Root, nil)
	require.NoError(t, err)
	g.Settle()
	g.begin()
	g.Sh(`repo a/b/c`)
	repos, _, err := Find(g.Root, l)
	require.NoError(t, err)
	require.Len(t, repos, 2)
	assert.Equal(t, g.Path("k"), repos[1].WorkTree)
}

// Before it walks, Look tells the repositories that the last command knew.
func TestLookByTheList(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; repo a/gone`)
	r := g.begin()
	g.repos(r)
	_, err := r.End()
	require.NoError(t, err)
	g.Sh(`rm -rf a/gone; repo a/new; repo b/c/d/link; git add b 2>/dev/null; rm -rf b`)
	var known []string
	l, err := Look(g.State, g.Root, func(repos []Repo, unpopulated []Unpopulated) {
		require.Nil(t, known)
		for _, r := range repos {
			known = append(known, r.WorkTree)
		}
		assert.Empty(t, unpopulated)
	})
	require.NoError(t, err)
	assert.Equal(t, []string{g.Root}, known)
	repos, unpopulated, err := Find(g.Root, l)
	require.NoError(t, err)
	require.Len(t, repos, 2)
	assert.Equal(t, g.Path("a/new"), repos[1].WorkTree)
	require.Len(t, unpopulated, 1)
	assert.Equal(t, g.Path("b/c/d/link"), unpopulated[0].Dir)
}

// A list in memory is of use as long as no other process has written its file.
func TestListsInMemory(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo a`)
	r := g.begin()
	file := listFile(g.State, g.Root)
	same, err := openList(g.Root, file, r.List)
	require.NoError(t, err)
	assert.Same(t, r.List, same)
	other, err := openList(g.Root, file, nil)
	require.NoError(t, err)
	other.dirty = true
	require.NoError(t, other.save())
	again, err := openList(g.Root, file, r.List)
	require.NoError(t, err)
	assert.NotSame(t, r.List, again)
	assert.Equal(t, other.version, again.version)
	_, err = r.End()
	require.NoError(t, err)
}

func TestLookWithoutAState(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo a/b/c/d`)
	for _, state := range []string{g.State, "/proc/nonexistent"} {
		l, err := Look(state, g.Root, nil)
		require.NoError(t, err)
		repos, _, err := Find(g.Root, l)
		require.NoError(t, err)
		assert.Len(t, repos, 1)
		assert.NoDirExists(t, state)
	}
}

// Commands in another root do not delay a sweep.
func TestRootsThatDoNotOverlap(t *testing.T) {
	g := newGround(t)
	other := g
	other.Root = filepath.Dir(g.Root) + "/root2"
	require.NoError(t, os.Mkdir(other.Root, 0o755))
	r := other.begin()
	assert.Len(t, g.command(func() { g.Sh(`repo a`) }), 2)
	_, err := r.End()
	require.NoError(t, err)
}

// The user moves or removes the root while a command runs.
func TestRootThatIsGone(t *testing.T) {
	for _, row := range []struct{ name, script, err string }{
		{"moved", `mv ../root ../elsewhere`, "was moved to"},
		{"moved, and another one made", `mv ../root ../elsewhere; mkdir ../root`, "was moved to"},
		{"moved and back", `mv ../root ../elsewhere; mv ../elsewhere ../root`, ""},
		{"removed", `rm -rf ../root`, ""},
		{"removed and made again", `rm -rf ../root; mkdir ../root`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Settle()
			r := g.begin()
			g.Sh(`repo a; ` + row.script)
			_, err := r.End()
			if row.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.err)
			assert.ErrorContains(t, err, "/elsewhere")
		})
	}
}

// A monitor that is killed leaves its note unlocked.
func TestKilled(t *testing.T) {
	for name, recover := range map[string]func(g ground) []Inert{
		"Recover": func(g ground) []Inert {
			made, err := Recover(g.State)
			require.NoError(g, err)
			return made
		},
		"the next Begin": func(g ground) []Inert { // which restores it
			r := g.begin()
			assert.Empty(g, g.repos(r))
			made, err := r.End()
			require.NoError(g, err)
			return made
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.Settle()
			r := g.begin()
			g.Sh(`repo a; arm a/.git`)
			require.NoError(t, r.note.Close())
			assert.Equal(t, []string{"a/.git", "a/.git/HEAD"}, g.names(recover(g)))
			assert.False(t, g.Runs("a", "status"))
			made, err := Recover(g.State)
			require.NoError(t, err)
			assert.Empty(t, made)
		})
	}
}

// The monitor of a command was killed, and its sandbox is about to end. A command beside
// it that ends first waits for that: otherwise the work would remain undone.
func TestADyingCommandIsAwaited(t *testing.T) {
	g := newGround(t)
	g.Settle()
	killed, beside := g.begin(), g.begin()
	g.Sh(`repo a; arm a/.git`)
	require.NoError(t, killed.own.Close())
	type ended struct {
		made []Inert
		err  error
	}
	done := make(chan ended)
	go func() {
		made, err := beside.End()
		done <- ended{made, err}
	}()
	select {
	case <-done:
		t.Fatal("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, killed.note.Close())
	e := <-done
	require.NoError(t, e.err)
	assert.Equal(t, []string{"a/.git", "a/.git/HEAD"}, g.names(e.made))
	assert.False(t, g.Runs("a", "status"))
}

// The process dies between two steps of a sweep, at any of them: the next sweep completes
// it, and the command after it has its repositories back.
func TestKilledWhileItSweeps(t *testing.T) {
	for steps := range 5 {
		g := newGround(t)
		g.Settle()
		r := g.begin()
		g.Sh(`repo a; arm a/.git; git init -q --bare m.git`)
		l, err := openList(g.Root, listFile(g.State, g.Root), nil)
		require.NoError(t, err)
		notes, err := notesIn(g.State)
		require.NoError(t, err)
		l.claim(notes)
		made, err := l.refresh()
		require.NoError(t, err)
		left, died := steps, errors.New("killed")
		func() {
			defer func() {
				if e := recover(); e != nil && e != died {
					panic(e)
				}
			}()
			_, _, err = l.fence(made, nil, func(all []Inert) error {
				if left--; left < 0 {
					panic(died)
				}
				return saveRecords(g.State, all)
			})
		}()
		l.shut()
		require.NoError(t, r.note.Close())
		_, rerr := Recover(g.State)
		require.NoError(t, rerr)
		assert.False(t, g.Runs("a", "status"), "%d steps, %v", steps, err)
		assert.NoFileExists(t, g.Path("m.git/HEAD"))
		g.command(func() {
			assert.True(t, g.Runs("a", "status"), "%d steps", steps)
			assert.FileExists(t, g.Path("m.git/HEAD"))
		})
	}
}

// A process goes on renaming while the sweep works: nothing behind a link changes.
func TestAgainstRenaming(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo victim; mkdir -p p`)
	g.command(func() {})
	for range 5 {
		g.Settle()
		r := g.begin()
		g.Sh(`rm -rf p/*; repo p/a; arm p/a/.git; mkdir -p p/b`)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = os.Rename(g.Path("p/a"), g.Path("p/c"))
				_ = os.Symlink("../victim", g.Path("p/a"))
				_ = os.Remove(g.Path("p/a"))
				_ = os.Rename(g.Path("p/c"), g.Path("p/a"))
				_ = os.Rename(g.Path("p/b/.git"), g.Path("p/a/.git"))
				_ = os.Rename(g.Path("p/a/.git"), g.Path("p/b/.git"))
			}
		}()
		_, _ = r.End()
		close(stop)
		<-stopped
		assert.FileExists(t, g.Path("victim/.git/HEAD"))
	}
}

// Between Look and Begin the user makes repositories, and another command does.
func TestBetweenLookAndBegin(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo known`)
	g.command(func() {})
	look := func() *List {
		l, err := Look(g.State, g.Root, nil)
		require.NoError(t, err)
		return l
	}
	begin := func(l *List) *Run {
		r, err := Begin(g.State, l)
		require.NoError(t, err)
		return r
	}
	l := look()
	g.Sh(`repo untouched; repo changed`)
	g.Settle()
	time.Sleep(time.Duration(rounding))
	r := begin(l)
	g.Sh(`arm changed/.git`)
	made, err := r.End()
	require.NoError(t, err)
	assert.Equal(t, []string{"changed/.git", "changed/.git/HEAD"}, g.names(made))
	assert.DirExists(t, g.Path("untouched/.git"))

	l = look()
	other := g.begin()
	g.Sh(`repo ended; arm ended/.git`)
	made, err = other.End()
	require.NoError(t, err)
	assert.Subset(t, g.names(made), []string{"ended/.git", "ended/.git/HEAD"})
	r = begin(l)
	assert.Equal(t, []string{"known", "untouched"}, g.repos(r))
	_, err = r.End()
	require.NoError(t, err)

	l = look()
	other = g.begin()
	g.Sh(`repo a/runs; arm a/runs/.git`)
	r = begin(l)
	assert.Equal(t, []string{"known", "untouched"}, g.repos(r))
	for _, run := range []*Run{other, r} {
		_, err = run.End()
		require.NoError(t, err)
	}
	assert.NoDirExists(t, g.Path("a/runs/.git"))
}

// A command that overlaps others has not had their layers.
func TestNotesLendNoLayers(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; mkdir s; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s`)
	g.Settle()
	long, short := g.begin(), g.begin()
	_, err := short.End()
	require.NoError(t, err)
	g.Sh(`git update-index --force-remove s`)
	last := g.begin()
	g.Sh(`repo s; arm s/.git`)
	_, err = last.End()
	require.NoError(t, err)
	made, err := long.End()
	require.NoError(t, err)
	assert.Equal(t, []string{"s/.git", "s/.git/HEAD"}, g.names(made))
	assert.False(t, g.Runs("s", "status"))
}

// A command cannot hide a repository behind more directories than the list has room for.
func TestMoreDirectoriesThanTheList(t *testing.T) {
	defer func(was int) { maxDirs = was }(maxDirs)
	g := newGround(t)
	g.Sh(`repo .; git commit -q --allow-empty -m a`)
	r := g.begin()
	maxDirs = 20
	g.Sh(`mkdir $(seq 30); git init -q zz`)
	made, err := r.End()
	require.ErrorContains(t, err, "more than 20 directories")
	assert.NotEmpty(t, made)
	assert.NoDirExists(t, g.Path("zz/.git"))
}

// A walk needs few descriptors, however deep the tree is, and whatever of it is known.
func TestFewDescriptors(t *testing.T) {
	const variable = "PK_TEST_FEW"
	if os.Getenv(variable) == "" {
		child := exec.Command("sh", "-c", `ulimit -n 64; exec "$0" -test.run='^TestFewDescriptors$' -test.v`, os.Args[0])
		child.Env = append(os.Environ(), variable+"=1")
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS")
		return
	}
	g := newGround(t)
	deep := strings.Repeat("d/", 300)
	g.Sh(`mkdir -p ` + deep + `; mkdir d/d/d/e`)
	assert.Empty(t, g.command(func() {}))
	made := g.command(func() { g.Sh(`repo ` + deep + `r; repo d/d/d/e/r`) })
	assert.Equal(t, []string{deep + "r/.git", deep + "r/.git/HEAD", "d/d/d/e/r/.git", "d/d/d/e/r/.git/HEAD"}, g.names(made))
	g.Sh(`rm -r d`) // with few descriptors
}

// A directory that is opened again is the same one, wherever it is then.
func TestReopen(t *testing.T) {
	g := newGround(t)
	g.Sh(`mkdir -p a/b a/c`)
	open := func(name string) *around {
		fd, err := unix.Open(g.Path(name), unix.O_PATH, 0)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &st))
		return &around{fd: fd, path: name, id: [2]uint64{st.Dev, st.Ino}}
	}
	l := newList(g.Root, "")
	l.fd = open(".").fd
	w := &walker{List: l, sweeps: true}
	reopened := func(in, below *around) bool {
		again := *in
		again.fd = -1
		w.reopen(&again, below)
		return again.fd >= 0 && unix.Close(again.fd) == nil
	}
	a, b, c := open("a"), open("a/b"), open("a/c")
	assert.True(t, reopened(a, b))
	g.Sh(`mv a/b b`)
	assert.True(t, reopened(a, b), "by its path")
	g.Sh(`mv a z; mkdir a`)
	assert.True(t, reopened(a, c), "from below")
	assert.Empty(t, w.errs)
	assert.False(t, reopened(a, b), "another directory")
	g.Sh(`rm -r a`)
	assert.False(t, reopened(a, b), "none")
	require.Len(t, w.errs, 2)
	assert.ErrorIs(t, errors.Join(w.errs...), errMoved)
	w.errs, w.sweeps = nil, false
	assert.False(t, reopened(a, b))
	assert.Empty(t, w.errs, "before a command, one that is gone")
	l.fd = -1
}
