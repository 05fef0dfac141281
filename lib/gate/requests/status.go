package requests

import (
	"io"
	"strings"
)

const (
	// maxInterim bounds the responses before the first final one, such as 103.
	maxInterim = 64 << 10

	statusLine = len("HTTP/1.1 101") // the end of the status
)

// FirstStatus copies src, the server, to dst, the client, until it knows the status of the
// first response, and returns that. It changes nothing and holds nothing back: go on with
// io.Copy. A status of 100 to 199, except 101, is not the first response.
//
// The status is 0 if src is not an HTTP/1 server. The error is io.EOF if src ends before
// the status is known, or one of src or dst.
func FirstStatus(dst io.Writer, src io.Reader) (status int, err error) {
	var s statusFinder
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if _, err := dst.Write(buf[:n]); err != nil {
			return 0, err
		}
		for _, c := range buf[:n] {
			if s.next(c) {
				return s.status, nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// statusFinder parses a response byte by byte.
type statusFinder struct {
	line   []byte // the first bytes of the line
	size   int    // of all lines
	fields bool   // the lines are fields of an interim response
	status int
}

// next reports whether the status is known.
func (s *statusFinder) next(c byte) bool {
	if s.size++; s.size > maxInterim {
		return true
	}
	if c != '\n' {
		s.line = append(s.line, c)[:min(len(s.line)+1, statusLine+1)]
		return false
	}
	line := strings.TrimSuffix(string(s.line), "\r")
	s.line = s.line[:0]
	if s.fields {
		s.fields = line != ""
		return false
	}
	status := parseStatus(line)
	s.fields = status >= 100 && status < 200 && status != 101
	if !s.fields {
		s.status = status
	}
	return !s.fields
}

// parseStatus returns the status in the beginning of a status line (RFC 9112, section
// 4), or 0.
func parseStatus(line string) int {
	if len(line) < statusLine || !strings.HasPrefix(line, "HTTP/1.") || line[8] != ' ' || len(line) > statusLine && line[statusLine] != ' ' {
		return 0
	}
	status := 0
	for _, c := range []byte(line[9:statusLine]) {
		if c < '0' || c > '9' {
			return 0
		}
		status = status*10 + int(c-'0')
	}
	return status
}
