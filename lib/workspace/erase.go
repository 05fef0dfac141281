package workspace

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// eraser removes a file, or a directory with everything in it.
type eraser struct {
	w    *LocalWorkspace
	ctx  context.Context
	root *place
}

// removeAll asks the guards about the whole tree before it removes any of it, and
// again about each entry, since some may be new.
func (e *eraser) removeAll() error {
	if len(e.w.guards) > 0 {
		if err := e.w.survey(e.ctx, e.root, e.ask); err != nil {
			return err
		}
	}
	files := fsat.Eraser{Opener: e.w.tree.opener, Ask: e.ask}
	err := files.Remove(e.root.dir, e.root.name)
	inner, inside := errors.AsType[*fsat.EraseError](err)
	switch {
	case errors.Is(err, unix.EAGAIN), err == unix.ENOTDIR, err == unix.ELOOP:
		return errRaced // it was a directory a moment ago
	case errors.Is(err, fsat.ErrMounted) && !inside:
		return errMounts
	case !inside:
		return err
	case errors.Is(err, fsat.ErrMounted):
		err = errMounts
	default:
		err = inner.Err
	}
	return e.at(inner.Path, err)
}

func (e *eraser) ask(below string) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	return e.w.ask(Access{Path: join(e.root.path, below), Write: true})
}

// at adds to an error the path below the root of the tree at which it occurred.
func (e *eraser) at(below string, err error) error {
	located := failed("", "", err).(*Error)
	detail := fmt.Sprintf("%q in it", below)
	if located.Detail != "" {
		detail += ": " + located.Detail
	}
	located.Detail = detail
	return located
}
