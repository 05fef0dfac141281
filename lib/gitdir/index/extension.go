package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// extensions calls fn for each extension.
func extensions(data []byte, fn func(name string, body []byte) error) error {
	for len(data) > 0 {
		if len(data) < 8 {
			return errors.New("garbage after the entries")
		}
		name, size := string(data[:4]), binary.BigEndian.Uint32(data[4:])
		if data = data[8:]; uint64(size) > uint64(len(data)) {
			return fmt.Errorf("the extension %q ends too early", name)
		}
		if err := fn(name, data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

func splitError(body []byte, hashLen int) error {
	return &SplitError{Shared: "sharedindex." + hex.EncodeToString(body[:min(len(body), hashLen)])}
}

// checkExtensions keeps a correct TREE. Git refuses an unknown extension in lower-case
// letters; of the known ones, an index without sparse directories does not need sdir.
func (x *Index) checkExtensions() error {
	return extensions(x.extensions(), func(name string, body []byte) error {
		switch {
		case name == "link":
			return splitError(body, x.hashLen)
		case name == "TREE" && x.trees == nil && x.verifyTrees(body):
			x.trees = body
			return nil
		case name != "sdir" && (name[0] < 'A' || name[0] > 'Z'):
			return fmt.Errorf("unknown extension %q", name)
		}
		x.kept = false
		return nil
	})
}

// Trees returns the IDs of the trees that git will read from the index instead of making
// them from the entries, apart from those that the host's index has too. They match the
// entries. If one is missing in the object database, git gc and git fsck fail: then call
// DropTrees.
func (x *Index) Trees() []string { return x.ids }

// Tree returns the ID of the tree of all entries, if the index has it and Check has been called, or "".
func (x *Index) Tree() string { return x.tree }

// DropTrees makes Encode leave out the trees.
func (x *Index) DropTrees() {
	if x.trees != nil {
		x.trees, x.ids, x.kept = nil, nil, false
	}
}

// cacheTree is a directory in the extension TREE.
type cacheTree struct {
	name string
	text []byte // all of it, with those below
	id   []byte // nil: not known
	size int    // entries below, if id is known
	down map[string]*cacheTree
}

// verifyTrees reports whether each tree in the extension matches the entries. A forged
// one would make `git commit` record, and `git diff --cached` show, other content than
// the index has.
func (x *Index) verifyTrees(body []byte) bool {
	root := x.parseTrees(body)
	x.ids = nil
	if root == nil || !x.verifyTree(root, x.hostRoot, "", x.entries) {
		x.ids = nil
		return false
	}
	slices.Sort(x.ids)
	x.ids = slices.Compact(x.ids)
	x.tree = hex.EncodeToString(root.id)
	return true
}

// parseTrees reads the extension: nil if it is wrong.
func (x *Index) parseTrees(body []byte) *cacheTree {
	root, rest := x.parseTree(body, 0)
	if root == nil || len(rest) > 0 || root.name != "" {
		return nil
	}
	return root
}

// parseTree reads a directory and those below it. Its depth is at most that of a path.
func (x *Index) parseTree(text []byte, depth int) (*cacheTree, []byte) {
	data := text
	name, data, ok := bytes.Cut(data, []byte{0})
	line, data, ok2 := bytes.Cut(data, []byte{'\n'})
	size, number, ok3 := strings.Cut(string(line), " ")
	count, err := strconv.Atoi(size)
	subtrees, err2 := strconv.Atoi(number)
	if !ok || !ok2 || !ok3 || err != nil || err2 != nil || count < -1 || subtrees < 0 || depth > maxPath/2 {
		return nil, nil
	}
	t := &cacheTree{name: string(name), size: count, down: map[string]*cacheTree{}}
	if count >= 0 {
		if len(data) < x.hashLen {
			return nil, nil
		}
		t.id, data = data[:x.hashLen], data[x.hashLen:]
	}
	for range subtrees {
		var sub *cacheTree
		if sub, data = x.parseTree(data, depth+1); sub == nil {
			return nil, nil
		}
		if t.down[sub.name] != nil || sub.name == "" || strings.Contains(sub.name, "/") {
			return nil, nil
		}
		t.down[sub.name] = sub
	}
	t.text = text[:len(text)-len(data)]
	return t, data
}

// verifyTree compares a tree with the entries below its path, which ends in a slash
// unless it is the root's. host is the host's tree at that path, or nil. If both have the
// same ID, and all entries are the host's, as many as it counts, they are all entries of
// the host there: then the tree is correct.
func (x *Index) verifyTree(t, host *cacheTree, path string, entries []entry) bool {
	if host == nil {
		host = new(cacheTree)
	}
	if t.size == len(entries) && bytes.Equal(t.text, host.text) && !slices.ContainsFunc(entries, func(e entry) bool { return !e.known }) {
		return true
	}
	if t.id == nil {
		for name, sub := range t.down {
			if !x.verifyTree(sub, host.down[name], path+name+"/", x.entriesBelow(entries, path+name+"/")) {
				return false
			}
		}
		return true
	}
	if t.size != len(entries) || t.size == 0 && path != "" {
		return false
	}
	var object []byte
	dirs := 0
	for len(entries) > 0 {
		e := &entries[0]
		name, _, isDir := strings.Cut(string(x.path(e)[len(path):]), "/")
		if !isDir {
			if e.stage != 0 || x.flags(e).IntentToAdd {
				return false
			}
			object = appendTree(object, e.mode, name, x.id(e))
			entries = entries[1:]
			continue
		}
		sub := t.down[name]
		if sub == nil || sub.id == nil {
			return false
		}
		below := x.entriesBelow(entries, path+name+"/")
		if !x.verifyTree(sub, host.down[name], path+name+"/", below) {
			return false
		}
		object = appendTree(object, modeDirectory, name, sub.id)
		entries = entries[len(below):]
		dirs++
	}
	x.ids = append(x.ids, hex.EncodeToString(t.id))
	return dirs == len(t.down) && bytes.Equal(t.id, x.hash(fmt.Appendf(nil, "tree %d\x00", len(object)), object))
}

func appendTree(object []byte, mode uint32, name string, id []byte) []byte {
	object = strconv.AppendUint(object, uint64(mode), 8)
	object = append(object, ' ')
	object = append(object, name...)
	object = append(object, 0)
	return append(object, id...)
}

// entriesBelow returns the entries whose paths begin with prefix: they are in order.
func (x *Index) entriesBelow(entries []entry, prefix string) []entry {
	from := sort.Search(len(entries), func(i int) bool { return string(x.path(&entries[i])) >= prefix })
	entries = entries[from:]
	to := sort.Search(len(entries), func(i int) bool { return !bytes.HasPrefix(x.path(&entries[i]), []byte(prefix)) })
	return entries[:to]
}
