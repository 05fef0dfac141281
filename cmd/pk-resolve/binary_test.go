package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/confine/confinetest"
)

// nobody is the user with no rights; root becomes it where a case says so.
const nobody = 65534

// patience bounds the time of one case. A resolver that opens a FIFO takes
// for ever.
const patience = 10 * time.Second

func TestRealBinary(t *testing.T) {
	bin := reachable(t, filepath.Join(clitest.Bin(t), "pk-resolve"))
	t.Run("corpus", func(t *testing.T) {
		for _, c := range confinetest.Load(t, "../../lib/confine/testdata/path-corpus.json") {
			t.Run(c.Name, func(t *testing.T) { replay(t, bin, c) })
		}
	})
	t.Run("coprocess", func(t *testing.T) { coprocess(t, bin) })
	t.Run("longest path", func(t *testing.T) { longest(t, bin) })
	t.Run("on a terminal", func(t *testing.T) {
		cmd := exec.Command(bin, "a\x1b[2Jb")
		cmd.Dir = confinetest.Dir(t)
		assert.Equal(t, `'`+cmd.Dir+`/a'$'\033''[2Jb'`+"\n", clitest.OnTerminal(t, cmd))
	})
	t.Run("every byte in a name", func(t *testing.T) { everyByte(t, bin) })
}

// reachable copies the binary to a directory from which every user can run it.
func reachable(t *testing.T, bin string) string {
	t.Helper()
	content, err := os.ReadFile(bin)
	require.NoError(t, err)
	copied := filepath.Join(confinetest.Dir(t), "pk-resolve")
	require.NoError(t, os.WriteFile(copied, content, 0o755))
	return copied
}

func replay(t *testing.T, bin string, c confinetest.Case) {
	if c.RunAs != "" && os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	base := c.Build(t)
	cmd := exec.CommandContext(t.Context(), bin, arguments(c, base)...)
	cmd.WaitDelay = patience
	cmd.Dir = c.Dir(base)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PK_") })
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+strings.ReplaceAll(value, "{base}", base))
	}
	if c.Via == "stdin-line" {
		cmd.Stdin = strings.NewReader(c.Path(base) + "\n")
	}
	if c.RunAs != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Run()
	timer.Stop()

	status := cmd.ProcessState.ExitCode()
	end := "\n"
	if c.Zero() {
		end = "\x00"
	}
	where, ended := strings.CutSuffix(stdout.String(), end)
	require.Equal(t, err == nil, ended, "an answer and status 0 go together; %s", stderr.String())
	require.Contains(t, []int{0, 1, 2}, status)
	assert.NoError(t, c.Judge(base, where, err == nil), "%s", stderr.String())
}

func arguments(c confinetest.Case, base string) []string {
	args := []string{"--project-root", confinetest.Root(base, c.Project), "--" + c.Mode}
	for _, root := range confinetest.Roots(base, c.Readable) {
		args = append(args, "--readable", root)
	}
	for _, root := range confinetest.Roots(base, c.Writable) {
		args = append(args, "--writable", root)
	}
	if temp := c.Temp(base); temp != "" {
		args = append(args, "--temp", temp)
	}
	args = append(args, c.Args...)
	if c.Via == "stdin-line" {
		return append(args, "--stdin")
	}
	return append(args, "--", c.Path(base))
}

// coprocess asks, waits for the answer, changes the tree, and asks again: no
// answer may come from a cache of the tree before the change.
func coprocess(t *testing.T, bin string) {
	base := confinetest.Tree(t, "proj/d/f", "out/f")
	cmd := exec.CommandContext(t.Context(), bin, "-C", base+"/proj", "--stdin")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	answers := bufio.NewReader(out)
	ask := func(path string) string {
		_, err := io.WriteString(in, path+"\n")
		require.NoError(t, err)
		answer, err := answers.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimPrefix(strings.TrimSuffix(answer, "\n"), base)
	}

	assert.Equal(t, "/proj/d/f", ask("d/f"))
	require.NoError(t, os.Rename(base+"/proj/d", base+"/proj/e"))
	require.NoError(t, os.Symlink("../out", base+"/proj/d"))
	assert.Empty(t, ask("d/f"), "the directory has become a link to outside")
	require.NoError(t, os.Remove(base+"/proj/d"))
	require.NoError(t, os.Symlink("e", base+"/proj/d"))
	assert.Equal(t, "/proj/e/f", ask("d/f"), "the directory has become a link inside")
	require.NoError(t, os.Rename(base+"/proj", base+"/gone"))
	require.NoError(t, os.Mkdir(base+"/proj", 0o755))
	assert.Empty(t, ask("f"), "the root has become another one")

	require.NoError(t, in.Close())
	err = cmd.Wait()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode(), "%v", err)
}

// everyByte asks for names that hold each possible byte, as files and as links to
// them, with records and with operands.
func everyByte(t *testing.T, bin string) {
	base := confinetest.Tree(t, "proj/")
	var asked, want []string
	for b := 1; b < 256; b++ {
		if b == '/' {
			continue
		}
		name := "x" + string([]byte{byte(b)})
		confinetest.Grow(t, base, "proj/"+name)
		require.NoError(t, os.Symlink(name, base+"/proj/l"+name))
		asked = append(asked, name, "l"+name)
		want = append(want, base+"/proj/"+name, base+"/proj/"+name)
	}
	answers := strings.Join(want, "\x00") + "\x00"
	records := exec.Command(bin, "-z", "-C", base+"/proj", "--stdin")
	records.Stdin = strings.NewReader(strings.Join(asked, "\x00"))
	out, err := records.Output()
	require.NoError(t, err)
	assert.Equal(t, answers, string(out))
	out, err = exec.Command(bin, append([]string{"-z", "-C", base + "/proj", "--"}, asked...)...).Output()
	require.NoError(t, err)
	assert.Equal(t, answers, string(out))
}

func longest(t *testing.T, bin string) {
	base := confinetest.Tree(t, "proj/")
	room := 4095 - len(base+"/proj/")
	path := strings.Repeat("d/", room/2-1) + strings.Repeat("e", room%2+2)
	out, err := exec.Command(bin, "-C", base+"/proj", path).Output()
	require.NoError(t, err)
	assert.Equal(t, base+"/proj/"+path+"\n", string(out))
	assert.Error(t, exec.Command(bin, "-q", "-C", base+"/proj", path+"e").Run())
}
