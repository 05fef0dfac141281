package objects

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"pikuri/lib/gitconfig"
)

// MaxConfig bounds the configuration of a repository, in bytes.
const MaxConfig = 4 << 20

// FormatOf returns the hash function of a git directory of the host, and in a partial
// clone the kinds of objects that may be missing.
func FormatOf(gitDir string) (format Format, promised []string, err error) {
	text, err := os.ReadFile(filepath.Join(gitDir, "config"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return format, nil, err
	}
	return FormatIn(text)
}

// FormatIn is FormatOf for the content of its configuration.
func FormatIn(config []byte) (format Format, promised []string, err error) {
	entries, err := gitconfig.Parse("config", config)
	for _, e := range entries {
		section, name := e.Key[:strings.IndexByte(e.Key+".", '.')], e.Key[strings.LastIndexByte(e.Key, '.')+1:]
		switch {
		case e.Key == "extensions.objectformat":
			if e.Value == "sha256" {
				format = SHA256
			}
		case e.Key == "extensions.partialclone":
			promised = append(promised, "blob")
		case section == "remote" && name == "promisor":
			if is, _ := e.Bool(); is {
				promised = append(promised, "blob")
			}
		case section == "remote" && name == "partialclonefilter":
			if promised = append(promised, "blob"); strings.Contains(e.Value, "tree:") || strings.Contains(e.Value, "object:") {
				promised = append(promised, "tree")
			}
		}
	}
	return format, promised, err
}
