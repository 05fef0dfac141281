package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// A minute is long enough for any awaited event. The tests check after each tick.
const (
	minute = time.Minute
	tick   = time.Millisecond
)

// client is a client of a loop.
type client struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex
	asked int
	wants map[string]chan map[string]any
	told  map[string]string // by the answers that started jobs
	// The messages without an ID.
	events chan map[string]any
	ended  chan struct{}
}

func dial(t *testing.T, b *clitest.Box, options ...string) *client {
	t.Helper()
	return dialWith(t, b.Command("pk-bash", append([]string{"--loop"}, options...)...))
}

func dialWith(t *testing.T, cmd *exec.Cmd) *client {
	t.Helper()
	c := &client{t: t, cmd: cmd, wants: map[string]chan map[string]any{}, told: map[string]string{}, events: make(chan map[string]any, 10000), ended: make(chan struct{})}
	var err error
	c.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		defer close(c.ended)
		for d := json.NewDecoder(out); ; {
			var a map[string]any
			if d.Decode(&a) != nil {
				return
			}
			delete(a, "guarantees")
			id, ok := a["id"].(string)
			c.mu.Lock()
			want := c.wants[id]
			c.mu.Unlock()
			if ok && want != nil {
				want <- a
			} else {
				c.events <- a
			}
		}
	}()
	return c
}

// begin sends a request, and returns a function that waits for its answer. It adds an ID to
// a request without one.
func (c *client) begin(request string) (answer func() map[string]any) {
	c.t.Helper()
	c.mu.Lock()
	c.asked++
	id := fmt.Sprintf("t%d", c.asked)
	if _, after, ok := strings.Cut(request, `"id":"`); ok {
		id, _, _ = strings.Cut(after, `"`)
	} else {
		request = fmt.Sprintf(`{"id":%q,%s`, id, strings.TrimPrefix(request, "{"))
	}
	want := make(chan map[string]any, 1)
	c.wants[id] = want
	c.mu.Unlock()
	_, err := io.WriteString(c.in, request+"\n")
	require.NoError(c.t, err)
	return func() map[string]any {
		c.t.Helper()
		select {
		case a := <-want:
			return a
		case <-c.ended:
		}
		select {
		case a := <-want:
			return a
		default:
			require.Fail(c.t, "the loop has ended", request)
			return nil
		}
	}
}

func (c *client) ask(format string, args ...any) map[string]any {
	c.t.Helper()
	return c.begin(fmt.Sprintf(format, args...))()
}

// start starts a job and returns its name.
func (c *client) start(command, more string) string {
	c.t.Helper()
	text, err := json.Marshal(command)
	require.NoError(c.t, err)
	a := c.ask(`{"op":"start","command":%s%s}`, text, more)
	require.Contains(c.t, a, "job", "%v", a)
	job := a["job"].(string)
	c.told[job], _ = a["output"].(string)
	return job
}

// until reads a job until its output holds text, or it has ended.
func (c *client) until(job, text string) (seen string, last map[string]any) {
	c.t.Helper()
	told := c.told[job]
	delete(c.told, job)
	return c.after(told, job, text)
}

// type_ writes to a job, and reads until its output holds text.
func (c *client) type_(job, input, text string) (last map[string]any) {
	c.t.Helper()
	a := c.ask(`{"op":"write","job":%q,%s}`, job, input)
	_, last = c.after(a["output"].(string), job, text)
	return last
}

func (c *client) after(seen, job, text string) (string, map[string]any) {
	c.t.Helper()
	var last map[string]any
	for !strings.Contains(seen, text) {
		last = c.ask(`{"op":"read","job":%q,"wait_ms":60000}`, job)
		if last["output"] == "" && last["outcome"] == "running" {
			break // a minute has gone
		}
		seen += last["output"].(string)
		if last["outcome"] != "running" && last["more"] == nil {
			break
		}
	}
	require.Contains(c.t, seen, text)
	return seen, last
}

// wait reads a job until it has ended. A single read may be answered by its output, before that.
func (c *client) wait(job string) (last map[string]any) {
	c.t.Helper()
	for last = c.ask(`{"op":"read","job":%q,"wait_ms":300000}`, job); last["outcome"] == "running"; {
		last = c.ask(`{"op":"read","job":%q,"wait_ms":300000}`, job)
	}
	return last
}

// close ends the input, and waits for the end of the loop.
func (c *client) close() error {
	c.in.Close()
	<-c.ended
	return c.cmd.Wait()
}

// A command reaches a server that runs as a job. The server ends after kill.
func TestJobIsAServer(t *testing.T) {
	b := clitest.NewBox(t)
	clitest.Need(t, "curl")
	c := dial(t, b, "-y", "--net", "none")
	b.Write(t, b.Project+"/f", "served\n")
	job := c.start("python3 -Su -m http.server 8000", "")
	c.until(job, "Serving HTTP")
	assert.Equal(t, "served\n", c.ask(`{"command":"curl -s http://127.0.0.1:8000/f"}`)["output"])
	c.until(job, "GET /f")
	a := c.ask(`{"op":"kill","job":%q}`, job)
	assert.Equal(t, []any{"signaled", "SIGTERM", 143.0}, []any{a["outcome"], a["signal"], a["exit_status"]})
	assert.Equal(t, 7.0, c.ask(`{"command":"curl -s http://127.0.0.1:8000/f"}`)["exit_status"])
	assert.NoError(t, c.close())
	assert.Empty(t, umbrellas(t, b))
}

func TestJobHasATerminal(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	job := c.start("tty; stty size; read -p 'Name? ' name; echo \"hi $name\"; stty size; set -m; bash -c 'trap \"exit 3\" INT; echo in; sleep 1000 & wait'; echo \"status $?\"; cat; echo bye", `,"tty":{"rows":24,"cols":80}`)
	seen, _ := c.until(job, "Name? ")
	assert.Equal(t, "/dev/pts/0\n24 80\nName? ", seen)
	assert.Equal(t, map[string]any{"id": "size", "job": job}, c.ask(`{"id":"size","op":"resize","job":%q,"rows":50,"cols":100}`, job))
	c.type_(job, `"input":"bob\n"`, "hi bob\n50 100\nin\n")
	// ^C reaches the foreground process group only.
	c.type_(job, `"input":"\u0003"`, "status 3")
	c.type_(job, `"input":"echo\n"`, "echo\necho\n")
	c.type_(job, `"eof":true`, "bye")
	assert.Equal(t, "exited", c.wait(job)["outcome"])
	assert.Contains(t, c.ask(`{"op":"resize","job":%q,"rows":1,"cols":1}`, job)["error"], "has ended")
	assert.NoError(t, c.close())
}

func TestJobReadsItsInput(t *testing.T) {
	b := clitest.NewBox(t)
	for _, mode := range modes {
		c := dial(t, b, append(mode.options, "-y")...)
		job := c.start("printf 'Name? '; read n; echo \"hi $n\"; wc -c", `,"stdin":true`)
		c.until(job, "Name? ")
		c.type_(job, `"input_base64":"YgpvYg=="`, "hi b\n")
		c.type_(job, `"input":"x","eof":true`, "3\n")
		assert.Contains(t, c.ask(`{"op":"write","job":%q,"input":"x"}`, job)["error"], job)
		none := c.start("cat; sleep 1000", "")
		assert.Contains(t, c.ask(`{"op":"write","job":%q,"input":"x"}`, none)["error"], "has no standard input")
		assert.NoError(t, c.close())
	}
}

// The loop answers plain requests in order, and cancels any request.
func TestCancel(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	first := c.begin(`{"id":"first","command":"echo begun; touch ready; sleep 1000"}`)
	second := c.begin(`{"id":"second","command":"touch never"}`)
	third := c.begin(`{"id":"third","command":"echo third"}`)
	started := c.begin(`{"id":"started","op":"start","command":"echo up; sleep 1000","wait_ms":300000}`)
	awaitFile(t, b.Project+"/ready")
	assert.Equal(t, map[string]any{"id": "x", "request": "second"}, c.ask(`{"id":"x","op":"cancel","request":"second"}`))
	assert.Equal(t, map[string]any{"id": "second", "command": "touch never", "outcome": "cancelled", "exit_status": 125.0, "error": "the request was cancelled"}, second())
	c.ask(`{"op":"cancel","request":"first"}`)
	a := first()
	assert.Equal(t, []any{"cancelled", "begun\n", 143.0}, []any{a["outcome"], a["output"], a["exit_status"]})
	assert.Equal(t, "third\n", third()["output"])
	job := c.named("echo up")
	c.until(job, "up")
	c.ask(`{"op":"cancel","request":"started"}`)
	a = started()
	assert.Equal(t, []any{"cancelled", "up\n", job}, []any{a["outcome"], a["output"], a["job"]})
	waiting := c.start("sleep 1000", "")
	read := c.begin(fmt.Sprintf(`{"id":"read","op":"read","job":%q,"wait_ms":300000}`, waiting))
	for c.ask(`{"op":"cancel","request":"read"}`)["outcome"] == "refused" {
	}
	assert.Equal(t, "running", read()["outcome"])
	assert.Equal(t, "no request \"nobody\" waits for its answer", c.ask(`{"op":"cancel","request":"nobody"}`)["error"])
	assert.NoFileExists(t, b.Project+"/never")
	assert.NoError(t, c.close())
}

// named waits for a job whose command begins with command, and returns the job.
func (c *client) named(command string) string {
	c.t.Helper()
	for {
		for _, job := range c.ask(`{"op":"list"}`)["jobs"].([]any) {
			if j := job.(map[string]any); strings.HasPrefix(j["command"].(string), command) {
				return j["job"].(string)
			}
		}
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, 5*minute, tick)
}

// Bash in POSIX mode reads no script before the command: it has the mode from the command on.
func TestPosixMode(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	b.Mkdir(t, b.Project+"/sub")
	for _, mode := range modes {
		for _, variable := range []string{"POSIXLY_CORRECT=1", "POSIX_PEDANTIC=1", "SHELLOPTS=posix"} {
			cmd := b.Command("pk-bash", append(mode.options, "--env-inherit", "-y", "--state", "cwd", "--loop")...)
			cmd.Env = append(cmd.Env, variable)
			c := dialWith(t, cmd)
			assert.Equal(t, b.Project+"/sub", c.ask(`{"command":"cd sub"}`)["cwd"], variable)
			a := c.ask(`{"command":"pwd; echo ${POSIXLY_CORRECT-none} $(set -o | grep -c 'posix.*on'); env | grep PK_POSIX; exit 137"}`)
			posix := map[bool]string{true: "1 1", false: "none 0"}[variable == "POSIXLY_CORRECT=1"]
			assert.Equal(t, []any{b.Project + "/sub\n" + posix + "\n", 137.0, "exited"}, []any{a["output"], a["exit_status"], a["outcome"]}, variable)
			assert.NoError(t, c.close())
		}
	}
}

func TestStateIsKept(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	b.Mkdir(t, b.Project+"/web/it's")
	const odd = "$'a\\nb\"$(touch in)`x`\\\\ é\\x01'"
	for _, mode := range modes {
		for _, keep := range []string{"cwd", "env"} {
			c := dial(t, b, append(mode.options, "-y", "--state", keep)...)
			run := func(command string) map[string]any {
				text, err := json.Marshal(command)
				require.NoError(t, err)
				return c.ask(`{"command":%s}`, text)
			}
			a := run("cd \"web/it's\" && export X=" + odd + " PATH=\"$PATH:/x\" && unset PAGER; declare -rx FIXED=1; declare -ix N=3; shopt -s extglob; set -e; false | cat; exit 4")
			assert.Equal(t, []any{4.0, b.Project + "/web/it's"}, []any{a["exit_status"], a["cwd"]}, keep)
			env := map[string]string{"cwd": "1\nset\n\n", "env": "0\nunset\n13\n"}[keep]
			a = run("pwd; [[ $X == " + odd + " ]]; echo $?; echo ${PAGER-unset} | sed s/cat/set/; echo $N$FIXED | sed s/31/13/; FIXED=2")
			assert.Equal(t, b.Project+"/web/it's\n"+env, a["output"], keep)
			assert.NoFileExists(t, b.Project+"/web/it's/in")
			assert.Equal(t, "/tmp\n", run("cd /tmp; exec pwd")["output"])
			assert.Equal(t, b.Project+"/web/it's", run("kill -9 $$")["cwd"])
			a = c.ask(`{"op":"start","command":"pwd; cd ..","cwd":"web","wait_ms":300000}`)
			assert.Equal(t, []any{b.Project + "/web\n", b.Project + "/web/it's"}, []any{a["output"], a["cwd"]})
			a = c.ask(`{"op":"start","command":"cd ..","wait_ms":300000}`)
			assert.Equal(t, b.Project+"/web", a["cwd"])
			a = run("mkdir gone; cd gone; rmdir ../gone")
			assert.Equal(t, []any{b.Project, "the working directory was removed: the next command begins in the project root"}, []any{a["cwd"], a["error"]})
			run("mkdir gone; cd gone")
			require.NoError(t, os.Remove(b.Project+"/gone"))
			a = run("pwd")
			assert.Equal(t, []any{b.Project + "\n", fmt.Sprintf("the working directory %q was not there: the command began in the project root", b.Project+"/gone")}, []any{a["output"], a["error"]})
			run("cd web")
			c.ask(`{"op":"reset"}`)
			assert.Equal(t, b.Project+"\n", run("pwd; echo -n $X")["output"])
			assert.Contains(t, c.ask(`{"op":"start","command":"pwd","cwd":"/etc","wait_ms":1000}`)["error"], "/etc")
			assert.Equal(t, `cannot begin in "nonesuch": no such directory`, c.ask(`{"op":"start","command":"pwd","cwd":"nonesuch","wait_ms":300000}`)["error"])
			assert.NoError(t, c.close())
		}
	}
}

// A job that ends late does not change the working directory of commands that start after
// it.
func TestStateOfAJobThatRunsOn(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Project+"/a")
	b.Mkdir(t, b.Project+"/b")
	c := dial(t, b, "-y", "--state", "cwd")
	job := c.start("cd a; echo in; trap 'exit 0' TERM; sleep 1000 & wait", "")
	c.until(job, "in")
	assert.Equal(t, b.Project+"/b", c.ask(`{"command":"cd b"}`)["cwd"])
	assert.Equal(t, b.Project+"/b", c.ask(`{"op":"kill","job":%q}`, job)["cwd"])
	assert.Equal(t, b.Project+"/b\n", c.ask(`{"command":"pwd"}`)["output"])
	assert.NoError(t, c.close())
}

// The client reads a long output in pieces. The loop counts the bytes that it drops, and
// its memory stays small.
func TestLongOutputOfAJob(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	a := c.ask(`{"op":"start","command":"seq 1 10000","wait_ms":300000}`)
	whole := a["output"].(string)
	cut := strings.Index(whole, "... [")
	require.Equal(t, float64(cut), a["next"])
	text, since := whole[:cut], a["next"].(float64)
	for more := true; more; {
		r := c.ask(`{"op":"read","job":%q,"max_bytes":5000}`, a["job"])
		text += r["output"].(string)
		assert.LessOrEqual(t, len(r["output"].(string)), 5000)
		assert.Equal(t, since+float64(len(r["output"].(string))), r["next"])
		since, more = r["next"].(float64), r["more"] == true
	}
	var want strings.Builder
	for i := range 10000 {
		fmt.Fprintln(&want, i+1)
	}
	assert.Equal(t, want.String(), text)

	const size = 64 << 20
	job := c.start(fmt.Sprintf("yes 0123456 | head -c %d; echo end", size), "")
	c.ask(`{"op":"read","job":%q,"wait_ms":300000}`, job)
	for c.ask(`{"op":"list"}`)["jobs"].([]any)[1].(map[string]any)["outcome"] == "running" {
		c.ask(`{"op":"read","job":%q,"since":%d,"wait_ms":1000,"max_bytes":1}`, job, size)
	}
	r := c.ask(`{"op":"read","job":%q,"since":0,"max_bytes":16}`, job)
	assert.Equal(t, []any{"0123456\n0123456\n", 16.0, nil, true}, []any{r["output"], r["next"], r["omitted_bytes"], r["more"]})
	r = c.ask(`{"op":"read","job":%q,"since":%d}`, job, size-8)
	assert.Equal(t, []any{"0123456\nend\n", size + 4.0}, []any{r["output"], r["next"]})
	r = c.ask(`{"op":"read","job":%q,"since":1000000,"max_bytes":8}`, job)
	assert.Equal(t, float64(size+4-8<<20-1000000), r["omitted_bytes"].(float64))
	assert.Equal(t, size+4.0, r["output_bytes"])
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	require.NoError(t, err)
	var peak int
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscan(after, &peak)
	require.NoError(t, err)
	assert.Less(t, peak, 64<<10, "KiB")
	assert.NoError(t, c.close())
}

// The loop runs maxJobs jobs at once, and refuses another. All jobs and their processes end
// with the loop.
func TestManyJobs(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	lock := filepath.Join(b.Project, "held")
	c := dial(t, b, "-y")
	var answers []func() map[string]any
	for range maxJobs {
		answers = append(answers, c.begin(`{"op":"start","command":"exec 8>held; flock -s 8; echo up; setsid sleep 1000 & sleep 1000"}`))
	}
	for _, answer := range answers {
		a := answer()
		assert.Equal(t, "running", a["outcome"], a["error"])
		c.told[a["job"].(string)] = a["output"].(string)
	}
	assert.Equal(t, "64 jobs are running, and that is the most: end one first", c.ask(`{"op":"start","command":"true"}`)["error"])
	for _, job := range c.ask(`{"op":"list"}`)["jobs"].([]any) {
		c.until(job.(map[string]any)["job"].(string), "up")
	}
	a := c.ask(`{"op":"kill","job":"j7","signal":"SIGKILL"}`)
	assert.Equal(t, []any{"signaled", "SIGKILL"}, []any{a["outcome"], a["signal"]})
	assert.Equal(t, "j65", c.start("true", ""))
	assert.NoError(t, c.close())
	assertFree(t, lock)
	assert.Empty(t, umbrellas(t, b))
}

// assertFree fails if a process holds the lock.
func assertFree(t *testing.T, lock string) {
	t.Helper()
	f, err := os.Open(lock)
	require.NoError(t, err)
	defer f.Close()
	assert.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), "a process still lives")
}

// No process is left after any end of the loop.
func TestNoJobIsLeft(t *testing.T) {
	b := clitest.NewBox(t)
	lock := filepath.Join(b.Project, "held")
	for _, mode := range modes {
		for _, test := range []struct {
			name string
			end  func(c *client)
		}{
			{"kill", func(c *client) { c.ask(`{"op":"kill","job":"j1"}`); _ = c.close() }},
			{"reset", func(c *client) { c.ask(`{"op":"reset","jobs":true}`); _ = c.close() }},
			{"end of input", func(c *client) { assert.NoError(t, c.close()) }},
			{"SIGTERM", func(c *client) {
				_ = c.cmd.Process.Signal(syscall.SIGTERM)
				<-c.ended
				assert.EqualError(t, c.cmd.Wait(), "exit status 143")
			}},
			{"SIGINT", func(c *client) {
				_ = c.cmd.Process.Signal(syscall.SIGINT)
				<-c.ended
				assert.EqualError(t, c.cmd.Wait(), "exit status 130")
			}},
			{"SIGKILL", func(c *client) { _ = c.cmd.Process.Kill(); <-c.ended; _ = c.cmd.Wait() }},
		} {
			t.Run(mode.name+"/"+test.name, func(t *testing.T) {
				c := dial(t, b, append(mode.options, "-y")...)
				job := c.start("exec 8>held; flock -s 8; setsid bash -c 'trap \"\" TERM HUP INT; echo up; while :; do sleep 1000; done' & wait", "")
				c.until(job, "up")
				test.end(c)
				if test.name == "SIGKILL" { // the kernel ends the rest in its own time
					require.Eventually(t, func() bool {
						f, err := os.Open(lock)
						require.NoError(t, err)
						defer f.Close()
						return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
					}, minute, tick)
				}
				assertFree(t, lock)
			})
		}
	}
}

// A client that closes the input still gets the answers to its earlier requests. If no
// process reads the answers, the command ends.
func TestEndOfInput(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	job := c.start("sleep 1000", "")
	last := c.begin(`{"command":"touch ready; until test -e go; do sleep 0.01; done; echo done"}`)
	read := c.begin(fmt.Sprintf(`{"op":"read","job":%q,"wait_ms":300000}`, job))
	awaitFile(t, b.Project+"/ready")
	c.in.Close()
	b.Write(t, b.Project+"/go", "")
	assert.Equal(t, "done\n", last()["output"])
	assert.Equal(t, "signaled", read()["outcome"])
	assert.NoError(t, c.close())

	cmd := b.Command("pk-bash", "-y", "--loop")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = w
	require.NoError(t, cmd.Start())
	w.Close()
	_, err = io.WriteString(in, `{"command":"touch begun; sleep 1000"}`+"\n")
	require.NoError(t, err)
	awaitFile(t, b.Project+"/begun")
	in.Close()
	r.Close()
	assert.EqualError(t, cmd.Wait(), "exit status 141")
	assert.Empty(t, umbrellas(t, b))
}

// SIGINT ends the running command, and not the loop.
func TestInterruptLeavesTheLoop(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	first := c.begin(`{"command":"sleep 1000 & : >ready; wait"}`)
	awaitFile(t, b.Project+"/ready")
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGINT))
	a := first()
	assert.Equal(t, []any{"signaled", "SIGINT"}, []any{a["outcome"], a["signal"]})
	assert.Equal(t, "on\n", c.ask(`{"command":"echo on"}`)["output"])
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGINT))
	<-c.ended
	assert.EqualError(t, c.cmd.Wait(), "exit status 130")
}

func TestEvents(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	b.Mkdir(t, b.Project+"/x")
	job := c.start("until test -e go; do sleep 0.01; done; echo one; exit 3", `,"events":["output","exit"]`)
	b.Write(t, b.Project+"/go", "")
	a := <-c.events
	assert.Equal(t, map[string]any{"event": "output", "job": job, "output": "one\n", "next": 4.0}, a)
	a = <-c.events
	assert.Equal(t, []any{"exit", job, "exited", 3.0}, []any{a["event"], a["job"], a["outcome"], a["exit_status"]})
	assert.NoError(t, c.close())
}

// A client that does not read stops no job. It gets all its answers later.
func TestSlowReader(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bash", "-y", "--loop")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(in, `{"op":"start","command":"yes 0123456 | head -c 33554432; touch done","events":["output"]}`+"\n")
	require.NoError(t, err)
	awaitFile(t, b.Project+"/done")
	for i := range 100 {
		_, err = fmt.Fprintf(in, `{"id":%d,"op":"list"}`+"\n", i)
		require.NoError(t, err)
	}
	d := json.NewDecoder(out)
	answers, skipped := 0, 0.0
	for answers < 100 || skipped == 0 {
		var a map[string]any
		require.NoError(t, d.Decode(&a))
		if a["jobs"] != nil {
			answers++
		}
		if n, ok := a["skipped_bytes"].(float64); ok {
			skipped += n
		}
	}
	assert.Greater(t, skipped, 20e6)
	in.Close()
	_, err = io.Copy(io.Discard, io.MultiReader(d.Buffered(), out))
	assert.NoError(t, err)
	assert.NoError(t, cmd.Wait())
}

// The loop answers each invalid request with an error, and goes on.
func TestOperationsThatAreRefused(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	c.start("cat", `,"stdin":true`)
	for _, test := range []struct{ request, why string }{
		{`{"op":"bogus"}`, `the op "bogus" is unknown`},
		{`{"op":7}`, "the op is not a string"},
		{`{"op":"hello","command":"true"}`, `the field "command" is unknown`},
		{`{"op":"start"}`, "there is no command"},
		{`{"op":"start","command":"true","timeout":601}`, "timeout must be <= 600, got 601"},
		{`{"op":"start","command":"true","timeout":-1}`, "timeout must be >= 1, got -1"},
		{`{"op":"start","command":"true","stdin":1}`, "the stdin is neither true nor false"},
		{`{"op":"start","command":"true","stdin":true,"tty":{"rows":1,"cols":1}}`, "there is a stdin and a tty"},
		{`{"op":"start","command":"true","tty":{"rows":1}}`, "the tty is not a size: there is no number of rows and cols"},
		{`{"op":"start","command":"true","tty":{"rows":1,"cols":1,"x":1}}`, `the tty is not a size: the field "x" is unknown`},
		{`{"op":"start","command":"true","events":["all"]}`, `the events are not a list of "output" and "exit"`},
		{`{"op":"start","command":"true","wait_ms":300001}`, "the wait_ms is not between 0 and 300000"},
		{`{"op":"start","command":"true","cwd":".."}`, ""},
		{`{"op":"read"}`, "there is no job"},
		{`{"op":"read","job":"j9"}`, `there is no job "j9"`},
		{`{"op":"read","job":"j1","since":-1}`, ""},
		{`{"op":"write","job":"j1"}`, "there is no input"},
		{`{"op":"write","job":"j1","input":"a","input_base64":"YQ=="}`, "the request has both input and input_base64"},
		{`{"op":"write","job":"j1","input":"\ud800"}`, "the input holds half of a surrogate pair"},
		{`{"op":"kill","job":"j1","signal":"TERM"}`, `the signal "TERM" is unknown: type a name such as SIGINT`},
		{`{"op":"resize","job":"j1","rows":5,"cols":5}`, `job "j1" has no terminal: start it with tty`},
		{`{"op":"read","job":"j1","job":"j1"}`, `the field "job" is there twice`},
	} {
		a := c.ask("%s", test.request)
		assert.Equal(t, []any{"refused", 125.0}, []any{a["outcome"], a["exit_status"]}, test.request)
		assert.Contains(t, a["error"], test.why, test.request)
	}
	assert.Equal(t, "running", c.ask(`{"op":"read","job":"j1","since":99}`)["outcome"])
	one, other := c.begin(`{"id":"same","op":"read","job":"j1","wait_ms":300000}`), c.begin(`{"op":"list"}`)
	other()
	c.ask(`{"op":"cancel","request":"same"}`)
	assert.Equal(t, "running", one()["outcome"])
	assert.NoError(t, c.close())
	h := dial(t, b, "-y", "--session", "named", "--state", "env")
	a := h.ask(`{"op":"hello"}`)
	assert.Equal(t, []any{"named", b.Project, 64.0, 600.0, "env"}, []any{a["session"], a["root"], a["jobs"], a["max_timeout"], a["state"]})
	assert.NoError(t, h.close())
}

// A client gets the paths of the answer to hello whole, UTF-8 or not.
func TestHelloOfAProjectInBytes(t *testing.T) {
	b := clitest.NewBox(t)
	top := b.Home + "/p\xff"
	b.Mkdir(t, top+"/sub")
	b.Mkdir(t, b.Home+"/a\xfe")
	cmd := exec.Command("git", "init", "-q", top)
	require.NoError(t, cmd.Run())
	c := dial(t, b, "-y", "-C", top+"/sub", "--audit", b.Home+"/a\xfe/log")
	a := c.ask(`{"op":"hello"}`)
	assert.NoError(t, c.close())
	for name, path := range map[string]string{"root": top + "/sub", "repository": top, "audit": b.Home + "/a\xfe/log"} {
		assert.Equal(t, strings.ToValidUTF8(path, "\ufffd"), a[name])
		assert.Equal(t, base64.StdEncoding.EncodeToString([]byte(path)), a[name+"_base64"], name)
	}
}

// The loop asks about each start and each input, one after another. After a no, nothing
// runs.
func TestJobsAreAskedAbout(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Project+"/sub")
	b.Script(t, b.Home+"/answer", `cat >>"$HOME/asked"; grep -q 'never' "$HOME/asked" && exit 1; exit 0`)
	c := dial(t, b, "--confirm-command", b.Home+"/answer")
	job := c.start("cat; true", `,"stdin":true`)
	c.type_(job, `"input":"yes\n"`, "yes\n")
	a := c.ask(`{"op":"write","job":%q,"input":"never\n","eof":true}`, job)
	assert.Equal(t, []any{"refused", "user declined the bash command."}, []any{a["outcome"], a["error"]})
	a = c.ask(`{"op":"start","command":"touch in","cwd":"sub"}`)
	assert.Equal(t, []any{"declined", 126.0, nil}, []any{a["outcome"], a["exit_status"], a["job"]})
	assert.Empty(t, c.ask(`{"op":"kill","job":%q}`, job)["output"])
	assert.NoError(t, c.close())
	assert.NoFileExists(t, b.Project+"/sub/in")
	asked, err := os.ReadFile(b.Home + "/asked")
	require.NoError(t, err)
	assert.Equal(t, 4, strings.Count(string(asked), "\n"))
	assert.Equal(t, 2, strings.Count(string(asked), `"input_for":"cat; true"`))
	assert.Equal(t, 1, strings.Count(string(asked), `"cwd":"`+b.Project+`/sub"`))
	assert.Contains(t, string(asked), "INPUT for the running command: cat; true")
}

// A job shares only files and the loopback with other jobs.
func TestJobsAreApart(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	job := c.start("echo $$; sleep 1000", "")
	c.until(job, "\n")
	a := c.ask(`{"command":"ls /proc | grep -c '^[0-9]'; pkill sleep; cat /proc/*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 1000' ; kill -9 -1"}`)
	assert.Contains(t, a["output"], "\n0\n")
	assert.Equal(t, "running", c.ask(`{"op":"read","job":%q}`, job)["outcome"])
	assert.NoError(t, c.close())
}

// A command can forge its final state. The state is data: nothing of it runs, and it
// cannot replace the next command, its status or its time.
func TestForgedState(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/forge.py", `import os, sys
os.write(1, ("state\n%s\n\0%s\0" % (os.getcwd(), "".join("declare -x %s=\"a[\\$(%s)]\"\n" % (name, sys.argv[1]) for name in sys.argv[2:]))).encode())
`)
	// All that bash 5 sets itself, or gives a meaning.
	names := strings.Fields(`RANDOM SRANDOM HISTCMD OPTIND OPTERR SECONDS LINENO EPOCHSECONDS EPOCHREALTIME IFS PPID UID EUID DIRSTACK GROUPS PIPESTATUS
		FUNCNAME FUNCNEST TMOUT COLUMNS LINES PS1 PS2 PS4 HOSTNAME HOSTTYPE MACHTYPE OSTYPE SHELLOPTS BASHOPTS BASH_ENV COMP_WORDBREAKS REPLY TIMEFORMAT
		EXECIGNORE GLOBIGNORE POSIXLY_CORRECT MAPFILE COPROC HISTFILE MAIL MAILCHECK OLDPWD PLAIN`)
	c := dial(t, b, "-y", "--net", "none", "--state", "env")
	for _, planted := range []string{"echo x >/tmp/ran", "echo hello >&249", "(echo hello >&249; exec sleep 1) >/dev/null 2>&1 &"} {
		forged := c.ask(`{"command":%s}`, quoted("exec python3 "+b.Project+"/forge.py '"+planted+"' "+strings.Join(names, " ")+" >&249"))
		require.Equal(t, "exited", forged["outcome"], forged)
		a := c.ask(`{"command":"test ! -e /tmp/ran && echo \"[${PLAIN:0:2}]\" && exit 3","timeout":60}`)
		assert.Equal(t, []any{"exited", 3.0, "[a[]\n"}, []any{a["outcome"], a["exit_status"], a["output"]}, planted)
	}
	c.ask(`{"command":"export IFS=/ FUNCNEST=1"}`)
	assert.Equal(t, "[a/b]\n", c.ask(`{"command":"x=a/b; printf '[%%s]\\n' $x"}`)["output"])
	assert.NoError(t, c.close())
}

func quoted(text string) string {
	line, _ := json.Marshal(text)
	return string(line)
}

// The question names the command's directory, and the variables that earlier ones changed.
func TestStateIsAskedAbout(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Project+"/sub")
	b.Script(t, b.Home+"/answer", `echo "$1" >>"$HOME/asked"`)
	c := dial(t, b, "--confirm-command", b.Home+"/answer", "--state", "env")
	c.ask(`{"command":"cd sub; export PATH=/p:$PATH NEW=1; unset LANG"}`)
	c.ask(`{"command":"second"}`)
	asked, err := os.ReadFile(b.Home + "/asked")
	require.NoError(t, err)
	_, second, _ := strings.Cut(string(asked), "$ cd sub")
	assert.Contains(t, second, "pk-bash in "+b.Project+"/sub\n")
	assert.Regexp(t, `\n  variables of earlier commands: (LANG )?NEW PATH\n`, second)
	for dir, outcome := range map[string]string{b.Project + "/sub": "exited", b.Project: "refused"} {
		a := c.ask(`{"op":"start","command":"pwd","in":%q,"wait_ms":60000}`, dir)
		assert.Equal(t, outcome, a["outcome"], a)
	}
	assert.NoError(t, c.close())
}

// The session tmp of a loop is there by its name inside.
func TestBeginInTmp(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	c.ask(`{"command":"mkdir /tmp/d"}`)
	for dir, want := range map[string]string{"/tmp": "/tmp\n", "/tmp/d": "/tmp/d\n", "/tmp/gone": ""} {
		a := c.ask(`{"op":"start","command":"pwd","cwd":%q,"wait_ms":60000}`, dir)
		if want == "" {
			assert.Equal(t, []any{"refused", `cannot begin in "/tmp/gone": no such directory`}, []any{a["outcome"], a["error"]})
		} else {
			assert.Equal(t, want, a["output"], a)
		}
	}
	assert.NoError(t, c.close())
}

// Input arrives in the order of the requests, and the end of input after it.
func TestInputInOrder(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	job := c.start("cat", `,"stdin":true`)
	var want strings.Builder
	var answers []func() map[string]any
	for n := range 200 {
		fmt.Fprintf(&want, "%d ", n)
		answers = append(answers, c.begin(fmt.Sprintf(`{"op":"write","job":%q,"input":"%d "}`, job, n)))
	}
	answers = append(answers, c.begin(fmt.Sprintf(`{"op":"write","job":%q,"eof":true,"wait_ms":60000}`, job)))
	for _, answer := range answers {
		a := answer()
		assert.NotEqual(t, "refused", a["outcome"], a)
	}
	c.wait(job)
	assert.Equal(t, want.String(), c.ask(`{"op":"read","job":%q,"since":0}`, job)["output"])
	assert.NoError(t, c.close())
}

// Operations that wait do not block the loop: it ends on request.
func TestManyOperationsThatWait(t *testing.T) {
	b := clitest.NewBox(t)
	c := dial(t, b, "-y")
	job := c.start("sleep 1000", "")
	refused := 0
	var answers []func() map[string]any
	for range 1100 {
		answers = append(answers, c.begin(fmt.Sprintf(`{"op":"read","job":%q,"since":0,"wait_ms":300000}`, job)))
	}
	assert.Len(t, c.ask(`{"op":"list"}`)["jobs"], 1)
	assert.Equal(t, "signaled", c.ask(`{"op":"kill","job":%q}`, job)["outcome"])
	for _, answer := range answers {
		if answer()["outcome"] == "refused" {
			refused++
		}
	}
	assert.Equal(t, 1100-1024, refused)
	assert.NoError(t, c.close())
}

// A client that takes no answers any more does not keep the loop from ending.
func TestSignalWithoutAReader(t *testing.T) {
	b := clitest.NewBox(t)
	cmd := b.Command("pk-bash", "-y", "--loop")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, answers, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	cmd.Stdout = answers
	require.NoError(t, cmd.Start())
	answers.Close()
	_, err = io.WriteString(in, `{"command":"head -c 30000 /dev/zero | tr '\\0' x"}`+"\n"+`{"command":"head -c 30000 /dev/zero | tr '\\0' x"}`+"\n"+
		`{"command":"head -c 30000 /dev/zero | tr '\\0' x"}`+"\n"+`{"command":"true"}`+"\n")
	require.NoError(t, err)
	full := func() bool { // the third answer does not fit into a pipe of 64 KiB
		n, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCINQ)
		return err == nil && n > 60000
	}
	require.Eventually(t, full, minute, tick)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode(), err)
	in.Close()
}
