package trial

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkList lists 100,000 changes, and none beside 100,000 files of the project.
func BenchmarkList(b *testing.B) {
	const files, dirs = 100_000, 300
	for _, row := range []struct {
		name    string
		changed bool
	}{{"all changed", true}, {"none changed", false}} {
		b.Run(row.name, func(b *testing.B) {
			base := b.TempDir()
			require.NoError(b, os.Mkdir(base+"/project", 0o755))
			fill := func(top string) {
				for n := range files {
					dir := fmt.Sprint(top, "/d", n%dirs)
					if n < dirs {
						require.NoError(b, os.Mkdir(dir, 0o755))
					}
					require.NoError(b, os.WriteFile(fmt.Sprint(dir, "/f", n), []byte("1"), 0o644))
				}
			}
			if !row.changed {
				fill(base + "/project")
			}
			r, err := Open(base+"/overlays", base+"/project", true)
			require.NoError(b, err)
			defer r.Close()
			if row.changed {
				fill(r.Upper())
			}
			for b.Loop() {
				items, err := r.List(ListOptions{})
				require.NoError(b, err)
				require.Len(b, items, map[bool]int{true: files + dirs}[row.changed])
			}
		})
	}
}
