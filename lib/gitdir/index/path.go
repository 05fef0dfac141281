package index

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pikuri/lib/internal/gitplace"
)

// Check reports the first entry that the host's git must not see: a path that git
// itself would not add, an unknown mode, a sparse directory, or an entry below
// another one that is a file, link or gitlink.
func (x *Index) Check() error {
	var above []*entry // those whose path is a prefix of the current one, if only by bytes
	for i := range x.entries {
		e := &x.entries[i]
		path := x.path(e)
		if err := x.checkEntry(e); err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
		for len(above) > 0 && !bytes.HasPrefix(path, x.path(above[len(above)-1])) {
			above = above[:len(above)-1]
		}
		for _, parent := range above {
			if n := parent.pathLength; n < e.pathLength && path[n] == '/' && collide(parent, e) {
				return fmt.Errorf("%q: %q is not a directory", path, x.path(parent))
			}
		}
		above = append(above, e)
	}
	return nil
}

// collide reports whether an entry may not be above another one. Git allows a file
// at another stage: a conflict between a file and a directory.
func collide(parent, e *entry) bool {
	return parent.stage == e.stage || parent.mode == ModeLink || parent.mode == ModeGitlink
}

func (x *Index) checkEntry(e *entry) error {
	if e.mode == modeDirectory {
		return errors.New("a sparse index cannot be checked")
	}
	if !slices.Contains([]uint32{ModeFile, ModeExecutable, ModeLink, ModeGitlink}, e.mode) {
		return fmt.Errorf("unknown mode %o", e.mode)
	}
	if e.known {
		return nil
	}
	return checkPath(string(x.path(e)), e.mode)
}

// checkPath applies git's rules for a path in an index, with core.protectHFS and
// core.protectNTFS on.
func checkPath(path string, mode uint32) error {
	for name := range strings.SplitSeq(path, "/") {
		if err := gitplace.CheckName(name); err != nil {
			return err
		}
		if mode == ModeLink && gitplace.IsGitFile(name, "gitmodules", "gi7eba") {
			return errors.New(".gitmodules cannot be a link")
		}
	}
	return nil
}
