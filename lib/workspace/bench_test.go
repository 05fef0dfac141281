package workspace_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/workspace"
)

func benchTree(b *testing.B) (*workspace.LocalWorkspace, string) {
	w, root := local(b)
	for d := range 100 {
		dir := fmt.Sprintf("%s/a/b/c/d%d", root, d)
		require.NoError(b, os.MkdirAll(dir, 0o755))
		for f := range 100 {
			require.NoError(b, os.WriteFile(fmt.Sprintf("%s/f%d", dir, f), []byte("text"), 0o644))
		}
	}
	return w, root
}

func BenchmarkRead(b *testing.B) {
	w, root := benchTree(b)
	require.NoError(b, os.Symlink("b/c", root+"/a/link"))
	s := scope(b, w, all, noRead)
	for name, read := range map[string]func() ([]byte, error){
		"os":          func() ([]byte, error) { return os.ReadFile(root + "/a/b/c/d7/f7") },
		"local":       func() ([]byte, error) { return w.Read(ctx, "a/b/c/d7/f7") },
		"local, link": func() ([]byte, error) { return w.Read(ctx, "a/link/d7/f7") },
		"scoped":      func() ([]byte, error) { return s.Read(ctx, "a/b/c/d7/f7") },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWalk(b *testing.B) {
	w, root := benchTree(b)
	s := scope(b, w, all, noRead)
	for name, walk := range map[string]func() error{
		"filepath": func() error {
			return filepath.WalkDir(root, func(string, fs.DirEntry, error) error { return nil })
		},
		"local":  func() error { return workspace.Walk(ctx, w, ".", nothing) },
		"scoped": func() error { return workspace.Walk(ctx, s, ".", nothing) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := walk(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	w, root := benchTree(b)
	data := make([]byte, 4096)
	for name, write := range map[string]func() error{
		"os":     func() error { return os.WriteFile(root+"/a/b/c/d7/f7", data, 0o644) },
		"local":  func() error { return w.Write(ctx, "a/b/c/d7/f7", data) },
		"atomic": func() error { return workspace.AtomicWrite(ctx, w, "a/b/c/d7/f7", data) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := write(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	w, root := local(b)
	require.NoError(b, os.WriteFile(root+"/big", make([]byte, 64<<20), 0o644))
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	require.NoError(b, err)
	defer null.Close()
	for name, open := range map[string]func() (io.ReadCloser, error){
		"os":    func() (io.ReadCloser, error) { return os.Open(root + "/big") },
		"local": func() (io.ReadCloser, error) { return w.Open(ctx, "big") },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				f, err := open()
				require.NoError(b, err)
				_, err = io.Copy(null, f)
				require.NoError(b, err)
				f.Close()
			}
		})
	}
}

func BenchmarkSwap(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		w, _ := local(b)
		contents := []string{strings.Repeat("a", size), strings.Repeat("b", size)}
		b.Run(fmt.Sprintf("AtomicWrite, %d bytes", size), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				require.NoError(b, workspace.AtomicWrite(ctx, w, "f", []byte(contents[n%2])))
			}
		})
		b.Run(fmt.Sprintf("WriteIfUnchanged, %d bytes", size), func(b *testing.B) {
			require.NoError(b, w.Write(ctx, "f", []byte(contents[1])))
			hash := workspace.HashOf([]byte(contents[1]))
			for b.Loop() {
				require.NoError(b, workspace.WriteIfUnchanged(ctx, w, "f", []byte(contents[1]), hash))
			}
		})
		b.Run(fmt.Sprintf("Swap, %d bytes", size), func(b *testing.B) {
			require.NoError(b, w.Delete(ctx, "f"))
			forms := []string{"f 644 " + contents[0], "f 644 " + contents[1]}
			require.NoError(b, swapForms(w, "f", "", forms[0]))
			var entries [2]workspace.Entry
			entries[0], _ = form(forms[0])
			entries[1], _ = form(forms[1])
			for n := 0; b.Loop(); n++ {
				require.NoError(b, workspace.Swap(ctx, w, "f", entries[n%2], entries[(n+1)%2], strings.NewReader(contents[(n+1)%2])))
			}
		})
	}
}
