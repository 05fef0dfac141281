package sandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/sandbox"
	"pikuri/lib/sandbox/sandboxtest"
	"pikuri/lib/session"
)

// role makes the test binary another program: one that a test kills, or one that runs the
// suite on a runner that must fail it.
const role = "PK_SANDBOX_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "forgetful" {
		os.Exit(stranger())
	}
	sandbox.Main()
	if os.Getenv(role) == "stranger" {
		os.Exit(stranger())
	}
	if root, ok := strings.CutPrefix(os.Getenv(role), "host:"); ok {
		os.Exit(host(root))
	}
	os.Exit(m.Run())
}

func TestLocalRunner(t *testing.T) {
	clitest.TwoRows(t)
	sandboxtest.Run(t, func(t *testing.T, root string) sandbox.Runner { return local(t, root) })
}

func local(t *testing.T, root string, opts ...sandbox.Option) *sandbox.LocalRunner {
	t.Helper()
	r, err := sandbox.NewLocalRunner(root, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// testBwrap returns the bwrap to test with. Without one it skips the test: scripts/test
// has a row for each bwrap that matters.
func testBwrap(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PK_TEST_BWRAP")
	if path == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	clitest.TwoRows(t)
	return path
}

func TestBwrapRunner(t *testing.T) {
	path := testBwrap(t)
	sandboxtest.Run(t, func(t *testing.T, root string) sandbox.Runner {
		return fenced(t, sandbox.BwrapConfig{Root: root, Bwrap: path})
	})
}

func fenced(t *testing.T, cfg sandbox.BwrapConfig) *sandbox.BwrapRunner {
	t.Helper()
	r, err := sandbox.NewBwrapRunner(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// broken runs commands through os/exec with no protection, as many programs do.
type broken struct{ root string }

func (b broken) Exec(ctx context.Context, cmd string, args []string, opts sandbox.ExecOptions) (*sandbox.ExecResult, error) {
	c := exec.CommandContext(ctx, cmd, args...)
	c.Dir = filepath.Join(b.root, opts.WorkDir)
	out, err := c.Output()
	r := &sandbox.ExecResult{Stdout: string(out), StdoutBytes: int64(len(out)), Duration: 1}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.ExitCode, r.Stderr, err = exit.ExitCode(), string(exit.Stderr), nil
	}
	return r, err
}

// promising promises guarantees that it does not give.
type promising struct{ *sandbox.LocalRunner }

func (promising) Enforcement() sandbox.Enforcement {
	return sandbox.Enforcement{Env: true, Files: true, NetModes: []sandbox.NetMode{sandbox.NetDenyAll}, Memory: true}
}

// TestBrokenRunnersFail: a suite that lets everything pass tests nothing. The omitted
// groups would leave processes behind on a broken runner.
func TestBrokenRunnersFail(t *testing.T) {
	clitest.OneRow(t)
	for name, groups := range map[string][]string{
		"broken": {
			"what_cannot_be_started", "input", "output_is_bounded", "working_directory", "^environment",
			"what_is_invalid", "what_is_not_enforced",
		},
		"promising": {"what_is_not_enforced", "the_network", "files_outside", "environment_stays_hidden"},
	} {
		for _, group := range groups {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestSuiteOn$/"+group, "-test.timeout=60s")
			cmd.Env = append(os.Environ(), role+"="+name)
			out, err := cmd.CombinedOutput()
			assert.Error(t, err, "%s passes %s", name, group)
			assert.Contains(t, string(out), "--- FAIL: TestSuiteOn/", "%s, %s", name, group)
		}
	}
}

// TestSuiteOn runs the suite on a broken runner, for the test above.
func TestSuiteOn(t *testing.T) {
	switch os.Getenv(role) {
	case "broken":
		sandboxtest.Run(t, func(t *testing.T, root string) sandbox.Runner { return broken{root} })
	case "promising":
		sandboxtest.Run(t, func(t *testing.T, root string) sandbox.Runner { return promising{local(t, root)} })
	}
}

func TestRootsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/f", nil, 0o600))
	for _, root := range []string{"", "/", "/etc", dir + "/missing", dir + "/f"} {
		_, err := sandbox.NewLocalRunner(root)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, root)
		_, err = sandbox.NewBwrapRunner(sandbox.BwrapConfig{Root: root})
		assert.ErrorIs(t, err, sandbox.ErrInvalid, root)
	}
	_, err := sandbox.NewLocalRunner(dir, sandbox.WithMaxOutputBytes(0))
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = sandbox.NewLocalRunner(dir, sandbox.WithKillAfter(-1))
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestOutputLimitOfTheRunner(t *testing.T) {
	r := local(t, t.TempDir(), sandbox.WithMaxOutputBytes(10))
	for asked, want := range map[int64]int{0: 10, 5: 5, 20: 20} {
		opts := sandbox.ExecOptions{Resources: sandbox.Resources{MaxOutputBytes: asked}}
		result, err := r.Exec(context.Background(), "printf", []string{"%030d", "1"}, opts)
		require.NoError(t, err)
		assert.Len(t, result.Stdout, want)
		assert.True(t, result.StdoutTruncated())
		assert.EqualValues(t, 30, result.StdoutBytes)
	}
}

func TestClosedRunner(t *testing.T) {
	r := local(t, t.TempDir())
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err := r.Exec(context.Background(), "true", nil, sandbox.ExecOptions{})
	assert.ErrorIs(t, err, sandbox.ErrClosed)
}

// TestReplacedRoot: the root stays the directory that was opened, when its name becomes a
// link.
func TestReplacedRoot(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/root", 0o755))
	r := local(t, dir+"/root")
	require.NoError(t, os.Rename(dir+"/root", dir+"/old"))
	require.NoError(t, os.Symlink("/", dir+"/root"))
	result, err := r.Exec(context.Background(), "pwd", []string{"-P"}, sandbox.ExecOptions{})
	if err == nil {
		assert.Equal(t, dir+"/old\n", result.Stdout)
	}
}

// TestSwappingAttackerOfTheWorkingDirectory: an attacker swaps a directory with a link
// that leads out, over and over; the command starts inside, or not at all.
func TestSwappingAttackerOfTheWorkingDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root := dir + "/root"
	require.NoError(t, os.MkdirAll(root+"/d", 0o755))
	require.NoError(t, os.Symlink(dir, root+"/l"))
	r := local(t, root)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, root+"/d", unix.AT_FDCWD, root+"/l", unix.RENAME_EXCHANGE)
			}
		}
	}()
	started := 0
	for range 60 {
		result, err := r.Exec(context.Background(), "pwd", []string{"-P"}, sandbox.ExecOptions{WorkDir: "d"})
		if err != nil {
			continue
		}
		started++
		assert.Contains(t, result.Stdout, root+"/")
	}
	close(stop)
	<-stopped
	t.Logf("started %d times", started)
}

// host runs a command for ever, for a test that kills it.
func host(root string) int {
	var r sandbox.Runner
	r, err := sandbox.NewLocalRunner(root)
	if path := os.Getenv("PK_TEST_BWRAP"); path != "" && os.Getenv(fencedHost) != "" {
		r, err = sandbox.NewBwrapRunner(sandbox.BwrapConfig{Root: root, Bwrap: path})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, err = r.Exec(context.Background(), "sh", []string{"-c", `exec 7>hold; setsid sleep 1000 & echo >&7; sleep 1000`}, sandbox.ExecOptions{})
	fmt.Println(err)
	return 1
}

// fencedHost makes host use a sandbox.
const fencedHost = "PK_SANDBOX_TEST_FENCED"

// TestNothingIsLeftOfAKilledProgram: when a program is killed while its command runs, all
// processes that the command started end.
func TestNothingIsLeftOfAKilledProgram(t *testing.T) {
	t.Run("LocalRunner", func(t *testing.T) { killProgram(t) })
	t.Run("BwrapRunner", func(t *testing.T) {
		testBwrap(t)
		killProgram(t, fencedHost+"=1")
	})
}

func killProgram(t *testing.T, env ...string) {
	root := t.TempDir()
	require.NoError(t, unix.Mkfifo(root+"/hold", 0o600))
	program := exec.Command("/proc/self/exe")
	program.Env = append(append(os.Environ(), role+"=host:"+root), env...)
	program.Stderr = os.Stderr
	require.NoError(t, program.Start())
	hold, err := os.Open(root + "/hold") // waits for the command
	require.NoError(t, err)
	defer hold.Close()
	reader := bufio.NewReader(hold)
	_, err = reader.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, program.Process.Kill())
	_ = program.Wait()
	require.NoError(t, hold.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = reader.ReadByte()
	assert.EqualError(t, err, "EOF", "a process of the command is alive")
}

// stranger is a program that does not call Main: it prints its arguments, and then uses a
// runner.
func stranger() int {
	fmt.Printf("%q\n", os.Args[1:])
	for _, make := range []func() (sandbox.Runner, error){
		func() (sandbox.Runner, error) { return sandbox.NewLocalRunner(".") },
		func() (sandbox.Runner, error) {
			return sandbox.NewBwrapRunner(sandbox.BwrapConfig{Root: "/nonexistent"})
		},
	} {
		runner, err := make()
		if err != nil {
			fmt.Println(err)
			continue
		}
		result, err := runner.Exec(context.Background(), "echo", []string{"ran"}, sandbox.ExecOptions{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Print(result.Stdout)
	}
	return 0
}

// TestProgramsOfOthers: a program that imports the package keeps all its options,
// and gets no runner if it does not call Main.
func TestProgramsOfOthers(t *testing.T) {
	const forgotten = "sandbox: not available here: the program has to call sandbox.Main first in its main function\n"
	const noRoot = "sandbox: invalid request: cannot use \"/nonexistent\" as the project root: no such file or directory\n"
	for _, row := range []struct{ name, role, runs string }{
		{"with Main", "stranger", "ran\n" + noRoot},
		{"without Main", "forgetful", forgotten + forgotten},
	} {
		for _, args := range [][]string{{}, {"--pk-guard", "3", "false,0", "/bin/true", "true"}, {"--pk-stage"}, {"--pk-supervisor"}} {
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Args[0], cmd.Dir = "stranger", t.TempDir()
			cmd.Env = append(os.Environ(), role+"="+row.role)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", row.name, out)
			assert.Equal(t, fmt.Sprintf("%q\n", args)+row.runs, string(out), row.name)
		}
	}
}

// TestSupervisorIsForThisPackage: no other program can use the mode.
func TestSupervisorIsForThisPackage(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "--pk-supervisor")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Equal(t, 125, cmd.ProcessState.ExitCode())
	assert.Equal(t, "sandbox: --pk-supervisor is for pk's own use\n", string(out))
}

// TestSupervisorIsKilled: when the supervisor, the command's parent, is killed, the
// command dies too.
func TestSupervisorIsKilled(t *testing.T) {
	r := local(t, t.TempDir())
	result, err := r.Exec(context.Background(), "sh", []string{"-c", `kill -9 $PPID; exec sleep 1000`}, sandbox.ExecOptions{})
	if err != nil { // the kill came before the command said a word
		assert.ErrorContains(t, err, "its guard has ended")
		return
	}
	assert.Equal(t, "SIGKILL", result.Signal)
}

// TestSignalsOfTheTerminal: Ctrl-C signals the process group of the program; commands are
// not in it.
func TestSignalsOfTheTerminal(t *testing.T) {
	r := local(t, t.TempDir())
	// proc_pid_stat(5): the sixth field is the session, the seventh the terminal.
	result, err := r.Exec(context.Background(), "sh", []string{"-c", `read -r pid name state parent group session terminal rest </proc/$$/stat; echo "$session $terminal"`}, sandbox.ExecOptions{})
	require.NoError(t, err)
	sid, err := unix.Getsid(0)
	require.NoError(t, err)
	fields := strings.Fields(result.Stdout)
	require.Len(t, fields, 2)
	assert.NotEqual(t, fmt.Sprint(sid), fields[0])
	assert.Equal(t, "0", fields[1])
}

// TestSIGPIPEEndsACommand: SIGPIPE has to end a command in a pipeline.
func TestSIGPIPEEndsACommand(t *testing.T) {
	r := local(t, t.TempDir())
	result, err := r.Exec(context.Background(), "bash", []string{"-c", `yes | head -n 1; echo "${PIPESTATUS[0]}"`}, sandbox.ExecOptions{})
	require.NoError(t, err)
	assert.Equal(t, "y\n141\n", result.Stdout)
}

func TestUsage(t *testing.T) {
	r := local(t, t.TempDir())
	result, err := r.Exec(context.Background(), "sh", []string{"-c", `i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done & wait`}, sandbox.ExecOptions{})
	require.NoError(t, err)
	assert.Positive(t, result.Usage.User+result.Usage.System)
	assert.Greater(t, result.Usage.MaxRSS, int64(100<<10))
}

func TestResultInJSON(t *testing.T) {
	line, err := json.Marshal(&sandbox.ExecResult{
		ExitCode: 137, Signal: unix.SignalName(syscall.SIGKILL), Stdout: "a\xff", Stderr: "é", StdoutBytes: 9, StderrBytes: 2,
		Duration: 1500 * time.Millisecond, StdoutTail: "z",
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"exit_code":137,"signal":"SIGKILL","stdout":"a\ufffd","stdout_base64":"Yf8=","stderr":"é",
		"stdout_bytes":9,"stderr_bytes":2,"stdout_truncated":true,"stderr_truncated":false,"stdout_tail":"z",
		"duration_ms":1500,"user_ms":0,"system_ms":0,"max_rss_bytes":0}`, string(line))
}

// TestBwrapShowsFurtherRoots: a readable root is read-only, a writable one is not.
func TestBwrapShowsFurtherRoots(t *testing.T) {
	path := testBwrap(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, d := range []string{"root", "r", "w"} {
		require.NoError(t, os.Mkdir(dir+"/"+d, 0o755))
		require.NoError(t, os.WriteFile(dir+"/"+d+"/f", []byte(d), 0o644))
	}
	r := fenced(t, sandbox.BwrapConfig{
		Root: dir + "/root", Readable: []string{dir + "/r"}, Writable: []string{dir + "/w"}, Bwrap: path, Toolchains: true,
	})
	script := `cat ../r/f ../w/f; echo x >../r/f || true; echo y >../w/f`
	result, err := r.Exec(context.Background(), "sh", []string{"-c", script}, sandbox.ExecOptions{})
	require.NoError(t, err)
	assert.Equal(t, "rw", result.Stdout)
	content, err := os.ReadFile(dir + "/r/f")
	require.NoError(t, err)
	assert.Equal(t, "r", string(content))
	content, err = os.ReadFile(dir + "/w/f")
	require.NoError(t, err)
	assert.Equal(t, "y\n", string(content))
}

// A trial keeps the changes of its commands, and leaves the project as it is.
func TestBwrapTrial(t *testing.T) {
	path := testBwrap(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(dir+"/root", 0o755))
	require.NoError(t, os.WriteFile(dir+"/root/f", []byte("before"), 0o644))
	t.Setenv("XDG_CACHE_HOME", dir+"/cache")
	t.Cleanup(func() { // the keeper too
		assert.NoError(t, session.Sweep(dir+"/cache/pikuri", session.SweepOptions{All: true, Discard: true}, func(r session.Result) { assert.Equal(t, session.Removed, r.Action) }))
	})
	_, err = sandbox.NewBwrapRunner(sandbox.BwrapConfig{Root: dir + "/root", Bwrap: path, Trial: true})
	require.ErrorIs(t, err, sandbox.ErrInvalid, "a trial without a session")
	r := fenced(t, sandbox.BwrapConfig{Root: dir + "/root", Bwrap: path, Session: "s", Trial: true})
	for _, script := range []string{"echo after >f; echo new >n; echo scratch >/tmp/x", "cat f n /tmp/x"} {
		result, err := r.Exec(context.Background(), "sh", []string{"-c", script}, sandbox.ExecOptions{})
		require.NoError(t, err)
		assert.Zero(t, result.ExitCode, result.Stderr)
		if strings.HasPrefix(script, "cat") {
			assert.Equal(t, "after\nnew\nscratch\n", result.Stdout)
		}
	}
	content, err := os.ReadFile(dir + "/root/f")
	require.NoError(t, err)
	assert.Equal(t, "before", string(content))
	assert.NoFileExists(t, dir+"/root/n")
	joined := fenced(t, sandbox.BwrapConfig{Root: dir + "/root", Bwrap: path, Session: "s"})
	result, err := joined.Exec(context.Background(), "cat", []string{"n"}, sandbox.ExecOptions{})
	require.NoError(t, err)
	assert.Equal(t, "new\n", result.Stdout, "a session that is a trial stays one")
}

// TestBwrapHasNoCapability: also as root, the command can neither mount nor write the
// kernel's settings.
func TestBwrapHasNoCapability(t *testing.T) {
	r := fenced(t, sandbox.BwrapConfig{Root: t.TempDir(), Bwrap: testBwrap(t)})
	script := `grep ^CapEff /proc/self/status; mount -o remount,bind,rw / && echo remounted
		echo x 2>/dev/null >/proc/sys/kernel/core_pattern && echo wrote; unshare -U true 2>/dev/null && echo nested; true`
	result, err := r.Exec(context.Background(), "sh", []string{"-c", script}, sandbox.ExecOptions{})
	require.NoError(t, err)
	assert.Equal(t, "CapEff:\t0000000000000000\n", result.Stdout)
}

// TestBwrapProtectsTheUsersGitConfiguration: it makes git on the host run code too.
func TestBwrapProtectsTheUsersGitConfiguration(t *testing.T) {
	path := testBwrap(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Setenv("GIT_CONFIG_GLOBAL", root+"/gitconfig")
	require.NoError(t, os.WriteFile(root+"/gitconfig", nil, 0o644))
	r := fenced(t, sandbox.BwrapConfig{Root: root, Bwrap: path})
	_, err = r.Exec(context.Background(), "sh", []string{"-c", `echo x >gitconfig; rm -f gitconfig; mv gitconfig x`}, sandbox.ExecOptions{})
	require.NoError(t, err)
	content, err := os.ReadFile(root + "/gitconfig")
	require.NoError(t, err)
	assert.Empty(t, content)
}

// TestBwrapProtectsWhatGitRuns: the command leaves no hook for the host to run.
func TestBwrapProtectsWhatGitRuns(t *testing.T) {
	path := testBwrap(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	init := exec.Command("git", "init", "-q", root)
	init.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	require.NoError(t, init.Run())
	script := `echo x >.git/hooks/post-commit; git config core.fsmonitor evil; echo x >.git/config; true`
	for _, noProtect := range []bool{false, true} {
		want := noProtect
		r := fenced(t, sandbox.BwrapConfig{Root: root, Bwrap: path, NoProtect: noProtect})
		_, err := r.Exec(context.Background(), "sh", []string{"-c", script}, sandbox.ExecOptions{})
		require.NoError(t, err)
		_, err = os.Stat(root + "/.git/hooks/post-commit")
		assert.Equal(t, want, err == nil, "a hook was made")
		config, err := os.ReadFile(root + "/.git/config")
		require.NoError(t, err)
		assert.Equal(t, want, string(config) == "x\n", "the configuration was changed")
	}
}

// TestBwrapTellsWhatItLeft: if a file that the host would run cannot be moved away, Exec
// fails, whatever the command's status.
func TestBwrapTellsWhatItLeft(t *testing.T) {
	path := testBwrap(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	fifo := filepath.Join(root, "go-on")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, broken := range []bool{false, true} {
		r := fenced(t, sandbox.BwrapConfig{Root: root, Bwrap: path})
		done := make(chan error, 1)
		go func() {
			w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // once the command reads
			if err == nil && broken {
				err = errors.Join(os.Rename(cache+"/pikuri", cache+"/away"), os.WriteFile(cache+"/pikuri", nil, 0o600))
			}
			if err == nil {
				err = w.Close()
			}
			done <- err
		}()
		result, err := r.Exec(context.Background(), "sh", []string{"-c", "echo x >.mcp.json; cat go-on; exit 3"}, sandbox.ExecOptions{})
		require.NoError(t, <-done)
		if broken {
			assert.ErrorContains(t, err, "to the quarantine")
		} else if assert.NoError(t, err) {
			assert.Equal(t, 3, result.ExitCode)
		}
		assert.NoFileExists(t, root+"/.mcp.json")
	}
}
