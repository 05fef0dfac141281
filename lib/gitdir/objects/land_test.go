package objects

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// repo is a repository that git works on.
type repo struct {
	t      *testing.T
	dir    string
	format Format
}

var formats = map[string]Format{"sha1": SHA1, "sha256": SHA256}

// newRepo makes a repository like git init, in less time.
func newRepo(t *testing.T, f Format) *repo {
	r := &repo{t, t.TempDir(), f}
	r.write(".git/HEAD", "ref: refs/heads/main\n")
	config := "[core]\nrepositoryformatversion = 0\n"
	if f == SHA256 {
		config = "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"
	}
	r.write(".git/config", config)
	for _, dir := range []string{"refs", "objects/pack", "objects/info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(r.dir, ".git", dir), 0o755))
	}
	return r
}

func (r *repo) objects() string { return filepath.Join(r.dir, ".git/objects") }

func (r *repo) git(args ...string) string { return r.gitIn("", args...) }

func (r *repo) gitIn(stdin string, args ...string) string {
	r.t.Helper()
	out, err := r.try(stdin, args...)
	require.NoError(r.t, err, "git %q: %s", args, out)
	return strings.TrimSpace(out)
}

func (r *repo) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b",
		"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *repo) write(name, text string) {
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(r.t, os.WriteFile(path, []byte(text), 0o644))
}

func (r *repo) commit(name, text string) string {
	r.t.Helper()
	r.write(name, text)
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", name)
	return r.git("rev-parse", "HEAD")
}

// object writes an object that git itself would refuse.
func (r *repo) object(kind, content string) string {
	r.t.Helper()
	return r.gitIn(content, "hash-object", "-w", "--stdin", "--literally", "-t", kind)
}

// box returns a repository whose objects are a layer over those of the host.
func (r *repo) box() *repo {
	b := newRepo(r.t, r.format)
	b.write(".git/objects/info/alternates", r.objects()+"\n")
	if _, err := os.Stat(filepath.Join(r.dir, ".git/refs/heads/main")); err == nil {
		b.git("reset", "-q", "--hard", r.git("rev-parse", "HEAD"))
	}
	return b
}

func (r *repo) open() *Database {
	d, err := Open(r.objects(), r.format)
	require.NoError(r.t, err)
	r.t.Cleanup(d.Close)
	return d
}

func (r *repo) lander(o Options) *Lander { return NewLander(r.open(), r.format, o) }

// land lands the objects of b. It requires that the host only gains objects, and that git
// finds no fault.
func (r *repo) land(l *Lander, b *repo) Result {
	r.t.Helper()
	before := r.tree()
	fd, err := unix.Open(b.objects(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(r.t, err)
	defer unix.Close(fd)
	result, err := l.Land(fd)
	require.NoError(r.t, err)
	after := r.tree()
	for name, was := range before {
		assert.Equal(r.t, was, after[name], name)
	}
	for name := range after {
		assert.NotContains(r.t, name, "tmp_", "a temporary file is left")
	}
	r.fsck()
	return result
}

func (r *repo) fsck() {
	r.t.Helper()
	out, err := r.try("", "fsck", "--full", "--no-dangling", "--no-progress")
	assert.NoError(r.t, err, out)
	for line := range strings.Lines(out) {
		assert.Regexp(r.t, "^(notice:|warning in) ", line, out)
	}
}

// tree returns all files below `objects`, with mode and content.
func (r *repo) tree() map[string]string {
	files := map[string]string{}
	require.NoError(r.t, filepath.WalkDir(r.objects(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		info, _ := e.Info()
		files[path] = fmt.Sprint(info.Mode(), data)
		return err
	}))
	return files
}

// shows requires that the host can show everything below a commit of b.
func (r *repo) shows(b *repo, id string) {
	r.t.Helper()
	r.git("update-ref", "refs/heads/landed", id)
	assert.Equal(r.t, b.git("rev-list", "--objects", id), r.git("rev-list", "--objects", id))
	r.fsck()
	r.git("cat-file", "--batch-all-objects", "--batch-check")
}

func eachFormat(t *testing.T, test func(*testing.T, Format)) {
	for name, f := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

func TestLandsLooseObjects(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		host := newRepo(t, f)
		host.commit("a", "1")
		host.git("gc", "-q")
		box := host.box()
		id := box.commit("d/b", "2")
		box.git("tag", "-a", "-m", "x", "v1")
		l := host.lander(Options{})
		result := host.land(l, box)
		assert.Equal(t, Result{Added: 5}, result)
		host.shows(box, id)
		assert.Equal(t, "tag", host.git("cat-file", "-t", box.git("rev-parse", "v1")))

		assert.Equal(t, Result{}, host.land(l, box), "nothing is new")
		id = box.commit("d/b", "3")
		assert.Equal(t, Result{Added: 4}, host.land(l, box))
		host.shows(box, id)
		assert.Equal(t, Result{}, host.land(host.lander(Options{}), box), "nothing is new to another Lander")
	})
}

// history makes n commits that change a file with many lines.
func (r *repo) history(n int, name string) string {
	var s strings.Builder
	parent := ""
	if out, err := r.try("", "rev-parse", "-q", "--verify", "HEAD"); err == nil {
		parent = strings.TrimSpace(out)
	}
	var text bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&text, "line %d of %s %x\n", i, name, r.format.oid(bytes.Repeat([]byte{byte(i * 7)}, 32)))
	}
	for i := range n {
		fmt.Fprintf(&text, "change %d\n", i)
		fmt.Fprintf(&s, "commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 1\nx\n", 1700000000+i)
		if i == 0 && parent != "" {
			fmt.Fprintf(&s, "from %s\n", parent)
		}
		fmt.Fprintf(&s, "M 644 inline d/%s\ndata %d\n%s\nM 644 inline f%d\ndata 1\n%d\n", name, text.Len(), text.String(), i, i%10)
	}
	r.gitIn(s.String(), "fast-import", "--quiet", "--force")
	return r.git("rev-parse", "main")
}

func TestLandsAPackAsAPack(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		host := newRepo(t, f)
		host.history(3, "base")
		host.git("repack", "-adq")
		box := host.box()
		id := box.history(150, "file")
		box.git("repack", "-adlq", "--depth=200")
		l := host.lander(Options{})
		result := host.land(l, box)
		assert.Empty(t, result.Refused)
		assert.Greater(t, result.Added, maxLooseObjects)
		host.shows(box, id)
		packs, _ := filepath.Glob(host.objects() + "/pack/*.idx")
		require.Len(t, packs, 2)
		host.git("verify-pack", packs[0], packs[1])
		for _, p := range packs {
			host.git("index-pack", "--strict", "-o", filepath.Join(t.TempDir(), "x.idx"), strings.TrimSuffix(p, ".idx")+".pack")
		}
		assert.Less(t, size(t, host.objects()), 2*size(t, box.objects())+20000, "deltas stay deltas")
		assert.Equal(t, Result{}, host.land(l, box))
	})
}

func size(t *testing.T, dir string) (n int64) {
	packs, err := filepath.Glob(dir + "/pack/*.pack")
	require.NoError(t, err)
	for _, p := range packs {
		st, err := os.Stat(p)
		require.NoError(t, err)
		n += st.Size()
	}
	return n
}

func TestLandsOnlyWhatIsNewOfAGC(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		host := newRepo(t, f)
		host.history(250, "file")
		host.git("gc", "-q")
		box := newRepo(t, f)
		require.NoError(t, os.RemoveAll(box.dir))
		require.NoError(t, exec.Command("cp", "-a", host.dir, box.dir).Run())
		id := box.history(5, "file") // deltas to objects of the host
		box.git("gc", "-q")
		before := size(t, host.objects())
		result := host.land(host.lander(Options{}), box)
		assert.Equal(t, 10, result.Added)
		assert.Empty(t, result.Refused)
		assert.Equal(t, before, size(t, host.objects()))
		host.shows(box, id)
	})
}

func TestLandsManyNewOfAGC(t *testing.T) {
	host := newRepo(t, SHA1)
	host.history(50, "file")
	host.git("gc", "-q")
	box := newRepo(t, SHA1)
	require.NoError(t, os.RemoveAll(box.dir))
	require.NoError(t, exec.Command("cp", "-a", host.dir, box.dir).Run())
	id := box.history(150, "file")
	loose := box.object("blob", "loose")
	box.git("gc", "-q")
	bad := box.object("tree", "40000 .git\x00"+strings.Repeat("x", 20))
	box.git("update-ref", "refs/heads/more", box.git("commit-tree", "-m", "x", "HEAD^{tree}"))
	result := host.land(host.lander(Options{}), box)
	assert.Equal(t, []Refused{{bad, "name is .git, or a file system takes it for .git"}}, result.Refused)
	host.shows(box, id)
	assert.Equal(t, "loose", host.git("cat-file", "-p", loose))
}

// Objects that git has pruned on the host land again, with the commits on them.
func TestLandsAgainWhatWasPruned(t *testing.T) {
	host := newRepo(t, SHA1)
	host.commit("file", "host")
	box := host.box()
	box.commit("new", "1")
	l := host.lander(Options{})
	assert.Empty(t, host.land(l, box).Refused)
	l.Remember()
	host.git("prune", "--expire=now")
	id := box.commit("dir", "2")
	assert.Empty(t, host.land(l, box).Refused)
	host.shows(box, id)
}
