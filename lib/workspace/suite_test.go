package workspace_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/workspace"
	"pikuri/lib/workspace/workspacetest"
)

// local returns a workspace on a new directory, and the directory. It is in memory if the
// machine has a directory there: fsync is slow elsewhere.
func local(t testing.TB, opts ...workspace.Option) (*workspace.LocalWorkspace, string) {
	t.Helper()
	base, err := os.MkdirTemp("/dev/shm", "pk-test-")
	if err != nil {
		return onDisk(t, opts...)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	return open(t, base+"/w", opts...)
}

// onDisk is local on a file system on a disk.
func onDisk(t testing.TB, opts ...workspace.Option) (*workspace.LocalWorkspace, string) {
	t.Helper()
	return open(t, confinetest.Tree(t, "w/")+"/w", opts...)
}

func open(t testing.TB, root string, opts ...workspace.Option) (*workspace.LocalWorkspace, string) {
	t.Helper()
	w, err := workspace.NewLocalWorkspace(root, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w, root
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// subjects are all implementations there are, and views of them.
var subjects = map[string]func(t testing.TB) workspacetest.Subject{
	"local": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		return workspacetest.Subject{Workspace: w, Root: root}
	},
	"local without openat2": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		workspace.WithoutOpenat2(w)
		return workspacetest.Subject{Workspace: w, Root: root}
	},
	"local, atomic, durable, on one file system": func(t testing.TB) workspacetest.Subject {
		w, root := onDisk(t, workspace.WithAtomicWrites(), workspace.WithSync(), workspace.WithOneFileSystem())
		return workspacetest.Subject{Workspace: w, Root: root}
	},
	"mem": func(t testing.TB) workspacetest.Subject {
		return workspacetest.Subject{Workspace: workspace.NewMemWorkspace()}
	},
	"scoped": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		s := must[*workspace.ScopedWorkspace](t)(workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("**"), workspace.WithMandatoryDeny("no/such/place")))
		return workspacetest.Subject{Workspace: s, Root: root}
	},
	"scoped mem": func(t testing.TB) workspacetest.Subject {
		s := must[*workspace.ScopedWorkspace](t)(workspace.NewScopedWorkspace(workspace.NewMemWorkspace(), workspace.WithAllowWrite("**")))
		return workspacetest.Subject{Workspace: s}
	},
	"sub of local": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		s := must[workspace.Workspace](t)(workspace.Sub(context.Background(), w, "a/b"))
		t.Cleanup(func() { s.(*workspace.LocalWorkspace).Close() })
		return workspacetest.Subject{Workspace: s, Root: root + "/a/b"}
	},
	"sub of mem": func(t testing.TB) workspacetest.Subject {
		return workspacetest.Subject{Workspace: must[workspace.Workspace](t)(workspace.Sub(context.Background(), workspace.NewMemWorkspace(), "a/b"))}
	},
	"sub of scoped": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		require.NoError(t, w.Mkdir(context.Background(), "a/b"))
		s := must[*workspace.ScopedWorkspace](t)(workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("a/**")))
		return workspacetest.Subject{Workspace: must[workspace.Workspace](t)(workspace.Sub(context.Background(), s, "a/b")), Root: root + "/a/b"}
	},
	"scoped sub": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		sub := must[*workspace.LocalWorkspace](t)(w.Sub(context.Background(), "a"))
		t.Cleanup(func() { sub.Close() })
		return workspacetest.Subject{Workspace: must[*workspace.ScopedWorkspace](t)(workspace.NewScopedWorkspace(sub, workspace.WithAllowWrite("**"))), Root: root + "/a"}
	},
	"read-only local": func(t testing.TB) workspacetest.Subject {
		w, root := local(t)
		return workspacetest.Subject{Workspace: workspace.ReadOnly(w), Behind: w, Root: root}
	},
	"read-only mem": func(t testing.TB) workspacetest.Subject {
		m := workspace.NewMemWorkspace()
		return workspacetest.Subject{Workspace: workspace.ReadOnly(m), Behind: m}
	},
}

func TestConformance(t *testing.T) {
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) { workspacetest.Run(t, subject) })
	}
}
