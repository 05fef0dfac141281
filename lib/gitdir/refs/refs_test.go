package refs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// world is a repository of the host, a copy in which commands run as if it were
// the merged view, and the layer that an overlay would have made of the difference.
type world struct {
	t          *testing.T
	host, view string // git directories
	tree, copy string // work trees
	upper      string
	options    Options
	kinds      map[string]string
}

func newWorld(t *testing.T, script string) *world {
	dir := t.TempDir()
	w := &world{t: t, tree: filepath.Join(dir, "host"), copy: filepath.Join(dir, "view"), upper: filepath.Join(dir, "upper")}
	w.host, w.view = filepath.Join(w.tree, ".git"), filepath.Join(w.copy, ".git")
	run(t, "", "cp", "-a", repository(t, script), w.tree)
	var last time.Time
	require.NoError(w.t, filepath.WalkDir(w.host, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && ctime(info).After(last) {
			last = ctime(info)
		}
		return err
	}))
	w.options = Options{Session: "s1", Since: last.Add(1), Landed: map[string]string{},
		Kind: w.kind, IsAncestor: w.isAncestor, Committer: "A U Thor <author@example.com>"}
	return w
}

var (
	scripts  = map[string]string{}
	building sync.Mutex
	scratch  string
)

func TestMain(m *testing.M) {
	status := m.Run()
	if scratch != "" {
		os.RemoveAll(scratch)
	}
	os.Exit(status)
}

// repository makes a work tree by a script, once for all tests.
func repository(t *testing.T, script string) string {
	building.Lock()
	defer building.Unlock()
	dir, ok := scripts[script]
	if !ok {
		if scratch == "" {
			var err error
			scratch, err = os.MkdirTemp("", "refs-")
			require.NoError(t, err)
		}
		dir = filepath.Join(scratch, strconv.Itoa(len(scripts)), "host")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		run(t, dir, "sh", "-ec", commit+"git init -q --template= -b main; "+script)
		scripts[script] = dir
	}
	return dir
}

const commit = `c() { echo "$1" >>f; git add f; git commit -q -m "$1"; }; `

func environment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_EMAIL=c@x",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=advice.detachedHead", "GIT_CONFIG_VALUE_0=false",
		"GIT_CONFIG_KEY_1=gc.auto", "GIT_CONFIG_VALUE_1=0"}
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(environment("/none"), "GIT_COMMITTER_NAME="+filepath.Base(dir))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoErrorf(t, err, "%q: %s", args, &stderr)
	return string(out)
}

func (w *world) sh(dir, script string) string {
	w.t.Helper()
	return run(w.t, dir, "sh", "-ec", commit+script)
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	return strings.TrimSuffix(run(w.t, w.tree, append([]string{"git"}, args...)...), "\n")
}

func (w *world) at(rev string) string   { return w.git("rev-parse", rev) }
func (w *world) seen(rev string) string { return strings.TrimSpace(w.sh(w.copy, "git rev-parse "+rev)) }

// session runs a command in the layer, and lands its objects.
func (w *world) session(script string) {
	w.t.Helper()
	if !exists(w.copy) {
		run(w.t, "", "cp", "-a", w.tree, w.copy)
	}
	w.sh(w.copy, script)
	w.layer()
	run(w.t, "", "cp", "-rn", w.view+"/objects/.", w.host+"/objects")
	w.kinds = nil
}

// layer makes the upper directory.
func (w *world) layer() {
	require.NoError(w.t, os.RemoveAll(w.upper))
	require.NoError(w.t, os.Mkdir(w.upper, 0o755))
	require.NoError(w.t, filepath.WalkDir(w.view, func(file string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.view, file)
		if err != nil || rel == "objects" || rel == "." {
			return skip(e, err, rel)
		}
		host, hostErr := os.Lstat(filepath.Join(w.host, rel))
		to := filepath.Join(w.upper, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(to, 0o755)
		case e.Type() != 0:
			return os.Symlink("/etc/passwd", to)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if hostErr == nil && host.Mode().IsRegular() {
			if old, err := os.ReadFile(filepath.Join(w.host, rel)); err == nil && bytes.Equal(old, data) {
				return nil
			}
		}
		return os.WriteFile(to, data, 0o644)
	}))
	require.NoError(w.t, filepath.WalkDir(w.host, func(file string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.host, file)
		if err != nil || rel == "objects" || rel == "." {
			return skip(e, err, rel)
		}
		if exists(filepath.Join(w.view, rel)) {
			return nil
		}
		if info, err := os.Lstat(filepath.Dir(filepath.Join(w.upper, rel))); err != nil || info.IsDir() {
			w.whiteout(rel)
		}
		return skip(e, nil, "objects")
	}))
}

func skip(e fs.DirEntry, err error, rel string) error {
	if err == nil && rel == "objects" && e.IsDir() {
		return fs.SkipDir
	}
	return err
}

func (w *world) whiteout(rel string) {
	name := filepath.Join(w.upper, rel)
	require.NoError(w.t, os.RemoveAll(name))
	require.NoError(w.t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(w.t, unix.Mknod(name, unix.S_IFCHR, 0))
}

// put writes a file into the layer by hand.
func (w *world) put(rel, content string) {
	name := filepath.Join(w.upper, rel)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(w.t, os.WriteFile(name, []byte(content), 0o644))
}

func (w *world) hostDir() Host { return Host{w.host, w.host, 40} }

func (w *world) changes() ([]Change, []Refused) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(w.upper, 0o755))
	fd, err := unix.Open(w.upper, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(w.t, err)
	defer unix.Close(fd)
	changes, refused, err := Changes(w.hostDir(), fd, w.options)
	require.NoError(w.t, err)
	return changes, refused
}

// land runs all steps and returns lines such as "landed refs/heads/main".
func (w *world) land() []string {
	w.t.Helper()
	changes, refused := w.changes()
	results, err := Apply(w.hostDir(), changes, w.options)
	require.NoError(w.t, err)
	lines := []string{}
	for _, r := range results {
		line := r.Outcome.String() + " " + r.Name
		if r.Kept != "" {
			line += " as " + r.Kept
		}
		if r.Outcome == Refuse {
			line += ": " + r.Reason
		}
		lines = append(lines, line)
	}
	for _, r := range refused {
		lines = append(lines, "refused "+r.Name+": "+r.Reason)
	}
	return lines
}

func (w *world) kind(id string) (string, error) {
	if w.kinds == nil {
		w.kinds = map[string]string{}
		for line := range strings.Lines(w.git("cat-file", "--batch-all-objects", "--batch-check")) {
			fields := strings.Fields(line)
			w.kinds[fields[0]] = fields[1]
		}
	}
	if kind := w.kinds[id]; kind != "" {
		return kind, nil
	}
	return "", fs.ErrNotExist
}

func (w *world) isAncestor(a string, others ...string) bool {
	return slices.ContainsFunc(others, func(b string) bool {
		cmd := exec.Command("git", "merge-base", "--is-ancestor", a, b)
		cmd.Dir, cmd.Env = w.tree, environment("/none")
		return cmd.Run() == nil
	})
}

// refs returns the output of for-each-ref in a repository, without pk's refs.
func (w *world) refs(dir string) string {
	w.t.Helper()
	out := ""
	for line := range strings.Lines(run(w.t, dir, "git", "for-each-ref", "--format=%(refname) %(objectname) %(symref)")) {
		if !strings.HasPrefix(line, "refs/pk/") {
			out += line
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, ".git/HEAD"))
	require.NoError(w.t, err)
	return out + string(data)
}

// reachable returns all commits that the host's refs and logs lead to.
func (w *world) reachable() map[string]bool {
	w.t.Helper()
	all := map[string]bool{}
	for id := range strings.FieldsSeq(w.git("rev-list", "--all", "--reflog")) {
		all[id] = true
	}
	return all
}

// held returns all commits that the host's refs lead to, and the stashes.
func (w *world) held() string {
	w.t.Helper()
	return w.sh(w.tree, "git rev-list --all $(git stash list --format=%H)")
}

// forget makes the host's git forget all that no ref leads to.
func (w *world) forget() {
	w.t.Helper()
	w.git("-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
}

// hold checks that refs lead to all commits.
func (w *world) hold(held string) {
	w.t.Helper()
	now := strings.Fields(w.held())
	for id := range strings.FieldsSeq(held) {
		require.Containsf(w.t, now, id, "no ref leads to the commit %s", id)
	}
}

// sound checks that the host's repository is valid, that no lock was left, and that no
// commit of before was lost.
func (w *world) sound(before map[string]bool) {
	w.t.Helper()
	run(w.t, w.tree, "git", "fsck", "--full", "--strict", "--no-dangling")
	now := w.reachable()
	for id := range before {
		require.Containsf(w.t, now, id, "commit %s is lost", id)
	}
	require.NoError(w.t, filepath.WalkDir(w.host, func(file string, e fs.DirEntry, err error) error {
		require.Falsef(w.t, strings.HasSuffix(file, ".lock") || strings.HasSuffix(file, ".pk"), "%s was left", file)
		return err
	}))
}

// Of few names Has reads each, of many the directories.
func TestHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; git branch packed; git branch d/packed; git pack-refs --all; git branch loose; git branch d/loose; git update-ref refs/remotes/o/main HEAD; git symbolic-ref refs/remotes/o/HEAD refs/remotes/o/main; git update-ref refs/worktree/w HEAD")
	here := []string{"refs/heads/packed", "refs/heads/d/packed", "refs/heads/loose", "refs/heads/d/loose", "refs/remotes/o/HEAD", "refs/worktree/w", "HEAD"}
	none := []string{"refs/heads/d", "refs/heads/loose/x", "refs/heads/none", "refs/none/x", "refs/worktree/none"}
	for _, more := range []int{0, fewNames} {
		names := append(slices.Clone(here), none...)
		for i := range more {
			names = append(names, fmt.Sprintf("refs/heads/more-%d", i))
		}
		has, err := Has(Host{Common: w.host, Git: w.host, HexLen: 40}, names...)
		require.NoError(t, err)
		for _, name := range names {
			assert.Equal(t, slices.Contains(here, name), has[name], name)
		}
	}
}
