package gitland

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A layer with commits that have not landed stays as long as its repository.
func TestSweepKeepsCommits(t *testing.T) {
	for _, row := range []struct {
		name, command, then string
		discard, stays      bool
	}{
		{"nothing stays", `git commit -q --allow-empty -m a`, `:`, false, false},
		{"configuration stays", `git config a.b c`, `:`, false, false},
		{"rebase stays", `mkdir .git/rebase-merge; echo x >.git/rebase-merge/done; git commit -q --allow-empty -m a`, `:`, false, true},
		{"rebase is dropped", `mkdir .git/rebase-merge; echo x >.git/rebase-merge/done; git commit -q --allow-empty -m a`, `:`, true, false},
		{"repository is gone", `mkdir .git/rebase-merge; echo x >.git/rebase-merge/done; git commit -q --allow-empty -m a`, `rm -rf .git`, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(`repo .`)
			l := g.mount(g.Root+"-layers", row.command)
			g.landed(l)
			g.Sh(row.then)
			kept, err := Sweep(g.Root+"-layers", 0, row.discard)
			require.NoError(t, err)
			assert.Equal(t, row.stays, exists(l.Dir))
			if assert.Len(t, kept, map[bool]int{true: 1}[row.stays]); row.stays {
				assert.Contains(t, kept[0], g.Path(".git"))
			}
		})
	}
}

// Sweeps at once do not fail over each other's removals.
func TestSweepsAtOnce(t *testing.T) {
	state := t.TempDir()
	for i := range 200 {
		require.NoError(t, os.MkdirAll(fmt.Sprintf("%s/git-%d/base/refs/heads", state, i), 0o755))
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/git-%d/lock", state, i), nil, 0o644))
		require.NoError(t, os.MkdirAll(state+"/lists", 0o755))
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/lists/list-%d", state, i), nil, 0o644))
	}
	errs := make(chan error)
	for range 8 {
		go func() {
			_, err := Sweep(state, 0, false)
			errs <- err
		}()
	}
	for range 8 {
		assert.NoError(t, <-errs)
	}
	left, err := filepath.Glob(state + "/*/*")
	require.NoError(t, err)
	assert.Empty(t, left)
}
