package workspace

import (
	"context"
	"reflect"
)

type contextKey struct{}

// WithWorkspace returns a context that carries ws.
func WithWorkspace(ctx context.Context, ws Workspace) context.Context {
	return context.WithValue(ctx, contextKey{}, ws)
}

// WorkspaceFrom returns the Workspace that ctx carries. A nil one, also one of a pointer
// type, counts as none.
func WorkspaceFrom(ctx context.Context) (Workspace, bool) {
	ws, _ := ctx.Value(contextKey{}).(Workspace)
	if isNil(ws) {
		return nil, false
	}
	return ws, true
}

// MustWorkspaceFrom is WorkspaceFrom for callers to which a missing workspace is a
// programming error: it panics.
func MustWorkspaceFrom(ctx context.Context) Workspace {
	ws, ok := WorkspaceFrom(ctx)
	if !ok {
		panic("workspace: not found in context")
	}
	return ws
}

// isNil reports whether ws is nil, or a nil pointer in an interface that is not.
func isNil(ws Workspace) bool {
	if ws == nil {
		return true
	}
	v := reflect.ValueOf(ws)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
