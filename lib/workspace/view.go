package workspace

import (
	"context"
	"io"
	"io/fs"
	"iter"
)

// operation is one call on a view.
type operation struct {
	name     string // as in Error.Op
	path, to string // as the caller gave them; to is for "rename" only
	read     bool   // it reads path
	write    bool   // it writes path
}

// failed makes err the error of the operation.
func (op operation) failed(err error) error { return failedTo(op.name, op.path, op.to, err) }

// clean returns the clean paths of the operation.
func (op operation) clean() (path, to string, err error) {
	if path, err = clean(op.path); err == nil && op.name == "rename" {
		to, err = clean(op.to)
	}
	return path, to, err
}

// view passes all operations on to another workspace, through one function. Views of a
// workspace embed it.
type view struct {
	inner Workspace

	// run calls do with the paths of the inner workspace, or refuses. A view
	// without it refuses everything.
	run func(ctx context.Context, op operation, do func(path, to string) error) error

	// shows, if not nil, leaves entries out of lists.
	shows func(dir string, entry fs.DirEntry) bool
}

var errNoPolicy = deny(&denial{ViolatedPolicy, "", "no policy", ""}, "there is no policy")

func (v view) do(ctx context.Context, op operation, do func(path, to string) error) error {
	if v.run == nil {
		return op.failed(errNoPolicy)
	}
	return v.run(ctx, op, do)
}

// Read returns the content of a file.
func (v view) Read(ctx context.Context, path string) (data []byte, err error) {
	err = v.do(ctx, operation{name: "read", path: path, read: true}, func(path, _ string) error {
		data, err = v.inner.Read(ctx, path)
		return err
	})
	return data, err
}

// Open opens a file for reading.
func (v view) Open(ctx context.Context, path string) (f File, err error) {
	err = v.do(ctx, operation{name: "read", path: path, read: true}, func(path, _ string) error {
		f, err = Open(ctx, v.inner, path)
		return err
	})
	return f, err
}

// Write gives a file new content.
func (v view) Write(ctx context.Context, path string, data []byte) error {
	return v.do(ctx, operation{name: "write", path: path, write: true}, func(path, _ string) error {
		return v.inner.Write(ctx, path, data)
	})
}

// Append adds to the end of a file.
func (v view) Append(ctx context.Context, path string, data []byte) error {
	return v.do(ctx, operation{name: "append", path: path, write: true}, func(path, _ string) error {
		return v.inner.Append(ctx, path, data)
	})
}

// Create opens a file to be written. IfHash reveals the content, so it counts as reading.
func (v view) Create(ctx context.Context, path string, opts WriteOptions) (w Writer, err error) {
	err = v.do(ctx, operation{name: "write", path: path, write: true, read: opts.IfHash != ""}, func(path, _ string) error {
		w, err = Create(ctx, v.inner, path, opts)
		return err
	})
	return w, err
}

// Mkdir makes a directory and its missing parents.
func (v view) Mkdir(ctx context.Context, dir string) error {
	return v.do(ctx, operation{name: "mkdir", path: dir, write: true}, func(path, _ string) error {
		return Mkdir(ctx, v.inner, path)
	})
}

// Entry describes path itself.
func (v view) Entry(ctx context.Context, path string) (e Entry, err error) {
	err = v.do(ctx, operation{name: "stat", path: path, read: true}, func(path, _ string) error {
		e, err = EntryOf(ctx, v.inner, path)
		return err
	})
	return e, err
}

// Swap replaces old at path by next. It reveals the content of old, so it counts as
// reading.
func (v view) Swap(ctx context.Context, path string, old, next Entry, content io.Reader) error {
	return v.do(ctx, operation{name: "swap", path: path, write: true, read: old.Kind != KindMissing}, func(path, _ string) error {
		return Swap(ctx, v.inner, path, old, next, content)
	})
}

// Recover cleans up after a killed Swap in a directory.
func (v view) Recover(ctx context.Context, dir string) (kept []string, err error) {
	err = v.do(ctx, operation{name: "recover", path: dir, write: true, read: true}, func(path, _ string) error {
		kept, err = Recover(ctx, v.inner, path)
		return err
	})
	return kept, err
}

// Rename moves a file or a directory. It reads and writes src, and writes dst.
func (v view) Rename(ctx context.Context, src, dst string) error {
	return v.do(ctx, operation{name: "rename", path: src, to: dst, read: true, write: true}, func(src, dst string) error {
		return v.inner.Rename(ctx, src, dst)
	})
}

// Delete removes a file.
func (v view) Delete(ctx context.Context, path string) error {
	return v.do(ctx, operation{name: "delete", path: path, write: true}, func(path, _ string) error {
		return v.inner.Delete(ctx, path)
	})
}

// RemoveAll removes a file, or a directory with everything in it.
func (v view) RemoveAll(ctx context.Context, path string) error {
	return v.do(ctx, operation{name: "remove", path: path, write: true}, func(path, _ string) error {
		return v.inner.RemoveAll(ctx, path)
	})
}

// List returns the entries of a directory.
func (v view) List(ctx context.Context, dir string) (kept []fs.DirEntry, err error) {
	err = v.do(ctx, operation{name: "list", path: dir, read: true}, func(path, _ string) error {
		entries, err := v.inner.List(ctx, path)
		kept = entries[:0]
		for _, entry := range entries {
			if v.shows == nil || v.shows(dir, entry) {
				kept = append(kept, entry)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// Entries yields the entries of a directory.
func (v view) Entries(ctx context.Context, dir string) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		err := v.do(ctx, operation{name: "list", path: dir, read: true}, func(path, _ string) error {
			for entry, err := range Entries(ctx, v.inner, path) {
				if err != nil {
					return err
				}
				if (v.shows == nil || v.shows(dir, entry)) && !yield(entry, nil) {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// Exists reports whether a file or directory is at path.
func (v view) Exists(ctx context.Context, path string) (there bool, err error) {
	err = v.do(ctx, operation{name: "exists", path: path, read: true}, func(path, _ string) error {
		there, err = v.inner.Exists(ctx, path)
		return err
	})
	return there, err
}

// Stat describes the file or directory at path.
func (v view) Stat(ctx context.Context, path string) (info fs.FileInfo, err error) {
	err = v.do(ctx, operation{name: "stat", path: path, read: true}, func(path, _ string) error {
		info, err = v.inner.Stat(ctx, path)
		return err
	})
	return info, err
}

// Capabilities are those of the workspace behind: a view has the same medium.
func (v view) Capabilities() Capabilities { return CapabilitiesOf(v.inner) }
