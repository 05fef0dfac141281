// Package settings reads the configuration of npm and pip without its credentials.
//
// A line is kept if its key is known to hold none, and no URL in it names a user. All
// other lines are left out: the files have tokens, passwords and keys beside settings
// that a build needs, such as the registry and its certificate.
package settings

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxSize bounds a file, which is read at every start.
const maxSize = 64 << 10

// npmKeys hold no credential. The documentation of npm's settings lists all keys:
// https://docs.npmjs.com/cli/v11/using-npm/config
var npmKeys = []string{
	"audit", "audit-level", "before", "ca", "cafile", "color", "engine-strict", "fetch-retries", "fetch-retry-factor",
	"fetch-retry-maxtimeout", "fetch-retry-mintimeout", "fetch-timeout", "foreground-scripts", "fund", "https-proxy",
	"ignore-scripts", "include", "install-strategy", "legacy-peer-deps", "loglevel", "maxsockets", "min-release-age",
	"nodedir", "noproxy", "offline", "omit", "omit-lockfile-registry-resolved", "package-lock", "prefer-offline",
	"prefer-online", "progress", "proxy", "registry", "replace-registry-host", "save-exact", "save-prefix",
	"strict-peer-deps", "strict-ssl", "update-notifier", "yes",
}

// pipKeys hold no credential, by https://pip.pypa.io/en/stable/cli/pip_install/.
var pipKeys = []string{
	"break-system-packages", "cert", "disable-pip-version-check", "extra-index-url", "find-links", "index-url",
	"no-binary", "no-cache-dir", "no-index", "only-binary", "prefer-binary", "progress-bar", "proxy",
	"require-virtualenv", "retries", "timeout", "trusted-host", "user",
}

// Paths lists the files of the machine and of a user. It leaves out those in a
// project.
func Paths(home string, getenv func(string) string) []string {
	config := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return []string{
		"/etc/npmrc", "/etc/pip.conf", "/etc/xdg/pip/pip.conf",
		filepath.Join(home, ".npmrc"), filepath.Join(home, ".pip/pip.conf"), filepath.Join(config, "pip/pip.conf"),
	}
}

// Read returns the lines of a file that hold no credential, and whether these are all of
// its lines. It returns nil for a file of another kind, an unreadable one, and one
// without such lines.
func Read(path string) (kept []byte, all bool) {
	keys, continues := pipKeys, true
	switch filepath.Base(path) {
	case "npmrc", ".npmrc":
		keys, continues = npmKeys, false
	case "pip.conf":
	default:
		return nil, false
	}
	text, err := readFile(path)
	if err != nil || len(text) > maxSize || !utf8.Valid(text) {
		return nil, false
	}
	kept, all = reduce(string(text), keys, continues)
	return kept, all
}

// readFile reads a file, but no FIFO, and not much more than maxSize.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, unix.EINVAL
	}
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// reduce keeps the lines with these keys. In pip's files an indented line continues the
// value above; npm has no such lines. Comments go, also those behind a value: they may
// hold a former password. It keeps nothing of a text with other control characters than
// ends of lines: npm and pip end a line at a carriage return too.
func reduce(text string, keys []string, continues bool) (kept []byte, all bool) {
	if strings.ContainsFunc(strings.ReplaceAll(text, "\r\n", "\n"), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		return nil, false
	}
	all = true
	settings, keeps := 0, false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		key, _, isSetting := strings.Cut(trimmed, "=")
		switch {
		case trimmed == "":
			continue
		case trimmed[0] == '[' && trimmed[len(trimmed)-1] == ']':
			if strings.ContainsAny(trimmed, ":=@") { // npm would take it for a setting
				return nil, false
			}
			keeps = false
			kept = append(kept, line...)
			continue
		case trimmed[0] == '#' || trimmed[0] == ';':
			all = false
			continue
		case continues && (line[0] == ' ' || line[0] == '\t'):
			keeps = keeps && !isSetting
		default:
			keeps = isSetting && known(strings.TrimSpace(key), keys)
		}
		keeps = keeps && !hasSecret(trimmed)
		all = all && keeps
		if keeps {
			kept = append(kept, line...)
			settings++
		}
	}
	if settings == 0 {
		return nil, all
	}
	return kept, all
}

// known reports whether a key holds no credential. npm has a registry for each scope.
func known(key string, keys []string) bool {
	key = strings.TrimSuffix(strings.ReplaceAll(key, "_", "-"), "[]") // pip takes both, npm has lists
	scope, isScope := strings.CutSuffix(key, ":registry")
	return slices.Contains(keys, key) || isScope && strings.HasPrefix(scope, "@") && !strings.Contains(scope, "/")
}

// longWord is the length from which a word counts as a token, if it has a digit in it or
// many capitals. Some registries take a token in the path of a URL.
const longWord = 12

// hasSecret reports whether a line may name a user, hold a token or end in a comment. A
// password may end with any byte, so each "@" but that of a scope counts as the end of one.
func hasSecret(line string) bool {
	if strings.ContainsAny(line[1:], "@#;") {
		return true
	}
	line = strings.ReplaceAll(line, `\`, "/")
	_, path, ok := strings.Cut(line, "://")
	if _, value, _ := strings.Cut(line, "="); !ok { // npm knows "//host" as well
		path, ok = strings.CutPrefix(strings.TrimLeft(value, " \t\"'"), "//")
	}
	if !ok {
		return false
	}
	_, path, _ = strings.Cut(path, "/")
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/ \t\"'", r) })
	return strings.ContainsAny(path, "?&%") || slices.ContainsFunc(words, isToken)
}

func isToken(word string) bool {
	capitals := 0
	for _, r := range word {
		if unicode.IsUpper(r) {
			capitals++
		}
	}
	return len(word) >= longWord && (strings.ContainsAny(word, "0123456789") || 4*capitals >= len(word))
}
