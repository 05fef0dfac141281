package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// opened is a project with files that editors and agents on the host take code from.
func opened(t *testing.T) *clitest.Box {
	b := clitest.NewBox(t)
	for name, text := range map[string]string{
		".envrc": "echo mine\n", ".claude/settings.json": "{}\n", ".claude/notes.md": "notes\n", ".vscode/tasks.json": "{}\n",
		"tools/tasks.json": "{}\n", "CLAUDE.md": "read this\n", "Makefile": "all:\n",
	} {
		b.Write(t, filepath.Join(b.Project, name), text)
	}
	return b
}

// After any command, a tool on the host finds the earlier files at the names of the
// table.
func TestWhatTheHostRunsFromAProject(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(t *testing.T, project string)
		script string
		stdout string
		moved  []string // below the project
	}{
		{name: "what is there is written", script: "for f in .envrc .claude/settings.json .vscode/tasks.json; do echo evil >$f || echo no; done", stdout: "no\nno\nno\n"},
		{name: "removed or renamed", script: "rm -f .envrc || echo no; mv .claude c || echo no; rm -rf .vscode || echo no", stdout: "no\nno\nno\n"},
		{name: "instructions and build files are the project's", script: "echo x >CLAUDE.md && echo x >Makefile && echo x >.claude/notes.md && echo yes", stdout: "yes\n"},
		{name: "what was missing", script: "echo evil >.mcp.json; mkdir -p .claude/hooks .zed; echo evil >.claude/hooks/x; echo evil >.zed/tasks.json; echo mine >.zed/other",
			moved: []string{".mcp.json", ".claude/hooks", ".zed/tasks.json"}},
		{name: "below a directory without permissions", script: "mkdir .zed; echo evil >.zed/tasks.json; chmod 0 .zed", moved: []string{".zed/tasks.json"}},
		{name: "below a directory that is not to be written", script: "echo evil >.claude/settings.local.json; chmod 555 .claude .", moved: []string{".claude/settings.local.json"}},
		{name: "a link in the place of a missing directory", script: "echo evil >tools/settings.json; ln -s tools .zed", moved: []string{".zed"}},
		{name: "a link in the place of a missing file", script: "ln -s tools/tasks.json .mcp.json", moved: []string{".mcp.json"}},
		{name: "a hard link to a file of the project", script: "echo evil >tools/x; ln tools/x .mcp.json", moved: []string{".mcp.json"}},
		{name: "a FIFO and a socket", script: "mkfifo .mcp.json; mkdir .zed; mkfifo .zed/tasks.json", moved: []string{".mcp.json", ".zed/tasks.json"}},
		{name: "a link that is replaced", before: func(t *testing.T, p string) {
			require.NoError(t, os.Symlink("tools", p+"/.zed"))
		}, script: "rm .zed; mkdir .zed; echo evil >.zed/tasks.json; echo evil >tools/tasks.json || echo no", stdout: "no\n", moved: []string{".zed"}},
		{name: "a link that leads to a missing file", before: func(t *testing.T, p string) {
			require.NoError(t, os.Symlink("conf/mcp.json", p+"/.mcp.json"))
		}, script: "mkdir conf; echo evil >conf/mcp.json", moved: []string{"conf/mcp.json"}},
		{name: "a file in the place of a directory", before: func(t *testing.T, p string) {
			require.NoError(t, os.WriteFile(p+"/mise", nil, 0o644))
		}, script: "rm mise; mkdir mise; echo evil >mise/config.toml", moved: []string{"mise/config.toml"}},
		{name: "a file that has another name in the project", before: func(t *testing.T, p string) {
			require.NoError(t, os.Link(p+"/.envrc", p+"/tools/env"))
		}, script: "echo evil >>tools/env", moved: []string{".envrc"}},
		{name: "such a file in a protected directory", before: func(t *testing.T, p string) {
			require.NoError(t, os.MkdirAll(p+"/.claude/hooks/deep", 0o755))
			require.NoError(t, os.Link(p+"/Makefile", p+"/.claude/hooks/deep/x"))
		}, script: "echo evil >>Makefile", moved: []string{".claude/hooks/deep/x"}},
		{name: "pre-commit where it is in use", before: func(t *testing.T, p string) {
			for _, dir := range []string{"hooks", "objects", "refs"} {
				require.NoError(t, os.MkdirAll(p+"/.git/"+dir, 0o755))
			}
			require.NoError(t, os.WriteFile(p+"/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o644))
			require.NoError(t, os.WriteFile(p+"/.git/hooks/pre-commit", nil, 0o755))
		}, script: "echo evil >.pre-commit-config.yaml", moved: []string{".pre-commit-config.yaml"}},
		{name: "and in a repository below, with hooks elsewhere", before: func(t *testing.T, p string) {
			hooks := t.TempDir()
			require.NoError(t, os.WriteFile(hooks+"/pre-push", nil, 0o755))
			for _, dir := range []string{"objects", "refs"} {
				require.NoError(t, os.MkdirAll(p+"/app/.git/"+dir, 0o755))
			}
			require.NoError(t, os.WriteFile(p+"/app/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o644))
			require.NoError(t, os.WriteFile(p+"/app/.git/config", []byte("[core]\n\thooksPath = "+hooks+"\n"), 0o644))
		}, script: "echo evil >app/lefthook.yml; echo x >lefthook.yml; rm lefthook.yml", moved: []string{"app/lefthook.yml"}},
		{name: "and where not", script: "echo x >.pre-commit-config.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := opened(t)
			if test.before != nil {
				test.before(t, b.Project)
			}
			before := seen(t, b.Project)
			got := inside(t, b, "{ "+test.script+"; } 2>/dev/null; true")
			for _, dir := range []string{"", ".claude", ".zed"} { // a user looks, and Go's clean-up removes
				if info, err := os.Lstat(filepath.Join(b.Project, dir)); err == nil && info.IsDir() {
					require.NoError(t, os.Chmod(filepath.Join(b.Project, dir), 0o755))
				}
			}
			assert.Equal(t, 0, got.Status, got.Stderr)
			assert.Equal(t, test.stdout, got.Stdout)
			assert.Equal(t, len(test.moved), strings.Count(got.Stderr, "\n"), got.Stderr)
			for _, name := range test.moved {
				assert.Contains(t, got.Stderr, `pk-bwrap: warning: "`+b.Project+"/"+name+`" appeared or changed while the command ran`)
			}
			assert.Equal(t, before, seen(t, b.Project))
		})
	}
}

// Another user could otherwise put a file where the command may not.
func TestPermissionsAreTakenBack(t *testing.T) {
	b := opened(t)
	require.NoError(t, os.Chmod(b.Project, 0o755))
	assert.Equal(t, clitest.Outcome{}, inside(t, b, "chmod 777 . .claude; mkdir -m 777 .zed other"))
	for name, mode := range map[string]os.FileMode{".": 0o755, ".claude": 0o755, ".zed": 0o755, "other": 0o777} {
		info, err := os.Stat(filepath.Join(b.Project, name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), name)
	}
}

// seen is the content that a tool of the host finds at the tested names.
func seen(t *testing.T, project string) map[string]string {
	found := map[string]string{}
	for _, name := range []string{".envrc", ".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/x", ".claude/hooks/deep/x", ".zed/tasks.json", ".vscode/tasks.json"} {
		text, err := os.ReadFile(filepath.Join(project, name))
		if err == nil {
			found[name] = string(text)
		} else {
			assert.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	return found
}

func TestNoProtectLeavesTheHostsFilesToTheCommand(t *testing.T) {
	b := opened(t)
	got := inside(t, b, "echo x >.envrc; echo x >.mcp.json", "--no-protect")
	assert.Equal(t, clitest.Outcome{}, got)
	assert.FileExists(t, b.Project+"/.mcp.json")
}

func TestExplainNamesTheRow(t *testing.T) {
	b := opened(t)
	got := b.Run(t, "pk-bwrap", "--explain", "--json", ".claude/settings.json", ".claude/notes.md", ".zed/tasks.json", ".zed/other")
	require.Equal(t, 0, got.Status, got.Stderr)
	lines := strings.Split(got.Stdout, "\n")
	assert.Contains(t, lines[0], `"access":"read-only"`)
	assert.Contains(t, lines[0], `"rule":"default: Claude Code: hooks, permissions and the environment"`)
	assert.Contains(t, lines[1], `"access":"writable"`)
	assert.NotContains(t, lines[1], "Claude Code")
	assert.Contains(t, lines[2], `"access":"absent"`)
	assert.Contains(t, lines[2], `; moved aside if the command makes it: default: Zed: tasks"`)
	assert.NotContains(t, lines[3], "Zed")
	got = b.Run(t, "pk-bwrap", "--explain")
	assert.Contains(t, got.Stdout, "  "+b.Project+":")
	assert.Contains(t, got.Stdout, " default: Claude Code\n")
	got = b.Run(t, "pk-bwrap", "--explain", "--json")
	assert.Contains(t, got.Stdout, `"path":"`+b.Project+`/.mcp.json"`)
}

// Where a file cannot be moved to the quarantine, nothing looks like a success, and
// the file loses its name if that is possible.
func TestAFailedQuarantineIsAFailure(t *testing.T) {
	for _, end := range []string{"true", "exit 7", "kill -9 $$"} {
		b := opened(t)
		fifo, base := filepath.Join(b.Project, "fifo"), filepath.Join(b.Home, ".cache/pikuri")
		require.NoError(t, unix.Mkfifo(fifo, 0o600))
		b.Mkdir(t, b.Home+"/tmp")
		script := "echo evil >.mcp.json; cat fifo; " + end
		run := func(name string, args ...string) clitest.Outcome {
			go func() {
				w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // when the command reads
				if err == nil {
					err = errors.Join(os.Rename(base, base+"-away"), os.WriteFile(base, nil, 0o600), w.Close())
				}
				assert.NoError(t, err)
			}()
			defer func() { require.NoError(t, errors.Join(os.Remove(base), os.Rename(base+"-away", base))) }()
			return b.Run(t, name, args...)
		}
		got := run("pk-bwrap", "--", "sh", "-c", script)
		assert.Equal(t, 125, got.Status, script)
		assert.Contains(t, got.Stderr, `cannot move "`+b.Project+`/.mcp.json" to the quarantine: it is now ".pk-moved-`)
		assert.NoFileExists(t, b.Project+"/.mcp.json")

		got = run("pk-bash", "--temp", b.Home+"/tmp", "-y", "--json", script)
		assert.Equal(t, 125, got.Status, got.Stderr)
		var result struct {
			Outcome    string   `json:"outcome"`
			Status     int      `json:"exit_status"`
			Error      string   `json:"error"`
			Guarantees []string `json:"guarantees"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &result), got.Stdout+got.Stderr)
		assert.Contains(t, []string{"exited", "signaled"}, result.Outcome)
		assert.Equal(t, 125, result.Status)
		assert.Contains(t, result.Error, "to the quarantine")
		assert.NotContains(t, result.Guarantees, "protect")
		assert.NoFileExists(t, b.Project+"/.mcp.json")
	}
}
