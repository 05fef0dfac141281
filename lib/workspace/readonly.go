package workspace

import "context"

// ReadOnly returns a view of a workspace through which nothing can be changed:
// what would is ErrReadOnly. The workspace itself still can be.
func ReadOnly(ws Workspace) Workspace { return &readOnly{forward{ws}} }

type readOnly struct{ forward }

func (r *readOnly) Guarded(guard Guard) Workspace { return ReadOnly(Guarded(r.inner, guard)) }

func (r *readOnly) Write(_ context.Context, path string, _ []byte) error {
	return failed("write", path, ErrReadOnly)
}

func (r *readOnly) Append(_ context.Context, path string, _ []byte) error {
	return failed("append", path, ErrReadOnly)
}

func (r *readOnly) Create(_ context.Context, path string, _ WriteOptions) (Writer, error) {
	return nil, failed("write", path, ErrReadOnly)
}

func (r *readOnly) Mkdir(_ context.Context, dir string) error {
	return failed("mkdir", dir, ErrReadOnly)
}

func (r *readOnly) Rename(_ context.Context, src, dst string) error {
	return failedTo("rename", src, dst, ErrReadOnly)
}

func (r *readOnly) Delete(_ context.Context, path string) error {
	return failed("delete", path, ErrReadOnly)
}

func (r *readOnly) RemoveAll(_ context.Context, path string) error {
	return failed("remove", path, ErrReadOnly)
}
