package blocked

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/trace"
)

// dns is the port of name servers, whose addresses say nothing about the host.
const dns = 53

// calls looks at the system calls that failed: refusals first, then names that are missing,
// since programs look for files in many places. The later a call, the nearer it is to the
// failure of the command.
func (s *search) calls() {
	for _, missing := range []bool{false, true} {
		for _, f := range s.Failed {
			if len(s.found) == Most {
				return
			}
			if f.Missing() == missing {
				s.call(f)
			}
		}
	}
}

// passing are places where programs look in passing: git has its settings from pk, and
// runtimes ask /sys about the machine. Python does without its caches.
var passing = []string{"/etc/gitconfig", "/sys"}

func (s *search) call(f trace.Failure) {
	within := func(place string) bool { return fsat.Within(string(f.Path), place) }
	switch {
	case f.Address.IsValid():
		s.connection(f)
		return
	case f.Missing() && slices.ContainsFunc(passing, within), strings.Contains(string(f.Path), "/__pycache__"):
		return
	}
	says := complaint{readOnly: f.Errno == unix.EROFS, busy: f.Errno == unix.EBUSY, creates: f.Missing() && f.Creates, missing: f.Missing()}
	find := s.path
	if f.Device && f.Errno == unix.EPERM {
		find = s.copied
	}
	fact, ok := find(string(f.Path), says)
	around := func(o Fact) bool { return o.Access == fact.Access && fsat.Within(o.Path, fact.Path) }
	switch {
	case ok && slices.ContainsFunc(s.found, around): // a program that makes directories asks for each
	case ok:
		s.add(fact)
	case f.Missing() && slices.Contains(s.inside, filepath.Dir(string(f.Path))):
		s.program(filepath.Base(string(f.Path)))
	}
}

// connection finds a connection that failed for want of a network. The loopback is the
// sandbox's own.
func (s *search) connection(f trace.Failure) {
	a := f.Address.Addr()
	switch {
	case !s.noNetwork() || a.IsLoopback() || a.IsUnspecified():
	case f.Address.Port() != dns:
		s.offline(f.Address.String())
	case !slices.ContainsFunc(s.found, func(f Fact) bool { return f.Access == NoNetwork }):
		s.offline("")
	}
}
