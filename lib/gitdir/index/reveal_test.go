package index

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// forgeStat gives an entry of an index the stat data of the file at its path, so that git
// takes the file for the entry's object.
func (r *repository) forgeStat(data []byte, name string) []byte {
	x, err := ParseHost(data, r.hexLen)
	require.NoError(r.t, err)
	body := bytes.Clone(data[:len(data)-20])
	for i := range x.entries {
		if e := &x.entries[i]; string(x.path(e)) == name {
			var st unix.Stat_t
			require.NoError(r.t, unix.Lstat(filepath.Join(r.dir, name), &st))
			for i, v := range []uint32{uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec), uint32(st.Dev), uint32(st.Ino), e.mode, st.Uid, st.Gid, uint32(st.Size)} {
				binary.BigEndian.PutUint32(body[int(e.at)+4*i:], v)
			}
		}
	}
	return sum(body)
}

// change writes a file of an earlier time than the next index.
func (r *repository) change(name, content string) {
	r.write(name, content)
	before := time.Now().Add(-time.Minute)
	require.NoError(r.t, os.Chtimes(filepath.Join(r.dir, name), before, before))
}

// Git on the host sees each file that a command has changed, whatever the command writes
// into the index.
func TestReveal(t *testing.T) {
	mark := func(args ...string) func(*repository) {
		return func(r *repository) { r.git(append([]string{"update-index"}, args...)...) }
	}
	forged := func(name string) func(*repository) {
		return func(r *repository) { r.install(r.forgeStat(r.index(), name)) }
	}
	for _, row := range []struct {
		name     string
		command  func(r *repository)
		hides    bool // without Reveal
		status   string
		unmarked string
		same     bool
	}{
		{"nothing", func(*repository) {}, false, "", "", true},
		{"only a look", func(r *repository) { r.git("status"); r.git("update-index", "--force-write-index") }, false, "", "", true},
		{"assume unchanged", func(r *repository) { r.change("f", "evil!"); mark("--assume-unchanged", "f")(r) }, true, " M f", "f", true},
		{"skip", func(r *repository) { r.change("f", "evil!"); mark("--skip-worktree", "f")(r) }, true, " M f", "f", true},
		{"both", func(r *repository) {
			r.change("f", "evil!")
			mark("--skip-worktree", "f")(r)
			mark("--assume-unchanged", "f")(r)
		}, true, " M f", "f", true},
		{"skip a removed file", func(r *repository) {
			mark("--skip-worktree", "f")(r)
			require.NoError(r.t, os.Remove(r.dir+"/f"))
		}, true, " D f", "f", true},
		{"stat data of the changed file", func(r *repository) { r.change("f", "evil!"); forged("f")(r) }, true, " M f", "", false},
		{"other line ends", func(r *repository) {
			r.git("config", "core.autocrlf", "true")
			r.change("lines", "a\r\nb\r\n")
			r.git("update-index", "lines")
		}, false, "", "", false},
		{"stat data of a changed file that was empty", func(r *repository) { r.change("empty", ""); forged("empty")(r) }, false, "", "", true},
		{"stat data, another entry too", func(r *repository) {
			r.change("f", "evil!")
			r.write("n", "new")
			r.git("add", "n")
			forged("f")(r)
		}, true, " M f A  n", "", false},
		{"stat data of a new file", func(r *repository) {
			r.write("n", "good")
			r.git("add", "n")
			r.change("n", "evil!")
			forged("n")(r)
		}, true, "AM n", "", false},
		{"stat data of a file that another commit has", func(r *repository) {
			r.git("read-tree", "-m", "-u", "HEAD~1")
			r.change("f", "evil!")
			forged("f")(r)
		}, true, "MM f", "", false},
		{"version 4", func(r *repository) {
			r.change("f", "evil!")
			r.git("update-index", "--assume-unchanged", "--index-version=4", "f")
			forged("f")(r)
		}, true, " M f", "f", false},
		{"marks of the host's", func(r *repository) {
			r.write("mine", "changed")
			r.write("n", "new")
			r.git("add", "n")
		}, false, "A  n", "", false},
		{"marks of the host's that are gone", func(r *repository) {
			r.change("mine", "changed")
			mark("--no-assume-unchanged", "mine")(r)
		}, false, " M mine", "", false},
		{"a mark of the host's on another object", func(r *repository) {
			mark("--cacheinfo", "100644,"+strings.TrimSpace(r.git("rev-parse", ":f"))+",mine")(r)
			mark("--assume-unchanged", "mine")(r)
		}, false, "M  mine", "", false},
		{"a file that a sparse checkout leaves out", func(r *repository) {
			mark("--add", "--cacheinfo", "100644,"+strings.TrimSpace(r.git("rev-parse", ":f"))+",out/n")(r)
			mark("--skip-worktree", "out/n")(r)
		}, false, "A  out/n", "", false},
		{"to be added on the host, and added as an empty file", func(r *repository) {
			mark("--add", "--cacheinfo", "100644,"+strings.TrimSpace(r.git("rev-parse", ":empty"))+",intended")(r)
			forged("intended")(r)
		}, true, "AM intended", "", false},
		{"to be added", func(r *repository) { r.write("n", "n"); r.git("add", "-N", "n") }, false, " A n", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRepository(t, "sha1")
			for _, name := range []string{"f", "z", "mine"} {
				r.change(name, "old")
			}
			r.change("empty", "")
			r.change("lines", "a\nb\n")
			r.git("add", ".")
			r.git("commit", "-qm", "first")
			r.change("f", "good")
			r.git("commit", "-qam", "second")
			r.git("update-index", "--assume-unchanged", "mine")
			if strings.HasPrefix(row.name, "to be added on the host") {
				r.change("intended", "content")
				r.git("add", "-N", "intended")
			}
			hosts := r.index()
			row.command(r)
			status := func() string {
				out, err := r.try("", "--no-optional-locks", "status", "--porcelain")
				require.NoError(t, err)
				return strings.Join(strings.Split(strings.TrimSuffix(out, "\n"), "\n"), " ")
			}
			assert.Equal(t, row.hides, status() != row.status)

			x, err := Parse(r.index(), 40, hosts)
			require.NoError(t, err)
			data := bytes.Clone(r.index())
			same, unmarked := x.Reveal(time.Now(), new(time.Now()), func(path string) bool { return strings.HasPrefix(path, "out/") }, nil)
			assert.Equal(t, row.same, same)
			assert.Equal(t, row.unmarked, strings.Join(unmarked, " "))
			assert.Equal(t, data, r.index())
			assert.NoError(t, x.Check())
			r.install(x.Encode())
			assert.Equal(t, row.status, status())
			if same {
				r.install(sum(hosts[:x.host.end])) // without extensions
				assert.Equal(t, row.status, status())
			}
		})
	}
}

// Revealed entries that are the host's have its bytes, whatever the command has written.
func TestRevealAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var entries []Entry
		for _, name := range strings.Fields("a b c d/e d/f g h i j k") {
			if random.IntN(5) > 0 {
				entries = append(entries, Entry{Path: name, Mode: ModeFile})
			}
		}
		hosts := forge(entries...)
		host, err := ParseHost(hosts, 40)
		require.NoError(t, err)
		data := bytes.Clone(hosts)
		for _, e := range host.entries {
			if random.IntN(3) == 0 {
				data[int(e.at)+random.IntN(modeAt)] ^= 1
			}
			if random.IntN(3) == 0 {
				data[int(e.at)+statSize+20] |= flagValid >> 8
			}
		}
		x, err := Parse(sum(data[:len(data)-20]), 40, hosts)
		require.NoError(t, err)
		same, _ := x.Reveal(time.Now(), new(time.Now()), nil, nil)
		assert.True(t, same)
		assert.Equal(t, hosts, x.Encode())
	}
}

// The user has changed a file in the second in which the host's index was written. Git sees
// that by the time of the index, which is another one after landing.
func TestRevealKeepsWhatIsRacy(t *testing.T) {
	r := newRepository(t, "sha1")
	r.git("config", "core.trustctime", "false")
	now := time.Now().Truncate(time.Second)
	at := func(name string, when time.Time) {
		require.NoError(t, os.Chtimes(filepath.Join(r.dir, name), when, when))
	}
	for name, when := range map[string]time.Time{"old": now.Add(-time.Second), "racy": now} {
		r.write(name, "a")
		at(name, when)
	}
	r.git("add", ".")
	r.git("commit", "-qm", "first")
	r.write("racy", "b")
	at("racy", now)
	at(".git/index", now)
	status := func() string { return strings.TrimSpace(r.git("--no-optional-locks", "status", "--porcelain", "-uno")) }
	require.Equal(t, "M racy", status())
	host, err := ParseHost(r.index(), 40)
	require.NoError(t, err)
	for _, row := range []struct {
		reveal bool
		want   string
	}{{false, ""}, {true, "M racy"}} {
		x, err := Parse(bytes.Clone(host.data), 40, host.data)
		require.NoError(t, err)
		if row.reveal {
			x.Reveal(now, new(now.Add(time.Minute)), nil, nil)
		}
		r.install(x.Encode())
		at(".git/index", now.Add(time.Minute))
		assert.Equal(t, row.want, status())
		assert.Equal(t, host.data[host.entries[0].at:host.entries[1].at], x.data[host.entries[0].at:host.entries[1].at])
	}
}
