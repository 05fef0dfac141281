package bwrap

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links the kernel follows in one lookup.
const maxLinks = 40

// locate finds what the sandbox will show at path, following links as they
// will resolve inside. host is where that lies on the host, or "" for what
// only the sandbox has.
func (p *Plan) locate(path string) (host string, ok bool) {
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
			return "", false
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
		return "", true
	}
	host, _ = m.host(seen)
	return host, true
}

// step looks at one component, all links above it being resolved: is it there,
// and is it a link?
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
	for _, below := range p.Mounts {
		if below.Dest != path && within(below.Dest, path) {
			return "", true // bwrap makes the directory above a mount
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

// FindCommand decides before bwrap starts what execvp(3) would find inside,
// since bwrap answers 1 to everything. The error is a *NotFound or a
// *NotExecutable.
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

// executable checks one path. A missing interpreter is told here too: execve
// would answer "no such file" about a script that is plainly there.
func (p *Plan) executable(name, path string) error {
	host, ok := p.locate(path)
	if !ok {
		return &NotFound{name, "not there in the sandbox"}
	}
	if host == "" {
		return nil // only the sandbox knows
	}
	info, err := os.Stat(host)
	switch {
	case err != nil:
		return &NotFound{name, cause(err).Error()}
	case info.IsDir():
		return &NotExecutable{name, "is a directory"}
	case !info.Mode().IsRegular() || unix.Access(host, unix.X_OK) != nil:
		return &NotExecutable{name, "permission denied"}
	}
	if interpreter := shebang(host); interpreter != "" {
		if _, ok := p.locate(interpreter); !ok {
			return &NotFound{name, fmt.Sprintf("its interpreter %q is not there in the sandbox", interpreter)}
		}
	}
	return nil
}

// shebang returns the interpreter that a script names, or "".
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256) // what the kernel reads
	n, _ := f.Read(head)
	line, isScript := bytes.CutPrefix(head[:n], []byte("#!"))
	if !isScript {
		return ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) == 0 || !filepath.IsAbs(string(fields[0])) {
		return ""
	}
	return string(fields[0])
}
