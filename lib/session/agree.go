package session

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/mountinfo"
)

// Agrees reports whether a table of mounts is the keeper's, too, but for what the
// session mounts. Then every path is the same to both, and Same need not be asked.
func (s *Joined) Agrees(table []mountinfo.Mount) bool {
	return slices.Equal(chains(s.around), chains(table))
}

// chains names each mount of a table with all that it lies in: what covers what
// is not to be seen from places alone. They are sorted.
func chains(table []mountinfo.Mount) []string {
	byID := map[string]mountinfo.Mount{}
	for _, m := range table {
		byID[m.ID] = m
	}
	list := make([]string, len(table))
	for i, m := range table {
		var chain strings.Builder
		for known, depth := true, 0; known && depth < len(table); depth++ {
			chain.WriteString(m.Device + "\x00" + m.Root + "\x00" + m.Point + "\x00" + m.Type + "\x00")
			m, known = byID[m.Parent]
		}
		list[i] = chain.String()
	}
	slices.Sort(list)
	return list
}

// Same reports whether a path leads to the same file for the keeper as for this
// process. It does not when something was mounted since, and this machine's
// mounts are not shared; a sandbox made from there would show what is below.
func (s *Joined) Same(path string) bool {
	var here, there unix.Stat_t
	err := unix.Stat(path, &here)
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)
	}
	return unix.Stat(s.Root()+path, &there) == nil && here.Dev == there.Dev && here.Ino == there.Ino
}
