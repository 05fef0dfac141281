package objects

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pikuri/lib/internal/gitplace"
)

// ref is a reference from an object to another one.
type ref struct {
	id     oid
	kind   kind
	parent bool   // of a commit: missing where the history is shallow
	file   string // the name, if git fsck looks into the file: .gitmodules, .gitattributes
}

// check parses a commit, tree or tag and calls each for each object that it refers to. An
// error is one of git fsck's errors; fsck's warnings pass, except for names in trees that
// git refuses to check out. It is also one if git log or a commit-graph fails for the object.
func check(f Format, k kind, data []byte, each func(ref) error) error {
	switch k {
	case commit:
		return checkCommit(f, data, each)
	case tree:
		return checkTree(f, data, each)
	case tag:
		return checkTag(f, data, each)
	}
	return nil
}

// headers is the rest of an object's headers.
type headers struct {
	f    Format
	rest []byte
}

var errHeader = errors.New("unterminated header")

// newHeaders requires that the headers end, with an empty line or with the object, before
// any NUL byte.
func newHeaders(f Format, data []byte) (*headers, error) {
	head := data
	if i := bytes.Index(data, []byte("\n\n")); i >= 0 {
		head = data[:i+1]
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return nil, errors.New("NUL byte in a header")
	}
	if len(head) == 0 || head[len(head)-1] != '\n' {
		return nil, errHeader
	}
	return &headers{f, head}, nil
}

// line takes a line with this key.
func (h *headers) line(key string) (string, bool) {
	rest, ok := bytes.CutPrefix(h.rest, []byte(key+" "))
	if !ok {
		return "", false
	}
	value, rest, _ := bytes.Cut(rest, []byte("\n"))
	h.rest = rest
	return string(value), true
}

// id takes a line that holds an ID.
func (h *headers) id(key string) (id oid, found bool, err error) {
	value, found := h.line(key)
	if !found {
		return id, false, nil
	}
	id, ok := h.f.parseID(strings.ToLower(value))
	if !ok {
		return id, true, fmt.Errorf("bad %s line", key)
	}
	return id, true, nil
}

func checkCommit(f Format, data []byte, each func(ref) error) error {
	h, err := newHeaders(f, data)
	if err != nil {
		return err
	}
	id, found, err := h.id("tree")
	if err == nil && !found {
		err = errors.New("no tree line")
	}
	if err == nil {
		err = each(ref{id: id, kind: tree})
	}
	for parents := 0; found && err == nil; parents++ {
		if id, found, err = h.id("parent"); found && err == nil {
			if parents == maxParents {
				return fmt.Errorf("more than %d parents", maxParents)
			}
			err = each(ref{id: id, kind: commit, parent: true})
		}
	}
	if err != nil {
		return err
	}
	if err := h.ident("author"); err != nil {
		return err
	}
	if bytes.HasPrefix(h.rest, []byte("author ")) {
		return errors.New("several author lines")
	}
	return h.ident("committer")
}

// maxParents bounds the parents of a commit: git compares it with each one. The largest merge of the
// Linux kernel has 66.
const maxParents = 256

func checkTag(f Format, data []byte, each func(ref) error) error {
	h, err := newHeaders(f, data)
	if err != nil {
		return err
	}
	id, found, err := h.id("object")
	if err != nil || !found {
		return errors.New("no valid object line")
	}
	name, _ := h.line("type")
	k := kindOf(name)
	if k == noKind {
		return errors.New("no valid type line")
	}
	if _, ok := h.line("tag"); !ok {
		return errors.New("no tag line")
	}
	if bytes.HasPrefix(h.rest, []byte("tagger ")) { // old tags have none
		if err := h.ident("tagger"); err != nil {
			return err
		}
	}
	return each(ref{id: id, kind: k})
}

// ident takes a line "KEY NAME <EMAIL> SECONDS ZONE". The name may be empty.
func (h *headers) ident(key string) error {
	line, ok := h.line(key)
	if !ok {
		return fmt.Errorf("no %s line", key)
	}
	name, rest, ok := strings.Cut(line, "<")
	if !ok || name == "" || name[len(name)-1] != ' ' || strings.Contains(name, ">") {
		return fmt.Errorf("bad name in the %s line", key)
	}
	email, rest, ok := strings.Cut(rest, ">")
	if !ok || strings.Contains(email, "<") {
		return fmt.Errorf("bad email address in the %s line", key)
	}
	date, zone, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	seconds, err := strconv.ParseUint(date, 10, dateBits)
	if err != nil || rest[0] != ' ' || date[0] == '0' && date != "0" {
		return fmt.Errorf("bad date in the %s line", key)
	}
	if len(zone) != 5 || zone[0] != '+' && zone[0] != '-' || strings.Trim(zone[1:], "0123456789") != "" {
		return fmt.Errorf("bad time zone in the %s line", key)
	}
	hours, _ := strconv.Atoi(zone[1:3])
	minutes, _ := strconv.Atoi(zone[3:])
	if zone[0] == '-' && seconds < uint64(hours*60+minutes)*60 {
		return fmt.Errorf("date before 1970 in the %s line", key) // git log dies of it
	}
	return nil
}

// dateBits is the size of a commit's date in a commit-graph, gitformat-commit-graph(5). If git cuts a
// date off, it takes ancestors for later commits, and does not find them.
const dateBits = 34

// File types in trees, as in stat(2).
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeGit  = 0o160000 // a commit of a submodule
)

func checkTree(f Format, data []byte, each func(ref) error) error {
	last, lastKey := "", ""
	var files []string // names so far that are prefixes of the next
	for len(data) > 0 {
		mode, name, id, rest, err := treeEntry(f, data)
		if err != nil {
			return err
		}
		data = rest
		if err := gitplace.CheckName(name); err != nil {
			return err
		}
		key := name
		if mode&typeMask == typeDir {
			key += "/" // as git sorts
		}
		for len(files) > 0 && !strings.HasPrefix(name, files[len(files)-1]) {
			files = files[:len(files)-1]
		}
		switch {
		case name == last || len(files) > 0 && name == files[len(files)-1]:
			return errors.New("duplicate entries")
		case key < lastKey:
			return errors.New("entries not sorted")
		case id == oid{}:
			return errors.New("entry with the null ID")
		}
		if mode&typeMask != typeDir {
			files = append(files, name)
		}
		last, lastKey = name, key
		r, err := treeRef(mode, name, id)
		if err != nil {
			return err
		}
		if r.kind != noKind {
			if err := each(r); err != nil {
				return err
			}
		}
	}
	return nil
}

var errTree = errors.New("malformed tree")

// treeEntry takes an entry off a tree: an octal mode, a blank, a name, a NUL byte and a
// binary ID.
func treeEntry(f Format, data []byte) (mode uint64, name string, id oid, rest []byte, err error) {
	digits, _, ok := bytes.Cut(data[:min(len(data), 16)], []byte(" "))
	if !ok {
		return 0, "", id, nil, errTree
	}
	if mode, err = strconv.ParseUint(string(digits), 8, 17); err != nil {
		return 0, "", id, nil, errTree
	}
	raw, rest, ok := bytes.Cut(data[len(digits)+1:], []byte{0})
	if !ok || len(rest) < f.Size() {
		return 0, "", id, nil, errTree
	}
	return canonical(mode), string(raw), f.oid(rest), rest[f.Size():], nil
}

// canonical is the mode for which git takes that of an entry: of all permissions it reads
// the owner's to execute a file (canon_mode in its object.h).
func canonical(mode uint64) uint64 {
	switch kind := mode & typeMask; kind {
	case typeFile:
		return typeFile | 0o644 | mode&0o100 | mode&0o100>>3 | mode&0o100>>6
	case typeDir, typeLink, typeGit:
		return kind
	}
	return mode
}

// treeRef returns the reference of an entry, without a kind if git does not follow it. It
// refuses modes that git takes for those of submodules.
func treeRef(mode uint64, name string, id oid) (ref, error) {
	r := ref{id: id, kind: blob}
	switch mode & typeMask {
	case typeDir:
		r.kind = tree
	case typeGit:
		r.kind = noKind
	case typeFile, typeLink:
	default:
		return ref{}, fmt.Errorf("entry with the mode %o", mode)
	}
	link := mode&typeMask == typeLink
	switch r.file = specialName(name); {
	case link && r.file == ".gitmodules":
		return ref{}, errors.New(".gitmodules is a symbolic link")
	case link:
		r.file = ""
	}
	if r.file != "" && r.kind != blob {
		return ref{}, fmt.Errorf("%s is not a file", r.file)
	}
	return r, nil
}
