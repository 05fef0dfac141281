// Package settings reads the configuration of npm and pip without its credentials.
//
// A line is kept if its key is known to hold none, and no URL in it names a user. All
// other lines are left out: the files have tokens, passwords and keys beside what a build
// needs, such as the registry and its certificate.
package settings

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Paths lists the files of the machine and of a user. Those in a project are the
// project's own.
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
// its lines. It returns nil for a file of another kind, one that cannot be read, and one
// of which nothing is left.
func Read(path string) (kept []byte, all bool) {
	keys := pipKeys
	switch filepath.Base(path) {
	case "npmrc", ".npmrc":
		keys = npmKeys
	case "pip.conf":
	default:
		return nil, false
	}
	text, err := readFile(path)
	if err != nil || len(text) > maxSize || !utf8.Valid(text) {
		return nil, false
	}
	kept, all = reduce(string(text), keys)
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

// reduce keeps the lines with these keys. In pip's files the lines of a value that are
// indented belong to the key above. Comments go: they may hold a former password.
func reduce(text string, keys []string) (kept []byte, all bool) {
	all = true
	settings, keeps := 0, false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		key, _, isSetting := strings.Cut(trimmed, "=")
		switch {
		case trimmed == "":
			continue
		case trimmed[0] == '[' && trimmed[len(trimmed)-1] == ']':
			keeps = false
			kept = append(kept, line...)
			continue
		case trimmed[0] == '#' || trimmed[0] == ';':
			all = false
			continue
		case line[0] != ' ' && line[0] != '\t':
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

// longWord is the length from which a word with a digit in it counts as a token, which
// some registries take in the path of a URL.
const longWord = 12

// hasSecret reports whether a line may name a user, or hold a token.
func hasSecret(line string) bool {
	for i := range line {
		if line[i] == '@' && i > 0 && !strings.ContainsRune(" \t=\"'", rune(line[i-1])) {
			return true
		}
	}
	_, url, ok := strings.Cut(line, "://")
	if !ok {
		return false
	}
	_, path, _ := strings.Cut(url, "/")
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/ \t\"'", r) })
	return strings.ContainsAny(path, "?#&;%") || slices.ContainsFunc(words, func(word string) bool {
		return len(word) >= longWord && strings.ContainsAny(word, "0123456789")
	})
}
