package man

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// tree is the home in which the examples of a page are run: that of the user
// `me`, with the working directory ~/src/app.
var tree = []struct{ path, content string }{
	{"src/app/Makefile", "all:\n\t@echo built\n" +
		"test:\n\t@test -e ~/.cache/ccache/main.o || { echo compiling main.c; touch ~/.cache/ccache/main.o; }\n\t@echo 2 tests passed\n"},
	{"src/app/src/main.c", "int main(void) { return 0; }\n"},
	{"src/app/src/Makefile", "all:\n\t@echo built there\n"},
	{"src/app/test.sh", "exit 0\n"},
	{"src/app/report.py", "import os, sys\nsys.exit(not os.listdir(os.path.expanduser('~/data')))\n"},
	{"src/app/.env", "TOKEN=secret\n"},
	{"src/app/config/.env", "TOKEN=secret\n"},
	{"src/app/notes/README.md", "Notes.\n"},
	{"src/app/counter", "1\n"},
	{"src/app/main", "=> src/main.c"},
	{"src/app/sys", "=> /etc"},
	{"src/app/log", "=> ../../log/app"},
	{"policies/app", "project-root  ../src/app\ndeny          **/.env\n"},
	{"data/2026.csv", "1\n"},
	{".ssh/id_ed25519", "secret\n"},
	{".cargo/bin/go", "#!/bin/sh\n# A stand-in inside the sandbox: a real one compiles longer than all else here takes.\necho ok app\n"},
	{".cargo/registry/index", ""},
	{".rustup/settings.toml", ""},
	{"go/pkg/mod/cache", ""},
	{".cache/ccache/stats", ""},
}

// standIns replace programs that examples call and a test cannot: each does only
// the part that pk sees.
var standIns = map[string]struct{ why, body string }{
	"docker":      {"takes an engine and a container", `while [ "$1" != bash ]; do shift; done; exec "$@"`},
	"kubectl":     {"takes a cluster", `while [ "$1" != -- ]; do shift; done; shift; exec "$@"`},
	"srun":        {"takes a cluster", `while [ "$1" != bash ]; do shift; done; exec "$@"`},
	"systemd-run": {"takes a user's systemd", `while [ "$1" != -- ]; do shift; done; shift; exec "$@"`},
	"ssh":         {"takes another machine, where a shell takes the words apart", `while [ "$1" != build ]; do shift; done; shift; exec sh -c "$*"`},
	"systemctl":   {"would start the timer of whoever runs the test", `test "$*" = "--user enable --now pk-sweep.timer"`},
	"sudo":        {"would change the machine", `exec "$@"`},
	"generate":    {"is a name for the reader's own program", `echo generated`},
	"review":      {"is a name for the reader's own program", `cat`},
	"summarize":   {"is a name for the reader's own program", `wc -c "$@"`},
}

// scene is a home with a project, commands and stand-ins, for one page.
type scene struct {
	*clitest.Box
	path, called string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Box: clitest.NewBoxInEveryRow(t)}
	for _, f := range tree {
		path := filepath.Join(s.Home, f.path)
		if target, link := strings.CutPrefix(f.content, "=> "); link {
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		s.Write(t, path, f.content)
	}
	require.NoError(t, os.Chmod(s.Home+"/.cargo/bin/go", 0o755))
	top := filepath.Dir(s.Project)
	s.called, s.path = top+"/called", s.Commands(t)+":"+top+"/stand-ins:"+s.Home+"/.cargo/bin:"+os.Getenv("PATH")
	for name, program := range standIns {
		s.Script(t, top+"/stand-ins/"+name, "echo "+name+" >>'"+s.called+"'\n"+program.body+"\n")
	}
	s.Project = s.Home + "/src/app"
	return s
}

// environ is the environment of the examples. The answer to questions is yes.
func (s *scene) environ() []string {
	return []string{"HOME=" + s.Home, "PATH=" + s.path, "LC_ALL=C", "TERM=dumb", "PK_CONFIRM=yes", "PYTHONDONTWRITEBYTECODE=1",
		"TMPDIR=" + filepath.Dir(s.Home), "path=notes/today", "script=echo hi"}
}

// run runs a program of the scene's PATH, in the project, to its end.
func (s *scene) run(t *testing.T, argv ...string) clitest.Outcome {
	t.Helper()
	cmd := exec.Command("env", argv...)
	cmd.Dir, cmd.Env = s.Project, s.environ()
	return clitest.Finish(t, cmd)
}

// session makes a session that was last used so long ago.
func (s *scene) session(t *testing.T, name string, age time.Duration) string {
	t.Helper()
	got := s.run(t, "pk-bash", "-y", "--session", name, "true")
	require.Equal(t, 0, got.Status, got.Stderr)
	umbrella := s.Home + "/.cache/pikuri/workspace-" + name
	then := time.Now().Add(-age)
	require.NoError(t, os.Chtimes(umbrella+"/.stamp", then, then))
	require.NoError(t, os.Chtimes(umbrella, then, then))
	return umbrella
}

// use holds a session as a command of it would.
func (s *scene) use(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(s.session(t, name, 5*time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_SH))
}

// shell is one bash, which is given command after command.
type shell struct {
	t        *testing.T
	commands *os.File
	output   *bufio.Reader
}

func (s *scene) shell(t *testing.T) *shell {
	t.Helper()
	script, commands, err := os.Pipe()
	require.NoError(t, err)
	output, both, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command("bash", "--noprofile", "--norc", "/dev/fd/3")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = s.Project, s.environ(), both, both, []*os.File{script}
	require.NoError(t, cmd.Start())
	script.Close()
	both.Close()
	t.Cleanup(func() {
		_, _ = io.WriteString(commands, "exit 0\n")
		commands.Close()
		assert.NoError(t, cmd.Wait())
		output.Close()
	})
	return &shell{t: t, commands: commands, output: bufio.NewReader(output)}
}

// do runs one command and returns its output, on either stream, and its
// status, which is also $? for the next command.
func (sh *shell) do(command string) (output string, status int) {
	sh.t.Helper()
	const mark = "\x1e"
	_, err := io.WriteString(sh.commands, command+"\n{ s=$?; printf '"+mark+"%s"+mark+"' $s; (exit $s); }\n")
	require.NoError(sh.t, err)
	output, err = sh.output.ReadString(mark[0])
	require.NoError(sh.t, err)
	number, err := sh.output.ReadString(mark[0])
	require.NoError(sh.t, err)
	status, err = strconv.Atoi(strings.TrimSuffix(number, mark))
	require.NoError(sh.t, err)
	return strings.TrimSuffix(output, mark), status
}

// varies lists the text that differs from run to run, and its mark.
var varies = []struct {
	what *regexp.Regexp
	mark string
}{
	{regexp.MustCompile(`used \S+ ago`), "used AGE ago"},
	{regexp.MustCompile(`(at least )?[0-9.]+ ([KMG]i)?B(ytes)? in \d+ entries`), "SIZE"},
	{regexp.MustCompile(`(?m)^bwrap   .*\nkernel  .*\nuser    .*$`), "MACHINE"},
	{regexp.MustCompile(`\d+ attacks tried`), "N attacks tried"},
	// Where --explain breaks a line, as the paths here are longer than those shown.
	{regexp.MustCompile(`\n {11}(-> |at |on the host )`), " $1"},
}

// shown is a text with the scene's home under the name that the pages have for
// it, and with marks in place of the varying text.
func (s *scene) shown(text string) string {
	text = strings.ReplaceAll(text, s.walk(s.Home), s.walk("/home/me"))
	text = strings.ReplaceAll(text, s.Home, "/home/me")
	for _, v := range varies {
		text = v.what.ReplaceAllString(text, v.mark)
	}
	return text
}

// walk is how pk-resolve --explain goes to a directory.
func (s *scene) walk(dir string) string {
	var steps strings.Builder
	for name := range strings.SplitSeq(dir[1:], "/") {
		fmt.Fprintf(&steps, "pk-resolve:   d %s\n", name)
	}
	return steps.String()
}
