package trial

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// maxHeld bounds the levels whose directories stay open while their entries are counted. A
// deeper one is closed meanwhile, and found again as "..".
const maxHeld = 64

// entries counts the entries of the upper layer, at most most. A layer that cannot be opened
// may have one.
func (r *Root) entries(most int) int {
	upper, err := r.openUpper()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0
	case err != nil:
		return min(1, most)
	}
	defer unix.Close(upper)
	return count(upper, most)
}

// count counts the entries below an open directory, at most most, however deep. It leaves
// out those of directories that cannot be opened.
func count(dir, most int) int {
	c := &counting{most: most}
	top, err := openCounted(dir, ".", 0)
	if err == nil && most > 0 {
		_ = c.below(top)
		top.close()
	}
	return c.n
}

type counting struct{ n, most int }

// counted is a directory whose entries are counted.
type counted struct {
	fd, depth int // fd is -1 while it is closed
	st        unix.Stat_t
}

// errCounted ends the count: it is full, or a directory has been moved meanwhile.
var errCounted = errors.New("the count ends")

func (c *counting) below(d *counted) error {
	var dirs []string
	err := fsat.Each(d.fd, func(e fsat.Entry) error {
		if c.n++; c.n >= c.most {
			return errCounted
		}
		if e.Type == unix.DT_DIR || e.Type == unix.DT_UNKNOWN {
			dirs = append(dirs, e.Name)
		}
		return nil
	})
	if errors.Is(err, errCounted) {
		return err
	}
	for _, name := range dirs {
		sub, err := openCounted(d.fd, name, d.depth+1)
		if err != nil {
			continue
		}
		if d.depth >= maxHeld {
			d.close()
		}
		err = c.below(sub)
		if err == nil && d.fd < 0 {
			err = d.reopen(sub)
		}
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func openCounted(in int, name string, depth int) (*counted, error) {
	d := &counted{depth: depth}
	var err error
	if d.fd, err = fsat.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
		return nil, err
	}
	if err = unix.Fstat(d.fd, &d.st); err != nil {
		d.close()
	}
	return d, err
}

func (d *counted) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// reopen opens a directory from one that was in it. A command may have moved that since.
func (d *counted) reopen(sub *counted) error {
	again, err := openCounted(sub.fd, "..", d.depth)
	if err != nil {
		return errCounted
	}
	if !fsat.SameInode(&again.st, &d.st) {
		again.close()
		return errCounted
	}
	d.fd = again.fd
	return nil
}
