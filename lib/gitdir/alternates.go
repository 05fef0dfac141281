package gitdir

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// Alternates lists the object databases from which those of git directories borrow. It
// serves only a hint: the git directory may be one of an unpacked archive, which names
// any directory.
func Alternates(gitDirs []string) []string {
	var list []string
	for _, dir := range gitDirs {
		in, err := unix.Open(filepath.Join(dir, "objects/info"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		text, _, _ := overlay.ReadFile(in, "alternates", unix.O_NOFOLLOW, gitplace.MaxPointer)
		unix.Close(in)
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(dir, "objects", line)
			}
			if _, err := os.Lstat(line); err == nil {
				list = append(list, filepath.Clean(line))
			}
		}
	}
	return list
}
