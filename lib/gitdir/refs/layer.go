package refs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

const (
	// Bounds of files of a layer. git's own stay far below them.
	maxRef    = 4 << 10
	maxPacked = 128 << 20
	maxLog    = 32 << 20
	maxLogEnd = 1 << 20 // of one of the host's, if only the end is read

	// maxDepth bounds the parts of a ref's name: each directory on the way is open.
	maxDepth = 64

	// maxEntries bounds the files that are read below refs, and the refs that may
	// have changed.
	maxEntries = 1 << 18
)

// maxLogs bounds the bytes of all logs together, with those of the host.
var maxLogs int64 = 128 << 20

// layer is an overlay's upper directory, without the lower one. All of it was
// made by a command.
type layer struct{ fd int }

// file is the content of a layer at a path.
type file struct {
	data   string
	exists bool
	hidden bool // the host's file of this path is not seen
}

// read returns a regular file of at most limit bytes. An error concerns only this file of
// the layer.
func (l layer) read(name string, limit int64) (file, error) {
	dir, hidden, err := l.open(path.Dir(name))
	if err != nil || dir < 0 {
		return file{hidden: hidden}, err
	}
	defer unix.Close(dir)
	st, err := fsat.Lstat(dir, path.Base(name))
	switch {
	case errors.Is(err, unix.ENOENT):
		return file{hidden: hidden}, nil
	case err != nil:
		return file{}, err
	case overlay.IsWhiteout(st):
		return file{hidden: true}, nil
	}
	data, _, err := overlay.ReadFile(dir, path.Base(name), unix.O_NOFOLLOW, limit)
	return file{string(data), err == nil, true}, err
}

// open opens a directory, or returns -1 if there is none. hidden: the host's
// files below it are not seen.
func (l layer) open(name string) (fd int, hidden bool, err error) {
	fd, err = fsat.Reopen(l.fd, unix.O_RDONLY)
	if err != nil {
		return -1, false, err
	}
	for part := range strings.SplitSeq(name, "/") {
		hidden = hidden || overlay.IsOpaque(fd)
		if part == "." {
			continue
		}
		next, err := openDir(fd, part)
		if errors.Is(err, unix.ENOTDIR) {
			if st, err := fsat.Lstat(fd, part); err == nil && overlay.IsWhiteout(st) {
				unix.Close(fd)
				return -1, true, nil
			}
		}
		unix.Close(fd)
		if errors.Is(err, unix.ENOENT) {
			return -1, hidden, nil
		}
		if err != nil {
			return -1, true, fmt.Errorf("cannot open the directory %q: %w", part, err)
		}
		fd = next
	}
	return fd, hidden || overlay.IsOpaque(fd), nil
}

// InLayer returns the value of a reference in a layer: an ID, the name of another reference, or neither if
// commands have deleted it. known is false if they have not changed it, or it cannot be read.
func InLayer(upper, hexLen int, name string) (id, target string, known bool) {
	l := layer{upper}
	f, err := l.read(name, maxRef)
	if err != nil {
		return "", "", false
	}
	if f.exists {
		v, err := parseValue(f.data, hexLen)
		return v.id, v.target, err == nil
	}
	packed, err := l.read("packed-refs", maxPacked)
	if err != nil || !packed.exists {
		return "", "", err == nil && f.hidden
	}
	packs, err := parsePacked(packed.data, hexLen)
	if err != nil {
		return "", "", false
	}
	id = packs.get(name)
	return id, "", id != "" || f.hidden
}

// CheckedOut returns the commit of HEAD by its log in a layer, if that ends on a branch, or "".
func CheckedOut(up, hexLen int, branch string) string {
	f, err := layer{up}.read(headLog, maxLog)
	if err != nil {
		return ""
	}
	last := ""
	for text := strings.TrimRight(f.data, "\n"); text != ""; {
		at := strings.LastIndexByte(text, '\n') + 1
		line := text[at:]
		if text = text[:max(at-1, 0)]; last == "" {
			last = line
		}
		_, message, _ := strings.Cut(line, "\t")
		if to, is := strings.CutPrefix(message, moving); is {
			fields := strings.Fields(last)
			if !strings.HasSuffix(to, " to "+strings.TrimPrefix(branch, heads)) || len(fields) < 2 {
				return ""
			}
			id, _ := parseID(fields[1], hexLen)
			return id
		}
	}
	return ""
}

// Unpack gives references of a layer that no command uses files of their own, if only its packed-refs
// has them. It leaves out a name below another reference's.
func Unpack(upper, hexLen int, names []string) error {
	l := layer{upper}
	f, err := l.read("packed-refs", maxPacked)
	if err != nil || !f.exists {
		return nil // Changes has refused it
	}
	packs, err := parsePacked(f.data, hexLen)
	if err != nil {
		return nil
	}
	for _, name := range names {
		id := packs.get(name)
		if has, err := l.read(name, maxRef); id == "" || err != nil || has.exists || CheckName(name) != nil {
			continue
		}
		if err := l.write(name, id+"\n"); err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
			return fmt.Errorf("cannot write %q in the layer: %w", name, err)
		}
	}
	return nil
}

// write makes a file where there is none, or a whiteout.
func (l layer) write(name, text string) error {
	dir, err := fsat.Reopen(l.fd, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { unix.Close(dir) }()
	clear := func(name string) error {
		if st, err := fsat.Lstat(dir, name); err == nil && overlay.IsWhiteout(st) {
			return unix.Unlinkat(dir, name, 0)
		}
		return nil
	}
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		if err := clear(part); err != nil {
			return err
		}
		if err := unix.Mkdirat(dir, part, 0o755); err != nil && err != unix.EEXIST {
			return err
		}
		next, err := openDir(dir, part)
		if err != nil {
			return err
		}
		unix.Close(dir)
		dir = next
	}
	if err := clear(path.Base(name)); err != nil {
		return err
	}
	fd, err := fsat.Openat(dir, path.Base(name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// openDir opens a directory for reading, and fails with ENOTDIR at a link.
func openDir(dir int, name string) (int, error) {
	return fsat.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}
