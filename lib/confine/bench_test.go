package confine

import (
	"strings"
	"testing"

	"pikuri/lib/confine/confinetest"
)

// BenchmarkResolve is one path, at three depths below the root.
func BenchmarkResolve(b *testing.B) {
	for name, depth := range map[string]int{"depth 3": 3, "depth 10": 10, "depth 30": 30} {
		dir := strings.Repeat("d/", depth-1)
		base := confinetest.Tree(b, "proj/"+dir+"f", "ro/", "rw/", "proj/l => "+strings.TrimSuffix(dir, "/"))
		w := workspace(b, base, true)
		batch := w.Batch(Request{})
		for what, path := range map[string]string{"exists": dir + "f", "missing": dir + "g", "link": "l/f"} {
			b.Run(name+"/"+what, func(b *testing.B) {
				for b.Loop() {
					_, _ = w.Resolve(path, Read)
				}
			})
			b.Run(name+"/"+what+"/batch", func(b *testing.B) {
				for b.Loop() {
					_, _ = batch.Resolve(path)
				}
			})
		}
	}
}
