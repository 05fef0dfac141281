package gitland

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
)

// Stat data are those of a file that has the content, and that git opens if it changes.
func TestRefresher(t *testing.T) {
	defer func(was int64) { settled = was }(settled)
	g := newGround(t)
	g.Sh(`repo .; mkdir d; echo x >d/f; : >empty; ln -s d/f l; ln -s d p; mkfifo fifo; echo old >old; touch -d 2001-01-01 old; truncate -s 8388609 large`)
	db, err := objects.Open(g.Path(".git/objects"), objects.SHA1)
	require.NoError(t, err)
	tree, err := unix.Open(g.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(tree)
	for _, row := range []struct {
		name, content string
		mode          uint32
		recent        bool // whether the file's ctime is
		want          bool
	}{
		{"d/f", "x\n", index.ModeFile, false, true},
		{"d/f", "x\n", index.ModeFile, true, true},
		{"d/f", "y\n", index.ModeFile, false, false},
		{"d/f", "x\n", index.ModeLink, false, false},
		{"empty", "", index.ModeFile, true, true},
		{"l", "d/f", index.ModeLink, true, true},
		{"l", "x\n", index.ModeFile, true, false},
		{"p/f", "x\n", index.ModeFile, true, false},
		{"../root/d/f", "x\n", index.ModeFile, true, false},
		{"fifo", "", index.ModeFile, true, false},
		{"none", "", index.ModeFile, true, false},
		{"old", "old\n", index.ModeFile, false, true},
		{"old", "old\n", index.ModeFile, true, false},
		{"large", string(make([]byte, 8<<20+1)), index.ModeFile, false, false},
	} {
		settled = -int64(time.Hour)
		if row.recent {
			settled = int64(time.Hour)
		}
		written := time.Now()
		f := refresher{repo: &repository{objects: db}, tree: tree, written: &written, files: 1, bytes: maxSeenBytes}
		st := f.look(row.name, row.mode, db.Name([]byte(row.content)))
		assert.Equal(t, row.want, st != nil, row)
		assert.Nil(t, f.look(row.name, row.mode, db.Name([]byte(row.content))), "it is one file too many")
		if st == nil {
			continue
		}
		var is unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(g.Root, row.name), &is))
		is.Atim, st.Atim = unix.Timespec{}, unix.Timespec{}
		assert.Equal(t, is, *st)
		if row.recent {
			assert.LessOrEqual(t, written.Unix(), is.Mtim.Sec, "git opens it")
		}
	}
}

// An index lands in steps, between changes of the host's.
func TestIndexInSteps(t *testing.T) {
	const step, host = `GIT_INDEX_FILE=U git `, `git `
	for _, row := range []struct {
		name  string
		steps []string
		want  string
	}{
		{"the host looks", []string{step + "add x", host + "update-index --force-write-index", step + "rm -q --cached x"}, "a b"},
		{"the host stages another file", []string{step + "add x", host + "add h", step + "add y", step + "rm -q --cached x"}, "a b h y"},
		{"and takes it back", []string{step + "add x", host + "add h", step + "add y", host + "rm -q --cached h", step + "rm -q --cached y"}, "a b x"},
		{"the host takes back what has landed", []string{step + "add x", host + "rm -q --cached x", step + "add y"}, "a b y"},
		{"and the command does", []string{step + "add x", host + "add h", step + "rm -q --cached x", host + "update-index --force-write-index", step + "add x"}, "a b h x"},
		{"both remove files", []string{step + "rm -q --cached a", host + "rm -q --cached b", step + "add x", step + "add a"}, "a x"},
		{"versions", []string{step + "update-index --index-version 4 --add x", host + "add h", step + "add -N y", host + "update-index --index-version 4 --force-write-index", step + "rm -q --cached x"}, "a b h y"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; for f in a b x y h; do echo $f >$f; done; git add a b; git commit -qm a`)
			g.Settle()
			l, err := OpenShared(g.Root+"-layers", g.Path(".git"), "s")
			require.NoError(t, err)
			l.GitDirs = []string{g.Path(".git")}
			defer l.Close()
			g.Sh("cp .git/index " + l.Upper() + "/index")
			l.Started()
			for _, step := range row.steps {
				g.Settle()
				g.Sh(strings.ReplaceAll(step, "=U ", "="+l.Upper()+"/index "))
				l.Land()
			}
			assert.Empty(t, l.LandLast())
			assert.Equal(t, row.want, strings.ReplaceAll(g.Git(".", "ls-files"), "\n", " "))
		})
	}
}
