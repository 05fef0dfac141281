package gitland

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
)

// The next commit on the host has all its objects, whatever index a command has left.
func TestIndexHasFiles(t *testing.T) {
	const (
		// raw PATH HEX gives the entry of a path in the index another object.
		raw  = `raw() { perl -MDigest::SHA=sha1 -0777 -e 'open F, "<", ".git/index"; $_ = <F>; s/.{20}$//s; my $i = index($_, $ARGV[0]) - 2; $i -= 2 if ord(substr($_, $i - 2, 1)) & 0x40; substr($_, $i - 20, 20) = pack("H*", $ARGV[1]); open F, ">", ".git/index"; print F $_, sha1($_)' $1 $2; }; `
		none = "1212121212121212121212121212121212121212"
		// partial makes a partial clone, without files.
		partial = `git init -q ../up; cd ../up; mkdir d; echo 1 >d/a; echo 2 >b; git add .; git commit -qm up; git config uploadpack.allowFilter true; git config uploadpack.allowAnySHA1InWant true; cd ../root; git init -q; git remote add origin file://$PWD/../up; git config remote.origin.promisor true; git config remote.origin.partialCloneFilter blob:none; git fetch -q --filter=blob:none origin main; git update-ref refs/heads/main FETCH_HEAD; git read-tree HEAD; `
	)
	for _, row := range []struct{ name, host, command, told, names string }{
		{"a file", ``, `echo x >x; git add x`, ``, "d/f g x"},
		{"a tree for a file", ``, `git update-index --cacheinfo 100644,$(git rev-parse HEAD:d),g`, "it is a ", "d/f g"},
		{"a tree for a link", ``, `git update-index --add --cacheinfo 120000,$(git rev-parse HEAD:d),l`, "it is a ", "d/f g"},
		{"a new tree for a file", ``, `git update-index --add --cacheinfo 100644,$(printf '100755 x\0aaaaaaaaaaaaaaaaaaaa' | git hash-object -t tree --literally -w --stdin),x`, "missing", "d/f g"},
		{"a commit for a file", ``, `git update-index --add --cacheinfo 100755,$(git rev-parse HEAD),x`, "it is a ", "d/f g"},
		{"a tag for a file", ``, `git tag -a -m t t; git update-index --add --cacheinfo 100644,$(git rev-parse t),x`, "it is a ", "d/f g"},
		{"a tree for a file in a conflict", ``, `printf '0 0000000000000000000000000000000000000000\tg\n100644 %s 2\tg\n' $(git rev-parse HEAD:d) | git update-index --index-info`, "it is a ", "d/f g"},
		{"attributes at which git crashes", ``, `yes "[attr]a b" | head -n 2000 >.gitattributes; git add .gitattributes`, "more than 1000 macros", "d/f g"},
		{"the same by another name", ``, `yes "[attr]a b" | head -n 2000 >.x; git update-index --add --cacheinfo 100644,$(git hash-object -w .x),d/.GITattributes`, "more than 1000 macros", "d/f g"},
		{"a submodule with a command", ``, `printf '[submodule "x"]\n\tupdate = !x\n' >.gitmodules; git add .gitmodules`, "update command", "d/f g"},
		{"no object", ``, `git update-index --add --cacheinfo 100644,` + none + `,x`, "missing", "d/f g"},
		{"no object, to be added", ``, raw + `echo x >xyzzy; git add -N xyzzy; raw xyzzy ` + none, "missing", "d/f g"},
		{"to be added", ``, `echo x >x; git add -N x`, ``, "d/f g x"},
		{"a file of a partial clone that is not there", partial, `git update-index --index-version=4 --force-write-index; git rm -q --cached d/a`, ``, "b"},
		{"another one", partial, `git update-index --add --cacheinfo 100644,` + none + `,x`, ``, "b d/a x"},
		{"a tree of a partial clone for a file", partial, `git update-index --add --cacheinfo 100644,$(git rev-parse HEAD:d),x`, "it is a ", "b d/a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			if row.host != partial {
				g.Sh(`repo .; mkdir d; echo 1 >d/f; echo 2 >g; git add .; git commit -qm a`)
			}
			g.Sh(row.host)
			told := strings.Join(g.landed(g.mount(g.Root+"-layers", row.command)), "\n")
			if row.told == "" {
				assert.Empty(t, told)
			} else {
				assert.Contains(t, told, row.told)
			}
			assert.Equal(t, row.names, strings.ReplaceAll(g.Git(".", "ls-files"), "\n", " "))
			if row.name == "another one" { // git would fetch it
				g.Git(".", "rm", "-q", "--cached", "x")
			}
			g.Git(".", "commit", "-q", "--allow-empty", "-m", "host")
			g.collect()
		})
	}
}

// Of an index with files that the host must not get, the rest lands, with the host's entries for these.
func TestIndexWithoutProtectedFiles(t *testing.T) {
	for _, row := range []struct{ name, host, command, then, told, want string }{
		{"a new one", ``, `echo 2 >.envrc; echo o >o; git add .`, ``, `without ".envrc": programs`, "a o"},
		{"another version", `echo 1 >.envrc; git add .; git commit -qm e`, `echo 2 >.envrc; echo o >o; git add .`, ``, `without ".envrc"`, ".envrc=1 a o"},
		{"another version of one that is staged", `echo 1 >.envrc; git add .`, `echo 2 >.envrc; echo o >o; git add .`, ``, `without ".envrc"`, ".envrc=1 a o"},
		{"alone", ``, `echo 2 >.envrc; git add .`, ``, `without ".envrc"`, "a"},
		{"two, and one below a directory", ``, `mkdir d; for f in .envrc d/.envrc d/f; do echo 2 >$f; done; git add .`, ``, `without ".envrc" and 1 more`, "a d/f"},
		{"a file in the place of its directory", `mkdir d; echo 1 >d/.envrc; git add .; git commit -qm e`, `rm -r d; echo 2 >d; echo o >o; git add .`, ``, `without "d"`, "a o"},
		{"in the place of a file", `echo 1 >.envrc; git add .; git commit -qm e`, `rm .envrc; mkdir .envrc; echo 2 >.envrc/f; echo o >o; git add .`, ``, `without ".envrc/f"`, "a o"},
		{"in a conflict", `echo 1 >.envrc; git add .; git commit -qm e`, `b=$(git rev-parse :a); git rm -q --cached .envrc; printf "100644 $b 2\t.envrc\n100644 $b 3\t.envrc\n" | git update-index --index-info; echo o >o; git add o`, ``, `without ".envrc"`, ".envrc=1 a o"},
		{"with trees and undone conflicts", `git checkout -q -b t; echo t >a; git commit -qam t; git checkout -q main; echo m >a; git commit -qam m`, `! git merge -q t; echo r >a; git add a; rm -f .git/MERGE_* .git/AUTO_MERGE; echo 2 >.envrc; mkdir d; echo f >d/f; git add .; git write-tree`, ``, `without ".envrc"`, "a d/f"},
		{"split", ``, `echo 2 >.envrc; echo o >o; git add .; git update-index --split-index`, ``, `without ".envrc"`, "a o"},
		{"of version 4", ``, `echo 2 >.envrc; echo o >o; git add .; git update-index --index-version 4`, ``, `without ".envrc"`, "a o"},
		{"the host stages meanwhile", ``, `echo 2 >.envrc; echo o >o; git add .`, `echo h >h; git add h`, `without ".envrc"`, "a h o"},
		{"an option", ``, `echo 2 >-x; echo o >o; git add .`, ``, `without "-x": programs would take`, "a o"},
		{"in a merge under way", `git checkout -q -b t; echo 1 >.envrc; echo o >o; git add .; git commit -qm t; git checkout -q main`, `git merge -q --no-commit --no-ff t; echo 2 >.envrc; git add .`, ``, `the index does not land`, "a"},
		{"with a file that lies behind a link", `mkdir d; ln -s d l`, `git update-index --add --cacheinfo 100644,$(git rev-parse :a),l/f; echo 2 >.envrc; git add .envrc`, ``, `behind the link`, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; echo a >a; git add .; git commit -qm a; ` + row.host)
			l := g.mount(g.Root+"-layers", row.command)
			l.Checkouts = []Checkout{{GitDir: l.GitDir, WorkTree: g.Root, Names: []string{".envrc", "d/.envrc"}}}
			g.Sh(row.then)
			told := g.landed(l)
			assert.Contains(t, told[len(told)-1], row.told)
			var got []string
			for name := range strings.FieldsSeq(g.Git(".", "ls-files")) {
				if strings.HasSuffix(name, ".envrc") {
					name += "=" + g.Git(".", "cat-file", "blob", ":"+name)
				}
				got = append(got, name)
			}
			assert.Equal(t, row.want, strings.Join(got, " "))
			g.Git(".", "commit", "-q", "--allow-empty", "-m", "host")
			assert.Equal(t, g.Git(".", "ls-files"), g.Git(".", "ls-tree", "-r", "--name-only", "HEAD"), "the index claims another tree")
			assert.Empty(t, g.Git(".", "fsck", "--full", "--no-dangling"))
			if row.name != "in a merge under way" {
				assert.Len(t, told, 1)
				assert.NoFileExists(t, l.Upper()+"/index", "the next command finds the host's")
			}
		})
	}
}

// A command's sparse checkout lands where the host has one too.
func TestIndexOfSparseCheckout(t *testing.T) {
	const repo = `repo .; mkdir d e; echo 1 >d/f; echo 2 >e/g; echo 3 >h; git add .; git commit -qm a; `
	const pull = `echo 4 | git hash-object -w --stdin >../id; git update-index --add --cacheinfo 100644,$(cat ../id),e/new --cacheinfo 100644,$(cat ../id),d/new; git update-index --skip-worktree e/new d/new; git commit -qm new; `
	for _, row := range []struct{ name, host, command, told, skipped string }{
		{"in the host's", `git sparse-checkout set d`, pull, `"d/new": the mark`, "e/g e/new"},
		{"in the host's by hand", `git config core.sparseCheckout true; mkdir -p .git/info; echo /d/ >.git/info/sparse-checkout; git read-tree -mu HEAD`, pull, `"d/new": the mark`, "e/g e/new h"},
		{"in one that the host has ended", `git sparse-checkout set d; git sparse-checkout disable`, pull, `"d/new" and 1 more: the mark`, ""},
		{"without one", `true`, pull, `"d/new" and 1 more: the mark`, ""},
		{"in one of the command's", `true`, `git sparse-checkout set d; ` + pull, `"d/new" and 1 more: the mark`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(repo + row.host)
			assert.Contains(t, strings.Join(g.landed(g.mount(g.Root+"-layers", row.command)), "\n"), row.told)
			var skipped []string
			for line := range strings.Lines(g.Git(".", "ls-files", "-t")) {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), "S "); ok {
					skipped = append(skipped, name)
				}
			}
			assert.Equal(t, row.skipped, strings.Join(skipped, " "))
		})
	}
}

// The user takes a commit back to the index once it has landed, for which git does not lock that.
func TestHeadThatIsMovedBack(t *testing.T) {
	g := newGround(t)
	g.Sh(`repo .; echo 1 >a; git add a; git commit -qm a`)
	l := g.mount(g.Root+"-layers", `echo 2 >a; git commit -qam b; rm .git/index`)
	require.NoError(t, unix.Mknod(l.Upper()+"/index", unix.S_IFCHR, 0))
	branch := g.Path(".git/refs/heads/main")
	was, err := os.ReadFile(branch)
	require.NoError(t, err)
	moved := make(chan error)
	go func() {
		for now := was; bytes.Equal(now, was); now, _ = os.ReadFile(branch) {
		}
		moved <- os.WriteFile(branch, was, 0o644)
	}()
	assert.Len(t, g.landed(l), 1)
	require.NoError(t, <-moved)
	assert.Equal(t, "a", g.Git(".", "diff", "--cached", "--name-only"))
}

// The user moves a branch that the command has checked out, and then worked on.
func TestIndexOfABranchThatIsMoved(t *testing.T) {
	for _, work := range []string{"true", "git reset -q --hard", "touch a; git status -s"} {
		g := newGround(t)
		g.Sh(`repo .; echo 1 >a; git add a; git commit -qm a; git branch topic; echo 1 >b; git add b; git commit -qm b`)
		l := g.mount(g.Root+"-layers", "git checkout -q topic; "+work)
		g.Sh(`git branch -f topic main`)
		assert.Empty(t, g.landed(l))
		assert.Equal(t, "refs/heads/topic", g.Git(".", "symbolic-ref", "HEAD"))
		assert.Empty(t, g.Git(".", "diff", "--cached", "--name-only"))
	}
}

// HEAD stays where the host has it if its branch in the layer does not land, and the index stays with it.
func TestHeadOfABranchThatDoesNotLand(t *testing.T) {
	for name, row := range map[string]struct{ command, told string }{
		"a symbolic branch":             {"git symbolic-ref refs/heads/al refs/heads/main; git checkout -q al", `"HEAD": its branch "refs/heads/al" does not land`},
		"the host's made symbolic":      {"git symbolic-ref refs/heads/topic refs/heads/main; git checkout -q topic; git add c; git commit -qm c c", `"HEAD": its branch "refs/heads/topic" does not land`},
		"unborn, of a remote's name":    {"git checkout -q --orphan origin; git add c", "git would take its name"},
		"unborn, of a file's name":      {"git checkout -q --orphan MERGE_MSG; git add c", "git would take its name"},
		"unborn, of a reference's name": {"git checkout -q --orphan refs/heads/topic; git add c", "git would take its name"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; git remote add origin x; git commit -q --allow-empty -m a; git branch topic HEAD; git commit -q --allow-empty -m b; echo c >c; echo s >s; git add s`)
			l := g.mount(g.Root+"-layers", row.command)
			assert.Contains(t, strings.Join(g.landed(l), "\n"), row.told)
			assert.Equal(t, "refs/heads/main", g.Git(".", "symbolic-ref", "HEAD"))
			assert.Equal(t, "s", g.Git(".", "diff", "--cached", "--name-only"))
			assert.NoFileExists(t, filepath.Join(l.Upper(), indexFile), "without its HEAD, the next commit would take back the user's")
		})
	}
}

func TestIndexThatIsNone(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	path := filepath.Join(dir, indexFile)
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, os.Truncate(path, 1<<30))
	data, _, err := readIndexOfLayer(fd)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 4), data, "the hole was read")

	require.NoError(t, os.WriteFile(path, nil, 0o644))
	data, _, err = readIndexOfLayer(fd)
	require.NoError(t, err)
	assert.Empty(t, data)
}

// HEAD moves to no commit whose next one would take back what the user has staged since the beginning.
func TestStale(t *testing.T) {
	parse := func(words string) (list []index.Entry) {
		for word := range strings.FieldsSeq(words) {
			name, version, _ := strings.Cut(word, "=")
			list = append(list, index.Entry{Path: name, Mode: index.ModeFile, ID: strings.Repeat(version, 40)})
		}
		return list
	}
	for _, row := range []struct{ name, began, staged, was, is, want string }{
		{"nothing staged", "f=1", "f=1", "f=1", "f=2", ""},
		{"another file staged", "f=1", "f=1 g=1", "f=1", "f=2", ""},
		{"another version staged", "f=1", "f=3", "f=1", "f=2", "f"},
		{"the same version staged", "f=1", "f=2", "f=1", "f=2", ""},
		{"another version, staged before the beginning", "f=3", "f=3", "f=1", "f=2", ""},
		{"a file is new", "", "", "", "f=2", ""},
		{"a file goes that the user has removed", "f=1", "", "f=1", "", ""},
		{"a file changes that the user has removed", "f=1", "", "f=1", "f=2", "f"},
		{"a file in the place of a staged directory", "", "f/x=1", "", "f=2", "f"},
		{"the same, and the command has staged the file", "f=2", "f/x=1", "", "f=2", "f"},
		{"a file in the place of a staged directory of the beginning", "f/x=1", "f/x=1", "", "f=2", ""},
		{"a file in the place of a directory of HEAD", "f/x=1", "f/x=1", "f/x=1", "f=2", ""},
		{"a directory in the place of a staged file", "", "f=1", "", "f/x/y=2", "f/x/y"},
		{"a directory in the place of a file of HEAD", "f=1", "f=1", "f=1", "f/x/y=2", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			host, err := index.Of(parse(row.staged), 40)
			require.NoError(t, err)
			base, err := index.Of(parse(row.began), 40)
			require.NoError(t, err)
			assert.Equal(t, row.want, stale(host, base, parse(row.was), parse(row.is)))
		})
	}
}

// A few trees that name each other many times are millions of files for git, and for a landing
// that lists them.
func TestFewTreesWithManyPaths(t *testing.T) {
	const bomb = `b=$(echo x | git hash-object -w --stdin)
		t=$(for i in $(seq 13); do printf '100644 blob %s\tf%s\n' $b $i; done | git mktree)
		for level in $(seq 5); do t=$(for i in $(seq 13); do printf '040000 tree %s\td%s\n' $t $i; done | git mktree); done
		c=$(git commit-tree -p HEAD -m bomb $(printf '040000 tree %s\tbomb\n' $t | git mktree)); `
	for _, row := range []struct{ name, command string }{
		{"the branch that is checked out, and an index", "git update-ref refs/heads/main $c; echo y >y; git add y"},
		{"HEAD on a new branch", "git update-ref refs/heads/new $c; git symbolic-ref HEAD refs/heads/new"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; echo 1 >f; git add .; git commit -qm a`)
			before := g.Git(".", "rev-parse", "HEAD", "main")
			layer := g.mount(g.Root+"-layers", bomb+row.command)
			var began, ended runtime.MemStats
			runtime.ReadMemStats(&began)
			told := strings.Join(g.landed(layer), "\n")
			runtime.ReadMemStats(&ended)
			assert.Less(t, ended.HeapSys, began.HeapSys+256<<20)
			assert.Contains(t, told, "it has too many new commits and files to compare")
			assert.Equal(t, before, g.Git(".", "rev-parse", "HEAD", "main"))
			assert.Equal(t, "# branch.head main", strings.Split(g.Git(".", "status", "--porcelain=v2", "--branch"), "\n")[1])
		})
	}
}
