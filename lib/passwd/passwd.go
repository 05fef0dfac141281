// Package passwd looks up accounts in files in the format of passwd(5) and group(5).
//
// It replaces os/user: os/user.LookupId answers for the caller's own uid with $USER and
// $HOME if /etc/passwd lacks it, so the environment would choose the
// home. Users that only a directory service knows are not found: without C there is no
// way to ask one.
package passwd

import (
	"strconv"
	"strings"

	"pikuri/lib/internal/fsat"
)

// The files of the machine.
const (
	Users  = "/etc/passwd"
	Groups = "/etc/group"
)

// Entry is the account of a line. A group has no Home and no GID.
type Entry struct {
	Name, Home string // "" if unknown
	GID        int    // -1 if unknown
}

// The fields of a line.
const (
	nameField, idField, gidField, homeField = 0, 2, 3, 5

	userFields, groupFields = 7, 4
)

// Find returns the first account of file whose uid, or gid of a file of groups, is id.
func Find(file string, id int) Entry { return find(file, idField, strconv.Itoa(id)) }

// FindName returns the first account of file with the name.
func FindName(file, name string) Entry { return find(file, nameField, name) }

func find(file string, field int, want string) Entry {
	none := Entry{GID: -1}
	text, err := fsat.ReadFile(file)
	if err != nil {
		return none
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if n := len(fields); n != userFields && n != groupFields || fields[field] != want {
			continue
		}
		found := Entry{Name: fields[nameField], GID: -1}
		if len(fields) == userFields {
			found.Home = fields[homeField]
			if gid, err := strconv.Atoi(fields[gidField]); err == nil {
				found.GID = gid
			}
		}
		return found
	}
	return none
}
