package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Difference is a name whose content in the layer differs from the host's. Before and
// After are SHA-256 of the content, of a directory a hash of its whole content, or "".
type Difference struct {
	Name          string
	Before, After string
	Err           error // one of them cannot be read; it stays in the layer
}

// Differences lists all names that Land checks, in a fixed order. It changes
// nothing and does not check content: a part of it may be refused.
func Differences(host string, upper int, o Options) (list []Difference, err error) {
	o.Try = true
	l := &lander{Options: o, upper: upper, stage: -1}
	if l.host, err = fsat.Openat(unix.AT_FDCWD, host, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return nil, fmt.Errorf("cannot open %q: %w", host, err)
	}
	defer unix.Close(l.host)
	for _, group := range groups {
		for _, it := range group {
			c, err := l.compare(it)
			var unreadable refusal
			switch {
			case errors.As(err, &unreadable):
				list = append(list, Difference{Name: it.name, Err: err})
			case err != nil:
				return nil, fmt.Errorf("%q: %w", it.name, err)
			case c != nil && c.host.sum() != c.new.sum():
				list = append(list, Difference{Name: it.name, Before: c.host.digest(), After: c.new.digest()})
			}
		}
	}
	return list, nil
}

func (c content) digest() string {
	sum := c.sum()
	switch c.kind {
	case absent:
		return ""
	case file:
		sum = sha256.Sum256(c.data)
	}
	return hex.EncodeToString(sum[:])
}
