package refs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pikuri/lib/internal/gitplace"
)

// reader reads the host's refs. It keeps packed-refs until the file changes.
type reader struct {
	Host
	cache   packed
	cached  fs.FileInfo // of the packed-refs in cache; nil: none was read
	folding bool        // the file system ignores the case of names
}

func newReader(h Host) (*reader, error) {
	for _, dir := range []string{h.Common, h.Git} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return nil, fmt.Errorf("internal error: %q is no clean absolute path", dir)
		}
	}
	if h.HexLen != 40 && h.HexLen != 64 {
		return nil, fmt.Errorf("internal error: %d is no length of object IDs", h.HexLen)
	}
	if _, err := h.below(); err != nil {
		return nil, err
	}
	r := &reader{Host: h}
	a, err := os.Lstat(filepath.Join(h.Git, "HEAD"))
	if err == nil {
		b, err := os.Lstat(filepath.Join(h.Git, "hEAD"))
		r.folding = err == nil && os.SameFile(a, b)
	}
	return r, nil
}

// below returns the path of Git below Common: "." or "worktrees/NAME".
func (h Host) below() (string, error) {
	rel, err := filepath.Rel(h.Common, h.Git)
	dir, name := filepath.Split(rel)
	if err != nil || rel != "." && (dir != "worktrees/" || name == "..") {
		return "", fmt.Errorf("%q is no git directory of the repository %q", h.Git, h.Common)
	}
	return rel, nil
}

// reftable reports whether the refs are in a format that pk does not know.
func (h Host) reftable() bool {
	for _, dir := range []string{h.Common, h.Git} {
		if _, err := os.Lstat(filepath.Join(dir, "reftable")); err == nil {
			return true
		}
	}
	return false
}

var errReftable = errors.New("the repository keeps its refs in reftables, which pk cannot write")

// top returns the directory that holds a ref.
func (h Host) top(name string) string {
	if PerWorktree(name) {
		return h.Git
	}
	return h.Common
}

// file returns the path of a loose ref.
func (h Host) file(name string) string { return filepath.Join(h.top(name), name) }

// log returns the path of the log of a ref.
func (h Host) log(name string) string { return filepath.Join(h.top(name), "logs", name) }

// entry is the value of a ref and the ctime of its file.
type entry struct {
	value
	changed time.Time
	loose   bool
}

// read returns the value of a ref, the zero value if there is none.
func (r *reader) read(name string) (entry, error) {
	found, err := r.readLoose(name)
	if err != nil || found.loose || PerWorktree(name) {
		return found, err
	}
	p, err := r.packed()
	if err != nil {
		return entry{}, err
	}
	if id := p.get(name); id != "" {
		return entry{value: value{id: id}, changed: ctime(r.cached)}, nil
	}
	return entry{}, nil
}

func (r *reader) readLoose(name string) (entry, error) {
	file := r.file(name)
	// An old git may have made HEAD a link, whose text is the target.
	if target, err := os.Readlink(file); err == nil {
		info, err := os.Lstat(file)
		if err != nil {
			return entry{}, err
		}
		return entry{value{target: target}, ctime(info), true}, gitplace.CheckRef(target)
	}
	f, err := os.Open(file)
	if notThere(err) {
		return entry{}, nil
	}
	if err != nil {
		return entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return entry{}, err
	}
	data := make([]byte, maxRef)
	n, _ := f.Read(data)
	v, err := parseValue(string(data[:n]), r.HexLen)
	if err != nil {
		return entry{}, fmt.Errorf("the host's file %q: %w", file, err)
	}
	return entry{v, ctime(info), true}, nil
}

// packed returns the host's present packed-refs.
func (r *reader) packed() (packed, error) {
	file := filepath.Join(r.Common, "packed-refs")
	info, err := os.Stat(file)
	if notThere(err) {
		r.cached = nil
		return packed{hexLen: r.HexLen}, nil
	}
	if err != nil {
		return packed{}, err
	}
	if r.cached != nil && os.SameFile(info, r.cached) && ctime(info).Equal(ctime(r.cached)) &&
		info.Size() == r.cached.Size() {
		return r.cache, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return packed{}, err
	}
	p, err := openPacked(string(data), r.HexLen)
	if err != nil {
		return packed{}, fmt.Errorf("the host's file %q: %w", file, err)
	}
	r.cache, r.cached = p, info
	return p, nil
}

// Then returns the value of a branch of the host's. known reports whether it is the one of a time: its file is not
// younger, or it is in the copy of packed-refs of that time.
func Then(host Host, name string, began time.Time, packedThen string) (id string, known bool) {
	r := reader{Host: host}
	now, err := r.read(name)
	if err != nil || now.target != "" || now.value == (value{}) {
		return "", err == nil && now.target == ""
	}
	if now.loose {
		return now.id, now.changed.Before(began)
	}
	data, err := os.ReadFile(packedThen)
	then, perr := openPacked(string(data), host.HexLen)
	return now.id, err == nil && perr == nil && then.get(name) == now.id
}

// packedSince returns the time since which only pk has changed the packed-refs that was read
// last.
func (r *reader) packedSince(o *Options) time.Time {
	var written, before int64
	if _, err := fmt.Sscan(o.Landed[packedRefs], &written, &before); err == nil && written == ctime(r.cached).UnixNano() {
		return time.Unix(0, before)
	}
	return ctime(r.cached)
}

// loose calls fn for each loose ref at a path or below it.
func (r *reader) loose(name string, fn func(name string)) error {
	top := r.file(name)
	err := filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
		base := filepath.Base(file)
		switch {
		case notThere(err):
			return nil
		case err != nil:
			return err
		case e.IsDir() || strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".lock"):
			return nil
		}
		fn(name + file[len(top):])
		return nil
	})
	return err
}

// readLog returns the log of a ref, or "".
func (r *reader) readLog(name string) (string, error) {
	data, err := os.ReadFile(r.log(name))
	if notThere(err) || errors.Is(err, syscall.EISDIR) {
		return "", nil
	}
	return string(data), err
}

// readLogEnd returns the last lines of the log of a ref, or "".
func (r *reader) readLogEnd(name string) (string, error) {
	f, err := os.Open(r.log(name))
	if notThere(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return "", err
	}
	from := max(0, info.Size()-maxLogEnd)
	data, err := io.ReadAll(io.NewSectionReader(f, from, maxLogEnd))
	if from > 0 {
		_, data, _ = bytes.Cut(data, []byte{'\n'})
	}
	return string(data), err
}

// started returns the value with which the command started. known is false if the host
// may have changed the ref since, and its log does not show the value; olds are then the
// values of that time in the log.
func (r *reader) started(name string, now entry, o *Options) (v value, known bool, olds []string) {
	if landed, ok := o.Landed[name]; ok {
		return parseLanded(landed), true, nil
	}
	if began, ok := o.Began[name]; ok {
		return parseLanded(began), true, nil
	}
	if now.value == (value{}) || now.changed.Before(o.since(name)) {
		return now.value, true, nil
	}
	// git writes the log with each change of the ref; packing changes only the ref's file.
	// The committer chooses the times in the log.
	info, err := os.Lstat(r.log(name))
	if err == nil && ctime(info).Before(o.since(name)) && now.id != "" {
		return now.value, true, nil
	}
	log, err := r.readLogEnd(name)
	if err != nil || now.id == "" {
		return now.value, false, nil
	}
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		e, err := parseEntry(lines[i], r.HexLen)
		if err != nil {
			break
		}
		if e.Time < o.since(name).Unix() {
			break
		}
		olds = append(olds, e.Old)
	}
	return now.value, false, olds
}

func ctime(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return time.Now()
}

func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
