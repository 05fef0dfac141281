package workspace

import (
	"context"
	"io"
	"path"
	"time"
)

// entry describes a node, or its absence.
func (n *node) entry() Entry {
	switch {
	case n == nil:
		return Entry{}
	case n.below != nil:
		return Entry{Kind: KindDir, Perm: n.mode.Perm()}
	}
	return Entry{Kind: KindFile, Perm: n.mode.Perm(), Size: int64(len(n.data)), Hash: HashOf(n.data)}
}

// Entry describes the entry at a path.
func (m *MemWorkspace) Entry(ctx context.Context, path string) (e Entry, err error) {
	err = m.look(ctx, path, func(rel string) error {
		n, err := m.find(rel)
		if err == nil && m.conf.maxFileSize > 0 && int64(len(n.data)) > m.conf.maxFileSize {
			return ErrTooLarge
		}
		e = n.entry()
		return nil
	})
	return e, failed("stat", path, err)
}

// Swap replaces old at path by next. There are no links in memory.
func (m *MemWorkspace) Swap(ctx context.Context, path string, old, next Entry, content io.Reader) error {
	err := checkSwap(old, next, content)
	if err == nil {
		err = m.look(ctx, path, m.maySwap)
	}
	var data []byte
	if err == nil && next.Kind == KindFile && !old.keepsInode(next) {
		data, err = m.content(ctx, path, next, content)
	}
	if err == nil {
		err = m.change(ctx, path, func(rel string) error { return m.swap(rel, old, next, data) })
	}
	return failed("swap", path, err)
}

// content reads a new file.
func (m *MemWorkspace) content(ctx context.Context, path string, next Entry, content io.Reader) (data []byte, err error) {
	limit := m.conf.maxFileSize
	if limit == 0 {
		limit = 1<<63 - 1
	}
	out := newBuffer(ctx, path, limit, func(all []byte) error {
		data = all
		if next.Hash != "" && next.Hash != HashOf(all) {
			return errWrongHash
		}
		return nil
	})
	if _, err := io.Copy(out, content); err != nil {
		return nil, err
	}
	return data, out.Close()
}

func (m *MemWorkspace) maySwap(rel string) error {
	if rel == "." {
		return errRoot
	}
	if isReserved(path.Base(rel)) {
		return errReserved
	}
	return m.mayWrite(rel)
}

func (m *MemWorkspace) swap(rel string, old, next Entry, data []byte) error {
	if err := m.maySwap(rel); err != nil {
		return err
	}
	n, err := m.find(rel)
	if err == ErrNotDir && old.Kind == KindMissing {
		return err
	}
	keeps := old.keepsInode(next)
	if !n.entry().same(old) || !keeps && n != nil && len(n.below) > 0 {
		return ErrChanged
	}
	if keeps {
		if n != nil {
			n.mode = n.mode.Type() | next.Perm
		}
		return nil
	}
	switch next.Kind {
	case KindMissing:
		return m.remove(rel)
	case KindLink:
		return &Error{Err: ErrUnsupported, Detail: "there are no links in memory"}
	}
	in, err := m.dir(parent(rel))
	if err != nil {
		return err
	}
	made := &node{data: data, mode: next.Perm, time: time.Now()}
	if next.Kind == KindDir {
		made = m.newDir()
		made.mode = made.mode.Type() | next.Perm
	}
	in.put(path.Base(rel), made)
	return nil
}

// Recover finds nothing: a crash ends the workspace.
func (m *MemWorkspace) Recover(ctx context.Context, path string) ([]string, error) {
	err := m.look(ctx, path, func(string) error { return nil })
	return nil, failed("recover", path, err)
}
