// Package sandboxtest holds the tests that every sandbox.Runner has to pass.
//
// It attacks the guarantees of a runner (sandbox.EnforcementOf). Options beyond them must
// be refused.
//
// The TestMain of a test that runs the suite on a runner of package sandbox has to
// begin with sandbox.Main.
package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/sandbox"
)

// long is the sleep, in seconds, of a command that the test ends: longer than any test
// takes.
const long = "1000"

// enough is the timeout of a command that must do something before it. A busy machine
// takes long to start one.
const enough = 3 * time.Second

// Run runs the suite. Make returns a runner whose commands start in root, and see the
// system's programs there; its own t.Cleanup closes it.
func Run(t *testing.T, make func(t *testing.T, root string) sandbox.Runner) {
	for _, group := range []struct {
		name string
		test func(*suite)
	}{
		{"arguments arrive as they are", (*suite).arguments},
		{"the status is the command's", (*suite).status},
		{"what cannot be started is told apart from what failed", (*suite).notStarted},
		{"input", (*suite).input},
		{"output is bounded, and says so", (*suite).output},
		{"time limits", (*suite).timeouts},
		{"contexts", (*suite).contexts},
		{"working directory", (*suite).workDir},
		{"environment", (*suite).environment},
		{"nothing is left", (*suite).leftovers},
		{"many at once, beside children of the program's own", (*suite).parallel},
		{"what is invalid is refused", (*suite).invalid},
		{"what is not enforced is refused", (*suite).notEnforced},
		{"limits that are promised", (*suite).limits},
		{"the network is closed off", (*suite).network},
		{"files outside are closed off", (*suite).files},
		{"the environment stays hidden", (*suite).hiddenEnvironment},
	} {
		t.Run(group.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			s := &suite{T: t, root: filepath.Join(root, "root"), outside: filepath.Join(root, "outside")}
			s.mkdir(s.root)
			s.mkdir(s.outside)
			s.Runner = make(t, s.root)
			s.promises = sandbox.EnforcementOf(s.Runner)
			group.test(s)
		})
	}
}

type suite struct {
	*testing.T
	sandbox.Runner
	root, outside string
	promises      sandbox.Enforcement
}

func (s *suite) mkdir(path string) {
	s.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) write(path, content string, mode os.FileMode) {
	s.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		s.Fatal(err)
	}
}

// sh runs a script, which starts but need not end by itself.
func (s *suite) sh(opts sandbox.ExecOptions, script string, args ...string) *sandbox.ExecResult {
	s.Helper()
	r, err := s.Exec(context.Background(), "sh", append([]string{"-c", script, "sh"}, args...), opts)
	if err != nil {
		s.Fatalf("sh -c %q: %v", script, err)
	}
	return r
}

// fails requires one of the sentinels, and no result.
func (s *suite) fails(want error, cmd string, opts sandbox.ExecOptions, args ...string) {
	s.Helper()
	r, err := s.Exec(context.Background(), cmd, args, opts)
	if !errors.Is(err, want) {
		s.Errorf("%q: error %v, want %v", cmd, err, want)
	}
	if r != nil {
		s.Errorf("%q: there is a result: %+v", cmd, r)
	}
}

func (s *suite) equal(want, got any, what string) {
	s.Helper()
	if want != got {
		s.Errorf("%s: %.200q, want %.200q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

func (s *suite) arguments() {
	args := []string{"", "a b", "new\nline", "-x", "*", "$HOME", "\xff\xfe", "é", `"'\`}
	r := s.sh(sandbox.ExecOptions{}, `for a; do printf '%s|' "$a"; done`, args...)
	s.equal(strings.Join(args, "|")+"|", r.Stdout, "arguments")
	r = s.sh(sandbox.ExecOptions{Env: sandbox.EnvPolicy{Inject: map[string]string{"ODD": "a\nb\xff"}}}, `printf %s "$ODD"`)
	s.equal("a\nb\xff", r.Stdout, "variable")
}

func (s *suite) status() {
	r := s.sh(sandbox.ExecOptions{}, `echo out; echo err >&2; exit 42`)
	s.equal(42, r.ExitCode, "status")
	s.equal("out\n", r.Stdout, "stdout")
	s.equal("err\n", r.Stderr, "stderr")
	s.equal("", r.Signal, "signal")
	s.equal(false, r.TimedOut, "timed out")
	if r.Duration <= 0 {
		s.Error("it took no time")
	}
	r = s.sh(sandbox.ExecOptions{}, `kill -9 $$`)
	s.equal(128+9, r.ExitCode, "status of a command that was killed")
	s.equal("SIGKILL", r.Signal, "signal")
	r = s.sh(sandbox.ExecOptions{}, `exit 124`)
	s.equal(124, r.ExitCode, "status that a timeout has, too")
	s.equal(false, r.TimedOut, "timed out")
}

func (s *suite) notStarted() {
	s.write(s.root+"/data", "x", 0o644)
	s.write(s.root+"/orphan", "#!/no/such/interpreter\n", 0o755)
	s.mkdir(s.root + "/dir")
	for _, cmd := range []string{"no-such-command-here", "/no/such/command", "./missing", "./data/below"} {
		s.fails(sandbox.ErrNotFound, cmd, sandbox.ExecOptions{})
	}
	for _, cmd := range []string{"./data", "./dir", s.root + "/data"} {
		s.fails(sandbox.ErrNotExecutable, cmd, sandbox.ExecOptions{})
	}
	if r, err := s.Exec(context.Background(), "./orphan", nil, sandbox.ExecOptions{}); err == nil {
		s.Errorf("a script without an interpreter has a result: %+v", r)
	}
	s.fails(sandbox.ErrInvalid, "", sandbox.ExecOptions{})
	s.fails(sandbox.ErrInvalid, "a\x00b", sandbox.ExecOptions{})
	s.fails(sandbox.ErrInvalid, "true", sandbox.ExecOptions{}, "a\x00b")
	s.equal(127, s.sh(sandbox.ExecOptions{}, `no-such-command-here`).ExitCode, "the shell's own 127")
	s.write(s.root+"/tool", "#!/bin/sh\necho tool\n", 0o755)
	if r, err := s.Exec(context.Background(), "./tool", nil, sandbox.ExecOptions{}); err != nil || r.Stdout != "tool\n" {
		s.Errorf("./tool: %+v, %v", r, err)
	}
}

func (s *suite) input() {
	s.equal("", s.sh(sandbox.ExecOptions{}, `cat`).Stdout, "no input")
	big := []byte(strings.Repeat("0123456789", 300_000))
	s.equal(string(big), s.sh(sandbox.ExecOptions{Stdin: big}, `cat`).Stdout, "input")
	s.equal("0", s.sh(sandbox.ExecOptions{Stdin: big}, `head -c 1`).Stdout, "input that is not read")
	r := s.sh(sandbox.ExecOptions{Stdin: big}, `head -c 4000000 /dev/zero; wc -c`)
	s.equal(int64(4_000_000+8), r.StdoutBytes, "output before the input is read")
}

func (s *suite) output() {
	opts := sandbox.ExecOptions{Resources: sandbox.Resources{MaxOutputBytes: 1000}}
	r := s.sh(opts, `head -c 30000000 /dev/zero | tr '\0' x; echo end; printf 'short' >&2`)
	s.equal(strings.Repeat("x", 1000), r.Stdout, "the beginning")
	s.equal(int64(30_000_004), r.StdoutBytes, "bytes")
	s.equal(true, r.StdoutTruncated(), "truncated")
	if !strings.HasSuffix(r.StdoutTail, "xxxend\n") || len(r.StdoutTail) > 1<<20 {
		s.Errorf("the end is not kept: %d bytes", len(r.StdoutTail))
	}
	s.equal("short", r.Stderr, "stderr")
	s.equal(false, r.StderrTruncated(), "stderr truncated")
	r = s.sh(opts, `head -c 1000 /dev/zero`)
	s.equal(false, r.StdoutTruncated(), "just fits")
	s.equal("\xff\xfe", s.sh(sandbox.ExecOptions{}, `printf '\377\376'`).Stdout, "bytes that are no text")
}

func (s *suite) timeouts() {
	opts := sandbox.ExecOptions{Timeout: enough}
	r, err := s.Exec(context.Background(), "sh", []string{"-c", "echo partial; sleep " + long}, opts)
	if !errors.Is(err, sandbox.ErrTimeout) || r == nil {
		s.Fatalf("result %+v, error %v", r, err)
	}
	s.equal("partial\n", r.Stdout, "what was printed until then")
	s.equal(true, r.TimedOut, "timed out")
	s.equal(124, r.ExitCode, "status")
	s.equal(0, s.sh(sandbox.ExecOptions{Timeout: time.Hour}, `true`).ExitCode, "in time")
}

func (s *suite) contexts() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fifo := s.fifo("begun")
	go func() {
		fifo.awaitWriter(s.T)
		cancel()
	}()
	r, err := s.Exec(ctx, "sh", []string{"-c", "echo partial; exec 7>begun; sleep " + long}, sandbox.ExecOptions{})
	if !errors.Is(err, sandbox.ErrAborted) || !errors.Is(err, context.Canceled) || r == nil {
		s.Fatalf("result %+v, error %v", r, err)
	}
	s.equal("partial\n", r.Stdout, "what was printed until then")
	fifo.wantNoWriter(s.T)

	if _, err := s.Exec(ctx, "sh", []string{"-c", "> ran"}, sandbox.ExecOptions{}); !errors.Is(err, sandbox.ErrAborted) {
		s.Errorf("a context that had ended: %v", err)
	}
	if _, err := os.Lstat(s.root + "/ran"); err == nil {
		s.Error("the command ran though its context had ended")
	}
	late, cancelLate := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancelLate()
	if _, err := s.Exec(late, "sleep", []string{long}, sandbox.ExecOptions{}); !errors.Is(err, sandbox.ErrTimeout) {
		s.Errorf("a deadline: %v", err)
	}
}

func (s *suite) workDir() {
	s.mkdir(s.root + "/dir/below")
	s.write(s.root+"/file", "", 0o644)
	for name, target := range map[string]string{"in": "dir", "abs": s.root + "/dir", "out": s.outside, "up": "..", "dangling": "nowhere"} {
		if err := os.Symlink(target, s.root+"/"+name); err != nil {
			s.Fatal(err)
		}
	}
	for dir, want := range map[string]string{
		"": "", ".": "", "dir": "/dir", "dir/below": "/dir/below", "dir/../dir/": "/dir", "in": "/dir", "abs": "/dir",
		s.root: "", s.root + "/dir": "/dir",
	} {
		s.equal(s.root+want+"\n", s.sh(sandbox.ExecOptions{WorkDir: dir}, `pwd -P`).Stdout, "working directory "+dir)
	}
	for _, dir := range []string{"..", "../outside", "/", "/tmp", s.outside, "out", "up", "dir/../..", s.root + "x"} {
		s.fails(sandbox.ErrPathTraversal, "true", sandbox.ExecOptions{WorkDir: dir})
	}
	s.fails(sandbox.ErrNotFound, "true", sandbox.ExecOptions{WorkDir: "missing"})
	s.fails(sandbox.ErrNotFound, "true", sandbox.ExecOptions{WorkDir: "dangling"})
	s.fails(sandbox.ErrInvalid, "true", sandbox.ExecOptions{WorkDir: "file"})
}

func (s *suite) environment() {
	s.Setenv("SUITE_PLAIN", "plain")
	s.Setenv("SUITE_TOKEN", "secret")
	s.Setenv("LD_SUITE", "code")
	show := `echo "${SUITE_PLAIN-} ${SUITE_TOKEN-} ${LD_SUITE-}"`
	for _, row := range []struct {
		name string
		env  sandbox.EnvPolicy
		want string
	}{
		{"nothing said: no secrets, no code", sandbox.EnvPolicy{}, "plain  \n"},
		{"everything", sandbox.EnvPolicy{InheritAll: true}, "plain secret code\n"},
		{"an empty list", sandbox.EnvPolicy{Allow: []string{}}, "  \n"},
		{"a list of what is not set", sandbox.EnvPolicy{Allow: []string{"SUITE_UNSET"}}, "  \n"},
		{"a list", sandbox.EnvPolicy{Allow: []string{"SUITE_TOKEN"}}, " secret \n"},
		{"a list is exact", sandbox.EnvPolicy{Allow: []string{"SUITE_*", "SUITE"}}, "  \n"},
		{"injected", sandbox.EnvPolicy{Allow: []string{}, Inject: map[string]string{"SUITE_PLAIN": "mine"}}, "mine  \n"},
		{"injected over a list", sandbox.EnvPolicy{Allow: []string{"SUITE_PLAIN"}, Inject: map[string]string{"SUITE_PLAIN": "mine"}}, "mine  \n"},
	} {
		s.equal(row.want, s.sh(sandbox.ExecOptions{Env: row.env}, show).Stdout, row.name)
	}
}

func (s *suite) leftovers() {
	for name, script := range map[string]string{
		"background":               `exec 7>hold; sleep 1000 >/dev/null 2>&1 &`,
		"background with a pipe":   `exec 7>hold; sleep 1000 & echo done`,
		"a session of its own":     `exec 7>hold; setsid sleep 1000 >/dev/null 2>&1 &`,
		"double fork":              `exec 7>hold; (setsid sh -c 'sleep 1000 & sleep 1000' &) >/dev/null 2>&1`,
		"deaf to signals":          `exec 7>hold; setsid sh -c 'trap "" TERM HUP INT; sleep 1000; sleep 1000' &`,
		"many":                     `exec 7>hold; for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 & done`,
		"died of a signal":         `exec 7>hold; setsid sleep 1000 & kill -9 $$`,
		"a status that is not one": `exec 7>hold; setsid sleep 1000 & exit 3`,
	} {
		hold := s.fifo("hold")
		s.sh(sandbox.ExecOptions{}, script)
		hold.wantNoWriter(s.T)
		_ = os.Remove(s.root + "/hold")
		if s.Failed() {
			s.Fatalf("left by: %s", name)
		}
	}
	hold := s.fifo("hold")
	script := `exec 7>hold; setsid sh -c 'trap "" TERM; sleep 1000; sleep 1000' & sleep 1000`
	_, err := s.Exec(context.Background(), "sh", []string{"-c", script}, sandbox.ExecOptions{Timeout: 300 * time.Millisecond})
	if !errors.Is(err, sandbox.ErrTimeout) {
		s.Errorf("error %v, want %v", err, sandbox.ErrTimeout)
	}
	hold.wantNoWriter(s.T)
}

func (s *suite) parallel() {
	own := exec.Command("sh", "-c", "read line; exit 7")
	stdin, err := own.StdinPipe()
	if err == nil {
		err = own.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			want := fmt.Sprintf("%d\n", i)
			r, err := s.Exec(context.Background(), "sh", []string{"-c", `setsid sleep 1000 >/dev/null 2>&1 & echo "$1"; exit "$1"`, "sh", fmt.Sprint(i)}, sandbox.ExecOptions{})
			if err != nil || r.Stdout != want || r.ExitCode != i {
				s.Errorf("command %d: %+v, %v", i, r, err)
			}
		})
	}
	all.Wait()
	stdin.Close()
	if err := own.Wait(); own.ProcessState == nil || own.ProcessState.ExitCode() != 7 {
		s.Errorf("a child of the program's own was disturbed: %v", err)
	}
}

func (s *suite) invalid() {
	for _, opts := range []sandbox.ExecOptions{
		{Timeout: -1},
		{Env: sandbox.EnvPolicy{InheritAll: true, Allow: []string{}}},
		{Env: sandbox.EnvPolicy{Inject: map[string]string{"": "x"}}},
		{Env: sandbox.EnvPolicy{Inject: map[string]string{"A=B": "x"}}},
		{Env: sandbox.EnvPolicy{Inject: map[string]string{"A\nB": "x"}}},
		{Env: sandbox.EnvPolicy{Inject: map[string]string{"A": "x\x00y"}}},
		{Net: sandbox.NetPolicy{Mode: -1}},
		{Net: sandbox.NetPolicy{Mode: 99}},
		{Net: sandbox.NetPolicy{AllowHosts: []string{"example.com"}}},
		{Net: sandbox.NetPolicy{Mode: sandbox.NetAllowList, AllowHosts: []string{"https://example.com/"}}},
		{Resources: sandbox.Resources{MaxOutputBytes: -1}},
		{Resources: sandbox.Resources{MemoryBytes: -1}},
		{Resources: sandbox.Resources{MaxOpenFiles: 3}},
	} {
		s.fails(sandbox.ErrInvalid, "true", opts)
	}
}

func (s *suite) notEnforced() {
	for _, row := range []struct {
		kept bool
		opts sandbox.ExecOptions
	}{
		{s.closesNet(sandbox.NetDenyAll), sandbox.ExecOptions{Net: sandbox.NetPolicy{Mode: sandbox.NetDenyAll}}},
		{s.closesNet(sandbox.NetAllowList), sandbox.ExecOptions{Net: sandbox.NetPolicy{Mode: sandbox.NetAllowList, AllowHosts: []string{"example.com"}}}},
		{false, sandbox.ExecOptions{Net: sandbox.NetPolicy{Mode: sandbox.NetProxy}}},
		{s.promises.FileBytes, sandbox.ExecOptions{Resources: sandbox.Resources{MaxFileBytes: 1 << 20}}},
		{s.promises.OpenFiles, sandbox.ExecOptions{Resources: sandbox.Resources{MaxOpenFiles: 64}}},
		{s.promises.CPU, sandbox.ExecOptions{Resources: sandbox.Resources{CPUMillicores: 500}}},
		{s.promises.Memory, sandbox.ExecOptions{Resources: sandbox.Resources{MemoryBytes: 1 << 30}}},
		{s.promises.Disk, sandbox.ExecOptions{Resources: sandbox.Resources{DiskBytes: 1 << 30}}},
	} {
		if !row.kept {
			s.fails(sandbox.ErrNotAvailable, "true", row.opts)
		} else if _, err := s.Exec(context.Background(), "true", nil, row.opts); err != nil {
			s.Errorf("promised and refused: %v", err)
		}
	}
}

func (s *suite) closesNet(mode sandbox.NetMode) bool {
	return slices.Contains(s.promises.NetModes, mode)
}

func (s *suite) limits() {
	if s.promises.FileBytes {
		opts := sandbox.ExecOptions{Resources: sandbox.Resources{MaxFileBytes: 4096}}
		if r := s.sh(opts, `head -c 100000 /dev/zero >big`); r.ExitCode == 0 {
			s.Error("a file larger than the limit was written")
		}
		if info, err := os.Stat(s.root + "/big"); err != nil || info.Size() > 4096 {
			s.Errorf("a file of %v bytes, %v", info, err)
		}
	}
	if s.promises.OpenFiles {
		opts := sandbox.ExecOptions{Resources: sandbox.Resources{MaxOpenFiles: 40}}
		s.equal("40 40\n", s.sh(opts, `echo $(ulimit -Sn) $(ulimit -Hn)`).Stdout, "open files")
	}
	s.equal("0\n", s.sh(sandbox.ExecOptions{}, `ulimit -Hc`).Stdout, "core files")
}

func (s *suite) network() {
	if len(s.promises.NetModes) == 0 {
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := []string{"-c", `exec 3<>"/dev/tcp/127.0.0.1/$1"`, "bash", port}
	for mode, want := range map[sandbox.NetMode]bool{sandbox.NetDefault: true, sandbox.NetDenyAll: false, sandbox.NetAllowList: false} {
		if mode != sandbox.NetDefault && !s.closesNet(mode) {
			continue
		}
		r, err := s.Exec(context.Background(), "bash", dial, sandbox.ExecOptions{Net: sandbox.NetPolicy{Mode: mode}})
		if err != nil {
			s.Fatal(err)
		}
		s.equal(want, r.ExitCode == 0, "connected with the network mode "+mode.String())
	}
}

func (s *suite) files() {
	if !s.promises.Files {
		return
	}
	s.write(s.outside+"/secret", "secret", 0o644)
	s.sh(sandbox.ExecOptions{}, `cat "$1/secret" >stolen; echo x >"$1/made"; echo x >"$1/secret"; rm -rf "$1"`, s.outside)
	if content, err := os.ReadFile(s.outside + "/secret"); err != nil || string(content) != "secret" {
		s.Errorf("the file outside is %q, %v", content, err)
	}
	if _, err := os.Lstat(s.outside + "/made"); err == nil {
		s.Error("a file was made outside")
	}
	if content, _ := os.ReadFile(s.root + "/stolen"); len(content) > 0 {
		s.Errorf("the file outside was read: %q", content)
	}
	s.sh(sandbox.ExecOptions{}, `echo new >inside`)
	if content, _ := os.ReadFile(s.root + "/inside"); string(content) != "new\n" {
		s.Errorf("the file inside is %q", content)
	}
}

func (s *suite) hiddenEnvironment() {
	if !s.promises.Env {
		return
	}
	s.Setenv("SUITE_TOKEN", "hunter2-in-the-environment")
	other := exec.Command("sleep", long)
	other.Env = []string{"SUITE_OTHER=hunter2-of-another-process"}
	if err := other.Start(); err != nil {
		s.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	opts := sandbox.ExecOptions{Env: sandbox.EnvPolicy{Inject: map[string]string{"INJECTED": "hunter2-injected"}}}
	r := s.sh(opts, `cat /proc/*/environ /proc/*/task/*/environ 2>/dev/null | tr '\0' '\n'; true`)
	for _, secret := range []string{"hunter2-in-the-environment", "hunter2-of-another-process"} {
		if strings.Contains(r.Stdout, secret) {
			s.Errorf("can be read: %q", secret)
		}
	}
	if !strings.Contains(r.Stdout, "hunter2-injected") {
		s.Error("not even its own environment can be read: this test is blind")
	}
	r = s.sh(opts, `cat /proc/*/cmdline | tr '\0' '\n'`)
	if strings.Contains(r.Stdout, "hunter2-injected") {
		s.Error("a variable is on a command line")
	}
}

// fifo tells whether a process that opened its other end is alive, in any namespace.
type fifo struct{ *os.File }

func (s *suite) fifo(name string) fifo {
	s.Helper()
	path := filepath.Join(s.root, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		s.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		s.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	s.Cleanup(func() { f.Close() })
	return fifo{f}
}

func (f fifo) awaitWriter(t *testing.T) {
	for f.state() == 0 {
		time.Sleep(time.Millisecond)
	}
}

func (f fifo) wantNoWriter(t *testing.T) {
	t.Helper()
	if f.state() != 0 {
		t.Error("a process that the command started is alive")
	}
}

// state is the result of read(2): 0 without a writer, -1 (EAGAIN) with one.
func (f fifo) state() int {
	n := 0
	raw, err := f.SyscallConn()
	if err != nil {
		return -2
	}
	_ = raw.Control(func(fd uintptr) {
		n, _ = unix.Read(int(fd), make([]byte, 1))
	})
	return n
}
