package gitconfig

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Any program of the system's that a shell script of the installed git runs by name is in a list.
func TestProgramsOfGitsScripts(t *testing.T) {
	out, err := exec.Command("git", "--exec-path").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(out))
	files, err := filepath.Glob(dir + "/git-*")
	require.NoError(t, err)
	tools, err := filepath.Glob(dir + "/mergetools/*")
	require.NoError(t, err)
	read := 0
	seen := map[string]bool{"init": true, "logger": true, "script": true, "split": true, "sync": true, "which": true} // subcommands, and words of documents; git-instaweb alone runs which, a name in many node_modules/.bin
	for _, file := range append(files, tools...) {
		if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() || st.Size() > 1<<16 {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if regexp.MustCompile(`^(\x7fELF|#!.*(perl|python))`).Match(text) {
			continue
		}
		read++
		r := readCommand(string(text), func(string) (string, bool) { return "", false })
		assert.False(t, r.blind, file)
		for _, m := range r.words {
			if m.role != command && m.role != script || m.end != whole || m.guess || strings.Contains(m.text, "/") || seen[m.text] {
				continue
			}
			seen[m.text] = true
			if _, err := os.Stat(dir + "/" + m.text); err == nil || slices.Contains(unset, m.text) { // git puts its own directory in front
				continue
			}
			is := slices.ContainsFunc(systemPath, func(dir string) bool {
				st, err := os.Stat(dir + "/" + m.text)
				return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
			})
			if is && !builtIn(m.text) {
				assert.True(t, slices.Contains(inScripts, m.text), "%s of %s", m.text, file)
			}
		}
	}
	if _, err := os.Stat(dir + "/git-sh-setup"); err == nil {
		assert.Positive(t, read)
		assert.Contains(t, inScripts, "uname")
	}
}

// builtIn reports whether a shell does not look for a name in PATH.
func builtIn(name string) bool {
	is, err := exec.Command("sh", "-c", `type -- "$1" || type "$1"`, "sh", name).Output()
	return err == nil && strings.Contains(string(is), "builtin")
}
