package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

func TestMain(m *testing.M) {
	if job := hidden.Dispatch(os.Args[1:], Mode); job != nil {
		if err := job(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// script replaces bwrap: a shell that checks the tree, which is its argument
// $TREE, and gets the command as "$@".
const script = `#!/bin/sh
shift 3
cd /mnt/root && eval "$1"
`

// in makes a tree of the mounts, in namespaces of its own, and runs a shell command
// in it. Commands on the host come first.
func in(t *testing.T, before string, look string, mounts ...Mount) (stdout, stderr string) {
	t.Helper()
	program := t.TempDir() + "/bwrap"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	return start(t, before, &Job{Mounts: mounts, Program: program, Argv: []string{look}, Env: []string{"PATH=" + os.Getenv("PATH")}})
}

func start(t *testing.T, before string, j *Job) (stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(j)
	require.NoError(t, err)
	// The test's own mounts are made in a mount namespace around.
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", before+` exec "$@"`, "sh", self, option, string(text))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	_ = cmd.Run() // the caller checks the output
	return out.String(), said.String()
}

// inode identifies a file as the plan does.
func inode(t *testing.T, path string) Inode {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return Inode{Path: path, Dev: st.Dev, Ino: st.Ino}
}
