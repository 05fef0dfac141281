package workspace

import "context"

// ReadOnly returns a read-only view of a workspace: operations that would change it are
// ErrReadOnly. The workspace itself can still be changed.
func ReadOnly(ws Workspace) Workspace {
	return &readOnly{view{inner: ws, run: runReadOnly}}
}

type readOnly struct{ view }

func (r *readOnly) Guarded(guard Guard) Workspace { return ReadOnly(Guarded(r.inner, guard)) }

func runReadOnly(_ context.Context, op operation, do func(path, to string) error) error {
	if op.write {
		return op.failed(ErrReadOnly)
	}
	return do(op.path, op.to)
}
