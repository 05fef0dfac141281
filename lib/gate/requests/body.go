package requests

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxChunkDigits limits the size of a chunk to 31 bits, and its leading zeros. A server
// that counts in 32 bits would read 100000005 as 5.
const maxChunkDigits = 8

// body forwards the body. Without Content-Length and Transfer-Encoding a request has
// none (RFC 9112, section 6.3).
func (f *forwarder) body(h *head) error {
	if h.encodings > 0 {
		return f.chunks()
	}
	return f.copy(h.length)
}

// copy forwards n bytes: buffered data to the buffer, and the rest as it comes.
func (f *forwarder) copy(n int64) error {
	if buffered := min(n, int64(f.in.Buffered())); buffered > 0 {
		b, _ := f.in.Peek(int(buffered))
		if _, err := f.out.Write(b); err != nil {
			return writeError(err)
		}
		_, _ = f.in.Discard(len(b))
		n -= buffered
	}
	if n == 0 {
		return nil
	}
	if err := f.out.Flush(); err != nil {
		return writeError(err)
	}
	if _, err := io.CopyN(f.to, f.in, n); err == io.EOF {
		return readError(err)
	} else if err != nil {
		return writeError(err)
	}
	return nil
}

// chunks forwards a chunked body (RFC 9112, section 7.1) up to the end of its trailer
// fields.
func (f *forwarder) chunks() error {
	for {
		size, err := f.chunkSize()
		if err != nil {
			return err
		}
		if size == 0 {
			return f.trailers()
		}
		if _, err := fmt.Fprintf(f.out, "%x\r\n", size); err != nil {
			return writeError(err)
		}
		if err := f.copy(size); err != nil {
			return err
		}
		if err := f.chunkEnd(); err != nil {
			return err
		}
	}
}

// chunkSize reads the line before a chunk. It refuses chunk extensions: no client uses
// them, and servers disagree where the line with one ends. It refuses white space too.
func (f *forwarder) chunkSize() (int64, error) {
	line, err := f.bodyLine(maxChunkDigits)
	if err != nil {
		return 0, err
	}
	size, err := strconv.ParseUint(line, 16, 31)
	if err != nil || !consistsOf(line, "0123456789abcdefABCDEF") {
		return 0, refuse(400, "the chunk size %+q", cut(line))
	}
	return int64(size), nil
}

func (f *forwarder) chunkEnd() error {
	line, err := f.bodyLine(0)
	if err != nil {
		return err
	}
	if line != "" {
		return refuse(400, "a chunk that is longer than its size")
	}
	if _, err := f.out.WriteString("\r\n"); err != nil {
		return writeError(err)
	}
	return nil
}

func (f *forwarder) bodyLine(limit int) (string, error) {
	line, err := f.line(limit)
	switch {
	case err == errTooLong:
		return "", refuse(400, "a malformed chunk")
	case err == io.EOF:
		return "", readError(err)
	}
	return string(line), err
}

// trailers forwards the end of a chunked body. A server may treat trailer fields as
// fields of the head, so they may not repeat one that was checked there (RFC 9110,
// section 6.5.1).
func (f *forwarder) trailers() error {
	f.reads(Head)
	defer f.reads(Body)
	out, lines := []byte("0\r\n"), headLines{f: f, left: maxHead, count: 1}
	for {
		line, err := lines.next()
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		trailer, err := parseField(line)
		if err != nil {
			return err
		}
		if slices.Contains(special, strings.ReplaceAll(strings.ToLower(trailer.name), "_", "-")) {
			return refuse(400, "the trailer field %+q", cut(trailer.name))
		}
		out = appendField(out, trailer)
	}
	if _, err := f.out.Write(append(out, "\r\n"...)); err != nil {
		return writeError(err)
	}
	return nil
}
