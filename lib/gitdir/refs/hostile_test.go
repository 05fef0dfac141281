package refs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Layers that a command can write by hand: C is a commit, T a tree, V the value of the
// tag v1, U an ID without object, Z the null ID.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	const script = "c 1; c 2; git tag v1; git pack-refs --all; c 3; git branch old; git branch a/b"
	w := newWorld(t, script)
	before := w.reachable()
	c, tree, v1 := w.at("HEAD~2"), w.at("HEAD^{tree}"), w.at("v1")
	type layer map[string]string // path: content; "->" a link, "|" a FIFO, "0" a whiteout, "000" no permissions
	for _, row := range []struct {
		name  string
		layer layer
		want  []string // results; a trailing * stands for any text
	}{
		{"a new branch", layer{"refs/heads/x": "C\n"}, []string{"landed refs/heads/x"}},
		{"a value without newline", layer{"refs/heads/x": "C"}, []string{"landed refs/heads/x"}},
		{"a value in capitals", layer{"refs/heads/x": "UC\n"}, []string{"landed refs/heads/x"}},
		{"a value with more after it", layer{"refs/heads/x": "C C\n"}, []string{"refused refs/heads/x: it holds no object ID"}},
		{"the null ID", layer{"refs/heads/x": "Z\n"}, []string{"refused refs/heads/x: it holds no object ID"}},
		{"an empty file", layer{"refs/heads/x": ""}, []string{"refused refs/heads/x: it holds no object ID"}},
		{"an unknown object", layer{"refs/heads/x": "U\n"}, []string{"refused refs/heads/x: its object * has not landed"}},
		{"a branch that is a tree", layer{"refs/heads/x": "T\n"}, []string{"refused refs/heads/x: it leads to a tree, not to a commit"}},
		{"notes that git shows for files", layer{"refs/notes/textconv/pdf": "C\n"}, []string{"refused refs/notes/textconv/pdf: git on the host would show its notes in the place of files"}},
		{"notes that are a tree", layer{"refs/notes/commits": "T\n"}, []string{"refused refs/notes/commits: it leads to a tree, not to a commit"}},
		{"a remote branch that is a tree", layer{"refs/remotes/o/x": "T\n"}, []string{"refused refs/remotes/o/x: it leads to a tree, not to a commit"}},
		{"a tag of a tree", layer{"refs/tags/x": "T\n"}, []string{"landed refs/tags/x"}},
		{"a link", layer{"refs/heads/x": "->../../HEAD"}, []string{"refused refs/heads/x: it is a symbolic link"}},
		{"a FIFO", layer{"refs/heads/x": "|"}, []string{"refused refs/heads/x: it is not a regular file"}},
		{"a big file", layer{"refs/heads/x": "C" + strings.Repeat("\n", 5000)}, []string{"refused refs/heads/x: it is too large"}},
		{"a symbolic branch", layer{"refs/heads/x": "ref: refs/heads/main\n"}, []string{"refused refs/heads/x: only HEAD*"}},
		{"a branch made symbolic", layer{"refs/heads/main": "ref: refs/heads/old\n"}, []string{"refused refs/heads/main: only HEAD*"}},
		{"a remote's HEAD out of the remote", layer{"refs/remotes/o/HEAD": "ref: refs/heads/main"}, []string{"refused refs/remotes/o/HEAD: it leads to *"}},
		{"a remote's HEAD to itself", layer{"refs/remotes/o/HEAD": "ref: refs/remotes/o/HEAD"}, []string{"refused refs/remotes/o/HEAD: it leads to *"}},
		{"HEAD out of refs/heads", layer{"HEAD": "ref: refs/tags/v1\n"}, []string{"refused HEAD: it leads to *"}},
		{"HEAD to a file", layer{"HEAD": "ref: ../x\n"}, []string{"refused HEAD: *"}},
		{"HEAD a link", layer{"HEAD": "->refs/heads/main"}, []string{"refused HEAD: it is a symbolic link"}},
		{"HEAD removed, with everything", layer{"HEAD": "0", "refs": "0", "packed-refs": "0"},
			[]string{"refused refs: *", "refused HEAD: the command removed HEAD"}},
		{"HEAD a tree", layer{"HEAD": "T\n"}, []string{"refused HEAD: it leads to a tree, not to a commit"}},
		{"ours", layer{"refs/pk/trash/x": "C\n"}, []string{"refused refs/pk/trash/x: refs/pk/ belongs to pk"}},
		{"ours removed", layer{"refs/pk": "0"}, nil},
		{"a name with a colon", layer{"refs/heads/a:b": "C\n"}, []string{"refused refs/heads/a:b: git accepts no ref of this name"}},
		{"a name with an escape", layer{"refs/heads/a\x1b[2Jb": "C\n"}, []string{"refused *"}},
		{"a branch that looks like an option", layer{"refs/heads/-f": "C\n"}, []string{"refused refs/heads/-f: git accepts no branch*"}},
		{"a branch HEAD", layer{"refs/heads/HEAD": "C\n"}, []string{"refused refs/heads/HEAD: git accepts no branch*"}},
		{"locks and hidden files", layer{"refs/heads/main.lock": "x", "refs/heads/.x": "x"}, nil},
		{"refs a link", layer{"refs": "->/etc"}, []string{"refused refs: *"}},
		{"heads a link", layer{"refs/heads": "->/etc"}, []string{"refused refs/heads: it is a symbolic link"}},
		{"heads removed", layer{"refs/heads": "0"}, []string{"landed refs/heads/a/b", "landed refs/heads/main", "landed refs/heads/old"}},
		{"a file where the host has refs", layer{"refs/heads/a": "C\n"}, []string{"landed refs/heads/a", "landed refs/heads/a/b"}},
		{"a directory where the host has a ref", layer{"refs/heads/old/x": "C\n"}, []string{"landed refs/heads/old", "landed refs/heads/old/x"}},
		{"a packed ref in the way", layer{"refs/tags/v1/x": "C\n"}, []string{"kept refs/tags/v1/x as refs/pk/s1/tags/v1/x"}},
		{"packed-refs a link", layer{"packed-refs": "->/etc/passwd", "refs/heads/old": "0"}, []string{"refused packed-refs: it is a symbolic link"}},
		{"packed-refs with nonsense", layer{"packed-refs": "C refs/heads/x\nfoo\n", "refs/heads/old": "0"}, []string{"refused packed-refs: it has a line*"}},
		{"packed-refs with a name twice", layer{"packed-refs": "C refs/heads/x\nC refs/heads/x\n"}, []string{"refused packed-refs: it names*"}},
		{"packed-refs unsorted", layer{"packed-refs": "C refs/tags/v1\nC refs/heads/z\nC refs/heads/x\n"},
			[]string{"landed refs/heads/x", "landed refs/heads/z", "landed refs/tags/v1"}},
		{"packed-refs with bad names", layer{"packed-refs": "C ../../x\nV refs/tags/v1\n"}, []string{"refused ../../x: *"}},
		{"packed-refs without its end", layer{"packed-refs": "C refs/tags/v1"}, []string{"refused packed-refs: *"}},
		{"packed-refs removed", layer{"packed-refs": "0"}, []string{"landed refs/tags/v1"}},
		{"logs a link", layer{"refs/heads/x": "C\n", "logs": "->/etc"}, []string{"landed refs/heads/x"}},
		{"a log that is a link", layer{"refs/heads/x": "C\n", "logs/refs/heads/x": "->/etc/passwd"}, []string{"landed refs/heads/x"}},
		{"a log of other objects", layer{"refs/heads/x": "C\n", "logs/refs/heads/x": "Z U a <b> 1 +0000\tx\nU C a <b> 1 +0000\tx\n"}, []string{"landed refs/heads/x"}},
		{"a stash without log", layer{"refs/stash": "C\n"}, []string{"landed refs/stash"}},
		{"a stash whose log ends elsewhere", layer{"refs/stash": "C\n", "logs/refs/stash": "Z V a <b> 1 +0000\tx\n"}, []string{"refused refs/stash: its log*"}},
		{"a stash whose log has nonsense", layer{"refs/stash": "C\n", "logs/refs/stash": "x\nZ C a <b> 1 +0000\tx\n"}, []string{"refused refs/stash: its log*"}},
		{"a stash with unknown objects", layer{"refs/stash": "C\n", "logs/refs/stash": "Z U a <b> 1 +0000\tx\nU C a <b> 1 +0000\tx\n"}, []string{"refused refs/stash: its commit*"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, script)
			replace := strings.NewReplacer("UC", strings.ToUpper(c), "U ", strings.Repeat("1", 40)+" ", "U\n", strings.Repeat("1", 40)+"\n",
				"Z", strings.Repeat("0", 40), "C", c, "T\n", tree+"\n", "V ", v1+" ")
			for name, content := range row.layer {
				file := filepath.Join(w.upper, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				target, link := strings.CutPrefix(content, "->")
				switch {
				case link:
					require.NoError(t, os.Symlink(target, file))
				case content == "|":
					require.NoError(t, unix.Mkfifo(file, 0o666))
				case content == "0":
					w.whiteout(name)
				default:
					w.put(name, replace.Replace(content))
				}
			}

			lines := w.land()

			require.Len(t, lines, len(row.want), "%q", lines)
			for i, want := range row.want {
				start, end, any := strings.Cut(want, "*")
				assert.Truef(t, lines[i] == want || any && strings.HasPrefix(lines[i], start) && strings.HasSuffix(lines[i], end), "%q, want %q", lines[i], want)
			}
			w.sound(before)
		})
	}
}

func TestUnreadableAndOpaque(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; git branch a/b; git branch a/c")
	w.put("refs/heads/a/c", w.at("HEAD")+"\n")
	require.NoError(t, unix.Setxattr(w.upper+"/refs/heads/a", "user.overlay.opaque", []byte("y"), 0))
	assert.Equal(t, []string{"landed refs/heads/a/b"}, w.land())

	require.NoError(t, unix.Setxattr(w.upper+"/refs", "user.overlay.opaque", []byte("y"), 0))
	assert.Equal(t, []string{"refused refs: the command removed the directory, so no ref is deleted on the host"}, w.land())
	assert.Equal(t, "main", w.git("branch", "--show-current"))
	w.at("main")
}

// No message of a layer's log can look like another line, or move a terminal's cursor.
func TestLogsOfALayer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "c 1; c 2")
	old, id := w.at("HEAD"), w.at("HEAD~1")
	w.put("refs/heads/main", id+"\n")
	w.put("logs/refs/heads/main", old+" "+id+" Eve <e@x> 1700000000 +0000\ta\x1b[2J\u009bb\u202e"+strings.Repeat("x", 2000)+"\n")
	w.put("logs/HEAD", old+" "+id+" Eve <e@x> 1700000000 +0000\treset: moving to HEAD~1\n")
	assert.Equal(t, []string{"landed HEAD", "landed refs/heads/main"}, w.land())
	assert.Equal(t, "pk: s1: reset: moving to HEAD~1", w.git("reflog", "-1", "--format=%gs", "HEAD"))
	subject := w.git("reflog", "-1", "--format=%gs", "main")
	assert.True(t, strings.HasPrefix(subject, "pk: s1: a [2J b xxx"), subject)
	assert.Less(t, len(subject), 1020)
	assert.Equal(t, old, w.at("main@{1}"))
}

// A line that claims an old time would be the first that the host's gc drops.
func TestTimesInLogs(t *testing.T) {
	t.Parallel()
	const past, future = "1000000000 +0000", "4000000000 +0000"
	w := newWorld(t, "c 1; c 2; git branch b; echo x >>f; git stash -q -m theirs")
	begun := time.Now().Unix()
	w.session("export GIT_COMMITTER_DATE='" + past + "'; c 3; git checkout -q -b n; c 4; GIT_COMMITTER_DATE='" + future + "' c 5; git branch -f b; echo y >>f; git stash -q -m ours; git stash drop -q; echo z >>f; git stash -q -m ours; " +
		"sed -i 's/> [0-9]* /> 1000000000 /; s/theirs/forged/' .git/logs/refs/stash")
	stash := w.git("reflog", "-1", "--format=%gd %gs", "--date=raw", "stash")
	assert.NotEmpty(t, w.land())
	for _, name := range []string{"HEAD", "refs/heads/main", "refs/heads/n", "refs/heads/b", "refs/stash"} {
		log, err := os.ReadFile(w.host + "/logs/" + name)
		require.NoError(t, err)
		last := int64(0)
		for line := range strings.Lines(string(log)) {
			e, err := parseEntry(strings.TrimSuffix(line, "\n"), 40)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, e.Time, last, "%s: %s", name, line)
			assert.GreaterOrEqual(t, e.Time, begun-3600, "%s: %s", name, line)
			assert.LessOrEqual(t, e.Time, time.Now().Unix(), "%s: %s", name, line)
			last = e.Time
		}
	}
	assert.Equal(t, stash, w.git("reflog", "-1", "--skip=1", "--format=%gd %gs", "--date=raw", "stash"), "the host's stash keeps its label and time")
	assert.Empty(t, w.land(), "the second time")

	// The same lines again, from a layer whose record was lost.
	log, err := os.ReadFile(w.host + "/logs/HEAD")
	require.NoError(t, err)
	w.options.Landed = map[string]string{}
	w.land()
	again, err := os.ReadFile(w.host + "/logs/HEAD")
	require.NoError(t, err)
	assert.Equal(t, string(log), string(again))
}

// Beyond a number of bytes, references land without their logs.
func TestManyLogs(t *testing.T) {
	defer func(n int64) { maxLogs = n }(maxLogs)
	w := newWorld(t, "c 0; c 1")
	w.session("for n in 1 2 3; do git branch b$n HEAD~1; git branch -qf b$n HEAD; done")
	info, err := os.Stat(filepath.Join(w.upper, "logs/refs/heads/b1"))
	require.NoError(t, err)
	maxLogs = 2*info.Size() + 1
	changes, refused := w.changes()
	assert.Empty(t, refused)
	var logs []int
	for _, c := range changes {
		logs = append(logs, len(c.Log))
	}
	assert.Equal(t, []int{2, 2, 0}, logs)
	assert.Equal(t, []string{"landed refs/heads/b1", "landed refs/heads/b2", "landed refs/heads/b3"}, w.land())
}
