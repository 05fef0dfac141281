package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// script replaces bwrap: a shell that waits for the end of its options, and then checks
// the tree with the command.
const script = `#!/bin/sh
cat <&"$2" >/dev/null
shift 5
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

// A bwrap without its options would run the command without a sandbox, whatever ended the
// set-up program.
func TestKilledBeforeOptions(t *testing.T) {
	program := t.TempDir() + "/bwrap"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho begun\nread -r _ <&$2\necho started\n"), 0o755))
	j := &Job{Program: program, Argv: []string{"true"}, Env: []string{"PATH=" + os.Getenv("PATH")}}
	for i := range 700 { // takes a while
		j.Mounts = append(j.Mounts, Mount{Op: Empty, At: fmt.Sprintf("/%d", i), Perms: 0o700})
	}
	j.Mounts = append(j.Mounts, Mount{Op: "refused", At: "/x"}) // should it come that far
	job, err := json.Marshal(j)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("unshare", "--user", "--map-root-user", self, option, string(job))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, _ = out.Read(make([]byte, 64)) // begun, or it was faster
	_ = cmd.Process.Kill()
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	_ = cmd.Wait()
	require.Empty(t, string(rest))
}
