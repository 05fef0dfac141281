package gitdir

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFind(t *testing.T) {
	for _, row := range []struct {
		name, script string
		want         []string
		layers       string // below the root
	}{
		{"nothing", `mkdir a`, nil, ""},
		{"the root's own", `repo .`, []string{"."}, ".git"},
		{"a bare one at the root", `git init -q --bare .`, []string{"."}, "."},
		{"a bare one below", `git init -q --bare a/m.git`, []string{"a/m.git"}, "a/m.git"},
		{"a mirror that a clone left", `repo ../o; git clone -q --mirror ../o a/b/c/d/m`, []string{"a/b/c/d/m"}, "a/b/c/d/m"},
		{"nested, deep", `repo .; repo a/b/c/d/e/f`, []string{".", "a/b/c/d/e/f"}, ".git a/b/c/d/e/f/.git"},
		{"nested in one that is nested", `repo a; repo a/b`, []string{"a", "a/b"}, "a/.git a/b/.git"},
		{"a name with a newline", "repo 'a\nb'", []string{"a\nb"}, "a\nb/.git"},
		{"a linked worktree whose repository is outside", `repo ../o; git -C ../o worktree add -q "$PWD/w"`, []string{"w"}, "../o/.git"},
		{"the root is a linked worktree", `repo ../o; cd ..; rmdir root; git -C o worktree add -q "$PWD/root"`, []string{"."}, "../o/.git"},
		{"a linked worktree in the root", `repo .; git worktree add -q a/w`, []string{".", "a/w"}, ".git"},
		{"a linked worktree outside", `repo .; git worktree add -q ../w`, []string{"."}, ".git"},
		{"a submodule of a submodule", `repo ../o; repo ../p; git -C ../p submodule -q add "$PWD/../o" o; git -C ../p commit -qm s; repo .;
			git submodule -q add "$PWD/../p" a/b/c/p; git submodule -q update --init --recursive`, []string{".", "a/b/c/p", "a/b/c/p/o"}, ".git"},
		{"the root is a submodule", `repo ../o; cd ..; rmdir root; repo .; git submodule -q add "$PWD/o" root; cd root`, []string{"."}, "../.git/modules/root"},
		{"a gitlink that is a directory", `repo .; repo a/b/c; git add a 2>/dev/null`, []string{".", "a/b/c"}, ".git a/b/c/.git"},
		{"a gitlink in a split index", `repo .; repo a/b/c; git add a 2>/dev/null; git update-index --split-index; repo d; git add d 2>/dev/null`,
			[]string{".", "a/b/c", "d"}, ".git a/b/c/.git d/.git"},
		{"a gitlink in a repository of sha256", `git init -q --object-format=sha256 .; git init -q --object-format=sha256 a/b; git -C a/b commit -q --allow-empty -m x; git add a 2>/dev/null`,
			[]string{".", "a/b"}, ".git a/b/.git"},
		{"a submodule without a work tree", `repo ../o; repo .; git submodule -q add "$PWD/../o" m; git commit -qm s; git submodule -q deinit -f m`,
			[]string{".", ".git/modules/m"}, ".git"},
		{"a separate git directory", `git init -q --separate-git-dir=gd a`, []string{"a"}, "gd"},
		{".git is a link", `repo o; mkdir a; ln -s ../o/.git a/.git`, []string{"a", "o"}, "o/.git"},
		{".git is a link to nothing", `mkdir a; ln -s nowhere a/.git`, []string{"a"}, ""},
		{".git is a file that leads to nothing", `mkdir a; echo gitdir: nowhere >a/.git`, []string{"a"}, ""},
		{".git is a FIFO", `mkdir a; mkfifo a/.git`, nil, ""},
		{".git without a HEAD", `repo a; mv a/.git/HEAD x`, nil, ""},
		{"HEAD is a FIFO", `repo a; rm a/.git/HEAD; mkfifo a/.git/HEAD`, nil, ""},
		{"HEAD is a link", `repo a; ln -sf refs/heads/main a/.git/HEAD`, []string{"a"}, "a/.git"},
		{"HEAD is detached", `repo a; git -C a checkout -q --detach`, []string{"a"}, "a/.git"},
		{"commondir", `repo o; mkdir -p a/.git; echo ../../o/.git >a/.git/commondir; cp o/.git/HEAD a/.git`, []string{"a", "o"}, "a/.git o/.git"},
		{"behind a link", `repo ../o; ln -s ../o a`, nil, ""},
		{"forty levels deep", `repo "$(printf 'd/%.0s' $(seq 40))"`, []string{"" + strings.Repeat("d/", 39) + "d"}, strings.Repeat("d/", 40) + ".git"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(row.script)
			g.Settle()
			r := g.begin()
			assert.Equal(t, row.want, g.repos(r))
			repos, _, err := Find(g.Root, r.List)
			require.NoError(t, err)
			var layers []string
			for _, dir := range Layers(repos) {
				rel, err := filepath.Rel(g.Root, dir)
				require.NoError(t, err)
				layers = append(layers, rel)
			}
			assert.Equal(t, row.layers, strings.Join(layers, " "))
			made, err := r.End()
			require.NoError(t, err)
			assert.Empty(t, made)
		})
	}
}

// A git directory outside of the root that does not point back gets no layer, but the host's
// git uses it.
func TestFindBeyond(t *testing.T) {
	for _, row := range []struct{ name, script, want string }{
		{"moved by hand", `repo .; mv .git ../gd; echo gitdir: "$PWD/../gd" >.git`, "gd"},
		{"init --separate-git-dir", `git init -q --separate-git-dir=../gd .`, "gd"},
		{"a linked worktree that was moved", `repo ../o; git -C ../o worktree add -q ../w; cd ..; rmdir root; mv w root`, "o/.git/worktrees/w"},
		{"a link", `repo ../o; ln -s ../o/.git .git`, "o/.git"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(row.script)
			g.Settle()
			r := g.begin()
			repos, _, err := Find(g.Root, r.List)
			require.NoError(t, err)
			require.Len(t, repos, 1)
			assert.Empty(t, repos[0].GitDir)
			assert.Equal(t, filepath.Join(filepath.Dir(g.Root), row.want), repos[0].Beyond)
			assert.NotEmpty(t, repos[0].BeyondCommon)
			assert.Empty(t, Layers(repos))
			_, err = r.End()
			require.NoError(t, err)
		})
	}
}

func TestFindRefuses(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may read everything: only leases refuse")
	}
	for _, row := range []struct {
		name, script string
		lease        string
	}{
		{"a closed git directory", `repo a; chmod 0 a/.git`, ""},
		{"a closed HEAD", `repo a; chmod 0 a/.git/HEAD`, ""},
		{"a closed .git file", `repo ../o; git -C ../o worktree add -q "$PWD/w"; chmod 0 w/.git`, ""},
		{"a closed index", `repo .; git update-index --refresh; echo >f; git add f; chmod 0 .git/index`, ""},
		{"a lease on HEAD", `repo .`, ".git/HEAD"},
		{"a lease on the index", `repo .; echo >f; git add f`, ".git/index"},
		{"a lease on a .git file", `repo ../o; git -C ../o worktree add -q "$PWD/w"`, "w/.git"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if os.Geteuid() == 0 && row.lease == "" {
				return
			}
			g := newGround(t)
			g.Sh(row.script)
			if row.lease != "" {
				f, err := os.OpenFile(g.Path(row.lease), os.O_RDWR, 0)
				require.NoError(t, err)
				defer f.Close()
				_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				require.NoError(t, err)
			}
			r, err := g.tryBegin(g.Root)
			if err == nil {
				_, _, err = Find(g.Root, r.List)
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), g.Root)
		})
	}
}

// An index that has not changed is not read again, also by the next process.
func TestGitlinksAreRemembered(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; repo a/b; git add a 2>/dev/null`)
	r := g.begin()
	g.repos(r)
	l, err := openList(g.Root, listFile(g.State, g.Root), nil)
	require.NoError(t, err)
	require.Len(t, l.links, 2)
	assert.Equal(t, "a/b", l.links[g.Path(".git")][1])
	l.links[g.Path(".git")][1] = "cached"
	links, err := l.gitlinks(g.Path(".git"))
	require.NoError(t, err)
	assert.Equal(t, []string{"cached"}, links)
	g.Sh(`echo >f; git add f`)
	links, err = l.gitlinks(g.Path(".git"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a/b"}, links)

	// A command has made one of the same size and time, which lands in the same inode.
	for _, link := range []string{"a/x", "a/y"} {
		g.Sh(`export GIT_INDEX_FILE="$PWD/../made"; rm -f ../made; printf '160000 %s\t` + link + `\n' $(git rev-parse HEAD) | git update-index --index-info
			cat ../made >.git/index; touch -d @1700000000 .git/index`)
		links, err = l.gitlinks(g.Path(".git"))
		require.NoError(t, err)
		assert.Equal(t, []string{link}, links)
	}
}

func TestFindUnpopulatedSubmodules(t *testing.T) {
	link := `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),`
	for _, row := range []struct {
		name, script, root string
		want               []string // below the root; "" for the root itself
	}{
		{"an empty directory", `repo .; mkdir s; ` + link + `s`, "", []string{"s"}},
		{"a missing directory, deep", `repo .; ` + link + `a/b/c/s`, "", []string{"a/b/c/s"}},
		{"a file", `repo .; touch s; ` + link + `s`, "", []string{"s"}},
		{".git is empty", `repo .; mkdir -p s/.git; ` + link + `s`, "", []string{"s"}},
		{".git leads to nothing", `repo .; mkdir s; echo gitdir: ../gone >s/.git; ` + link + `s`, "", []string{"gone"}},
		{".git leads to a directory without refs", `repo .; repo o; rm -rf o/.git/refs; mv o/.git g; mkdir s; echo gitdir: ../g >s/.git; ` + link + `s`, "", []string{"g"}},
		{".git leads to one whose commondir is missing", `repo .; mkdir s g; cp .git/HEAD g; echo ../c >g/commondir; echo gitdir: ../g >s/.git; ` + link + `s`, "", []string{"g", "c"}},
		{".git is a link to nothing", `repo .; mkdir s; ln -s ../gone s/.git; ` + link + `s`, "", []string{"gone"}},
		{".git leads out of the root", `repo .; mkdir s; echo gitdir: ../../gone >s/.git; ` + link + `s`, "", nil},
		{".git leads into a git directory", `repo .; mkdir s; echo gitdir: ../.git/modules/s >s/.git; ` + link + `s`, "", nil},
		{".git leads to files", `repo .; mkdir s src; touch src/f; echo gitdir: ../src >s/.git; ` + link + `s`, "", nil},
		{".git leads to the root", `repo .; mkdir s; echo gitdir: .. >s/.git; ` + link + `s`, "", nil},
		{"a populated one", `repo .; repo s; ` + link + `s`, "", nil},
		{"in the index of a nested repository", `repo n; cd n; ` + link + `s`, "", []string{"n/s"}},
		{"in the index of a linked worktree", `repo .; git worktree add -q w; cd w; ` + link + `s`, "", []string{"w/s"}},
		{"of the repository around the root", `repo .; mkdir -p a/b; ` + link + `a/b/s; ` + link + `s`, "a/b", []string{"s"}},
		{"the root itself", `repo .; mkdir s; ` + link + `s`, "s", []string{""}},
		{"of a repository whose git directory is elsewhere", `repo .; ` + link + `s; mv .git ../gd; echo gitdir: "$PWD/../gd" >.git`, "", []string{"s"}},
		{"of a work tree that the configuration names", `repo .; ` + link + `s; mkdir src; git config core.worktree ../src`, "", []string{"src/s"}},
		{"of a bare repository with a work tree", `repo ../o; cd ../o; ` + link + `s; git config core.bare false; git config core.worktree ..; mv .git ../root/dots.git`, "", []string{"s"}},
		{"in a split index of longer hashes", `git init -q --object-format=sha256 .; git commit -q --allow-empty -m x; ` + link + `s; git update-index --split-index`, "", []string{"s"}},
		{"in a split index of a linked worktree", `git init -q --object-format=sha256 .; git commit -q --allow-empty -m x; git worktree add -q w; cd w; ` + link + `s; git update-index --split-index`, "", []string{"w/s"}},
		{"of the repository around a root that is one", `repo .; repo s; ` + link + `s; ` + link + `t`, "s", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(row.script)
			g.Settle()
			g.Root = filepath.Join(g.Root, row.root)
			r := g.begin()
			_, unpopulated, err := Find(g.Root, r.List)
			require.NoError(t, err)
			var got []string
			for _, u := range unpopulated {
				got = append(got, strings.TrimPrefix(strings.TrimPrefix(u.Dir, g.Root), "/"))
			}
			assert.Equal(t, row.want, got)
			assert.Equal(t, unpopulated, r.Unpopulated)
			_, err = r.End()
			require.NoError(t, err)
		})
	}
}

// A command may have closed the directory in which a submodule is to be made.
func TestMakeInAClosedDirectory(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData // root opens all
	require.NoError(t, unix.Capset(&head, &none[0]))
	for _, mode := range []os.FileMode{0o555, 0o600, 0} {
		g := newGround(t)
		closed := g.Path("a")
		require.NoError(t, os.Mkdir(closed, 0o700))
		require.NoError(t, os.Chmod(closed, mode))
		require.NoError(t, Unpopulated{Dir: g.Path("a/b/s")}.Make())
		info, err := os.Stat(closed)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), "as it was")
		require.NoError(t, os.Chmod(closed, 0o700))
		assert.DirExists(t, g.Path("a/b/s"))
	}
}

// A submodule does not get its name back if the host's git would enter it.
func TestSubmodulesStayInert(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; mkdir -p late/sub`)
	made := g.command(func() { g.Sh(`repo late/sub; arm late/sub/.git; repo late/sub/below; repo other`) })
	require.Len(t, made, 6)
	g.Sh(`git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),late/sub`)
	r := g.begin()
	assert.False(t, g.Runs(".", "status"))
	assert.NoFileExists(t, g.Path("late/sub/.git"))
	assert.NoFileExists(t, g.Path("late/sub/below/.git"))
	assert.FileExists(t, g.Path("other/.git/HEAD"))
	assert.Len(t, r.Withheld, 4)
	up := t.TempDir()
	require.NoError(t, GiveBack(g.Path("late/sub"), up, r.Withheld))
	for name, want := range map[string]string{
		".git": "gitdir: .git.fenced\n", "below/.git": "gitdir: .git.fenced\n", ".git.fenced/HEAD": "ref: refs/heads/main\n", "below/.git.fenced/HEAD": "ref: refs/heads/main\n",
	} {
		text, err := os.ReadFile(filepath.Join(up, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(text), name)
	}
	_, err := r.End()
	require.NoError(t, err)
}
