package gittest

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Random writes upper layers that no git command would leave.
type Random struct {
	*rand.Rand
	Outside string // a file outside, for links
	pieces  []piece
}

// A piece is a file of a real git directory.
type piece struct {
	name string
	text []byte
}

// NewRandom takes real pieces from git directories.
func NewRandom(t testing.TB, seed uint64, outside string, gitDirs ...string) *Random {
	t.Helper()
	r := &Random{Rand: rand.New(rand.NewPCG(seed, 1)), Outside: outside}
	for _, dir := range gitDirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			r.pieces = append(r.pieces, piece{name, text})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// emptyFile is the name of an empty file of Git LFS.
const emptyFile = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Names that git knows, and others.
var names = []string{
	"HEAD", "index", "config", "config.worktree", "packed-refs", "shallow", "commondir", "gitdir", "description", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE",
	"MERGE_RR", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "AUTO_MERGE", "SQUASH_MSG", "COMMIT_EDITMSG", "BISECT_LOG", "BISECT_START", "BISECT_TERMS", "BISECT_NAMES", "BISECT_RUN", "NOTES_EDITMSG",
	"HEAD.lock", "index.lock", "packed-refs.lock", "refs/heads/main.lock", "gc.pid", "gc.log",
	"refs/heads/main", "refs/heads/topic", "refs/heads/new", "refs/heads/a/b", "refs/heads/a", "refs/heads/-x", "refs/heads/x..y", "refs/heads/x.lock", "refs/heads/sp ace", "refs/heads/n\nl",
	"refs/tags/v1", "refs/stash", "refs/notes/commits", "refs/remotes/origin/main", "refs/remotes/origin/HEAD", "refs/replace/x", "refs/pk/x/main", "refs/bisect/bad", "refs/worktree/x", "refs/HEAD", "refs/x",
	"logs/HEAD", "logs/refs/heads/main", "logs/refs/stash", "logs/refs/heads/new", "logs/x",
	"hooks/pre-commit", "hooks/post-checkout", "info/exclude", "info/attributes", "info/grafts", "info/refs", "info/sparse-checkout",
	"objects/info/alternates", "objects/info/packs", "objects/info/commit-graph", "objects/info/commit-graphs/commit-graph-chain", "objects/pack/multi-pack-index", "objects/pack/tmp_pack_x",
	"objects/00/00000000000000000000000000000000000000", "objects/pack/pack-0000000000000000000000000000000000000000.pack", "objects/pack/pack-0000000000000000000000000000000000000000.idx",
	"rebase-merge/git-rebase-todo", "rebase-merge/done", "rebase-merge/onto", "rebase-merge/head-name", "rebase-merge/orig-head", "rebase-merge/interactive", "rebase-merge/strategy", "rebase-merge/strategy_opts",
	"rebase-merge/gpg_sign_opt", "rebase-merge/autostash", "rebase-merge/author-script", "rebase-merge/message", "rebase-merge/msgnum", "rebase-merge/end", "rebase-apply/next", "rebase-apply/patch",
	"rebase-apply/author-script", "sequencer/todo", "sequencer/head", "sequencer/opts", "sequencer/abort-safety",
	"worktrees/wt/HEAD", "worktrees/wt/index", "worktrees/wt/gitdir", "worktrees/wt/commondir", "worktrees/wt/locked", "worktrees/new/HEAD", "worktrees/new/gitdir", "worktrees/new/commondir", "worktrees/wt/logs/HEAD", "worktrees/wt/config.worktree",
	"modules/mod/HEAD", "modules/mod/config", "modules/mod/index", "modules/mod/refs/heads/main", "modules/mod/hooks/post-checkout", "modules/new/HEAD", "modules/new/config", "modules/mod/modules/deep/config",
	"lfs/objects/x", "lfs/objects/e3/b0/" + emptyFile, "lfs/objects/e3/b1/" + emptyFile, "lfs/objects/ab/cd/abcd" + emptyFile[4:], "svn/x", "x", "sharedindex.0000000000000000000000000000000000000000", "fsmonitor--daemon/x", "branches/x", "remotes/origin",
}

// Layer writes a random upper layer of an overlay over a git directory. It skips files
// that it cannot write.
func (r *Random) Layer(upper string) {
	// Often a complete real one is there, so that a flaw is among things that land.
	if r.IntN(2) == 0 {
		for _, p := range r.pieces {
			if r.IntN(20) > 0 {
				write(filepath.Join(upper, p.name), p.text)
			}
		}
	}
	for range r.IntN(12) {
		r.entry(upper)
	}
}

func (r *Random) name() string {
	if r.IntN(2) == 0 && len(r.pieces) > 0 {
		return r.pieces[r.IntN(len(r.pieces))].name
	}
	name := names[r.IntN(len(names))]
	if r.IntN(6) == 0 {
		name = filepath.Dir(name)
	}
	return name
}

func (r *Random) entry(upper string) {
	path := filepath.Join(upper, r.name())
	if path == upper {
		return
	}
	if r.IntN(2) == 0 && exec.Command("rm", "-rf", path).Run() != nil { // os.RemoveAll waits in a FIFO above it
		return
	}
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err != nil || real != upper && !strings.HasPrefix(real, upper+"/") {
		return // it writes nothing through a link
	}
	info, err := os.Lstat(path)
	link := err == nil && info.Mode()&os.ModeSymlink != 0
	switch r.IntN(16) {
	case 0:
		_ = os.Symlink([]string{r.Outside, filepath.Dir(r.Outside), "HEAD", "../../outside", "/dev/zero", "refs/heads/main", "."}[r.IntN(7)], path)
	case 1:
		_ = unix.Mkfifo(path, 0o644)
	case 2:
		_ = unix.Mknod(path, unix.S_IFCHR, 0) // a whiteout
	case 3:
		_ = os.MkdirAll(path, 0o755)
		if r.IntN(2) == 0 && !link {
			_ = unix.Setxattr(path, "user.overlay.opaque", []byte("y"), 0)
		}
	case 4:
		if !link {
			_ = os.Chmod(path, os.FileMode(r.IntN(0o1000)))
		}
	case 5:
		_ = os.Link(filepath.Join(upper, r.name()), path)
	case 6:
		_ = os.Remove(path)
		_ = unix.Mknod(path, unix.S_IFSOCK|0o644, 0)
	case 7:
		if !link {
			_ = os.Truncate(path, int64(r.IntN(1<<uint(r.IntN(34)))))
		}
	case 8:
		_ = os.Rename(filepath.Join(upper, r.name()), path)
	default:
		write(path, r.text())
	}
}

func write(path string, text []byte) {
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.Remove(path)
	_ = os.WriteFile(path, text, 0o644)
}

// text is the content of a file: a real one, a real one with flaws, or a line.
func (r *Random) text() []byte {
	switch r.IntN(4) {
	case 0:
		return []byte(r.line())
	case 1:
		var b bytes.Buffer
		for range r.IntN(6) {
			b.WriteString(r.line())
		}
		return b.Bytes()
	}
	text := bytes.Clone(r.pieces[r.IntN(len(r.pieces))].text)
	for range r.IntN(4) {
		if len(text) == 0 {
			break
		}
		at := r.IntN(len(text))
		switch r.IntN(4) {
		case 0:
			text[at] ^= 1 << r.IntN(8)
		case 1:
			text = text[:at]
		case 2:
			text = append(text[:at:at], append([]byte(r.line()), text[at:]...)...)
		case 3:
			text = append(text, text[at:]...)
		}
	}
	return text
}

func (r *Random) line() string {
	id := fmt.Sprintf("%040x", r.Uint64())
	if len(r.pieces) > 0 && r.IntN(3) > 0 { // the name of an existing object
		for range 50 {
			name := r.pieces[r.IntN(len(r.pieces))].name
			if len(name) == len("objects/00/")+38 && name[:8] == "objects/" {
				id = name[8:10] + name[11:]
				break
			}
		}
	}
	return fmt.Sprintf([]string{
		"%s\n", "ref: refs/heads/main%.0s\n", "ref: refs/heads/new%.0s\n", "ref: ../../outside%.0s\n", "ref: refs/heads/../../config%.0s\n", "%s refs/heads/packed\n", "%s refs/heads/../x\n", "^%s\n",
		"exec touch /tmp/x%.0s\n", "pick %s x\n", "x%.0s\x00y\n", "%s\t\tbranch 'x' of ext::sh\n", "gitdir: ../x%.0s\n", "[core]\n\tfsmonitor = /bin/false%.0s\n", "../../outside%.0s\n",
		"0000000000000000000000000000000000000000 %s a <a@b> 1 +0000\tx\n", "[remote \"o\"]\n\turl = ext::sh%.0s\n", "# pack-refs with: peeled fully-peeled sorted %.0s\n",
	}[r.IntN(18)], id)
}
