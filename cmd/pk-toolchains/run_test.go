package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/hostrule"
	"pikuri/lib/toolchain"
	"pikuri/lib/toolchain/hosts"
	"pikuri/lib/toolchain/toolchaintest"
)

func TestScripts(t *testing.T) { clitest.Scripts(t) }

func TestTextsAgree(t *testing.T) { clitest.Consistent(t, command(), operands...) }

// The names of tools are written out in the completions.
func TestCompletionsKnowAllTools(t *testing.T) {
	table, err := toolchain.Load()
	require.NoError(t, err)
	names := strings.Join(table.Tools(), " ")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := os.ReadFile(filepath.Join(clitest.Root(t), "scripts/completions/pk-toolchains."+shell))
		require.NoError(t, err)
		assert.True(t, strings.Contains(string(text), names), "scripts/completions/pk-toolchains.%s lacks a tool, or has another order: %s", shell, names)
		for _, name := range hosts.Tools() {
			assert.True(t, regexp.MustCompile(`\b`+name+`\b`).Match(text), "scripts/completions/pk-toolchains.%s lacks %s", shell, name)
		}
	}
}

// TestHostsAreAList: --allow-host-from takes the output, with any path in it.
func TestHostsAreAList(t *testing.T) {
	for _, test := range []struct{ name, dir string }{{"plain", "a"}, {"a path that looks like a rule", "# evil.test:443 private"}, {"newline", "a\nevil.test:443"}} {
		t.Run(test.name, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), test.dir)
			require.NoError(t, os.Mkdir(home, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(home, ".npmrc"), []byte("registry=https://a.test\n"), 0o644))
			t.Setenv("GOPROXY", "https://b.test:8443")
			t.Setenv("GOPRIVATE", "*.c.test")
			_, text, _ := run(t, home, "hosts", "--tool", "npm", "--tool", "go")
			_, zero, _ := run(t, home, "hosts", "--tool", "npm", "--tool", "go", "-z")
			want := "a.test:443; b.test:8443; *.c.test:443"
			assert.Equal(t, want, rules(t, zero, "\x00"))
			if test.name == "newline" {
				want = "b.test:8443; *.c.test:443" // that record is refused
			}
			assert.Equal(t, want, rules(t, text, "\n"))
		})
	}
}

func rules(t *testing.T, list, end string) string {
	t.Helper()
	rules, err := hostrule.FromList("-", strings.Split(list, end), nil)
	require.NoError(t, err)
	var own hostrule.Rules
	for _, r := range rules { // without the hosts of the machine that runs the test
		if strings.HasSuffix(r.Name, ".test") {
			own = append(own, r)
		}
	}
	return own.String()
}

// run runs the command in this process with a made-up home.
func run(t *testing.T, home string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	t.Setenv("HOME", home)
	var out, err bytes.Buffer
	status = Run(args, strings.NewReader(""), &out, &err)
	return status, out.String(), err.String()
}

// Names that a script file cannot hold.
func TestOddNames(t *testing.T) {
	for _, test := range []struct {
		name, dir  string
		args       []string
		status     int
		stdout     string
		diagnostic string
	}{
		{"newline", "a\nb", []string{"readable"}, 1, "{d}/n\n", `holds a newline`},
		{"newline in a labelled record", "a\nb", nil, 1, "readable\tnvm\t{d}/n\n", `holds a newline`},
		{"newline with -z", "a\nb", []string{"readable", "-z"}, 0, "{d}/a\nb\x00{d}/n\x00", ""},
		{"newline with --json", "a\nb", []string{"--json"}, 0,
			`{"kind":"readable","tool":"pyenv","path":"{d}/a\nb","row":"~/.pyenv","file":"toolchains.tsv","line":{pyenv},"variable":"$PYENV_ROOT","source":"https://github.com/pyenv/pyenv#environment-variables"}` + "\n" +
				`{"kind":"readable","tool":"nvm","path":"{d}/n","row":"~/.nvm","file":"toolchains.tsv","line":{nvm},"variable":"$NVM_DIR","source":"https://github.com/nvm-sh/nvm#installing-and-updating"}` + "\n", ""},
		{"not UTF-8", "\xff", []string{"readable"}, 0, "{d}/\xff\n{d}/n\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PYENV_ROOT", filepath.Join(dir, test.dir))
			t.Setenv("NVM_DIR", filepath.Join(dir, "n"))
			require.NoError(t, os.Mkdir(filepath.Join(dir, test.dir), 0o755))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "n"), 0o755))
			args := append([]string{"--tool", "pyenv", "--tool", "nvm"}, test.args...)
			status, stdout, stderr := run(t, dir, args...)
			assert.Equal(t, test.status, status)
			want := strings.NewReplacer("{d}", dir, "{pyenv}", line(t, "~/.pyenv"), "{nvm}", line(t, "~/.nvm")).Replace(test.stdout)
			assert.Equal(t, want, stdout)
			assert.Contains(t, stderr, test.diagnostic)
			assert.Equal(t, test.diagnostic == "", stderr == "")
		})
	}
}

// TestCheckFindsWhatIsNotMasked: in a home with a file at the place of every
// credential, the command finds nothing. Where a row of the user's masks nothing, it
// finds exactly the credentials that the replaced row would have masked.
func TestCheckFindsWhatIsNotMasked(t *testing.T) {
	t.Parallel()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	table, err := toolchain.Load()
	require.NoError(t, err)
	require.NotEmpty(t, toolchaintest.Plant(t, home, table, "secret\n"))

	args := []string{"--check"}
	for _, r := range table.Rows() { // other paths depend on the machine that runs the test
		if strings.HasPrefix(r.Path, "~/") {
			args = append(args, "--tool", r.Tool)
		}
	}
	bin := filepath.Join(clitest.Bin(t), "pk-toolchains")
	check := func() clitest.Outcome {
		cmd := exec.Command(bin, args...)
		cmd.Env = []string{"HOME=" + home, "USER=u"}
		return clitest.Finish(t, cmd)
	}
	assert.Equal(t, clitest.Outcome{}, check())

	removed := 0
	for _, r := range table.Rows() {
		if len(r.Inside) == 0 || !strings.HasPrefix(r.Path, "~/") {
			continue
		}
		removed++
		row := fmt.Sprintf("%s\t%s\t%s\t-\t-\t-\t-\n", r.Kind, r.Tool, r.Path)
		require.NoError(t, os.MkdirAll(filepath.Join(home, ".config/pikuri"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(home, ".config/pikuri/toolchains.tsv"), []byte(row), 0o644))
		out := check()
		assert.Equal(t, 1, out.Status, r.Path)
		assert.Empty(t, out.Stderr)
		var want []string
		for _, rel := range r.Inside {
			path := strings.ReplaceAll(r.Path+"/"+rel, "*", "x")
			want = append(want, fmt.Sprintf("visible\t%s\t%s", r.Tool, filepath.Join(home, strings.TrimPrefix(path, "~/"))))
		}
		assert.ElementsMatch(t, want, strings.Split(strings.TrimSuffix(out.Stdout, "\n"), "\n"))
	}
	assert.Greater(t, removed, 15)
}

// line is where the table has the row of a path.
func line(t *testing.T, path string) string {
	t.Helper()
	table, err := toolchain.Load()
	require.NoError(t, err)
	for _, r := range table.Rows() {
		if r.Path == path {
			return strconv.Itoa(r.Line)
		}
	}
	t.Fatal("no row for " + path)
	return ""
}

func TestBytesTravelInBase64(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PYENV_ROOT", filepath.Join(dir, "\xff"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "\xff"), 0o755))
	status, stdout, _ := run(t, dir, "--json", "--tool", "pyenv")
	assert.Equal(t, 0, status)
	assert.Regexp(t, `^\{"kind":"readable","tool":"pyenv","path_base64":"[A-Za-z0-9+/=]+","row":"~/.pyenv",[^\n]*\}\n$`, stdout)
}

func TestFullDiskIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	var stderr bytes.Buffer
	assert.Equal(t, 1, Run(nil, strings.NewReader(""), full, &stderr))
	assert.Contains(t, stderr.String(), "pk-toolchains: cannot write: ")
}
