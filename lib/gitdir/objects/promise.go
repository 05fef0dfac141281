package objects

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// promises reports whether a reference may lead to an object that is missing. The host's
// gc fails if one object is a tree here and a blob there.
func (l *Lander) promises(ref ref) bool {
	if !slices.Contains(l.options.Promised, ref.kind.String()) {
		return false
	}
	if k, ok := l.absent[ref.id]; ok {
		return k == ref.kind
	}
	l.absent[ref.id] = ref.kind
	return true
}

// maxPromised bounds the entries of one tree of promises.
const maxPromised = 1 << 16

// promise tells the host's git that objects may be missing.
//
// For git, an object is promised if one in a pack with the mark "promisor" refers to it.
// But gc excludes each object of such a pack from all others, with all that it leads to,
// and drops what is in none: a commit of the host's below a marked one would be lost. So
// no object of the layer gets into such a pack, and the mark that a command has put on its
// own does not count. The pack holds only trees of pk's own, in which each promised object
// is a submodule. No git follows these, wherever such a tree appears.
func (l *Lander) promise(ids map[oid]bool) error {
	var sorted []oid
	for id := range ids {
		if _, ok := l.announced[id]; !ok {
			sorted = append(sorted, id)
		}
	}
	if len(sorted) == 0 {
		return nil
	}
	slices.SortFunc(sorted, func(a, b oid) int { return bytes.Compare(a[:], b[:]) })
	if err := l.open(); err != nil {
		return err
	}
	pack, err := l.target.newPack()
	if err != nil {
		return err
	}
	defer pack.close()
	var index []indexed
	for part := range slices.Chunk(sorted, maxPromised) {
		var data []byte
		for _, id := range part {
			data = fmt.Appendf(data, "%o %s\x00", typeGit, l.format.hex(id))
			data = append(data, id[:l.format.Size()]...)
		}
		s, err := pack.append(tree, uint64(len(data)), 0, bytes.NewReader(data))
		if err != nil {
			return err
		}
		index = append(index, indexed{l.format.name(tree, data), s.at, s.crc})
	}
	if err := pack.publish(index, true); err != nil {
		return err
	}
	for _, id := range sorted {
		l.announced[id] = struct{}{}
	}
	return nil
}

// Promise makes blobs of an index be promised that are missing. It reports the first one
// that cannot be, or "".
func (l *Lander) Promise(blobs []string) (refused string, err error) {
	ids := map[oid]bool{}
	for _, id := range blobs {
		o, ok := l.format.parseID(id)
		if !ok || o == (oid{}) || !l.promises(ref{id: o, kind: blob}) {
			return id, nil
		}
		ids[o] = true
	}
	if err := l.promise(ids); err != nil {
		return "", fmt.Errorf("cannot land objects: %w", err)
	}
	return "", nil
}

// File returns the reason why an object on the host cannot be a file with this name in an index, or "".
// missing is set if there is no such object.
func (l *Lander) File(id, name string) (fault string, missing bool, err error) {
	o, ok := l.format.parseID(id)
	if !ok {
		return "", true, nil
	}
	switch k, err := l.host.kind(o); {
	case errors.Is(err, ErrNotFound):
		return "", true, nil
	case err != nil:
		return "", false, err
	case k != blob:
		return "it is a " + k.String(), false, nil
	}
	file := specialName(name)
	if file == "" {
		return "", false, nil
	}
	fault, err = l.faultIn(specialFile{o, file}, func() ([]byte, error) {
		_, data, err := l.host.read(o, maxSpecial)
		return data, err
	})
	return fault, false, err
}
