package blocked

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

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
			if is := f.Errno == unix.ENOENT || f.Errno == unix.ENOTDIR; is == missing {
				s.call(f)
			}
		}
	}
}

func (s *search) call(f trace.Failure) {
	if f.Address.IsValid() {
		s.connection(f)
		return
	}
	missing := f.Errno == unix.ENOENT || f.Errno == unix.ENOTDIR
	says := complaint{readOnly: f.Errno == unix.EROFS, busy: f.Errno == unix.EBUSY, creates: missing && f.Creates, missing: missing}
	fact, ok := s.path(string(f.Path), says)
	switch {
	case ok:
		s.add(fact)
	case missing && slices.Contains(s.inside, filepath.Dir(string(f.Path))):
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
