package quarantine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/session"
)

// Recover does the rest of the work of a disarm, and reports all.
func TestDisarm(t *testing.T) {
	base, project := ground(t)
	require.NoError(t, os.Mkdir(filepath.Join(base, session.GitDir), 0o700))
	file := project + "/.envrc"
	var kept []string
	for _, tmp := range []string{"", session.Prefix + "tmp"} {
		n, err := Begin(base, Note{Names: []string{file + tmp}, Session: "workspace-x", Tmp: tmp})
		require.NoError(t, err)
		require.NoError(t, n.file.Close())
		if tmp != "" {
			kept = append(kept, n.path)
		}
		require.NoError(t, os.WriteFile(file+tmp, nil, 0o600))
	}
	running, err := Begin(base, Note{Names: []string{project + "/.mcp.json"}, Session: "workspace-y"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(project+"/.mcp.json", nil, 0o600))
	kept = append(kept, running.path)

	require.NoError(t, DisarmMode.Run([]string{base}))
	assert.NoFileExists(t, file)
	assert.NoFileExists(t, file+session.Prefix+"tmp")
	assert.FileExists(t, project+"/.mcp.json")
	notes, err := filepath.Glob(base + "/journal/*")
	require.NoError(t, err)
	assert.Subset(t, notes, kept)
	assert.Len(t, notes, len(kept)+2)
	require.NoError(t, DisarmMode.Run([]string{base}))

	done, err := Recover(base)
	require.NoError(t, done.Told())
	require.NoError(t, err)
	assert.Len(t, done.Moved, 2)
	done, err = running.End(Report{})
	require.NoError(t, done.Told())
	require.NoError(t, err)
	assert.Len(t, done.Moved, 1)
	notes, err = filepath.Glob(base + "/journal/*")
	require.NoError(t, err)
	assert.Empty(t, notes)
}

// A process is killed before it has told of its work.
func TestReportIsKeptUntilItIsTold(t *testing.T) {
	base, project := ground(t)
	n, err := Begin(base, Note{Names: []string{project + "/.envrc"}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(project+"/.envrc", nil, 0o600))
	want, err := n.End(Report{Git: []string{"line"}})
	require.NoError(t, err)
	require.Len(t, want.Moved, 1)
	got, err := Recover(base)
	require.NoError(t, err)
	assert.Empty(t, got.Moved, "it is not killed yet")
	for range 2 {
		require.Len(t, want.kept, 1)
		require.NoError(t, want.kept[0].file.Close())
		got, err = Recover(base)
		require.NoError(t, err)
		assert.Equal(t, []any{want.Moved, want.Git}, []any{got.Moved, got.Git})
		want = got
	}
	require.NoError(t, got.Told())
	got, err = Recover(base)
	require.NoError(t, err)
	assert.Empty(t, got)
}

// A disarm holds the notes on which it works. Recover must not take them for those of running
// commands.
func TestRecoverWaitsForADisarm(t *testing.T) {
	base, project := ground(t)
	n, err := Begin(base, Note{Names: []string{project + "/.envrc"}, Session: "workspace-x"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(project+"/.envrc", nil, 0o600))
	dir, err := os.Open(base + "/journal")
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX))
	reports := make(chan Report)
	go func() {
		r, err := Recover(base)
		assert.NoError(t, err)
		reports <- r
	}()
	require.Eventually(t, func() bool { // it has opened the journal
		opened := 0
		files, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		for _, f := range files {
			if to, _ := os.Readlink(f); to == dir.Name() {
				opened++
			}
		}
		return opened == 2
	}, time.Minute, time.Millisecond)
	require.NoError(t, n.file.Close())
	require.NoError(t, dir.Close())
	assert.Len(t, (<-reports).Moved, 1)
}
