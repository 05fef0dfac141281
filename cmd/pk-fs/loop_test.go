package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/gitignore"
	"pikuri/lib/workspace"
)

// answersTo runs a loop to its end, and returns its answers.
func answersTo(t *testing.T, requests string, args ...string) (answers []map[string]any) {
	t.Helper()
	status, stdout, stderr := run(requests, append(args, "--loop")...)
	require.Equal(t, 0, status, stderr)
	require.Empty(t, stderr)
	for line := range strings.Lines(stdout) {
		var answer map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &answer), line)
		answers = append(answers, answer)
	}
	return answers
}

func TestLoop(t *testing.T) {
	hash := func(text string) string { return workspace.HashOf([]byte(text)) }
	long := strings.Repeat("x", 3000)
	for _, row := range []struct{ name, request, want string }{
		{"garbage", `garbage`, `{"error":"the request is not a JSON object","kind":"invalid"}`},
		{"an empty line", ``, `{"error":"the request is not a JSON object","kind":"invalid"}`},
		{"bytes that are no text", "{\"op\":\"\xff\"}", `{"error":"the request is not UTF-8","kind":"invalid"}`},
		{"no op", `{"id":1}`, `{"id":1,"error":"the op \"\" is unknown","kind":"invalid"}`},
		{"an unknown op", `{"id":"a","op":"exec"}`, `{"id":"a","error":"the op \"exec\" is unknown","kind":"invalid"}`},
		{"an unknown field", `{"id":7,"op":"ls","x":1}`, `{"id":7,"error":"the field \"x\" is unknown","kind":"invalid"}`},
		{"a field twice", `{"id":1.5e3,"op":"ls","path":"a","path":"b"}`, `{"id":1.5e3,"error":"the field \"path\" is there twice","kind":"invalid"}`},
		{"an object for an id", `{"id":{},"op":"ls"}`, `{"error":"the id is neither a string nor a number","kind":"invalid"}`},
		{"null for an id", `{"id":null,"op":"ls"}`, `{"error":"the id is neither a string nor a number","kind":"invalid"}`},
		{"an id that is no finite number", `{"id":1e400,"op":"ls"}`, `{"error":"the id is too large for a number","kind":"invalid"}`},
		{"a path is missing", `{"op":"read"}`, `{"error":"there is no path","kind":"invalid"}`},
		{"read", `{"id":"é","op":"read","path":"f"}`, `{"id":"é","binary":false,"bytes":8,"first":1,"last":2,"lines":2,"sha256":"` + hash("one\ntwo\n") + `","text":"one\ntwo\n","truncated":false}`},
		{"read lines", `{"op":"read","path":"f","offset":2,"limit":1,"numbers":true}`, `{"binary":false,"bytes":8,"first":2,"last":2,"lines":2,"sha256":"` + hash("one\ntwo\n") + `","text":"     2\ttwo\n","truncated":false}`},
		{"read the first line", `{"op":"read","path":"f","limit":1}`, `{"binary":false,"bytes":8,"first":1,"last":1,"lines":2,"sha256":"` + hash("one\ntwo\n") + `","text":"one\n","truncated":true}`},
		{"read behind the end", `{"op":"read","path":"f","offset":9}`, `{"binary":false,"bytes":8,"first":9,"last":8,"lines":2,"sha256":"` + hash("one\ntwo\n") + `","text":"","truncated":false}`},
		{"read few bytes", `{"op":"read","path":"f","max_bytes":5}`, `{"binary":false,"bytes":8,"first":1,"last":1,"lines":2,"sha256":"` + hash("one\ntwo\n") + `","text":"one\n","truncated":true}`},
		{"read a long line with its number", `{"op":"read","path":"long","numbers":true}`, `{"binary":false,"bytes":3000,"first":1,"last":1,"lines":1,"sha256":"` + hash(long) + `","text":"     1\t` + long[:1993] + ` [1007 more bytes]\n","truncated":true}`},
		{"read what is no text", `{"op":"read","path":"latin"}`, `{"binary":false,"bytes":2,"first":1,"last":1,"lines":1,"sha256":"` + hash("\xe9\n") + `","text_base64":"6Qo=","truncated":false}`},
		{"read what is binary", `{"op":"read","path":"binary"}`, `{"binary":true,"bytes":2,"content_base64":"AAE=","sha256":"` + hash("\x00\x01") + `","truncated":false}`},
		{"read lines of what is binary", `{"op":"read","path":"binary","limit":1}`, `{"error":"cannot read \"binary\": it is binary","hint":"without offset, limit and numbers its bytes are read","kind":"invalid"}`},
		{"read a huge file", `{"op":"read","path":"huge","limit":1}`, `{"error":"cannot read \"huge\": it is binary","hint":"without offset, limit and numbers its bytes are read","kind":"invalid"}`},
		{"read with an odd limit", `{"op":"read","path":"f","limit":0}`, `{"error":"the limit is not a number of lines","kind":"invalid"}`},
		{"read what is missing", `{"op":"read","path":"none"}`, `{"error":"cannot read \"none\": not found","kind":"not-found"}`},
		{"read a directory", `{"op":"read","path":"d"}`, `{"error":"cannot read \"d\": is a directory","kind":"invalid"}`},
		{"read what leads out", `{"op":"read","path":"../x"}`, `denied`},
		{"write", `{"op":"write","path":"n/new","content_base64":"eP8="}`, `{"bytes":2,"sha256":"` + hash("x\xff") + `","created":true}`},
		{"write again", `{"op":"write","path":"f","content":"","if_unchanged":"` + hash("one\ntwo\n") + `"}`, `{"bytes":0,"sha256":"` + hash("") + `","created":false}`},
		{"write what has changed", `{"op":"write","path":"f","content":"","if_unchanged":"` + hash("x") + `"}`, `{"error":"cannot write \"f\": changed in the meantime","kind":"changed"}`},
		{"write what is there", `{"op":"write","path":"f","content":"","exclusive":true}`, `{"error":"cannot write \"f\": already exists","kind":"exists"}`},
		{"write with an odd hash", `{"op":"write","path":"f","content":"","if_unchanged":"x"}`, `{"error":"the if_unchanged \"x\" is not a SHA-256 of 64 hexadecimal digits in lower case","kind":"invalid"}`},
		{"write into git", `{"op":"write","path":".git/x","content":""}`, `denied`},
		{"edit", `{"op":"edit","path":"f","old":"two","new":"2"}`, `{"diff":"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n","replaced":1,"sha256":"` + hash("one\n2\n") + `"}`},
		{"edit, twice there", `{"op":"edit","path":"f","old":"o","new":"2"}`, `{"error":"cannot edit \"f\": the old text is there several times: lines 1, 2","kind":"not-unique"}`},
		{"edit all", `{"op":"edit","path":"f","old":"o","new":"0","all":true}`, `{"diff":"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-one\n-two\n+0ne\n+tw0\n","replaced":2,"sha256":"` + hash("0ne\ntw0\n") + `"}`},
		{"edit, with an odd all", `{"op":"edit","path":"f","old":"o","new":"0","all":1}`, `{"error":"the all is neither true nor false","kind":"invalid"}`},
		{"grep", `{"op":"grep","pattern":"O","ignore_case":true,"after":1,"path":"f"}`, `{"files":1,"matches":2,"text":"f:1:one\nf:2:two\n","truncated":false}`},
		{"grep files", `{"op":"grep","pattern":"one","files_only":true}`, `{"files":1,"matches":1,"text":"f\n","truncated":false}`},
		{"grep up to a limit", `{"op":"grep","pattern":".","limit":1,"glob":"f"}`, `{"files":1,"matches":1,"text":"f:1:one\n","truncated":true,"truncated_by":"limit"}`},
		{"grep a pattern that is too large", `{"op":"grep","pattern":"` + strings.Repeat("x{1000}", 11) + `"}`, `{"error":"pattern \"` + strings.Repeat("x{1000}", 11) + `\": it is too large: compiled, it has over 10000 instructions; repeat less in it","kind":"invalid"}`},
		{"grep a line that is too long", `{"op":"grep","pattern":"(x{1,30}){1,30}y","path":"endless"}`, `{"error":"cannot grep \"endless\": a line is too long to be searched for an expression of this size","kind":"invalid"}`},
		{"grep with a list of ignored files that is too long", `{"op":"grep","pattern":"one","path":"r"}`, `{"files":1,"matches":1,"text":"r/f:1:one\n","truncated":false,"unread":1}`},
		{"grep a wrong pattern", `{"op":"grep","pattern":"("}`, `{"error":"pattern \"(\": missing closing ): \"(\"","kind":"invalid"}`},
		{"grep what is missing", `{"op":"grep","pattern":"x","path":"none"}`, `{"error":"cannot grep \"none\": not found","kind":"not-found"}`},
		{"glob", `{"op":"glob","pattern":"**/{f,g}","limit":1}`, `{"paths":["d/g"],"truncated":true,"truncated_by":"limit"}`},
		{"glob nothing", `{"op":"glob","pattern":"x"}`, `{"paths":[],"truncated":false}`},
		{"ls", `{"op":"ls","path":"d"}`, `{"entries":[{"name":"g","size":0,"type":"file"},{"name":"l","size":1,"type":"symlink"}]}`},
		{"stat", `{"op":"stat","path":"none"}`, `{"error":"cannot stat \"none\": not found","kind":"not-found"}`},
		{"mkdir", `{"op":"mkdir","path":"x/y"}`, `{}`},
		{"mv", `{"op":"mv","from":"f","to":"d/f"}`, `{}`},
		{"rm", `{"op":"rm","path":"d"}`, `{"error":"cannot rm \"d\": is a directory","hint":"rm -r removes directories","kind":"invalid"}`},
		{"rm, with all below", `{"op":"rm","path":"d","recursive":true}`, `{}`},
		{"patch", `{"op":"patch","patch":"*** Begin Patch\n*** Update File: f\n*** Move to: g\n-two\n*** End Patch"}`, `{"diff":"rename from f\nrename to g\n--- a/f\n+++ b/g\n@@ -1,2 +1,1 @@\n one\n-two\n","files":[{"action":"move","path":"f","sha256":"` + hash("one\n") + `","to":"g"}]}`},
		{"patch that does not fit", `{"op":"patch","patch":"--- f\n+++ f\n@@ -1 +1 @@\n-x\n+y\n","dry_run":true}`, `{"error":"cannot patch \"f\": hunk 1: its lines are not there, the first of which is \"x\"","kind":"changed"}`},
		{"patch that is none", `{"op":"patch","patch":"x"}`, `invalid`},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(dir+"/d", 0o755))
			for name, text := range map[string]string{"f": "one\ntwo\n", "latin": "\xe9\n", "binary": "\x00\x01", "long": long, "d/g": "", "huge": ""} {
				require.NoError(t, os.WriteFile(dir+"/"+name, []byte(text), 0o644))
			}
			require.NoError(t, os.Truncate(dir+"/huge", 8<<30))
			if strings.HasPrefix(row.name, "grep a line") {
				require.NoError(t, os.WriteFile(dir+"/endless", []byte(strings.Repeat("x", 1<<20)), 0o644))
			}
			if strings.HasPrefix(row.name, "grep with a list") {
				require.NoError(t, exec.Command("git", "init", "-q", dir+"/r").Run())
				require.NoError(t, os.WriteFile(dir+"/r/f", []byte("one\n"), 0o644))
				require.NoError(t, os.WriteFile(dir+"/r/.gitignore", []byte("f\n"+strings.Repeat("#", gitignore.MaxFile)), 0o644))
			}
			require.NoError(t, os.Symlink("g", dir+"/d/l"))
			// The loop answers each line, even after a bad one.
			answers := answersTo(t, row.request+"\n{\"id\":99,\"op\":\"mkdir\",\"path\":\"z\"}", "-C", dir)
			require.Len(t, answers, 2)
			assert.Equal(t, map[string]any{"id": 99.0}, answers[1])
			if !strings.HasPrefix(row.want, "{") {
				assert.Equal(t, row.want, answers[0]["kind"], answers[0]["error"])
				return
			}
			got, err := json.Marshal(answers[0])
			require.NoError(t, err)
			assert.JSONEq(t, row.want, string(got))
		})
	}
}

func TestLoopHello(t *testing.T) {
	dir := t.TempDir()
	answer := answersTo(t, `{"op":"hello"}`, "-C", dir, "--readable", "/usr/share")[0]
	assert.Equal(t, dir, answer["root"])
	assert.Equal(t, []any{map[string]any{"path": dir, "writable": true}, map[string]any{"path": "/usr/share", "writable": false}}, answer["roots"])
	assert.Len(t, answer["ops"], len(operations))
	assert.NotEmpty(t, answer["version"])
}

// The loop answers a line that is too long, and reads the next one.
func TestLoopLongLine(t *testing.T) {
	in, out := io.Pipe()
	go func() {
		piece := []byte(strings.Repeat("x", 1<<20))
		for range maxRequest>>20 + 1 {
			_, _ = out.Write(piece)
		}
		fmt.Fprint(out, "\n{\"op\":\"mkdir\",\"path\":\"z\"}\n")
		out.Close()
	}()
	var answers strings.Builder
	assert.Equal(t, 0, Run([]string{"-C", t.TempDir(), "--loop"}, in, &answers, io.Discard))
	assert.Equal(t, `{"error":"the request is longer than 100663296 bytes","kind":"too-large"}`+"\n{}\n", answers.String())
}

// TestLoopReplacedRoot: a directory that replaces a root becomes the root. If there is no
// directory, each request fails.
func TestLoopReplacedRoot(t *testing.T) {
	base := t.TempDir()
	dir := base + "/proj"
	require.NoError(t, os.Mkdir(dir, 0o755))
	in, requests := io.Pipe()
	answered, out := io.Pipe()
	done := make(chan int)
	go func() { done <- Run([]string{"-C", dir, "--loop"}, in, out, io.Discard) }()
	answers := bufio.NewReader(answered)
	ask := func(request string) string {
		fmt.Fprintln(requests, request)
		answer, err := answers.ReadString('\n')
		require.NoError(t, err)
		return answer
	}
	const write, read = `{"op":"write","path":"f","content":"x"}`, `{"op":"stat","path":"f"}`
	assert.Contains(t, ask(write), `"created":true`)
	require.NoError(t, os.Rename(dir, base+"/moved"))
	assert.Contains(t, ask(read), `"error":"cannot use`)
	assert.Contains(t, ask(read), `"error":"cannot use`)
	require.NoError(t, os.Mkdir(dir, 0o755))
	assert.Contains(t, ask(read), `"kind":"not-found"`)
	assert.Contains(t, ask(write), `"created":true`)
	assert.FileExists(t, dir+"/f")
	requests.Close()
	assert.Equal(t, 0, <-done)
}

// The path of a match does not look like lines of other files.
func TestLoopPathsWithNewlines(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/a\nb.c:2:ok", []byte("x\n"), 0o644))
	answers := answersTo(t, `{"op":"grep","pattern":"x"}`, "-C", dir)
	assert.Equal(t, "a\uFFFDb.c:2:ok:1:x\n", answers[0]["text"])
}

// costly writes files of which a search for an expression takes minutes.
func costly(t *testing.T, dir string) (pattern string) {
	text := []byte("xy\n" + strings.Repeat(strings.Repeat("x", 2000)+"\n", 2000))
	for i := range 9 {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), text, 0o644))
	}
	return "(x{1,30}){1,30}y"
}

// A search ends at a time limit with its results so far, and the loop goes on.
func TestLoopSearchEnds(t *testing.T) {
	dir := t.TempDir()
	o := &options{}
	c := o.command()
	o.maxSearch = 300 * time.Millisecond
	in := fmt.Sprintf(`{"op":"grep","pattern":%q}`+"\n"+`{"op":"mkdir","path":"d"}`, costly(t, dir))
	var stdout, stderr strings.Builder
	require.Zero(t, c.Run([]string{"-C", dir, "--loop"}, strings.NewReader(in), &stdout, &stderr), stderr.String())
	answers := strings.SplitAfter(stdout.String(), "\n")
	assert.Contains(t, answers[0], `"truncated":true,"truncated_by":"time"`)
	assert.Equal(t, "{}\n", answers[1])

	o.maxSearch = 0
	stdout.Reset()
	require.Zero(t, c.Run([]string{"-C", dir, "--loop"}, strings.NewReader(`{"op":"glob","pattern":"**"}`), &stdout, &stderr), stderr.String())
	assert.Equal(t, `{"paths":[],"truncated":true,"truncated_by":"time"}`+"\n", stdout.String())
}

func TestLoopUsage(t *testing.T) {
	for _, row := range []struct {
		args []string
		says string
	}{
		{[]string{"--loop", "cat"}, "--loop takes no operands"},
		{[]string{"--loop", "--atomic"}, "--atomic cannot be used with --loop"},
		{[]string{"--loop", "--json"}, "--json cannot be used with --loop"},
		{[]string{"--loop", "--readable-from", "-"}, "--loop cannot be used with a list of roots from standard input"},
		{[]string{"--loop", "-C", "/"}, "it is a system directory or a home"},
	} {
		status, stdout, stderr := run("", row.args...)
		assert.Equal(t, 2, status)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, row.says)
	}
}

// TestLoopInASession: a loop sees and writes the trial's view, and gives the trial back
// after each request.
func TestLoopInASession(t *testing.T) {
	a := newArena(t, true)
	status, stdout, stderr := a.run(t, `{"op":"write","path":"made","content":"x"}`+"\n"+`{"op":"read","path":"made"}`, "--loop")
	require.Equal(t, 0, status, stderr)
	assert.Contains(t, stdout, `"text":"x"`)
	assert.FileExists(t, a.tree+"/made")
	assert.NoFileExists(t, a.project+"/made")
}
