package index

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Join has the entries that git has, after all kinds of changes.
func TestJoinAsGit(t *testing.T) {
	for _, version := range []int{2, 4} {
		for i, change := range []string{
			":",
			"echo x >>f5; git add f5",
			"git rm -q --cached f0 f7 f99",
			"echo n >a; echo n >f5a; echo n >z; git add a f5a z; git rm -q --cached f6",
			"for n in $(seq 0 64); do echo $n >>f$n; done; git add .",
			"git rm -q --cached f3; echo y >f3; git add f3; git update-index --assume-unchanged f4; git update-index --skip-worktree f8",
			"git rm -q --cached f*; git add f1",
			"rm f1; mkdir f1; echo d >f1/d; git add .; git rm -q --cached f2",
			"git update-index --cacheinfo 120000,$(git rev-parse :f1),f9",
		} {
			t.Run(fmt.Sprint(version, i), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				sh := func(script string) string {
					cmd := exec.Command("sh", "-ec", script)
					cmd.Dir = dir
					cmd.Env = append(os.Environ(), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1")
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s", out)
					return string(out)
				}
				sh(fmt.Sprintf("git init -q; git config splitIndex.maxPercentChange 100; git config core.splitIndex true; git config index.version %[1]d; for n in $(seq 0 99); do echo $n >f$n; done; echo l >symlink.c; git add .; git update-index --split-index", version))
				sh(change)
				split, err := os.ReadFile(dir + "/.git/index")
				require.NoError(t, err)
				_, err = ParseHost(split, 40)
				link, is := errors.AsType[*SplitError](err)
				require.True(t, is, "%v", err)
				assert.True(t, MayBeSplit(split, 40))
				base, err := os.ReadFile(dir + "/.git/" + link.Shared)
				require.NoError(t, err)

				joined, err := Join(split, base, 40)
				require.NoError(t, err)
				want := sh("git ls-files -s -v -t; git ls-files --debug | sed s/flags:.*//")
				require.NoError(t, os.WriteFile(dir+"/.git/index", joined, 0o644))
				assert.False(t, MayBeSplit(joined, 40))
				x, err := Parse(joined, 40, nil)
				require.NoError(t, err)
				require.NoError(t, x.Check())
				require.NoError(t, os.WriteFile(dir+"/.git/index", x.Encode(), 0o644))
				assert.True(t, want == sh("git ls-files -s -v -t; git ls-files --debug | sed s/flags:.*//"), "other entries")
				sh("git fsck --strict")
			})
		}
	}
}
