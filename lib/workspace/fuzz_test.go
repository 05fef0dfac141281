package workspace_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/workspace"
)

// wood makes trees and paths of its bytes.
type wood struct {
	bytes []byte
}

func (w *wood) next(n int) int {
	if len(w.bytes) == 0 {
		return 0
	}
	b := w.bytes[0]
	w.bytes = w.bytes[1:]
	return int(b) % n
}

// path strings a few names together; climbing has ".." among them.
func (w *wood) path(climbing bool) string {
	names := []string{"a", "b", "c", "."}
	if climbing {
		names = append(names, "..", "..", "w")
	}
	path := names[w.next(len(names))]
	for range w.next(4) {
		path += "/" + names[w.next(len(names))]
	}
	return path
}

// grow makes an entry in the tree, if it can. It makes none through a link that leads
// out: that would be in the machine's tree.
func (w *wood) grow(root string) {
	name := root + "/" + w.path(false)
	kind := w.next(5)
	target := ""
	switch kind {
	case 2, 3:
		target = w.path(true)
	case 4:
		target = []string{root, filepath.Dir(root), ""}[w.next(3)] + "/" + w.path(true)
	}
	if !free(name, filepath.Dir(root)) {
		return
	}
	switch kind {
	case 0:
		_ = os.MkdirAll(name, 0o755)
	case 1:
		_ = os.WriteFile(name, nil, 0o644)
	default:
		_ = os.Symlink(target, name)
	}
}

// free tells whether name does not exist, and would be made in dir.
func free(name, dir string) bool {
	if _, err := os.Lstat(name); err == nil {
		return false
	}
	for above := filepath.Dir(name); ; above = filepath.Dir(above) {
		if _, err := os.Lstat(above); err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(above)
		return err == nil && strings.HasPrefix(real+"/", dir+"/")
	}
}

// FuzzLookup compares both ways to look up a path with the kernel's: a path inside is
// found, one outside is refused, and a missing one is missing. A link that passes through
// a neighbour of the root on its way back is refused.
func FuzzLookup(f *testing.F) {
	for seed := range 300 {
		var bytes []byte
		for i := range 120 {
			seed = seed*1103515245 + 12345 + i
			bytes = append(bytes, byte(seed>>16))
		}
		f.Add(bytes)
	}
	f.Add([]byte("000C72C00")) // a link to ../b/../w
	base, err := os.MkdirTemp("/dev/shm", "pk-test-")
	if err != nil {
		base = f.TempDir()
	}
	f.Cleanup(func() { os.RemoveAll(base) })
	f.Fuzz(func(t *testing.T, bytes []byte) {
		dir, err := os.MkdirTemp(base, "")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		root := dir + "/w"
		require.NoError(t, os.Mkdir(root, 0o755))
		require.NoError(t, os.WriteFile(dir+"/a", nil, 0o644))
		require.NoError(t, os.Mkdir(dir+"/b", 0o755))
		w := wood{bytes}
		for range 12 {
			w.grow(root)
		}
		local, err := workspace.NewLocalWorkspace(root)
		require.NoError(t, err)
		defer local.Close()
		for i := range 12 {
			if i == 6 {
				workspace.WithoutOpenat2(local)
			}
			path := w.path(true)
			require.NoError(t, judge(root, path, local), "%q", path)
		}
	})
}

// astray tells whether a path passes through a directory that is neither in the root nor
// above it.
func astray(root, path string) bool {
	at, rest := root, strings.Split(path, "/")
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		if !strings.HasPrefix(next+"/", root+"/") && !strings.HasPrefix(root, strings.TrimSuffix(next, "/")+"/") {
			return true
		}
		target, err := os.Readlink(next)
		switch {
		case err != nil:
			at = next
		case filepath.IsAbs(target):
			at = "/"
			fallthrough
		default:
			rest = append(strings.Split(target, "/"), rest...)
		}
	}
	return false
}

// judge compares one answer with the kernel's.
func judge(root, path string, w *workspace.LocalWorkspace) error {
	clean := filepath.Clean(path)
	info, err := w.Stat(ctx, path)
	refused := errors.Is(err, workspace.ErrPathTraversal)
	if !filepath.IsLocal(clean) {
		if !refused {
			return fmt.Errorf("leads out lexically, error %v", err)
		}
		return nil
	}
	real, realErr := filepath.EvalSymlinks(filepath.Join(root, clean))
	inside := realErr == nil && (real == root || strings.HasPrefix(real, root+"/"))
	switch {
	case inside && refused && astray(root, clean):
	case inside && err != nil:
		return fmt.Errorf("is %q, error %v", real, err)
	case inside:
		want, err := os.Lstat(real)
		if err != nil {
			return err
		}
		got := info.Sys().(*unix.Stat_t)
		if st := want.Sys().(*syscall.Stat_t); st.Ino != got.Ino || st.Dev != got.Dev {
			return fmt.Errorf("is %q, and something else is found", real)
		}
	case realErr == nil && !refused:
		return fmt.Errorf("is %q, which is outside; error %v", real, err)
	case realErr != nil && err == nil:
		return fmt.Errorf("is nothing (%v), and something is found", realErr)
	}
	return nil
}
