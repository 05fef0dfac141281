package confine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pikuri/lib/confine/confinetest"
)

// BenchmarkResolve resolves one path, at three depths below the root, and compares
// the alternatives to this package: EvalSymlinks, whose answer still has to be
// compared with the roots, and os.Root, which gives no path.
func BenchmarkResolve(b *testing.B) {
	for _, depth := range []int{3, 10, 30} {
		dir := strings.Repeat("d/", depth-1)
		base := confinetest.Tree(b, "proj/"+dir+"f", "ro/", "rw/", "proj/l => "+strings.TrimSuffix(dir, "/"))
		w := workspace(b, base, true)
		batch := w.Batch(Request{})
		defer batch.Forget()
		root, err := os.OpenRoot(base + "/proj")
		if err != nil {
			b.Fatal(err)
		}
		defer root.Close()
		for _, path := range []string{dir + "f", dir + "missing", "l/f"} {
			what := map[string]string{dir + "f": "exists", dir + "missing": "missing", "l/f": "link"}[path]
			for _, way := range []struct {
				name    string
				resolve func()
			}{
				{"one", func() { _, _ = w.Resolve(path, Read) }},
				{"batch", func() { _, _ = batch.Resolve(path) }},
				{"EvalSymlinks", func() { _, _ = filepath.EvalSymlinks(base + "/proj/" + path) }},
				{"os.Root", func() { _, _ = root.Stat(path) }},
			} {
				b.Run("depth "+strconv.Itoa(depth)+"/"+what+"/"+way.name, func(b *testing.B) {
					for b.Loop() {
						way.resolve()
					}
				})
			}
		}
	}
}
