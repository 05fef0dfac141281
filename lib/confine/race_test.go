package confine

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

// While an attacker swaps a directory for a link to outside and back, an answer
// may be old, but it never names a place outside, or one that the path never had.
func TestSwappingAttacker(t *testing.T) {
	everyTree(t, func(t *testing.T, open func(base string) (*Workspace, string)) {
		base := confinetest.Tree(t, "proj/d/f", "proj/evil => ../out", "out/f", "ro/", "rw/")
		w, tree := open(base)
		stop := attack(t, tree+"/d", tree+"/evil")
		batch := w.Batch(Request{})
		var answered, refused int
		for begun := time.Now(); goOn(begun, confinetest.Share(300*time.Millisecond), answered > 0 && refused > 0); {
			for _, resolve := range []func(string) (string, error){
				func(path string) (string, error) { return w.Resolve(path, Read) },
				batch.Resolve,
			} {
				where, err := resolve("d/f")
				if err != nil {
					refused++
					continue
				}
				answered++
				require.Contains(t, []string{base + "/proj/d/f", base + "/proj/evil/f"}, where)
			}
			batch.Forget()
		}
		stop()
		t.Logf("%d answers, %d refusals", answered, refused)
		assert.NotZero(t, answered)
		assert.NotZero(t, refused)
	})
}

// goOn says whether to go on with an attack: for that long, and until it has shown
// its effect, which on a busy machine may take a hundred times that.
func goOn(begun time.Time, least time.Duration, shown bool) bool {
	passed := time.Since(begun)
	return passed < least || !shown && passed < time.Minute
}

// attack exchanges two names until the function it returns is called.
func attack(t *testing.T, one, two string) (stop func()) {
	t.Helper()
	var done atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		for !done.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, two, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("exchange: %v", err)
				return
			}
		}
	})
	return func() {
		done.Store(true)
		running.Wait()
	}
}

// While directories are renamed away and back, a path with ".." is found inside
// or refused.
func TestRenamingAttacker(t *testing.T) {
	everyTree(t, func(t *testing.T, open func(base string) (*Workspace, string)) {
		base := confinetest.Tree(t, "proj/a/b/c/", "out/a/b/c/", "ro/", "rw/", "proj/l => a/b/c/../../../a")
		require.NoError(t, os.WriteFile(base+"/secret", nil, 0o600))
		w, tree := open(base)
		stop := attack(t, tree+"/a/b", base+"/out/a")
		for end := time.Now().Add(confinetest.Share(300 * time.Millisecond)); time.Now().Before(end); {
			for _, path := range []string{"a/b/c/../../../secret", "l/../secret", "a/b/../../f"} {
				for _, physical := range []bool{false, true} {
					where, err := w.Lookup(path, Request{Physical: physical})
					if err == nil {
						require.True(t, fsat.Within(where, base+"/proj"), "%q", where)
					}
				}
			}
		}
		stop()
	})
}
