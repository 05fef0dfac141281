package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eras are the protocol versions with which the test clients begin.
var eras = map[string]string{"legacy": "2025-11-25", "stateless": stateless}

// connect connects a client of the SDK to a server, over pipes.
func connect(t testing.TB, s *server, era string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, newStdio(toServer, fromServer)) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: toClient, Writer: fromClient}, &mcp.ClientSessionOptions{ProtocolVersion: eras[era]})
	require.NoError(t, err)
	t.Cleanup(func() {
		fromClient.Close()
		require.NoError(t, <-served)
		stop()
		_ = session.Close()
	})
	return session
}

// fake returns a server that starts the fakes.
func fake(t testing.TB, ask bool) *server {
	c := fakes(t)
	for _, p := range []*program{c.shell, c.files} {
		_, _, _, err := p.get()
		require.NoError(t, err)
	}
	return newServer(c, ask, description{})
}

func call(t testing.TB, c *mcp.ClientSession, tool string, args fields) *mcp.CallToolResult {
	t.Helper()
	r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	return r
}

func textOf(r *mcp.CallToolResult) string { return r.Content[0].(*mcp.TextContent).Text }

func TestTools(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			c := connect(t, fake(t, false), era, nil)
			list, err := c.ListTools(context.Background(), nil)
			require.NoError(t, err)
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				assert.Nil(t, tool.OutputSchema, tool.Name)
				assert.NotEmpty(t, tool.Description, tool.Name)
			}
			assert.Equal(t, []string{"bash", "bash_input", "bash_kill", "bash_list", "bash_output", "edit", "glob", "grep", "list", "read", "write"}, names)

			for _, test := range []struct {
				name, tool string
				args       fields
				want       string
				failed     bool
			}{
				{"command", "bash", fields{"command": "echo hi; exit 3"}, "hi\n\nworking directory: /elsewhere\nexit status: 3\n", false},
				{"no output, no change of directory", "bash", fields{"command": ":"}, "exit status: 0\n", false},
				{"output without an end", "bash", fields{"command": "printf x"}, "x\n\nexit status: 0\n", false},
				{"death", "bash", fields{"command": "kill $$"}, "ended by SIGTERM\n", false},
				{"refusal", "bash", fields{"command": "refuse"}, "Error: refused: the command is 9 bytes long, and 8 is the most", true},
				{"list", "list", fields{}, "d/\nf  3\nl  (link)\n", false},
				{"glob", "glob", fields{"pattern": "*.go"}, "a.go\nb.go\n(there are more)\n", false},
				{"write", "write", fields{"path": "a", "content": "b"}, "made a: 5 bytes, sha256 0a\n", false},
				{"hints and host paths", "read", fields{"path": "secret"}, `Error: cannot read "secret": outside`, true},
				{"job that is not there", "bash_output", fields{"shell_id": "j9.1"}, "Error: refused: there is no job j9", true},
				{"job of another shell", "bash_kill", fields{"shell_id": "ja.2"}, "Error: there is no such shell_id any more", true},
				{"no shell_id", "bash_input", fields{"shell_id": "x", "input": "y"}, "Error: " + errNoSuchJob.Error(), true},
			} {
				r := call(t, c, test.tool, test.args)
				assert.Equal(t, test.want, textOf(r), test.name)
				assert.Equal(t, test.failed, r.IsError, test.name)
				assert.Nil(t, r.StructuredContent, test.name)
			}
			r := call(t, c, "bash", fields{"command": "exit 3"})
			assert.Equal(t, map[string]any{"outcome": "exited", "exit_status": 3.0, "cwd": "/elsewhere", "shell_id": ""}, without(r.Meta["pk/result"], "shell_id"))
			r = call(t, c, "bash", fields{"command": "x", "timeout": 601})
			assert.True(t, r.IsError)
			r = call(t, c, "bash", fields{"command": "x", "sandbox": false})
			assert.True(t, r.IsError)

			// The request that pk-fs receives.
			for _, test := range []struct {
				tool string
				args fields
				want string
			}{
				{"read", fields{"path": "a", "offset": 2, "limit": 3}, `{"limit":3,"numbers":true,"offset":2,"op":"read","path":"a"}` + "\n(lines 1-1 of 9)\n"},
				{"grep", fields{"pattern": "a", "ignore_case": true, "after": 2}, `{"after":2,"ignore_case":true,"op":"grep","pattern":"a"}` + "\n"},
				{"edit", fields{"path": "a", "old_string": "b", "new_string": "c", "replace_all": true}, `{"all":true,"new":"c","old":"b","op":"edit","path":"a"}` + "\n\nreplaced 1; sha256 0a\n"},
			} {
				assert.Equal(t, test.want, withoutID(textOf(call(t, c, test.tool, test.args))))
			}
		})
	}
}

// without replaces a field that differs in each run.
func without(meta any, name string) any {
	m := meta.(map[string]any)
	m[name] = ""
	return m
}

func withoutID(text string) string {
	before, after, _ := strings.Cut(text, `"id":"`)
	_, after, _ = strings.Cut(after, `",`)
	return before + after
}

func TestBackground(t *testing.T) {
	t.Parallel()
	s := fake(t, false)
	c := connect(t, s, "legacy", nil)
	assert.Equal(t, "no jobs\n", textOf(call(t, c, "bash_list", nil)))

	r := call(t, c, "bash", fields{"command": "echo up; read x; echo got $x; read y; echo $y; exit 4", "run_in_background": true, "wait_ms": 1, "description": "a server"})
	id := r.Meta["pk/result"].(map[string]any)["shell_id"].(string)
	assert.Contains(t, textOf(r), "still running: shell_id "+id+";")
	assert.Regexp(t, "^"+id+": running, [0-9] s: ", textOf(call(t, c, "bash_list", nil)))

	r = call(t, c, "bash_input", fields{"shell_id": id, "input": "a\n", "wait_ms": 40000})
	for !strings.Contains(textOf(r), "got a") {
		r = call(t, c, "bash_output", fields{"shell_id": id, "wait_ms": 40000})
	}
	r = call(t, c, "bash_input", fields{"shell_id": id, "input": "b\n", "wait_ms": 40000})
	for !strings.Contains(textOf(r), "exit status: 4\n") {
		r = call(t, c, "bash_output", fields{"shell_id": id, "wait_ms": 40000})
	}
	assert.Equal(t, "exit status: 4\n", textOf(call(t, c, "bash_output", fields{"shell_id": id})))
	assert.Contains(t, textOf(call(t, c, "bash_list", nil)), "exited 4")

	r = call(t, c, "bash", fields{"command": "sleep 1000", "wait_ms": 1})
	id = r.Meta["pk/result"].(map[string]any)["shell_id"].(string)
	r = call(t, c, "bash_kill", fields{"shell_id": id})
	assert.Equal(t, "ended by SIGTERM\n", textOf(r))

	// The server reports a program's end once, and its jobs are gone.
	r = call(t, c, "bash", fields{"command": "crash"})
	assert.True(t, r.IsError)
	assert.Contains(t, textOf(r), "the next call starts it anew")
	r = call(t, c, "bash", fields{"command": "echo again"})
	assert.True(t, strings.HasPrefix(textOf(r), "note: the shell had ended and was started anew; its jobs are gone"), textOf(r))
	assert.Contains(t, textOf(r), "again\n")
	assert.NotContains(t, textOf(call(t, c, "bash", fields{"command": "echo again"})), "note:")
	assert.True(t, call(t, c, "bash_output", fields{"shell_id": id}).IsError)
	assert.True(t, call(t, c, "read", fields{"path": "crash"}).IsError)
	assert.Contains(t, textOf(call(t, c, "list", nil)), "note: the program for files had ended")
}

// The server answers a ping during 20 concurrent calls.
func TestParallel(t *testing.T) {
	t.Parallel()
	for era := range eras {
		c := connect(t, fake(t, false), era, nil)
		var calls sync.WaitGroup
		gate := t.TempDir() + "/gate"
		for i := range 20 {
			calls.Go(func() {
				r := call(t, c, "bash", fields{"command": fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; echo %d", gate, i)})
				assert.Contains(t, textOf(r), fmt.Sprintf("%d\n\n", i))
			})
		}
		if era == "legacy" {
			require.NoError(t, c.Ping(context.Background(), nil))
		}
		call(t, c, "bash", fields{"command": "touch " + gate})
		calls.Wait()
	}
}

func TestProgressAndCancel(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			told := make(chan *mcp.ProgressNotificationParams, 100)
			c := connect(t, fake(t, false), era, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { told <- r.Params },
			})
			ctx, stop := context.WithCancel(context.Background())
			params := &mcp.CallToolParams{Name: "bash", Arguments: fields{"command": "echo first; echo begun; sleep 1000"}}
			params.SetProgressToken("tok")
			ended := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, params)
				ended <- err
			}()
			p := <-told
			assert.Equal(t, "tok", p.ProgressToken)
			assert.Contains(t, []string{"first", "begun"}, p.Message)
			stop()
			require.ErrorIs(t, <-ended, context.Canceled)
			for textOf(call(t, c, "bash_list", nil)) != "no jobs\n" { // the command has ended
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// The job of a call that is cancelled as its start is answered ends too.
func TestCancelledWhileItStarts(t *testing.T) {
	t.Parallel()
	s := fake(t, false)
	c := connect(t, s, "legacy", nil)
	gate := t.TempDir() + "/gate"
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: fields{"command": "touch " + gate + "; sleep 1000 # late"}})
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(gate); return err == nil }, 20*time.Second, 10*time.Millisecond)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool { return textOf(call(t, c, "bash_list", nil)) == "no jobs\n" }, 20*time.Second, 10*time.Millisecond)
	shell, _, _, err := s.shell.get()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		shell.mu.Lock()
		defer shell.mu.Unlock()
		return len(shell.jobs) == 0 && len(shell.waiting) == 0
	}, 20*time.Second, 10*time.Millisecond)
}

// A search that hangs holds other file tools up until its call is cancelled.
func TestFilesHang(t *testing.T) {
	t.Parallel()
	s := fake(t, false)
	c := connect(t, s, "legacy", nil)
	first, _, _, err := s.files.get()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	calls.Go(func() {
		_, _ = c.CallTool(ctx, &mcp.CallToolParams{Name: "grep", Arguments: fields{"pattern": "x", "path": "hang"}})
	})
	stopped := func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", first.cmd.Process.Pid))
		return strings.Contains(string(text), ") T ")
	}
	require.Eventually(t, stopped, 20*time.Second, 10*time.Millisecond)
	withdrawn, stopToo := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stopToo()
	_, err = c.CallTool(withdrawn, &mcp.CallToolParams{Name: "list"}) // it is not sent at all
	require.Error(t, err)
	assert.True(t, first.alive())
	waits := make(chan *mcp.CallToolResult, 1)
	go func() { waits <- call(t, c, "list", nil) }()
	stop()
	calls.Wait()
	select {
	case r := <-waits:
		assert.Contains(t, textOf(r), "note: the program for files had ended and was started anew\nd/\n")
	case <-time.After(20 * time.Second):
		require.NoError(t, first.cmd.Process.Kill())
		t.Error("no file tool answers")
	}
}

// The end does not wait for a search.
func TestEndWhileFilesHang(t *testing.T) {
	t.Parallel()
	s := fake(t, false)
	c, _, _, err := s.files.get()
	require.NoError(t, err)
	_, _, err = c.send(fields{"op": "grep", "path": "hang"}, nil)
	require.NoError(t, err)
	begun := time.Now()
	s.close()
	assert.Less(t, time.Since(begun), 5*time.Second) // pk-bash waits for so long
	_, _, _, err = s.files.get()
	assert.Error(t, err) // a late call starts nothing
}

func TestAsk(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			answer, asked := "accept", []*mcp.ElicitParams{}
			c := connect(t, fake(t, true), era, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked = append(asked, r.Params)
					if answer == "" {
						return nil, fmt.Errorf("the dialog broke")
					}
					return &mcp.ElicitResult{Action: answer}, nil
				},
			})
			r := call(t, c, "bash", fields{"command": "echo hi"})
			assert.Equal(t, "hi\n\nworking directory: /elsewhere\nexit status: 0\n", textOf(r))
			require.Len(t, asked, 1)
			assert.Contains(t, asked[0].Message, "$ echo hi\n")
			schema, err := json.Marshal(asked[0].RequestedSchema)
			require.NoError(t, err)
			assert.JSONEq(t, `{"type":"object","properties":{}}`, string(schema))

			r = call(t, c, "bash", fields{"command": "read x", "run_in_background": true, "wait_ms": 1})
			id := r.Meta["pk/result"].(map[string]any)["shell_id"].(string)
			for _, answer = range []string{"decline", "cancel"} {
				r = call(t, c, "bash", fields{"command": "touch ran"})
				assert.True(t, r.IsError)
				assert.Contains(t, textOf(r), "declined")
				assert.Contains(t, textOf(call(t, c, "bash_input", fields{"shell_id": id, "input": "x"})), "declined")
			}
			answer = ""
			if era == "legacy" { // in the other, the client's error is the client's
				assert.Contains(t, textOf(call(t, c, "bash", fields{"command": "touch ran"})), "declined")
			}
			assert.Contains(t, textOf(call(t, c, "list", nil)), "d/") // not asked about
		})
	}
	t.Run("client that cannot ask", func(t *testing.T) {
		t.Parallel()
		for era := range eras {
			r := call(t, connect(t, fake(t, true), era, nil), "bash", fields{"command": "touch ran"})
			assert.Equal(t, "Error: declined: this client cannot ask its user, and the server may not run anything unasked", textOf(r))
		}
	})
}

// A command runs in the directory of the question. If another command has moved the
// working directory meanwhile, the server asks anew.
func TestDirectoryThatWasAskedAbout(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			var asked []string
			c := connect(t, fake(t, true), era, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					_, dir, _ := strings.Cut(r.Params.Message, "\nin ")
					dir, _, _ = strings.Cut(dir, ",")
					asked = append(asked, dir)
					return &mcp.ElicitResult{Action: map[bool]string{true: "decline", false: "accept"}[dir == "/evil"]}, nil
				},
			})
			ran := t.TempDir() + "/ran"
			call(t, c, "bash", fields{"command": "cd /evil"})
			r := call(t, c, "bash", fields{"command": "touch " + ran})
			assert.Contains(t, textOf(r), "declined")
			assert.Equal(t, []string{"/project", "/elsewhere", "/evil"}, asked)
			assert.NoFileExists(t, ran)

			// A directory that is not there any more gives way to the project root.
			asked = nil
			call(t, c, "bash", fields{"command": "cd /gone", "cwd": "/"})
			assert.Contains(t, textOf(call(t, c, "bash", fields{"command": "echo ran"})), "ran\n")
			assert.Equal(t, []string{"/", "/elsewhere", "/gone", "/project"}, asked)

			// So does one whose name JSON cannot say.
			call(t, c, "bash", fields{"command": "cd /bytes", "cwd": "/"})
			asked = nil
			text := textOf(call(t, c, "bash", fields{"command": "echo ran"}))
			assert.Contains(t, text, `note: the name of the working directory, "/bytes\xff", is not UTF-8`)
			assert.Contains(t, text, "ran\n")
			assert.Equal(t, "/project", asked[len(asked)-1])
		})
	}
}

// The server makes a question when its turn has come.
func TestQuestionsInTurn(t *testing.T) {
	t.Parallel()
	s := fake(t, true)
	asked, answer := make(chan string, 2), make(chan struct{})
	c := connect(t, s, "legacy", &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked <- r.Params.Message
			<-answer
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { call(t, c, "bash", fields{"command": "echo hi"}) })
	}
	assert.Contains(t, <-asked, "in /project,")
	time.Sleep(50 * time.Millisecond) // for the second call to wait
	s.setDir("/evil")
	answer <- struct{}{}
	assert.Contains(t, <-asked, "in /evil,")
	answer <- struct{}{}
	calls.Wait()
}

// A yes is for one call, and counts once.
func TestAnswersAreForTheirCall(t *testing.T) {
	t.Parallel()
	s := fake(t, true)
	r := newRaw(t, s)
	n := 0
	call := func(command, state, action string) map[string]any {
		n++
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": map[string]any{
			"name": "bash", "arguments": fields{"command": command}, "requestState": state,
			"inputResponses": fields{"confirm": fields{"action": action}},
			"_meta":          fields{"io.modelcontextprotocol/protocolVersion": stateless, "io.modelcontextprotocol/clientCapabilities": fields{"elicitation": fields{}}},
		}})
		require.NoError(t, err)
		r.write(string(line))
		return r.answer()["result"].(map[string]any)
	}
	asks := func(result map[string]any) string {
		assert.Equal(t, "input_required", result["resultType"], result)
		return result["requestState"].(string)
	}
	asks(call("echo a", "", "accept"))
	asks(call("echo a", "invented", "accept"))
	state := asks(call("echo a", "", ""))
	asks(call("echo b", state, "accept"))
	asks(call("echo a", state, "accept")) // it was used up
	state = asks(call("echo a", "", ""))
	s.setDir("/moved")
	asks(call("echo a", state, "accept")) // it was for another directory
	s.setDir(fakeRoot)
	state = asks(call("echo a", "", ""))
	assert.Equal(t, "complete", call("echo a", state, "accept")["resultType"])
	asks(call("echo a", state, "accept"))
	state = asks(call("echo a", "", ""))
	assert.Equal(t, true, call("echo a", state, "no")["isError"])
	state = asks(call("echo a", "", ""))
	for range maxPending {
		asks(call("echo a", "", ""))
	}
	asks(call("echo a", state, "accept")) // it was forgotten
}
