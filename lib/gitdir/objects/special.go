package objects

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"pikuri/lib/gitconfig"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/internal/lazy"
)

// Limits of git for a file of attributes, and of a .gitmodules that this package
// reads.
const (
	maxAttributesLine = 2048
	maxSpecial        = 16 << 20

	// maxMacros bounds the macros in a file of attributes: git expands them in each other by
	// recursion, and crashes at some hundred thousand.
	maxMacros = 1000
)

// tooWide finds conflict markers, gitattributes(5), of more than 999 characters: git merge writes some of them for
// each conflict, and crashes at a third of 2^32.
var tooWide = lazy.Regexp(`conflict-marker-size=\+?0*[1-9][0-9]{3}`)

// specialName returns .gitmodules or .gitattributes for a name that a file system takes for it, or "".
func specialName(name string) string {
	switch {
	case gitplace.IsGitFile(name, "gitmodules", "gi7eba"):
		return ".gitmodules"
	case gitplace.IsGitFile(name, "gitattributes", "gi7d29"):
		return ".gitattributes"
	}
	return ""
}

// checkSpecial checks a file that git fsck checks by name.
func checkSpecial(file string, data []byte) error {
	if file == ".gitattributes" {
		return checkAttributes(data)
	}
	// git uses the lines before a mistake, and ignores the mistake.
	entries, _ := gitconfig.Parse(file, data)
	for _, e := range entries {
		if err := checkSubmodule(e); err != nil {
			return fmt.Errorf(".gitmodules: %w", err)
		}
	}
	return nil
}

func checkAttributes(data []byte) error {
	if err := CheckAttributes(data); err != nil {
		return fmt.Errorf(".gitattributes with %w", err)
	}
	data, _, _ = bytes.Cut(data, []byte{0})
	for line := range bytes.Lines(data) {
		if len(bytes.TrimSuffix(line, []byte("\n"))) >= maxAttributesLine {
			return errors.New(".gitattributes with too long a line")
		}
	}
	return nil
}

// CheckAttributes returns why git may crash at a .gitattributes with this content.
func CheckAttributes(data []byte) error {
	macros := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(bytes.TrimLeft(line, " \t\r"), []byte("[attr]")) {
			macros++
		}
	}
	switch {
	case macros > maxMacros:
		return fmt.Errorf("more than %d macros", maxMacros)
	case tooWide().Match(data):
		return errors.New("conflict markers of a thousand characters or more")
	}
	return nil
}

func checkSubmodule(e gitconfig.Entry) error {
	section, rest, _ := strings.Cut(e.Key, ".")
	i := strings.LastIndexByte(rest, '.')
	if section != "submodule" || i < 0 {
		return nil
	}
	name, key := rest[:i], rest[i+1:]
	if name == "" || dotDotIn(name) {
		return fmt.Errorf("submodule name %q", name)
	}
	switch bad := false; key {
	case "url":
		bad = !e.NoValue && badURL(e.Value)
		fallthrough
	case "path":
		if bad || strings.HasPrefix(e.Value, "-") {
			return fmt.Errorf("submodule %s %q", key, e.Value)
		}
	case "update":
		if strings.HasPrefix(e.Value, "!") {
			return fmt.Errorf("submodule update command %q", e.Value)
		}
	}
	return nil
}

// dotDotIn looks for ".." between slashes of either kind.
func dotDotIn(name string) bool {
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == ".." {
			return true
		}
	}
	return false
}

// badURL reports whether git fsck refuses a submodule's URL: one that smuggles a line
// into the protocol of credential helpers, or has no host.
func badURL(s string) bool {
	slashes := strings.ReplaceAll(s, `\`, "/")
	relative := strings.HasPrefix(slashes, "./") || strings.HasPrefix(slashes, "../")
	if relative || strings.HasPrefix(s, "git://") {
		rest, up := slashes, false
		for {
			if next, ok := strings.CutPrefix(rest, "../"); ok {
				rest, up = next, true
			} else if next, ok := strings.CutPrefix(rest, "./"); ok {
				rest = next
			} else {
				break
			}
		}
		return newlineIn(s) || up && rest != "" && (rest[0] == ':' || rest[0] == '/')
	}
	for _, scheme := range []string{"http", "https", "ftp", "ftps"} {
		inner, prefixed := strings.CutPrefix(s, scheme+"::")
		if !prefixed && !strings.HasPrefix(s, scheme+"://") {
			continue
		}
		proto, rest, ok := strings.Cut(inner, "://")
		host := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			host = rest[:i]
		}
		host = host[strings.LastIndexByte(host, '@')+1:]
		return !ok || proto == "" || host == "" || newlineIn(s)
	}
	return false
}

// newlineIn looks for a newline, also one that is written as %0a.
func newlineIn(s string) bool {
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	return strings.ContainsAny(strings.ReplaceAll(strings.ToLower(s), "%0a", "\n"), "\n")
}
