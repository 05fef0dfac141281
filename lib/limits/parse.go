package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Ranges of the limits.
const (
	// LeastMemory is enough for a sandbox to start: bwrap and the processes before
	// it, the files that are copied in, the kernel's tables of mounts.
	LeastMemory = 16 << 20

	// LeastFileSize covers the files that bwrap writes with the limit in force: the
	// maps of IDs, and other small files in /proc.
	LeastFileSize = 4 << 10

	// LeastPids is enough for the programs that make the sandbox. A Go program has
	// several threads, and dies when it cannot start one. These programs have ended
	// when the command begins.
	LeastPids = 16

	// mostPids is the kernel's PID_MAX_LIMIT: a higher limit would be none.
	mostPids = 4 << 20

	// mostSeconds keeps the hard limit, a second later, and a time.Duration in
	// range: about 290 years.
	mostSeconds = math.MaxInt64/int64(time.Second) - 1
)

// units are the suffixes of a size. They are powers of 1024, as those of
// systemd, docker and ulimit.
const units = "KMGT"

// ParseSize reads a number of bytes, which may end in K, M, G or T.
func ParseSize(s string) (int64, error) {
	digits, shift := s, 0
	if s != "" {
		if i := strings.IndexByte(units, upper(s[len(s)-1])); i >= 0 {
			digits, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	n, err := number(digits)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M", s)
	case n == 0:
		return 0, fmt.Errorf("%q is no size to limit to: type at least 1", s)
	case n > math.MaxInt64>>shift:
		return 0, fmt.Errorf("%q is too large: sizes end at %s", s, FormatSize(math.MaxInt64&^(1<<40-1)))
	}
	return n << shift, nil
}

// ParseCount reads a number of processes. LeastPids says why it has a lower
// bound.
func ParseCount(s string) (int64, error) {
	n, err := number(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number, such as 200", s)
	}
	if n < LeastPids || n > mostPids {
		return 0, fmt.Errorf("%q is not between %d, what a sandbox starts with, and %d", s, int64(LeastPids), int64(mostPids))
	}
	return n, nil
}

// ParseSeconds reads a time in whole seconds: the kernel has no finer limit.
func ParseSeconds(s string) (time.Duration, error) {
	n, err := number(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number of seconds, such as 60", s)
	}
	if n < 1 || n > mostSeconds {
		return 0, fmt.Errorf("%q is not between 1 and %d seconds", s, int64(mostSeconds))
	}
	return time.Duration(n) * time.Second, nil
}

// number reads digits only: no sign, no blank, no underscore. A number out of
// range becomes the largest one, which the caller's own bound refuses.
func number(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, nil // digits are either read or too many
	}
	return n, nil
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

// FormatSize formats a size as ParseSize reads it, with the largest unit that
// leaves a whole number.
func FormatSize(n int64) string {
	unit := ""
	for i := 0; i < len(units) && n != 0 && n%1024 == 0; i++ {
		n, unit = n/1024, units[i:i+1]
	}
	return strconv.FormatInt(n, 10) + unit
}
