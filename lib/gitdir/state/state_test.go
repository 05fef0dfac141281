package state

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// scene is a repository in which a command runs git. Its git directory is then split into
// the host's and an upper layer.
type scene struct {
	t      *testing.T
	dir    string // with the work tree
	base   string // the git directory before the command
	marks  map[string]Mark
	since  time.Time
	hexLen int
	kinds  map[string]string

	branch, head string // of HEAD before the command
}

// newScene copies a repository with the branches main and side, whose commits
// "file: three" and "file: side" conflict.
func newScene(t *testing.T, format string) *scene {
	s := &scene{t: t, dir: t.TempDir(), hexLen: 40}
	if format == "sha256" {
		s.hexLen = 64
		s.history(format)
		return s
	}
	s.copy(template(t), s.dir)
	s.git("update-index", "-q", "--refresh")
	return s
}

var (
	templateOnce sync.Once
	templateDir  string
)

func template(t *testing.T) string {
	templateOnce.Do(func() {
		(&scene{t: t, dir: templateDir}).history("sha1")
	})
	return templateDir
}

func TestMain(m *testing.M) {
	var err error
	if templateDir, err = os.MkdirTemp("", "pk-state-"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(templateDir)
	os.Exit(status)
}

func (s *scene) history(format string) {
	s.git("init", "-q", "--template=", "-b", "main", "--object-format="+format, ".")
	s.git("config", "maintenance.auto", "false")
	for _, name := range []string{"one", "two", "three"} {
		s.commit("file", name)
	}
	s.git("checkout", "-qb", "side", "main~1")
	for _, name := range []string{"a", "b", "c"} {
		s.commit(name, name)
	}
	s.commit("file", "side")
	s.commit("d", "d")
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

func (s *scene) try(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "GIT_EDITOR=true",
		"GIT_AUTHOR_NAME=O'Hara!", "GIT_AUTHOR_EMAIL=a@example", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *scene) git(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	require.NoError(s.t, err, "%v: %s", args, out)
	return strings.TrimSuffix(out, "\n")
}

func (s *scene) stops(args ...string) {
	s.t.Helper()
	out, err := s.try(args...)
	require.Error(s.t, err, out)
}

func (s *scene) write(name, content string) {
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o777))
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(content), 0o666))
}

func (s *scene) commit(name, content string) {
	s.write(name, content+"\n")
	s.git("add", name)
	s.git("commit", "-qm", name+": "+content)
}

// copy copies a file or a tree.
func (s *scene) copy(from, to string) {
	s.t.Helper()
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		require.NoError(s.t, os.CopyFS(to, os.DirFS(from)))
		return
	}
	data, err := os.ReadFile(from)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(to, data, 0o666))
}

// content is a file, or the files of a directory; nil if there is none.
func (s *scene) content(path string) map[string]string {
	files := map[string]string{}
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "patch-merge-index" {
			data, err := os.ReadFile(name)
			require.NoError(s.t, err)
			files[strings.TrimPrefix(name, path)] = string(data)
		}
		return err
	})
	return files
}

// begin is the start of a command.
func (s *scene) begin() {
	s.base = filepath.Join(s.t.TempDir(), "base")
	s.copy(s.path(".git"), s.base)
	s.marks, s.since, s.kinds = map[string]Mark{}, time.Now().Add(time.Hour), nil
	s.branch, _ = s.try("symbolic-ref", "-q", "HEAD")
	s.branch, s.head = strings.TrimSpace(s.branch), s.git("rev-parse", "HEAD")
}

// end splits the git directory: the host gets objects, refs, HEAD and index, and the
// files that Land writes. It returns the directory of the command's view.
func (s *scene) end() (after string, result Result) {
	after, upper := filepath.Join(s.t.TempDir(), "after"), s.t.TempDir()
	require.NoError(s.t, os.Rename(s.path(".git"), after))
	s.copy(after, s.path(".git"))
	for _, name := range present(after) {
		require.NoError(s.t, os.RemoveAll(s.path(".git/"+name)))
	}
	for _, name := range present(s.base) {
		s.copy(filepath.Join(s.base, name), s.path(".git/"+name))
	}
	layer(s.t, s.base, after, upper)
	return after, s.land(upper)
}

func (s *scene) land(upper string) Result {
	fd, err := unix.Open(upper, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(s.t, err)
	defer unix.Close(fd)
	result, err := Land(s.path(".git"), fd, s.options())
	require.NoError(s.t, err)
	_, err = os.Lstat(s.path(".git/" + stageName))
	require.ErrorIs(s.t, err, fs.ErrNotExist)
	return result
}

func (s *scene) options() Options {
	if s.kinds == nil {
		s.kinds = map[string]string{}
		for line := range strings.Lines(s.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
			id, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
			s.kinds[id] = kind
		}
	}
	return Options{
		HexLen: s.hexLen,
		Kind:   func(id string) (string, error) { return s.kinds[id], nil },
		Exists: func(id string) bool { return s.kinds[id] != "" },
		Pick:   func(string, bool) bool { return true },
		Whole: func(short string) string {
			for id := range s.kinds {
				if strings.HasPrefix(id, short) {
					return id
				}
			}
			return ""
		},
		Branch: s.branch,
		Follows: func(id string, rebase bool) bool {
			before := s.head
			if branch, err := s.try("symbolic-ref", "-q", "HEAD"); err == nil && !rebase {
				before = s.git("--git-dir="+s.base, "rev-parse", strings.TrimSpace(branch))
			}
			return exec.Command("git", "-C", s.path("."), "merge-base", "--is-ancestor", before, id).Run() == nil
		},
		Since:  func(string) time.Time { return s.since },
		Landed: s.marks,
	}
}

// layer makes the upper layer that turns the files of before into those of after.
func layer(t *testing.T, before, after, upper string) {
	all := func(root string) map[string]string {
		files := map[string]string{}
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			if name == "objects" || name == "refs" || name == "logs" {
				return filepath.SkipDir
			}
			if d.Type().IsRegular() {
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				files[name] = string(data)
			}
			return err
		}))
		return files
	}
	old, now := all(before), all(after)
	for name, data := range now {
		if had, ok := old[name]; ok && had == data {
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(upper, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(upper, name), []byte(data), 0o666))
	}
	for name := range old {
		if _, ok := now[name]; ok {
			continue
		}
		if dir := filepath.Dir(name); dir != "." {
			if _, err := os.Lstat(filepath.Join(after, dir)); err != nil {
				name = dir
			}
		}
		if _, err := os.Lstat(filepath.Join(upper, name)); err != nil {
			whiteout(t, filepath.Join(upper, name))
		}
	}
}

func whiteout(t *testing.T, path string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, unix.Mknod(path, unix.S_IFCHR, 0))
}

// same checks that the host's files of a state are those of the command's view.
func (s *scene) same(after string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		assert.Equal(s.t, s.content(filepath.Join(after, name)), s.content(s.path(".git/"+name)), name)
	}
}

// TestGoesOn stops in one command; the host's git then continues or gives up, and
// ends as it would have without the layer.
func TestGoesOn(t *testing.T) {
	resolve := func(s *scene) {
		s.write("file", "resolved\n")
		s.git("add", "file")
	}
	for _, test := range []struct {
		name   string
		before func(s *scene)
		stop   func(s *scene)
		state  []string
		then   []string // on the host
		abort  []string
	}{
		{"rebase with a conflict", nil,
			func(s *scene) { s.stops("rebase", "main"); resolve(s) },
			[]string{"rebase-merge", "REBASE_HEAD", "ORIG_HEAD", "MERGE_MSG", "AUTO_MERGE"},
			[]string{"rebase", "--continue"}, []string{"rebase", "--abort"}},
		{"rebase stopped at edit", nil,
			func(s *scene) {
				s.git("-c", "sequence.editor=sed -i '2s/pick/edit/;3s/pick/reword/'", "rebase", "-i", "main~2")
			},
			[]string{"rebase-merge"},
			[]string{"rebase", "--continue"}, []string{"rebase", "--abort"}},
		{"rebase with break, drop, squash and fixup -C", nil,
			func(s *scene) {
				s.git("-c", "sequence.editor=sed -i '1s/$/\\nbreak/;2s/pick/squash/;3s/pick/fixup -C/;4s/pick/drop/'", "rebase", "-i", "main~1")
			},
			[]string{"rebase-merge"},
			[]string{"rebase", "--continue"}, nil},
		{"autosquash with a conflict", func(s *scene) {
			s.write("b", "more\n")
			s.git("commit", "-qam", "fixup! b: b")
			s.write("b", "squashed\n")
			s.git("commit", "-qam", "squash! b: b")
		},
			func(s *scene) {
				s.stops("-c", "sequence.editor=true", "rebase", "-i", "--autosquash", "main")
				resolve(s)
			},
			[]string{"rebase-merge"},
			[]string{"rebase", "--continue"}, nil},
		{"rebase with autostash", func(s *scene) { s.write("d", "changed\n") },
			func(s *scene) { s.stops("rebase", "--autostash", "main"); resolve(s) },
			[]string{"rebase-merge"},
			[]string{"rebase", "--continue"}, []string{"rebase", "--abort"}},
		{"rebase of the root", nil,
			func(s *scene) {
				s.stops("rebase", "--root", "--onto", "main")
				s.write("file", "x\n")
				s.git("add", ".")
			},
			[]string{"rebase-merge"},
			[]string{"rebase", "--skip"}, nil},
		{"rebase of a detached HEAD", func(s *scene) { s.git("checkout", "-q", "--detach") },
			func(s *scene) { s.stops("rebase", "--signoff", "-q", "main"); resolve(s) },
			[]string{"rebase-merge"},
			[]string{"rebase", "--continue"}, nil},
		{"merge with a conflict", nil,
			func(s *scene) { s.stops("merge", "--no-ff", "main"); resolve(s) },
			[]string{"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "ORIG_HEAD", "AUTO_MERGE"},
			[]string{"merge", "--continue"}, []string{"merge", "--abort"}},
		{"merge with autostash", func(s *scene) { s.write("d", "changed\n") },
			func(s *scene) { s.stops("merge", "--autostash", "main"); resolve(s) },
			[]string{"MERGE_HEAD", "MERGE_AUTOSTASH"},
			[]string{"merge", "--continue"}, nil},
		{"squash merge", nil,
			func(s *scene) { s.stops("merge", "--squash", "main"); resolve(s) },
			[]string{"SQUASH_MSG"},
			[]string{"commit", "-q"}, nil},
		{"octopus merge not committed", func(s *scene) {
			s.git("checkout", "-qb", "t1", "main~2")
			s.commit("t1", "x")
			s.git("checkout", "-qb", "t2", "main~2")
			s.commit("t2", "x")
		},
			func(s *scene) { s.git("merge", "--no-commit", "t1", "main") },
			[]string{"MERGE_HEAD", "MERGE_MSG"},
			[]string{"commit", "-q"}, nil},
		{"cherry-pick of several", func(s *scene) { s.git("checkout", "-q", "main") },
			func(s *scene) { s.stops("cherry-pick", "-x", "--signoff", "main~1..side"); resolve(s) },
			[]string{"sequencer", "CHERRY_PICK_HEAD", "MERGE_MSG"},
			[]string{"cherry-pick", "--continue"}, []string{"cherry-pick", "--abort"}},
		{"revert of several", nil,
			func(s *scene) { s.stops("revert", "--edit", "main~1", "side~2", "side~3"); resolve(s) },
			[]string{"sequencer", "REVERT_HEAD", "MERGE_MSG"},
			[]string{"revert", "--continue"}, []string{"revert", "--abort"}},
		{"bisect", nil,
			func(s *scene) {
				s.git("bisect", "start", "--term-new", "worse", "--term-old", "fine", "--first-parent", "side", "main~2", "--", "a", "b'c", "file")
				s.git("bisect", "skip")
			},
			[]string{"BISECT_START", "BISECT_TERMS", "BISECT_LOG", "BISECT_NAMES", "BISECT_FIRST_PARENT", "BISECT_EXPECTED_REV"},
			[]string{"bisect", "fine"}, []string{"bisect", "reset"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "sha1")
			if test.before != nil {
				test.before(s)
			}
			s.begin()
			test.stop(s)
			after, result := s.end()
			require.Empty(t, result.Stays)
			s.same(after, test.state...)
			for _, name := range test.state {
				assert.Contains(t, result.Landed, name)
			}
			if test.abort != nil {
				other := *s
				other.dir = filepath.Join(t.TempDir(), "aborted")
				s.copy(s.dir, other.dir)
				other.git("status")
				other.git(test.abort...)
			}

			status := s.git("status")
			s.begin()
			s.git(test.then...)
			assert.NotEqual(t, status, s.git("status"))
			after, result = s.end()
			require.Empty(t, result.Stays, "the next command went on")
			s.same(after, present(after, s.path(".git"))...)
			s.git("fsck", "--full")
		})
	}
}

// present are the names that may land and that one of the directories has.
func present(dirs ...string) (names []string) {
	for _, group := range groups {
		for _, it := range group {
			for _, dir := range dirs {
				if _, err := os.Lstat(filepath.Join(dir, it.name)); err == nil {
					names = append(names, it.name)
					break
				}
			}
		}
	}
	return names
}

func TestStays(t *testing.T) {
	for _, test := range []struct {
		name string
		stop func(s *scene)
		why  string
	}{
		{"rebase with exec", func(s *scene) { s.stops("rebase", "--exec", "true", "main") }, `rebase-merge: "done": the command "exec"`},
		{"rebase that updates refs", func(s *scene) {
			s.git("branch", "stacked", "side~2")
			s.stops("rebase", "--update-refs", "main")
		}, `rebase-merge: "done": the command "update-ref"`},
		{"rebase of another branch", func(s *scene) {
			s.git("branch", "other")
			s.stops("rebase", "main", "other")
		}, `rebase-merge: "head-name": the host has not checked out "refs/heads/other"`},
		{"rebase after a reset", func(s *scene) {
			s.git("reset", "-q", "--hard", "side~1")
			s.stops("rebase", "main")
		}, `rebase-merge: "orig-head": commit `},
		{"cherry-pick after a reset", func(s *scene) {
			s.git("checkout", "-q", "main")
			s.git("reset", "-q", "--hard", "main~1")
			s.commit("file", "other")
			s.stops("cherry-pick", "main~1..side")
		}, `sequencer: "head": commit `},
		{"bisect from another branch", func(s *scene) {
			s.git("checkout", "-q", "main")
			s.git("bisect", "start", "side", "main~2")
		}, `BISECT_START: the host has not checked out "main"`},
		{"rebase with a strategy option", func(s *scene) { s.stops("rebase", "-X", "ignore-space-change", "main") }, `rebase-merge: "strategy_opts"`},
		{"am", func(s *scene) {
			s.write("mails", s.git("format-patch", "--stdout", "main~1..side")+"\n")
			s.git("checkout", "-q", "main")
			s.stops("am", s.path("mails"))
		}, `rebase-apply: its patches may change any file`},
		{"rebase by patches", func(s *scene) { s.stops("rebase", "--apply", "main") }, `rebase-apply: its patches may change any file`},
		{"rebase of merges", func(s *scene) {
			s.git("checkout", "-qb", "topic", "side~3")
			s.commit("t", "t")
			s.git("checkout", "-q", "side")
			s.git("merge", "-q", "--no-ff", "-m", "merge: with '#1 a", "topic")
			s.commit("e", "e")
			s.stops("rebase", "--rebase-merges", "main")
		}, `rebase-merge: "done": the command "label"`},
		{"cherry-pick with a strategy option", func(s *scene) {
			s.git("checkout", "-q", "main")
			s.stops("cherry-pick", "-X", "patience", "main~1..side")
		}, `sequencer: "opts"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "sha1")
			s.begin()
			test.stop(s)
			_, result := s.end()
			require.NotEmpty(t, result.Stays)
			assert.Contains(t, result.Stays[0].Name+": "+result.Stays[0].Why, test.why)
			for _, name := range []string{"rebase-merge", "rebase-apply", "sequencer", "MERGE_MSG", "REBASE_HEAD", "CHERRY_PICK_HEAD"} {
				assert.NoFileExists(t, s.path(".git/"+name))
				assert.NoDirExists(t, s.path(".git/"+name))
			}
		})
	}
}

// TestEdits makes one rebase stop and lets a hostile command change its files.
func TestEdits(t *testing.T) {
	s := newScene(t, "sha1")
	s.git("branch", "stacked", "side~2")
	s.begin()
	s.stops("rebase", "main")
	s.git("config", "x.y", "z")
	after, _ := s.end()
	head := s.git("rev-parse", "HEAD")
	tree := s.git("rev-parse", "HEAD^{tree}")
	none := strings.Repeat("1", 40)
	missing := func(name string) string { return name + " " + none + " x\n" }
	for name, lines := range map[string][]string{
		"git-rebase-todo": {"exec id", "x id", " exec id", "\texec id", "exec", "pick", missing("pick"), "pick side", "pick " + tree, "fixup -C", "fixup -x " + head,
			"update-ref refs/tags/x", "update-ref refs/heads/stacked", "label x", "reset main", "merge -C " + head + " main", "noop x", "pick\t" + head, "pick " + head + " \x1b[2J", "strange"},
		"done":           {"exec id"},
		"strategy":       {"x", "octopus", "../x"},
		"strategy_opts":  {"--ours"},
		"gpg_sign_opt":   {"-S"},
		"unknown":        {""},
		"trailer":        {"x"},
		"head-name":      {"refs/tags/x", "HEAD", "refs/heads/../x", "refs/heads/-x", "refs/heads/", "", "refs/heads/main", "detached HEAD"},
		"orig-head":      {none, tree, s.git("rev-parse", "main"), s.git("rev-parse", "side~1"), ""},
		"onto":           {none, "main", head[:10], "ref: refs/heads/main", tree, ""},
		"autostash":      {none, "--index"},
		"refs-to-delete": {"refs/heads/main", "refs/rewritten/../heads/main"},
		"update-refs":    {"refs/heads/stacked\n" + s.git("rev-parse", "stacked") + "\n" + head},
		"author-script":  {"GIT_AUTHOR_NAME='a'", "GIT_AUTHOR_NAME='a'\nGIT_AUTHOR_EMAIL='b'\nGIT_AUTHOR_DATE='@1 +0000'\nPATH='x'", "GIT_AUTHOR_NAME='a';id\nGIT_AUTHOR_EMAIL='b'\nGIT_AUTHOR_DATE='@1 +0000'", "GIT_AUTHOR_NAME='a'$(id)\nGIT_AUTHOR_EMAIL='b'\nGIT_AUTHOR_DATE='@1 +0000'"},
		"message":        {"a\x1b]0;x\x07", "a\x00b"},
		"msgnum":         {"-1", "x", "1 2"},
		"end":            {"99999999999999999999"},
		"interactive":    {"x"},
		"rewritten-list": {"x y"},
		"current-fixups": {"exec id"},
	} {
		for _, line := range lines {
			upper := t.TempDir()
			s.copy(filepath.Join(after, "rebase-merge"), filepath.Join(upper, "rebase-merge"))
			if name == "git-rebase-todo" {
				data, err := os.ReadFile(filepath.Join(after, "rebase-merge", name))
				require.NoError(t, err)
				line = string(data) + line
			}
			require.NoError(t, os.WriteFile(filepath.Join(upper, "rebase-merge", name), []byte(line+"\n"), 0o666))
			clear(s.marks)
			result := s.land(upper)
			require.Len(t, result.Stays, 1, "%s: %q", name, line)
			assert.Contains(t, result.Stays[0].Why, fmt.Sprintf("%q", name))
			assert.Empty(t, result.Landed)
		}
	}
	s.same(after, "rebase-merge")
}

// Git applies the changes of the commits in the list that is still to do.
func TestOnlyWhatIsToDoIsPicked(t *testing.T) {
	id := strings.Repeat("1", 40)
	l := &lander{Options: Options{HexLen: 40, Exists: func(string) bool { return true }, Pick: func(string, bool) bool { return false }, Kind: func(string) (string, error) { return "commit", nil }}}
	for name, lands := range map[string]bool{"done": true, "dropped": true, "git-rebase-todo.backup": true, "git-rebase-todo": false} {
		for _, line := range []string{"pick " + id, "fixup -C " + id} {
			assert.Equal(t, lands, rebaseMerge[name](l, []byte(line+"\n"), nil) == nil, name)
		}
	}
	assert.Error(t, sequencer["todo"](l, []byte("pick "+id+"\n"), nil))
}

// A merge lands without an AUTO_MERGE that the host must not have.
func TestMergeWithoutItsTree(t *testing.T) {
	s := newScene(t, "sha1")
	s.begin()
	upper := t.TempDir()
	head := s.git("rev-parse", "HEAD")
	for _, name := range []string{"MERGE_HEAD", "AUTO_MERGE"} { // it is no tree
		require.NoError(t, os.WriteFile(filepath.Join(upper, name), []byte(head+"\n"), 0o666))
	}
	for range 2 {
		assert.Empty(t, s.land(upper).Stays)
		assert.FileExists(t, s.path(".git/MERGE_HEAD"))
		assert.NoFileExists(t, s.path(".git/AUTO_MERGE"))
	}
}

// TestFiles are single files with bad and good content.
func TestFiles(t *testing.T) {
	s := newScene(t, "sha256")
	s.begin()
	head, tree := s.git("rev-parse", "HEAD"), s.git("rev-parse", "HEAD^{tree}")
	none := strings.Repeat("1", 64)
	for _, test := range []struct{ name, content, why string }{
		{"ORIG_HEAD", head, ""},
		{"ORIG_HEAD", "ref: refs/heads/main", "no object ID"},
		{"ORIG_HEAD", none, "the host has no object"},
		{"ORIG_HEAD", head[:40], "no object ID"},
		{"MERGE_HEAD", head + "\n" + head, ""},
		{"MERGE_HEAD", head + "\n" + tree, "is a tree"},
		{"AUTO_MERGE", tree, ""},
		{"FETCH_HEAD", head + "\t\tbranch 'main' of https://example.org/x\n" + head + "\tnot-for-merge\ttag 'v1' of https://example.org/x", ""},
		{"FETCH_HEAD", head + "\t\tbranch 'main' of https://example.org/\x1b[2J", "control character"},
		{"FETCH_HEAD", none + "\t\tbranch 'main' of x", "no object"},
		{"FETCH_HEAD", head + " x", "unknown line"},
		{"MERGE_MODE", "no-ff", ""},
		{"MERGE_MODE", "x", "unknown value"},
		{"MERGE_RR", "", ""},
		{"MERGE_RR", " ", "not empty"},
		{"MERGE_RR", none + "\t../../out\x00", "not empty"},
		{"MERGE_MSG", "naïve\n\ttext\r\n", ""},
		{"MERGE_MSG", "\x1b]0;x\x07", "control character"},
		{"BISECT_START", "side", ""},
		{"BISECT_START", "main", "has not checked out"},
		{"BISECT_START", head, ""},
		{"BISECT_START", "--orphan=x", "has not checked out"},
		{"BISECT_START", none, "has not checked out"},
		{"BISECT_TERMS", "bad\ngood", ""},
		{"BISECT_TERMS", "bad", "not two terms"},
		{"BISECT_TERMS", "bad\nbad", "not two terms"},
		{"BISECT_TERMS", "run\ngood", "bad term"},
		{"BISECT_TERMS", "$(id)\ngood", "bad term"},
		{"BISECT_LOG", "# x\ngit bisect start '--' 'a'\\''b'\ngit bisect good " + head, ""},
		{"BISECT_LOG", "git bisect run id", "unknown line"},
		{"BISECT_LOG", "git bisect start; id", "unknown line"},
		{"BISECT_LOG", "id", "unknown line"},
		{"BISECT_NAMES", " 'a' 'b'", ""},
		{"BISECT_NAMES", " 'a' $(id)", "not what git writes"},
		{"BISECT_EXPECTED_REV", head, ""},
		{"BISECT_ANCESTORS_OK", "", ""},
	} {
		upper := t.TempDir()
		content := test.content + "\n"
		if test.content == "" { // git ends a line, and writes none
			content = ""
		}
		require.NoError(t, os.WriteFile(filepath.Join(upper, test.name), []byte(content), 0o666))
		clear(s.marks)
		result := s.land(upper)
		if test.why == "" {
			assert.Empty(t, result.Stays, "%s %q", test.name, test.content)
			data, err := os.ReadFile(s.path(".git/" + test.name))
			require.NoError(t, err)
			assert.Equal(t, content, string(data))
			require.NoError(t, os.Remove(s.path(".git/"+test.name)))
			continue
		}
		assert.NoFileExists(t, s.path(".git/"+test.name))
		if assert.Len(t, result.Stays, 1, "%s %q", test.name, test.content) {
			assert.Contains(t, result.Stays[0].Why, test.why)
		}
	}
}

// TestOptions lets git read the options that were not refused.
func TestOptions(t *testing.T) {
	for content, why := range map[string]string{
		"[options]\n\tmainline = 1\n\tedit = true\n\tallow-ff = 0\n\tdefault-msg-cleanup = strip\n": "",
		"[options]\n\tstrategy = x\n":                                 "unknown option",
		"[options]\n\tgpg-sign = x\n":                                 "unknown option",
		"[options]\n\tstrategy-option = x\n":                          "unknown option",
		"[include]\n\tpath = x\n":                                     "unknown line",
		"[options]\n\tpath = x\n":                                     "unknown option",
		"[options]\n\tedit = true ; [x]\n":                            "unknown line",
		"[options] edit = true\n":                                     "unknown line",
		"[options]\n\tdefault-msg-cleanup = x\n":                      "unknown option",
		"[options]\n\tmainline = true\n":                              "unknown option",
		"[options]\n\tno-commit = 99999999999999999999999999999999\n": "unknown option",
	} {
		err := options(&lander{}, []byte(content), nil)
		if why == "" {
			assert.NoError(t, err, content)
		} else {
			assert.ErrorContains(t, err, why, content)
		}
	}
}

// TestHostFiles are files of the host that are in the way.
func TestHostFiles(t *testing.T) {
	s := newScene(t, "sha1")
	s.git("gc", "-q")
	s.begin()
	s.since = time.Now().Add(-time.Hour)
	head := s.git("rev-parse", "HEAD") + "\n"
	older := s.git("rev-parse", "HEAD~1") + "\n"
	s.git("--git-dir="+s.base, "update-ref", "refs/heads/side", "HEAD~1")
	git := func(name string) string { return s.path(".git/" + name) }
	put := func(dir, name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
	}
	upper := t.TempDir()

	t.Run("changed by the host meanwhile", func(t *testing.T) {
		put(s.path(".git"), "ORIG_HEAD", older)
		put(upper, "ORIG_HEAD", head)
		assert.Equal(t, []Stay{{"ORIG_HEAD", "the host changed it meanwhile"}}, s.land(upper).Stays)
		s.since = time.Now().Add(time.Hour)
		assert.Equal(t, []string{"ORIG_HEAD"}, s.land(upper).Landed)
		assert.Empty(t, s.land(upper).Landed, "once")
		s.since = time.Now().Add(-time.Hour)
		put(upper, "ORIG_HEAD", older)
		assert.Equal(t, []string{"ORIG_HEAD"}, s.land(upper).Landed, "its own write is not the host's")
	})
	t.Run("ended by the host", func(t *testing.T) {
		put(upper, "MERGE_HEAD", head)
		assert.Equal(t, []string{"MERGE_HEAD"}, s.land(upper).Landed)
		require.NoError(t, os.Remove(git("MERGE_HEAD")))
		assert.Empty(t, s.land(upper))
		assert.NoFileExists(t, git("MERGE_HEAD"))
		put(upper, "MERGE_HEAD", older)
		assert.Equal(t, []string{"MERGE_HEAD"}, s.land(upper).Landed, "another merge")
	})
	t.Run("removed by the command without a whiteout", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(upper, "MERGE_HEAD")))
		assert.Equal(t, []string{"MERGE_HEAD"}, s.land(upper).Landed)
		assert.NoFileExists(t, git("MERGE_HEAD"))
		put(s.path(".git"), "MERGE_HEAD", head)
		assert.Empty(t, s.land(upper), "this one is the host's")
		require.NoError(t, os.Remove(git("MERGE_HEAD")))
	})
	t.Run("whiteout", func(t *testing.T) {
		put(s.path(".git"), "SQUASH_MSG", "x")
		whiteout(t, filepath.Join(upper, "SQUASH_MSG"))
		assert.Len(t, s.land(upper).Stays, 1)
		s.since = time.Now().Add(time.Hour)
		assert.Equal(t, []string{"SQUASH_MSG"}, s.land(upper).Landed)
		assert.NoFileExists(t, git("SQUASH_MSG"))
		put(s.path(".git"), "SQUASH_MSG", "of the user")
		assert.Empty(t, s.land(upper), "an old whiteout")
		require.NoError(t, os.Remove(git("SQUASH_MSG")))
	})
	t.Run("link", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out")
		put(filepath.Dir(out), "out", "mine")
		require.NoError(t, os.Symlink(out, git("MERGE_MSG")))
		put(upper, "MERGE_MSG", "message\n")
		assert.Equal(t, []string{"MERGE_MSG"}, s.land(upper).Landed)
		data, err := os.ReadFile(out)
		require.NoError(t, err)
		assert.Equal(t, "mine", string(data))
		info, err := os.Lstat(git("MERGE_MSG"))
		require.NoError(t, err)
		assert.True(t, info.Mode().IsRegular())
	})
	t.Run("directory, file by file", func(t *testing.T) {
		put(upper, "sequencer/head", head)
		put(upper, "sequencer/abort-safety", head)
		assert.Equal(t, []string{"sequencer"}, s.land(upper).Landed)
		require.NoError(t, os.Remove(filepath.Join(upper, "sequencer/abort-safety")))
		put(upper, "sequencer/head", older)
		assert.Equal(t, []string{"sequencer"}, s.land(upper).Landed)
		assert.NoFileExists(t, git("sequencer/abort-safety"), "made and removed by the command")
		require.NoError(t, os.RemoveAll(filepath.Join(upper, "sequencer")))
		assert.Equal(t, []string{"sequencer"}, s.land(upper).Landed)
		assert.NoDirExists(t, git("sequencer"))
	})
	t.Run("directory of the host, changed and opaque", func(t *testing.T) {
		put(s.path(".git"), "sequencer/head", head)
		put(s.path(".git"), "sequencer/abort-safety", head)
		clear(s.marks)
		put(upper, "sequencer/head", older)
		assert.Equal(t, []string{"sequencer"}, s.land(upper).Landed)
		assert.FileExists(t, git("sequencer/abort-safety"))
		whiteout(t, filepath.Join(upper, "sequencer/abort-safety"))
		assert.Equal(t, []string{"sequencer"}, s.land(upper).Landed)
		assert.NoFileExists(t, git("sequencer/abort-safety"))
		put(s.path(".git"), "sequencer/todo", "")
		clear(s.marks)
		require.NoError(t, unix.Setxattr(filepath.Join(upper, "sequencer"), "user.overlay.opaque", []byte("y"), 0))
		assert.Contains(t, s.land(upper).Landed, "sequencer")
		assert.NoFileExists(t, git("sequencer/todo"))
	})
	t.Run("leftover of a killed call", func(t *testing.T) {
		put(s.path(".git"), stageName+"/sequencer/x", "")
		put(upper, "ORIG_HEAD", head)
		assert.Empty(t, s.land(upper).Stays)
	})
	t.Run("zero options", func(t *testing.T) {
		fd, err := unix.Open(upper, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		put(upper, "ORIG_HEAD", older)
		result, err := Land(s.path(".git"), fd, Options{HexLen: 40})
		require.NoError(t, err)
		assert.Contains(t, result.Stays, Stay{"ORIG_HEAD", "the host has no object " + strings.TrimSpace(older) + " that it may check out"})
		assert.NotContains(t, result.Landed, "ORIG_HEAD")
		_, err = Land(s.path(".git"), fd, Options{})
		assert.Error(t, err)
	})
}

// TestHostileFiles are not regular files, or too large.
func TestHostileFiles(t *testing.T) {
	s := newScene(t, "sha1")
	s.begin()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o666))
	for name, make := range map[string]func(path string) error{
		"link":               func(path string) error { return os.Symlink(secret, path) },
		"FIFO":               func(path string) error { return unix.Mkfifo(path, 0o666) },
		"directory":          func(path string) error { return os.Mkdir(path, 0o777) },
		"too large":          func(path string) error { return os.Truncate(touch(path), maxFile+1) },
		"socket":             func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) },
		"no read permission": func(path string) error { return os.Chmod(touch(path), 0) },
	} {
		if name == "no read permission" && os.Getuid() == 0 {
			continue
		}
		upper := t.TempDir()
		require.NoError(t, make(filepath.Join(upper, "MERGE_MSG")))
		require.NoError(t, os.Mkdir(filepath.Join(upper, "sequencer"), 0o777))
		require.NoError(t, make(filepath.Join(upper, "sequencer", "head")))
		if name != "directory" {
			require.NoError(t, make(filepath.Join(upper, "rebase-merge")))
		}
		result := s.land(upper)
		assert.Empty(t, result.Landed, name)
		var stays []string
		for _, stay := range result.Stays {
			stays = append(stays, stay.Name)
		}
		assert.Contains(t, stays, "MERGE_MSG", name)
		assert.Contains(t, stays, "sequencer", name)
		assert.Equal(t, name != "directory", slices.Contains(stays, "rebase-merge"), name)
	}
}

func touch(path string) string {
	_ = os.WriteFile(path, nil, 0o666)
	return path
}

// FuzzTodo searches for an accepted list with which git would run a program.
func FuzzTodo(f *testing.F) {
	id := strings.Repeat("1", 40)
	f.Add("pick " + id + " x\n# exec x\nlabel a\nmerge -C " + id + " a # x\nfixup -C " + id + "\n")
	f.Add("x id\n\texec id")
	f.Fuzz(func(t *testing.T, list string) {
		l := &lander{Options: Options{HexLen: 40, Exists: func(string) bool { return true }, Pick: func(string, bool) bool { return true }, Kind: func(string) (string, error) { return "commit", nil }}}
		if todo(rebaseCommands, true)(l, []byte(list), nil) != nil {
			return
		}
		for line := range strings.SplitSeq(list, "\n") {
			line = strings.TrimLeft(line, " \t\r")
			require.False(t, strings.HasPrefix(line, "exec") || strings.HasPrefix(line, "x ") || strings.HasPrefix(line, "x\t"), line)
		}
	})
}

// To git, an empty file is often an option without a value. Only files that git itself
// leaves empty may be so.
func TestEmptyFiles(t *testing.T) {
	l := &lander{Options: Options{HexLen: 40, Exists: func(string) bool { return true }, Pick: func(string, bool) bool { return true }, Kind: func(string) (string, error) { return "commit", nil }}}
	checks := map[string]check{}
	for _, group := range groups {
		for _, it := range group {
			if it.files == nil {
				checks[it.name] = it.check
			}
			for name, check := range it.files {
				checks[it.name+"/"+name] = check
			}
		}
	}
	for _, row := range []struct{ text, land string }{
		{"", `BISECT_ANCESTORS_OK BISECT_FIRST_PARENT BISECT_LOG FETCH_HEAD MERGE_MODE MERGE_MSG MERGE_RR SQUASH_MSG
			rebase-merge/cdate_is_adate rebase-merge/current-fixups rebase-merge/done rebase-merge/drop_redundant_commits rebase-merge/dropped
			rebase-merge/git-rebase-todo rebase-merge/git-rebase-todo.backup rebase-merge/ignore_date rebase-merge/interactive
			rebase-merge/keep_redundant_commits rebase-merge/message rebase-merge/message-fixup rebase-merge/message-squash
			rebase-merge/no-reschedule-failed-exec rebase-merge/patch rebase-merge/quiet rebase-merge/refs-to-delete
			rebase-merge/reschedule-failed-exec rebase-merge/rewritten-list rebase-merge/rewritten-pending rebase-merge/stopped-sha
			rebase-merge/update-refs rebase-merge/verbose
			sequencer/abort-safety sequencer/opts sequencer/todo BISECT_NAMES`},
		{" ", `MERGE_MSG SQUASH_MSG rebase-merge/message rebase-merge/message-fixup rebase-merge/message-squash rebase-merge/patch`},
	} {
		var land []string
		for name, check := range checks {
			if check != nil && check(l, []byte(row.text), nil) == nil {
				land = append(land, name)
			}
		}
		assert.ElementsMatch(t, strings.Fields(row.land), land, "%q", row.text)
	}
}
