package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// tailBytes is the part of a truncated stream that is kept from its end, where most
// commands report errors.
const tailBytes = 4096

// ExecResult is the result of a command.
type ExecResult struct {
	ExitCode int    // its exit status; 128+n if it died of signal n; 124 if its time ran out
	Signal   string // the signal that ended it, such as "SIGKILL"; "" for none
	TimedOut bool   // Timeout, or the deadline of ctx, ended it

	Stdout, Stderr string // the beginning of each stream, byte for byte
	StdoutTail     string // the last bytes of it, if Stdout is truncated
	StderrTail     string
	StdoutBytes    int64 // all bytes that the command wrote
	StderrBytes    int64

	Duration  time.Duration
	Usage     Usage
	Survivors int // processes still running when the command ended; they were killed
}

// Usage is that of the command and of all processes that it started. In a sandbox it is a
// lower bound: bwrap ends with the command, and the kernel drops the times of processes that
// bwrap has not reaped by then.
type Usage struct {
	User, System time.Duration
	MaxRSS       int64 // bytes, of the largest process
}

// StdoutTruncated reports whether the command wrote more than Stdout.
func (r *ExecResult) StdoutTruncated() bool { return r.StdoutBytes > int64(len(r.Stdout)) }

// StderrTruncated reports whether the command wrote more than Stderr.
func (r *ExecResult) StderrTruncated() bool { return r.StderrBytes > int64(len(r.Stderr)) }

// MarshalJSON writes the result as one object. A stream that is not UTF-8 also
// travels in a twin of its field, in base64.
func (r *ExecResult) MarshalJSON() ([]byte, error) {
	out := map[string]any{
		"exit_code": r.ExitCode, "stdout_bytes": r.StdoutBytes, "stderr_bytes": r.StderrBytes,
		"stdout_truncated": r.StdoutTruncated(), "stderr_truncated": r.StderrTruncated(),
		"duration_ms": r.Duration.Milliseconds(), "user_ms": r.Usage.User.Milliseconds(),
		"system_ms": r.Usage.System.Milliseconds(), "max_rss_bytes": r.Usage.MaxRSS,
	}
	for name, stream := range map[string]string{"stdout": r.Stdout, "stderr": r.Stderr} {
		out[name] = strings.ToValidUTF8(stream, string(utf8.RuneError))
		if !utf8.ValidString(stream) {
			out[name+"_base64"] = base64.StdEncoding.EncodeToString([]byte(stream))
		}
	}
	for name, tail := range map[string]string{"stdout_tail": r.StdoutTail, "stderr_tail": r.StderrTail} {
		if tail != "" {
			out[name] = strings.ToValidUTF8(tail, string(utf8.RuneError))
		}
	}
	if r.Signal != "" {
		out["signal"] = r.Signal
	}
	if r.TimedOut {
		out["timed_out"] = true
	}
	if r.Survivors > 0 {
		out["survivors"] = r.Survivors
	}
	return json.Marshal(out)
}

// stream keeps the first bytes that are written to it and, of the rest, the
// last. The others are counted.
type stream struct {
	mu    sync.Mutex // a process that holds the pipe may still write
	limit int64
	first []byte
	last  []byte // up to twice tailBytes, so that it is seldom moved
	total int64
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	s.total += int64(n)
	take := min(int64(n), s.limit-int64(len(s.first)))
	s.first = append(s.first, p[:take]...)
	p = p[take:]
	if len(p) > tailBytes {
		p = p[len(p)-tailBytes:]
	}
	if s.last = append(s.last, p...); len(s.last) > 2*tailBytes {
		s.last = append(s.last[:0], s.last[len(s.last)-tailBytes:]...)
	}
	return n, nil
}

// kept is the part of a stream that is kept.
type kept struct {
	first, tail string
	total       int64
}

func (s *stream) kept() kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return kept{string(s.first), string(s.last[max(0, len(s.last)-tailBytes):]), s.total}
}
