package gitdir

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pikuri/lib/internal/bytejson"
)

// SweepLists removes the lists of roots from a state directory that are old, which the next command
// in a root makes again, and those of links (LinksPrefix) and submodules (SubmodulesPrefix) whose git directory is
// gone.
func SweepLists(state string, old func(path string) bool) error {
	var errs []error
	for _, dir := range []string{state, filepath.Join(state, listDir)} { // an earlier version had them in state
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case strings.HasPrefix(e.Name(), listPrefix) && old(path):
				errs = append(errs, sweepList(state, path))
			case (strings.HasPrefix(e.Name(), LinksPrefix) || strings.HasPrefix(e.Name(), SubmodulesPrefix)) && old(path) && !ofRepository(path), strings.HasPrefix(e.Name(), "linked-"): // these are an earlier version's
				errs = append(errs, unlessAbsent(os.Remove(path))) // another sweep has
			}
		}
	}
	return errors.Join(errs...)
}

// ofRepository reports whether the git directory of a list is there.
func ofRepository(path string) bool {
	var list struct {
		Common string `json:"common"`
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := bufio.NewReader(f).ReadBytes('\n')
	if err != nil && err != io.EOF || bytejson.Unmarshal(head, &list) != nil || list.Common == "" {
		return false
	}
	_, err = os.Lstat(list.Common)
	return err == nil
}

// sweepList removes a list, unless a command in its root runs or is due: without the list,
// what the host changes meanwhile would count as the command's.
func sweepList(state, path string) error {
	unlock, err := lock(state)
	if err != nil {
		return err
	}
	defer unlock()
	notes, err := notesIn(state)
	if err != nil || slices.ContainsFunc(notes, func(n note) bool { return listFile(state, n.root) == path }) {
		return err
	}
	return unlessAbsent(os.Remove(path))
}
