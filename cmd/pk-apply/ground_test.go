package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// ground is a project with a trial, and a home. Scripts run in the trial, on the host,
// or directly in a copy of the project.
type ground struct {
	*clitest.Box
	dir     string
	options []string // of each command of the trial
	said    string   // on stderr, by the last command of the trial
}

const sessionName = "s"

// newGround makes a project with the lines of a tree.
func newGround(t *testing.T, b *clitest.Box, lines ...string) *ground {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	g := &ground{Box: &clitest.Box{Bin: b.Bin, Bwrap: b.Bwrap, Project: dir + "/project", Home: dir + "/home"}, dir: dir}
	g.Mkdir(t, g.Home)
	g.Mkdir(t, g.Project)
	g.Write(t, g.Home+"/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n[gc]\n\tauto = 0\n")
	g.grow(t, lines...)
	t.Cleanup(func() {
		sweep := g.Command("pk-sweep", "--all", "--discard")
		sweep.Dir = "/"
		got := clitest.Finish(t, sweep)
		assert.Zero(t, got.Status, got.Stderr)
		assert.Empty(t, got.Stderr)
		_ = exec.Command("chmod", "-R", "u+rwx", dir).Run()
	})
	return g
}

// grow makes entries of the project from lines: "d/", "l => target", "f: text".
func (g *ground) grow(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if name, target, ok := strings.Cut(line, " => "); ok {
			require.NoError(t, os.Symlink(target, g.Project+"/"+name))
			continue
		}
		name, text, _ := strings.Cut(line, ": ")
		if strings.HasSuffix(name, "/") {
			g.Mkdir(t, g.Project+"/"+name)
			continue
		}
		g.Write(t, g.Project+"/"+name, text+"\n")
	}
}

// fixed puts the same dates and editor before each script.
const fixed = `export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_EDITOR=true LC_ALL=C; `

func (g *ground) command(script string, options ...string) *exec.Cmd {
	options = append([]string{"-y", "--raw", "--trial", "--session", sessionName}, append(options, g.options...)...)
	return g.Command("pk-bash", append(options, "--", fixed+script)...)
}

// trial runs a script as a command of the trial, which has to succeed.
func (g *ground) trial(t *testing.T, script string, options ...string) string {
	t.Helper()
	got := clitest.Finish(t, g.command(script, options...))
	require.Zero(t, got.Status, "%s\n%s%s", script, got.Stdout, got.Stderr)
	g.said = got.Stderr
	return got.Stdout
}

// shell prepares a script on the host.
func (g *ground) shell(dir, script string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", fixed+script)
	cmd.Dir = dir
	cmd.Env = append([]string{"HOME=" + g.Home, "PATH=" + g.Bin + ":" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}, g.Env...)
	return cmd
}

// host runs a script on the host, in the project, which has to succeed.
func (g *ground) host(t *testing.T, script string) string {
	t.Helper()
	return g.in(t, g.Project, script)
}

func (g *ground) in(t *testing.T, dir, script string) string {
	t.Helper()
	got := clitest.Finish(t, g.shell(dir, "set -e\n"+script))
	require.Zero(t, got.Status, "%s\n%s%s", script, got.Stdout, got.Stderr)
	return got.Stdout
}

// copied copies the project, and returns the copy.
func (g *ground) copied(t *testing.T) string {
	t.Helper()
	to := g.dir + "/direct"
	g.in(t, g.dir, "rm -rf direct; mkdir direct; cp -a project direct/project")
	return to + "/project"
}

func (g *ground) diff(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	return g.Run(t, "pk-diff", append([]string{"--session", sessionName}, args...)...)
}

func (g *ground) apply(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	return g.Run(t, "pk-apply", append([]string{"--session", sessionName}, args...)...)
}

// applyReviewed lands a list of pk-diff --json.
func (g *ground) applyReviewed(t *testing.T, list string) clitest.Outcome {
	t.Helper()
	cmd := g.Command("pk-apply", "--session", sessionName, "--json", "--from", "-")
	cmd.Stdin = strings.NewReader(list)
	return clitest.Finish(t, cmd)
}

// changes asserts the output of pk-diff: lines, with " | " between the columns.
func (g *ground) changes(t *testing.T, want ...string) {
	t.Helper()
	got := g.diff(t)
	assert.Equal(t, strings.Join(want, "\n"), strings.ReplaceAll(strings.TrimSuffix(got.Stdout, "\n"), "\t", " | "))
	status := 0
	if len(want) > 0 {
		status = 1
	}
	assert.Equal(t, status, got.Status, got.Stderr)
	assert.Empty(t, got.Stderr)
}

// lands asserts that pk-apply prints each of these lines, in any order, and nothing on
// stderr.
func (g *ground) lands(t *testing.T, args []string, want ...string) {
	t.Helper()
	got := g.apply(t, args...)
	assert.Zero(t, got.Status)
	assert.Empty(t, got.Stderr)
	for i := range want {
		want[i] = strings.TrimSuffix(want[i], "/")
	}
	assert.ElementsMatch(t, want, columns(got.Stdout))
}

// columns are the lines of an output with " | " between the columns, and without the
// slash that marks directories.
func columns(out string) []string {
	if out == "" {
		return []string{}
	}
	var lines []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range fields[1:min(2, len(fields))] {
			fields[i+1] = strings.TrimSuffix(fields[i+1], "/")
		}
		lines = append(lines, strings.Join(fields, " | "))
	}
	return lines
}

var all = []string{"--all"}

// done asserts that nothing is left to land, and that a second landing prints
// nothing.
func (g *ground) done(t *testing.T) {
	t.Helper()
	assert.Equal(t, clitest.Outcome{}, g.diff(t))
	assert.Equal(t, clitest.Outcome{}, g.apply(t, "--all"))
}

// read is the content of a file of the project.
func (g *ground) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(g.Project + "/" + name)
	require.NoError(t, err)
	return strings.TrimSuffix(string(text), "\n")
}

// tree lists all below a directory, but for git directories: path, type, mode, content.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	return listing(t, dir, false)
}

// manifest is tree with inodes, times and git directories: any change of a file changes
// it. The number of links, and with it the ctime, is left out in git directories: a
// session holds the index by a link.
func manifest(t *testing.T, dir string) []string {
	t.Helper()
	return listing(t, dir, true)
}

func listing(t *testing.T, dir string, exact bool) []string {
	t.Helper()
	lines := []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !os.IsPermission(err) {
			return err
		}
		if !exact && d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%q %o", path[len(dir):], st.Mode)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(path)
			if err != nil && !os.IsPermission(err) {
				return err
			}
			line += fmt.Sprintf(" %d %x", st.Size, sha256.Sum256(content))
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " " + target
		}
		if exact {
			line += fmt.Sprint(" ", st.Ino, st.Mtim)
			if !strings.Contains(path, "/.git/") {
				line += fmt.Sprint(" ", st.Nlink, st.Ctim)
			}
		}
		lines = append(lines, line)
		return nil
	})
	require.NoError(t, err)
	return lines
}

// sameTree compares two trees, and tells only the lines that differ.
func sameTree(t *testing.T, want, got []string) bool {
	t.Helper()
	missing, extra := without(want, got), without(got, want)
	return assert.Empty(t, missing, "not there") && assert.Empty(t, extra, "too much")
}

// without are the lines that others do not have.
func without(lines, others []string) []string {
	known := map[string]bool{}
	for _, l := range others {
		known[l] = true
	}
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return known[l] })
}
