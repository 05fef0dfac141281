package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/workspace"
	"pikuri/lib/workspace/workspacetest"
)

// verdict is a testing.TB that records a failure instead of failing.
type verdict struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (v *verdict) Helper() {}

func (v *verdict) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failures = append(v.failures, fmt.Sprintf(format, args...))
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	panic(v)
}

func (v *verdict) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }

// failing returns the names of the checks that a subject fails.
func failing(t *testing.T, subject func(t testing.TB) workspacetest.Subject) []string {
	t.Helper()
	var names []string
	for _, check := range workspacetest.Checks() {
		v := &verdict{TB: t}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(v) {
					v.Errorf("panic: %v", r)
				}
			}()
			check.Run(v, subject(t))
		}()
		for _, f := range v.cleanups {
			f()
		}
		if v.failures != nil {
			names = append(names, check.Name)
		}
	}
	return names
}

// naive is a workspace without protection against races: it checks the path and then uses
// it.
type naive struct{ root string }

func (n naive) path(path string) (string, error) {
	clean := filepath.Clean(path)
	if filepath.IsAbs(clean) || strings.HasPrefix(clean, "..") {
		return "", workspace.ErrPathTraversal
	}
	full := filepath.Join(n.root, clean)
	if where, err := filepath.EvalSymlinks(full); err == nil && !strings.HasPrefix(where, n.root) {
		return "", workspace.ErrPathTraversal
	}
	return full, nil
}

func (n naive) Read(_ context.Context, path string) ([]byte, error) {
	full, err := n.path(path)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(full)
}

func (n naive) put(path string, data []byte, flag int) error {
	full, err := n.path(path)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(full), 0o755)
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(full, flag|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (n naive) Write(_ context.Context, path string, data []byte) error {
	return n.put(path, data, os.O_TRUNC)
}

func (n naive) Append(_ context.Context, path string, data []byte) error {
	return n.put(path, data, os.O_APPEND)
}

func (n naive) Rename(_ context.Context, src, dst string) error {
	from, err := n.path(src)
	if err != nil {
		return err
	}
	to, err := n.path(dst)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.Rename(from, to)
	}
	return err
}

func (n naive) Delete(_ context.Context, path string) error {
	full, err := n.path(path)
	if err == nil {
		err = os.Remove(full)
	}
	return err
}

func (n naive) RemoveAll(_ context.Context, path string) error {
	full, err := n.path(path)
	if err == nil && path != "." {
		err = os.RemoveAll(full)
	}
	return err
}

func (n naive) List(_ context.Context, dir string) ([]fs.DirEntry, error) {
	full, err := n.path(dir)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(full)
}

func (n naive) Exists(ctx context.Context, path string) (bool, error) {
	_, err := n.Stat(ctx, path)
	return err == nil, nil
}

func (n naive) Stat(_ context.Context, path string) (fs.FileInfo, error) {
	full, err := n.path(path)
	if err != nil {
		return nil, err
	}
	return os.Stat(full)
}

// The suite must fail broken implementations.
func TestSuiteFailsNaiveImplementation(t *testing.T) {
	failed := failing(t, func(t testing.TB) workspacetest.Subject {
		root := filepath.Join(t.(*testing.T).TempDir(), "w")
		require.NoError(t, os.Mkdir(root, 0o755))
		return workspacetest.Subject{Workspace: naive{root}, Root: root}
	})
	for _, name := range []string{
		"a missing file is not found", "a directory is no file to read", "names are bytes", "paths that cannot be are invalid",
		"nothing happens once the context is done", "a missing directory is an empty one", "the root is a directory, however it is called",
		"no link leads a reader out", "no link leads a writer out", "special files are refused at once",
		"a file with a name outside is not written through", "the root is not removed, moved or replaced",
		"delete removes files only, and need not find any", "rename of what is missing changes nothing",
		"an exclusive write never replaces", "a conditional write wants what it saw", "the mode of a file is kept",
	} {
		assert.Contains(t, failed, name)
	}
}

// mutant is a correct workspace with one fault.
type mutant struct {
	*workspace.MemWorkspace
	read      func(ctx context.Context, path string) ([]byte, error)
	write     func(ctx context.Context, path string, data []byte) error
	rename    func(ctx context.Context, src, dst string) error
	list      func(ctx context.Context, dir string) ([]fs.DirEntry, error)
	removeAll func(ctx context.Context, path string) error
}

func (m *mutant) Read(ctx context.Context, path string) ([]byte, error) {
	if m.read != nil {
		return m.read(ctx, path)
	}
	return m.MemWorkspace.Read(ctx, path)
}

func (m *mutant) Write(ctx context.Context, path string, data []byte) error {
	if m.write != nil {
		return m.write(ctx, path, data)
	}
	return m.MemWorkspace.Write(ctx, path, data)
}

func (m *mutant) Rename(ctx context.Context, src, dst string) error {
	if m.rename != nil {
		return m.rename(ctx, src, dst)
	}
	return m.MemWorkspace.Rename(ctx, src, dst)
}

func (m *mutant) List(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	if m.list != nil {
		return m.list(ctx, dir)
	}
	return m.MemWorkspace.List(ctx, dir)
}

func (m *mutant) RemoveAll(ctx context.Context, path string) error {
	if m.removeAll != nil {
		return m.removeAll(ctx, path)
	}
	return m.MemWorkspace.RemoveAll(ctx, path)
}

func TestSuiteFindsEachMutant(t *testing.T) {
	for what, row := range map[string]struct {
		mutate func(m *mutant)
		found  string
	}{
		"nothing": {func(*mutant) {}, ""},
		"read ignores the context": {func(m *mutant) {
			m.read = func(ctx context.Context, path string) ([]byte, error) {
				return m.MemWorkspace.Read(context.WithoutCancel(ctx), path)
			}
		}, "nothing happens once the context is done"},
		"read of a directory is empty": {func(m *mutant) {
			m.read = func(ctx context.Context, path string) ([]byte, error) {
				data, err := m.MemWorkspace.Read(ctx, path)
				if errors.Is(err, workspace.ErrIsDir) {
					err = nil
				}
				return data, err
			}
		}, "a directory is no file to read"},
		"write appends": {func(m *mutant) { m.write = m.MemWorkspace.Append }, "write makes, and replaces"},
		"write follows no rule on paths": {func(m *mutant) {
			m.write = func(ctx context.Context, path string, data []byte) error {
				return m.MemWorkspace.Write(ctx, strings.TrimLeft(path, "./"), data)
			}
		}, "writing where a path leads out is refused"},
		"rename copies": {func(m *mutant) {
			m.rename = func(ctx context.Context, src, dst string) error { return workspace.Copy(ctx, m.MemWorkspace, src, dst) }
		}, "rename moves, and replaces"},
		"a list is nil": {func(m *mutant) {
			m.list = func(ctx context.Context, dir string) ([]fs.DirEntry, error) {
				entries, err := m.MemWorkspace.List(ctx, dir)
				if len(entries) == 0 {
					entries = nil
				}
				return entries, err
			}
		}, "a missing directory is an empty one"},
		"the root can be removed by another name": {func(m *mutant) {
			m.removeAll = func(ctx context.Context, path string) error {
				if path == "." {
					return m.MemWorkspace.RemoveAll(ctx, path)
				}
				if filepath.Clean(path) == "." {
					return nil
				}
				return m.MemWorkspace.RemoveAll(ctx, path)
			}
		}, "the root is not removed, moved or replaced"},
	} {
		failed := failing(t, func(testing.TB) workspacetest.Subject {
			m := &mutant{MemWorkspace: workspace.NewMemWorkspace()}
			row.mutate(m)
			return workspacetest.Subject{Workspace: m}
		})
		if row.found == "" {
			assert.Empty(t, failed, what)
		} else {
			assert.Contains(t, failed, row.found, what)
		}
	}
}

func nothing(string, fs.DirEntry) error { return nil }
