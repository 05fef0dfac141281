package bwrap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// maxLinks is the number of links that the kernel follows in one lookup.
const maxLinks = 40

// locate finds the file that the sandbox will show at path, following links as they will
// resolve inside. host is its path on the host, or "" if only the sandbox has it.
func (p *Plan) locate(path string) (host string, ok bool) {
	host, _, ok = p.follow(path)
	return host, ok
}

// follow is locate, and also returns the resolved path inside, with the missing names
// behind the part that exists.
func (p *Plan) follow(path string) (host, place string, ok bool) {
	seen, rest, links := "/", strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			seen = filepath.Dir(seen)
			continue
		}
		next := filepath.Join(seen, name)
		link, found := p.step(next)
		if !found || link != "" && links == maxLinks {
			return "", filepath.Join(next, filepath.Join(rest...)), false
		}
		if link == "" {
			seen = next
			continue
		}
		links++
		if filepath.IsAbs(link) {
			seen = "/"
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	m, covered := cover(p.Mounts, seen)
	if !covered {
		return "", seen, true
	}
	host, _ = m.host(seen)
	return host, seen, true
}

// step reports whether one component exists, and its target if it is a link. Links above
// it are resolved already.
func (p *Plan) step(path string) (link string, found bool) {
	m, covered := cover(p.Mounts, path)
	if covered && m.Dest == path {
		if m.Op == OpLink {
			return m.Source, true
		}
		return "", m.Op != OpMask
	}
	if covered && (m.Op == OpProc || m.Op == OpDev) {
		return "", true // made by the kernel: assume that it is there
	}
	for i := range p.Mounts {
		if below := p.Mounts[i].Dest; below != path && fsat.Within(below, path) {
			return "", true // the set-up program makes the directory above a mount
		}
	}
	host, shown := m.host(path)
	if !covered || !shown {
		return "", false
	}
	info, err := os.Lstat(host)
	if err != nil {
		return "", false
	}
	if info.Mode()&os.ModeSymlink != 0 {
		link, err = os.Readlink(host)
	}
	return link, err == nil
}

// NotFound is a command that the sandbox does not show.
type NotFound struct{ Name, Reason string }

func (e *NotFound) Error() string { return fmt.Sprintf("cannot run %q: %s", e.Name, e.Reason) }

// NotExecutable is a command that is there but cannot be run.
type NotExecutable struct{ Name, Reason string }

func (e *NotExecutable) Error() string { return fmt.Sprintf("cannot run %q: %s", e.Name, e.Reason) }

// FindCommand predicts the result of execvp(3) inside before bwrap starts, since bwrap
// exits with 1 for every failure. The error is a *NotFound or a *NotExecutable.
func (p *Plan) FindCommand(name string) error {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Chdir, path)
		}
		return p.executable(name, path)
	}
	var denied error
	for _, dir := range filepath.SplitList(lookupEnv(p.Env, "PATH")) {
		err := p.executable(name, filepath.Join(dir, name))
		if err == nil {
			return nil
		}
		if _, missing := err.(*NotFound); !missing {
			denied = err
		}
	}
	if denied != nil {
		return denied
	}
	return &NotFound{name, "not found in the sandbox's PATH"}
}

// executable checks one path. It reports a missing interpreter too: execve would answer
// "no such file" about a script that is plainly there.
func (p *Plan) executable(name, path string) error {
	host, ok := p.locate(path)
	if !ok || name == "" {
		return &NotFound{name, "not there in the sandbox"}
	}
	if host == "" {
		return p.synthetic(name, path)
	}
	var st unix.Stat_t
	switch err := unix.Stat(host, &st); {
	case err != nil:
		return &NotFound{name, err.Error()}
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return &NotExecutable{name, "is a directory"}
	case strings.HasSuffix(name, "/"):
		return &NotExecutable{name, "not a directory"}
	case st.Mode&unix.S_IFMT != unix.S_IFREG || !permits(st, 1) || p.copiedPlain(path):
		return &NotExecutable{name, "permission denied"}
	}
	if interpreter := interpreter(host); interpreter != "" {
		if _, ok := p.locate(interpreter); !ok {
			return &NotFound{name, fmt.Sprintf("its interpreter %q is not there in the sandbox", interpreter)}
		}
	}
	return nil
}

// copiedPlain reports whether the sandbox has a copy that cannot be executed, even if the
// host's file can.
func (p *Plan) copiedPlain(path string) bool {
	m, ok := cover(p.Mounts, filepath.Clean(path))
	return ok && m.Op == OpCopy && octal(m.Perms)&0o111 == 0
}

// synthetic answers for files that only the sandbox has. None of them can be executed
// except those of /proc, which the kernel makes.
func (p *Plan) synthetic(name, path string) error {
	m, covered := cover(p.Mounts, filepath.Clean(path))
	switch {
	case covered && m.Op == OpProc && m.Dest != filepath.Clean(path):
		return nil
	case covered && (m.Op == OpData || m.Op == OpDev && m.Dest != filepath.Clean(path)):
		return &NotExecutable{name, "permission denied"}
	}
	return &NotExecutable{name, "is a directory"}
}

// permits checks the permission bits (4, 2, 1) as the kernel will inside: root has no
// capabilities there, and the owners of other users' files are not mapped.
func permits(st unix.Stat_t, want uint32) bool {
	switch groups, _ := os.Getgroups(); {
	case int(st.Uid) == os.Geteuid():
		want <<= 6
	case int(st.Gid) == os.Getegid(), slices.Contains(groups, int(st.Gid)):
		want <<= 3
	}
	return st.Mode&want == want
}

// enterable reports whether a command could start in dir.
func enterable(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) != nil || permits(st, 1)
}

// interpreter returns the program that the kernel needs to start a script or a dynamic
// program, as both name it by path, or "".
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(f, head)
	head = head[:n]
	name := elfInterpreter(head)
	if line, isScript := bytes.CutPrefix(head, []byte("#!")); isScript {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if fields := bytes.Fields(line); len(fields) > 0 {
			name = string(fields[0])
		}
	}
	if !filepath.IsAbs(name) {
		return ""
	}
	return name
}

// elfInterpreter finds PT_INTERP in the first page of a 64-bit little-endian ELF file,
// where linkers put it, or returns "". debug/elf would find it anywhere, but makes every
// start of this program slower.
func elfInterpreter(head []byte) string {
	const sizeofHeader, sizeofSegment, segmentInterp = 64, 56, 3
	if len(head) < sizeofHeader || !bytes.HasPrefix(head, []byte("\x7fELF\x02\x01")) {
		return ""
	}
	segments := binary.LittleEndian.Uint64(head[32:])
	for i := range uint64(binary.LittleEndian.Uint16(head[56:])) {
		at := segments + i*sizeofSegment
		if at > uint64(len(head)-sizeofSegment) {
			return ""
		}
		segment := head[at:]
		if binary.LittleEndian.Uint32(segment) != segmentInterp {
			continue
		}
		start, size := binary.LittleEndian.Uint64(segment[8:]), binary.LittleEndian.Uint64(segment[32:])
		if size == 0 || start > uint64(len(head)) || size > uint64(len(head))-start {
			return ""
		}
		return string(bytes.TrimRight(head[start:start+size], "\x00"))
	}
	return ""
}
