package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// real is a client of the real program.
type real struct {
	*mcp.ClientSession
	cmd *exec.Cmd
	box *clitest.Box
}

func newReal(t *testing.T, b *clitest.Box, o *mcp.ClientOptions, args ...string) *real {
	t.Helper()
	cmd := b.Command("pk-mcp", args...)
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return &real{session, cmd, b}
}

func (r *real) says(t *testing.T, tool string, args fields) string {
	t.Helper()
	return textOf(call(t, r.ClientSession, tool, args))
}

// sessions lists the existing session directories.
func sessions(t *testing.T, b *clitest.Box) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(b.Home, ".cache/pikuri/workspace-*"))
	require.NoError(t, err)
	return list
}

func TestFence(t *testing.T) {
	b := clitest.NewBox(t)
	secret := filepath.Join(b.Home, "secret")
	b.Write(t, secret, "s3cret\n")
	b.Write(t, b.Project+"/a.txt", "one\ntwo\nthree\n")
	r := newReal(t, b, nil, "--net", "none")

	assert.Equal(t, "Commands and files are fenced in. They can change "+b.Project+", and /tmp, which all tools share, and nothing else. "+
		"Relative paths of the file tools begin at "+b.Project+".", r.InitializeResult().Instructions)

	// Commands and files see the same project, and the same /tmp.
	assert.Equal(t, "one\ntwo\nthree\n\nexit status: 0\n", r.says(t, "bash", fields{"command": "cat a.txt; mkdir -p d; cd d; echo x >/tmp/x"})[:len("one\ntwo\nthree\n\n")]+"exit status: 0\n")
	assert.Equal(t, b.Project+"/d\n\nexit status: 0\n", r.says(t, "bash", fields{"command": "pwd"}))
	assert.Contains(t, r.says(t, "read", fields{"path": "/tmp/x"}), "x\n")
	assert.Contains(t, r.says(t, "write", fields{"path": "/tmp/y", "content": "from the file tool\n"}), "made /tmp/y: 19 bytes")
	assert.Contains(t, r.says(t, "bash", fields{"command": "cat /tmp/y"}), "from the file tool\n")
	assert.Equal(t, "     2\ttwo\n(lines 2-2 of 3)\n", r.says(t, "read", fields{"path": "a.txt", "offset": 2, "limit": 1}))
	assert.Equal(t, "(there are only 3 lines)\n", r.says(t, "read", fields{"path": "a.txt", "offset": 99}))
	assert.Contains(t, r.says(t, "edit", fields{"path": "a.txt", "old_string": "two", "new_string": "2"}), "-two\n+2\n")
	assert.Contains(t, r.says(t, "edit", fields{"path": "a.txt", "old_string": "e", "new_string": "2"}), "Error: ")
	assert.Equal(t, "a.txt:2:2\n", r.says(t, "grep", fields{"pattern": "^2"}))
	assert.Equal(t, "no match\n", r.says(t, "grep", fields{"pattern": "nonesuch"}))
	assert.Equal(t, "a.txt\n", r.says(t, "glob", fields{"pattern": "*.txt"}))
	assert.Equal(t, "a.txt  12\nd/\n", r.says(t, "list", nil))

	got := call(t, r.ClientSession, "bash", fields{"command": `printf '1\r2\r3\n\033[1mERROR: failed\033[m\rok\n'`})
	assert.Equal(t, "3\nokROR: failed\n\nlines overwritten, as by a progress bar: 3; they are shown as they were last, and | tr '\\r' '\\n' shows all\n"+
		"control sequences left out: 2\nexit status: 0\n", textOf(got))
	meta := got.Meta["pk/result"].(map[string]any)
	assert.Equal(t, []any{3.0, 2.0}, []any{meta["overwritten"], meta["folded"]})

	// Long output is cut between lines.
	assert.Regexp(t, `(?s)^1\n2\n.*\n3293\n\.\.\. \[\d+ bytes omitted of 108894 total\] \.\.\.\n17442\n`, r.says(t, "bash", fields{"command": "seq 1 20000"}))

	// The tools refuse to leave the project and to write files that the host runs. Their
	// messages name neither options nor paths of the session.
	for _, row := range []struct {
		tool string
		args fields
	}{
		{"read", fields{"path": secret}},
		{"read", fields{"path": "../home/secret"}},
		{"write", fields{"path": secret, "content": "x"}},
		{"write", fields{"path": ".git/hooks/pre-commit", "content": "x"}},
		{"write", fields{"path": ".mcp.json", "content": "x"}},
		{"write", fields{"path": ".claude/settings.json", "content": "x"}},
		{"edit", fields{"path": "/etc/passwd", "old_string": "root", "new_string": "toor"}},
		{"grep", fields{"pattern": "s3cret", "path": ".."}},
		{"list", fields{"path": "/"}},
		{"bash", fields{"command": "true", "cwd": b.Home}},
	} {
		got = call(t, r.ClientSession, row.tool, row.args)
		assert.True(t, got.IsError, "%v", row)
		for _, leak := range []string{"s3cret", "hint", "--", ".cache", "playground"} {
			assert.NotContains(t, textOf(got), leak, "%v", row)
		}
	}
	assert.NotContains(t, r.says(t, "bash", fields{"command": "cat " + secret}), "s3cret")
	text, err := os.ReadFile(secret)
	require.NoError(t, err)
	assert.Equal(t, "s3cret\n", string(text))

	// Other commands reach a job's server, and do not see the job's processes.
	clitest.Need(t, "python3")
	got = call(t, r.ClientSession, "bash", fields{"command": "exec python3 -m http.server 8000 --bind 127.0.0.1", "run_in_background": true})
	id := got.Meta["pk/result"].(map[string]any)["shell_id"].(string)
	assert.Contains(t, r.says(t, "bash", fields{"command": "until exec 3<>/dev/tcp/127.0.0.1/8000; do sleep 0.1; done 2>/dev/null; printf 'GET / HTTP/1.0\r\n\r\n' >&3; head -n 1 <&3; pgrep -f http.server || echo unseen"}),
		"200 OK")
	assert.Contains(t, r.says(t, "bash_kill", fields{"shell_id": id}), "ended by SIGTERM")

	require.NoError(t, r.Close())
	assert.Empty(t, sessions(t, b))
}

// The server ends by SIGKILL, by SIGTERM or at the end of its input. No process that it
// started is left.
func TestNothingIsLeft(t *testing.T) {
	b := clitest.NewBox(t)
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, 0} {
		fifo := b.Project + "/fifo"
		os.Remove(fifo)
		require.NoError(t, syscall.Mkfifo(fifo, 0o600))
		r := newReal(t, b, nil)
		open := make(chan *os.File, 1)
		go func() {
			f, _ := os.Open(fifo) // returns when the job has opened it
			open <- f
		}()
		call(t, r.ClientSession, "bash", fields{"command": "exec 3>fifo; setsid sleep 1000 & sleep 1000", "run_in_background": true})
		f := <-open
		if how != 0 {
			require.NoError(t, r.cmd.Process.Signal(how))
		} else {
			go r.Close()
		}
		_, err := io.ReadAll(f) // ends with the last process that has the other end
		assert.NoError(t, err)
		f.Close()
		_ = r.Wait()
	}
}

// When pk-bash is killed, its jobs end, the next result says so, and the new pk-bash has a
// new session.
func TestShellIsKilled(t *testing.T) {
	b := clitest.NewBox(t)
	r := newReal(t, b, nil)
	r.says(t, "write", fields{"path": "/tmp/x", "content": "y"})
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(r.cmd.Process.Pid), "pk-bash").Output()
	require.NoError(t, err)
	require.NoError(t, exec.Command("kill", "-KILL", strings.TrimSpace(string(out))).Run())
	text := ""
	for !strings.Contains(text, "again") { // until it is known
		text = r.says(t, "bash", fields{"command": "echo again; cat /tmp/x"})
	}
	assert.Contains(t, text, "started anew")
	r.says(t, "write", fields{"path": "/tmp/z", "content": "both\n"})
	assert.Contains(t, r.says(t, "bash", fields{"command": "cat /tmp/z"}), "both\n")
}

func TestAskReally(t *testing.T) {
	b := clitest.NewBox(t)
	var mu sync.Mutex
	answers := map[string]string{}
	r := newReal(t, b, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		mu.Lock()
		defer mu.Unlock()
		answer := "decline"
		if strings.Contains(q.Params.Message, "$ touch yes\n") {
			answer = "accept"
		}
		answers[answer] += q.Params.Message
		return &mcp.ElicitResult{Action: answer}, nil
	}}, "--ask", "--audit", b.Audit(t))
	call(t, r.ClientSession, "bash", fields{"command": "touch yes"})
	call(t, r.ClientSession, "bash", fields{"command": "touch no; : \x1b[2K"})
	var told []string
	for _, record := range clitest.Records(t, b.Audit(t)) {
		told = append(told, fmt.Sprint(record["program"], " ", record["event"], " ", record["answer"], " ", record["command"]))
	}
	assert.Equal(t, []string{"pk-mcp question yes touch yes", "pk-bash begin <nil> touch yes", "pk-bash end <nil> <nil>", "pk-mcp question no touch no; : \x1b[2K"}, told)
	assert.FileExists(t, b.Project+"/yes")
	assert.NoFileExists(t, b.Project+"/no")
	assert.Contains(t, answers["decline"], `$ touch no; : \x1b[2K`)
}

// pk-bash runs a command only in the directory of the question, and no message names a
// setting that lets nothing run.
func TestAskWhere(t *testing.T) {
	b := clitest.NewBox(t)
	var mu sync.Mutex
	var asked []string
	r := newReal(t, b, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		mu.Lock()
		defer mu.Unlock()
		_, dir, _ := strings.Cut(q.Params.Message, "\nin ")
		dir, _, _ = strings.Cut(dir, ",")
		asked = append(asked, strings.TrimPrefix(dir, b.Project))
		return &mcp.ElicitResult{Action: map[bool]string{true: "decline", false: "accept"}[strings.HasSuffix(dir, "/evil")]}, nil
	}}, "--ask")
	gate := b.Project + "/gate"
	r.says(t, "bash", fields{"command": "mkdir evil; until [ -e gate ]; do sleep 0.05; done; cd evil", "run_in_background": true, "wait_ms": 1})
	b.Write(t, gate, "")
	for !strings.Contains(r.says(t, "bash_list", nil), "exited") {
		time.Sleep(10 * time.Millisecond)
	}
	assert.Contains(t, r.says(t, "bash", fields{"command": "touch ran"}), "declined")
	assert.Equal(t, []string{"", "", "/evil"}, asked)
	assert.NoFileExists(t, b.Project+"/evil/ran")

	// The message about a setting is not for the model.
	b.Write(t, b.Home+"/.config/pikuri/confirm", "s3cret\n")
	require.NoError(t, os.Chmod(b.Home+"/.config/pikuri/confirm", 0o600))
	assert.Equal(t, "Error: refused: "+notAllowed, r.says(t, "bash", fields{"command": "true", "cwd": "."}))
}

// A refusal of one of the programs ends the start.
func TestRefusals(t *testing.T) {
	b := clitest.NewBox(t)
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"-C", "/etc"}, "pk-bash: "},
		{[]string{"--readable", "/nonesuch"}, `"/nonesuch"`},
		{[]string{"--net", "x"}, `"x" is not one of`},
		{[]string{"--session", "a/b"}, `"a/b" is not allowed`},
		{[]string{"--writable-from", "-"}, "pk-bash: "},
		{[]string{"--deny", "["}, "pk-bash: "},
		{[]string{"--memory", "1M"}, "pk-bash: cannot limit the memory to 1M"},
		{[]string{"--confirm-command", "/nonesuch"}, `pk-bash: cannot find the program "/nonesuch"`},
		{[]string{"--ask", "-y"}, "--ask cannot be used with --yes"},
		{[]string{"--state", "x"}, `"x" is none of`},
		{[]string{"x"}, `extra operand "x"`},
	} {
		got := b.Run(t, "pk-mcp", row.args...)
		assert.Equal(t, 2, got.Status, row.args)
		assert.Contains(t, got.Stderr, row.want, row.args)
		assert.Empty(t, got.Stdout, row.args)
	}
	assert.Empty(t, sessions(t, b))
}

// TestTypeScriptClients runs the official TypeScript clients from the directory in
// PK_TEST_MCP_CLIENTS:
//
//	npm install --prefix DIR @modelcontextprotocol/sdk@1 @modelcontextprotocol/client@2
//	PK_TEST_BWRAP=/usr/bin/bwrap PK_TEST_MCP_CLIENTS=DIR go test -run TypeScript ./cmd/pk-mcp
func TestTypeScriptClients(t *testing.T) {
	modules := os.Getenv("PK_TEST_MCP_CLIENTS")
	if modules == "" {
		t.Skip("PK_TEST_MCP_CLIENTS is not set")
	}
	b := clitest.NewBox(t)
	server := b.Command("pk-mcp")
	cmd := exec.Command("node", append([]string{filepath.Join(clitest.Root(t), "cmd/pk-mcp/testdata/clients.mjs"), modules, server.Path}, server.Args[1:]...)...)
	cmd.Dir, cmd.Env = server.Dir, server.Env
	got := clitest.Finish(t, cmd)
	assert.Equal(t, "sdk 1: ok\nclient 2, legacy: ok\nclient 2, auto: ok\n", got.Stdout, got.Stderr)
}

// A server that a command has left runs on until bash_kill, unless the user wants it to end
// with the command.
func TestBackgroundIsKept(t *testing.T) {
	b := clitest.NewBox(t)
	clitest.Need(t, "python3")
	const serve = "python3 -Su -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & until exec 3<>/dev/tcp/127.0.0.1/8000; do :; done 2>/dev/null; echo up"
	r := newReal(t, b, nil, "--net", "none")
	got := call(t, r.ClientSession, "bash", fields{"command": serve})
	id, _ := got.Meta["pk/result"].(map[string]any)["shell_id"].(string)
	assert.Regexp(t, `^up\n\nleft running: .*http.server 8000 --bind 127.0.0.1 \(1\); bash_kill with shell_id `+id+` ends it; its further output is in /tmp/background-.*\.log\nexit status: 0\n$`, textOf(got))
	assert.Contains(t, r.says(t, "bash", fields{"command": `exec 3<>/dev/tcp/127.0.0.1/8000; printf 'GET / HTTP/1.0\r\n\r\n' >&3; head -n 1 <&3`}), "200 OK")
	assert.Contains(t, r.says(t, "bash_list", nil), id+": exited 0, its background runs, ")
	assert.Equal(t, "exit status: 0\n", r.says(t, "bash_kill", fields{"shell_id": id}))
	assert.Contains(t, r.says(t, "bash", fields{"command": "exec 3<>/dev/tcp/127.0.0.1/8000"}), "Connection refused")
	assert.Equal(t, "no jobs\n", r.says(t, "bash_list", nil))

	r = newReal(t, b, nil, "--no-keep-background")
	assert.Regexp(t, `ended with the command: .*sleep 1000.* \(1\); run_in_background is for what is to stay\n`, r.says(t, "bash", fields{"command": "sleep 1000 &"}))
}

func TestProgramThatAnswers(t *testing.T) {
	b := clitest.NewBox(t)
	b.Script(t, filepath.Dir(b.Project)+"/answer", `case $(cat) in *yes*) exit 0;; esac; exit 1`+"\n")
	r := newReal(t, b, nil, "--confirm-command", filepath.Dir(b.Project)+"/answer")
	assert.Contains(t, r.says(t, "bash", fields{"command": "echo yes"}), "yes\n")
	assert.Contains(t, r.says(t, "bash", fields{"command": "echo other"}), "declined: user declined")
}
