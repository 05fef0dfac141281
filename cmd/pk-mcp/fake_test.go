package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is also a small pk-bash and a small pk-fs, with sh and without a fence.
// Tests that need no fence use them.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "fake-shell":
		fakeShell()
	case "fake-files":
		fakeFiles()
	default:
		os.Exit(m.Run())
	}
}

// fakeJob is a job of the fake.
type fakeJob struct {
	cmd   *exec.Cmd
	stdin interface{ Write([]byte) (int, error) }
	id    string

	mu     sync.Mutex
	output bytes.Buffer
	read   int
	end    fields
	tell   func(fields)
	news   chan struct{}
	done   chan struct{}
}

func (j *fakeJob) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.output.Write(p)
	j.poke()
	if j.tell != nil {
		j.tell(fields{"event": "output", "job": j.id, "output": string(p), "next": j.output.Len()})
	}
	return len(p), nil
}

func (j *fakeJob) poke() {
	select {
	case j.news <- struct{}{}:
	default:
	}
}

// kill ends the job. One signal can miss the program that sh starts: dash blocks all signals
// before it forks, and the new process does not inherit the ones that are pending.
func (j *fakeJob) kill() {
	for {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-j.done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// since is the answer of a read.
func (j *fakeJob) since(at int, most int) fields {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := j.output.String()[at:]
	more := len(text) > most
	if more {
		text = text[:most]
	}
	j.read = at + len(text)
	f := fields{"job": j.id, "outcome": "running", "output": text, "next": j.read, "more": more}
	maps.Copy(f, j.end)
	return f
}

// fakeRoot is its project root.
const fakeRoot = "/project"

func fakeShell() {
	var writing sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(f fields) {
		writing.Lock()
		defer writing.Unlock()
		_ = out.Encode(f)
	}
	jobs, order, begun := map[string]*fakeJob{}, []string{}, map[string]*fakeJob{}
	kept := fakeRoot
	held := map[string]func(){} // answers, by id
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var r struct {
			ID, Op, Job, Command, Cwd, Description, Input, Signal, Request, In string
			Events                                                             []string
			Stdin, EOF                                                         bool
			Since                                                              *int
			Wait                                                               int `json:"wait_ms"`
			Most                                                               int `json:"max_bytes"`
		}
		if json.Unmarshal(in.Bytes(), &r) != nil {
			continue
		}
		id := func(f fields) fields { f["id"] = r.ID; return f }
		j := jobs[r.Job]
		if j == nil && (r.Op == "read" || r.Op == "write" || r.Op == "kill") {
			say(id(fields{"outcome": "refused", "exit_status": 125, "error": "there is no job " + r.Job}))
			continue
		}
		switch r.Op {
		case "hello":
			say(id(fields{"root": fakeRoot, "session": "S"}))
		case "start":
			switch {
			case r.Command == "crash":
				os.Exit(3)
			case r.In != "" && r.In != kept:
				say(id(fields{"outcome": "refused", "exit_status": 125, "error": fmt.Sprintf("the working directory is %q, not %q", kept, r.In)}))
				continue
			case r.In == "/gone":
				say(id(fields{"outcome": "refused", "exit_status": 125, "error": `cannot begin in "/gone": no such directory`}))
				continue
			case r.Command == "refuse":
				say(id(fields{"outcome": "refused", "exit_status": 125, "error": "the command is 9 bytes long, and 8 is the most"}))
				continue
			}
			kept = "/elsewhere"
			if dir, ok := strings.CutPrefix(r.Command, "cd "); ok { // its end does not say so
				if dir == "/bytes" {
					dir += "\xff"
				}
				kept, r.Command = dir, ":"
			}
			j := &fakeJob{id: "j" + string(rune('a'+len(order))), news: make(chan struct{}, 1), done: make(chan struct{})}
			jobs[j.id], order, begun[r.ID] = j, append(order, j.id), j
			j.cmd = exec.Command("sh", "-c", r.Command)
			j.cmd.Dir = r.Cwd
			j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			j.cmd.Stdout, j.cmd.Stderr = j, j
			if r.Stdin {
				j.stdin, _ = j.cmd.StdinPipe()
			}
			answer := func() { say(id(fields{"job": j.id, "outcome": "running", "output": "", "next": 0})) }
			if strings.HasSuffix(r.Command, "# late") {
				held[r.ID] = answer
			} else {
				answer()
			}
			if strings.Contains(strings.Join(r.Events, " "), "output") {
				j.tell = say
			}
			started := make(chan struct{})
			go func() {
				_ = j.cmd.Start()
				close(started)
				_ = j.cmd.Wait()
				defer close(j.done)
				j.mu.Lock()
				defer j.mu.Unlock()
				ws := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
				j.end = fields{"outcome": "exited", "exit_status": ws.ExitStatus(), "cwd": "/elsewhere"}
				if ws.Signaled() {
					j.end = fields{"outcome": "signaled", "exit_status": 128 + int(ws.Signal()), "signal": "SIGTERM", "cwd": "/elsewhere"}
				}
				say(fields{"event": "exit", "job": j.id})
				j.poke()
			}()
			<-started
		case "write":
			_, _ = j.stdin.Write([]byte(r.Input))
			fallthrough
		case "read":
			go func() {
				at := j.read
				if r.Since != nil {
					at = *r.Since
				}
				f := j.since(at, max(r.Most, 100))
				if f["output"] == "" && f["outcome"] == "running" && r.Wait > 0 {
					select {
					case <-j.news:
					case <-time.After(time.Duration(r.Wait) * time.Millisecond):
					}
					f = j.since(at, max(r.Most, 100))
				}
				say(id(f))
			}()
		case "kill":
			go func() {
				j.kill()
				say(id(j.since(j.read, 1<<20)))
			}()
		case "cancel":
			if answer := held[r.Request]; answer != nil { // it comes as the answer is on its way
				answer()
				say(id(fields{"outcome": "refused", "error": "no request waits for its answer"}))
				continue
			}
			go begun[r.Request].kill()
			say(id(fields{"request": r.Request}))
		case "reset":
			kept = fakeRoot
			say(id(fields{}))
		case "list":
			list := []fields{}
			for _, name := range order {
				f := jobs[name].since(jobs[name].read, 0)
				f["command"] = jobs[name].cmd.Args[2]
				list = append(list, f)
			}
			say(id(fields{"jobs": list}))
		default:
			say(id(fields{"outcome": "refused", "error": "the op is unknown"}))
		}
	}
}

// fakeFiles answers most requests with their own text.
func fakeFiles() {
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<25)
	for in.Scan() {
		var r fields
		_ = json.Unmarshal(in.Bytes(), &r)
		f := fields{"id": r["id"]}
		asked, _ := json.Marshal(r)
		path, _ := r["path"].(string)
		switch {
		case r["op"] == "hello":
			f["roots"] = []root{{Path: "/home/u/.cache/pikuri/workspace-S/playground", Writable: true}}
		case path == "crash":
			os.Exit(3)
		case path == "hang":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case path == "secret":
			f["error"], f["hint"] = `cannot read "secret": outside ("/home/u/.cache/pikuri/workspace-S/playground")`, "--readable /home/u would allow it"
		case r["op"] == "ls":
			f["entries"] = []fields{{"name": "d", "type": "dir"}, {"name": "f", "type": "file", "size": 3}, {"name": "l", "type": "link"}}
		case r["op"] == "glob":
			f["paths"], f["truncated"] = []string{"a.go", "b.go"}, true
		case r["op"] == "read":
			f["text"], f["first"], f["last"], f["lines"], f["bytes"] = string(asked), 1, 1, 9, 4
		case r["op"] == "grep":
			f["text"], f["matches"] = string(asked), 1
		default:
			f["diff"], f["replaced"], f["bytes"], f["sha256"], f["created"] = string(asked), 1, 5, "0a", true
		}
		_ = out.Encode(f)
	}
}

// fakes returns the two programs.
func fakes(t testing.TB) *children {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := func(name string) []string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(self, path); err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
	c := newChildren(link("fake-shell"), link("fake-files"), os.Stderr)
	t.Cleanup(c.close)
	return c
}
