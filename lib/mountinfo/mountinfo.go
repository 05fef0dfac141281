// Package mountinfo reads the kernel's tables of mounts, /proc/PID/mountinfo
// (proc_pid_mountinfo(5)).
package mountinfo

import (
	"slices"
	"strconv"
	"strings"

	"pikuri/lib/internal/fsat"
)

// Mount is one line of a table.
type Mount struct {
	ID     string
	Parent string // the ID of the mount that it lies in
	Device string // of the file system, as MAJOR:MINOR
	Root   string // the mounted directory of the file system
	Point  string // where
	Type   string // of file system
	Source string
}

// Read returns the mounts of a table in its order: a later one covers earlier
// ones at the same place. Lines of another form are left out.
func Read(table string) ([]Mount, error) {
	content, err := fsat.ReadFile(table)
	if err != nil {
		return nil, err
	}
	return parse(string(content)), nil
}

func parse(table string) []Mount {
	var mounts []Mount
	for line := range strings.Lines(table) {
		// The kernel escapes the blank, the tab, the newline and the backslash. Other
		// white space of Unicode can stand in a name, and a source can be empty.
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(fields) < 6 {
			continue
		}
		dash := 6 + slices.Index(fields[6:], "-")
		if dash < 6 || len(fields) < dash+3 {
			continue
		}
		mounts = append(mounts, Mount{
			ID: fields[0], Parent: fields[1], Device: fields[2], Root: unescape(fields[3]), Point: unescape(fields[4]),
			Type: fields[dash+1], Source: unescape(fields[dash+2]),
		})
	}
	return mounts
}

// unescape undoes octal escapes, \040 and the like.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
