package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/confine/confinetest"
	"pikuri/lib/session"
)

// TestShownElsewhere: in a session in which another directory replaces the project,
// answers come from that and keep the project's path.
func TestShownElsewhere(t *testing.T) {
	base := confinetest.Tree(t, "cache/", "out/f", "proj/d => ../out", "proj/l => ../out/f", "proj/host",
		"seen/d/f", "seen/l => {base}/proj/d/f", "seen/away => /etc/passwd", "seen/up => ../out", "seen/.git/config")
	t.Setenv("XDG_CACHE_HOME", base+"/cache")
	calls := 0
	show := func(d *session.Dir, roots []confine.Root) (map[string]*os.File, error) {
		calls++
		assert.DirExists(t, d.Path(), "it is joined")
		require.Len(t, roots, 1)
		fd, err := unix.Open(base+"/seen", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return map[string]*os.File{roots[0].Path: os.NewFile(uintptr(fd), base+"/seen")}, err
	}
	run := func(stdin string, args ...string) (status int, stdout, stderr string) {
		var out, said bytes.Buffer
		o := new(options)
		o.Shown = show
		status = o.command().Run(append([]string{"-C", base + "/proj"}, args...), strings.NewReader(stdin), &out, &said)
		assert.NotContains(t, out.String()+said.String(), "/seen", "%q", args)
		return status, strings.ReplaceAll(out.String(), base, ""), strings.ReplaceAll(said.String(), base, "")
	}
	in := []string{"--session", "s"}
	for _, row := range []struct {
		args, stdin, stdout, stderr string
	}{
		{args: "d/f l", stdout: "/proj/d/f\n/proj/d/f\n"},
		{args: "-e host", stderr: "pk-resolve: cannot read \"host\": no such file or directory\n"},
		{args: "-e -P l/../f", stderr: "pk-resolve: cannot read \"l/../f\": not a directory\n"},
		{args: "-v up/f", stderr: `"/proj", `},
		{args: "-v away", stderr: `it is "/etc/passwd"`},
		{args: "--write .git/config", stderr: "it lies in a git directory"},
		{args: "--json l", stdout: `{"path":"l","mode":"read","allowed":true,"resolved":"/proj/d/f","root":"/proj"}` + "\n"},
		{args: "--explain l", stdout: "/proj/d/f\n", stderr: "  l l -> /proj/d/f\n"},
		{args: "--stdin", stdin: "d/f\naway\nl\nd/new\n", stdout: "/proj/d/f\n\n/proj/d/f\n/proj/d/new\n", stderr: `cannot read "away"`},
	} {
		_, stdout, stderr := run(row.stdin, append(in, strings.Fields(row.args)...)...)
		assert.Equal(t, row.stdout, stdout, row.args)
		assert.Contains(t, stderr, row.stderr, row.args)
	}

	before := calls
	_, stdout, _ := run("", "-e", "host")
	assert.Equal(t, "/proj/host\n", stdout, "without a session")
	assert.Equal(t, before, calls)
	show = func(*session.Dir, []confine.Root) (map[string]*os.File, error) { return nil, errors.New("no keeper") }
	status, stdout, stderr := run("", append(in, "d/f")...)
	assert.Equal(t, 2, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "pk-resolve: no keeper\n")
}
