package clitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Box is the environment of a sandbox test: the real binaries, a bwrap, a
// temporary project and home.
type Box struct {
	Bin     string // directory of the binaries
	Bwrap   string // the bwrap to test with
	Project string
	Home    string
	Env     []string // added to HOME and PATH
}

// NewBox is NewBoxInEveryRow for a test that runs in TwoRows, as most tests do.
func NewBox(t testing.TB) *Box {
	t.Helper()
	TwoRows(t)
	return NewBoxInEveryRow(t)
}

// NewBoxInOneRow is NewBoxInEveryRow for a test that runs in OneRow.
func NewBoxInOneRow(t testing.TB) *Box {
	t.Helper()
	OneRow(t)
	return NewBoxInEveryRow(t)
}

// OneRow skips a test in three of the four rows of the matrix. It is for a long test that
// neither the user nor the bwrap makes a difference to. A checksum of its name decides
// which of TwoRows runs it.
func OneRow(t testing.TB) {
	t.Helper()
	TwoRows(t)
	if matrix() && (checksum(t)&2 == 0) != (os.Getuid() == 0) {
		t.Skip("another row of the matrix runs this")
	}
}

// TwoRows skips a test in two of the four rows of the matrix. The test runs as root with
// one bwrap, and as an ordinary user with the other. A checksum of its name decides which
// bwrap that is, so each row runs half of the tests. pk's own set-up program makes the
// sandbox, and bwrap adds the same with either user. It is enough to try both users and
// both bwraps.
func TwoRows(t testing.TB) {
	t.Helper()
	root, first := os.Getuid() == 0, checksum(t)&1 == 0
	if matrix() && first != (root == isNew(os.Getenv("PK_TEST_BWRAP"))) {
		t.Skip("the other two rows of the matrix run this")
	}
}

// matrix reports whether other rows run as well. Without it, and with $PK_ROUNDS, no test
// is skipped.
func matrix() bool {
	return os.Getenv("PK_TEST_BWRAP") != "" && os.Getenv("PK_TEST_MATRIX") != "" && os.Getenv("PK_ROUNDS") == ""
}

func checksum(t testing.TB) uint32 { return crc32.ChecksumIEEE([]byte(t.Name())) }

// NewBoxInEveryRow makes a Box for a test that all four rows run, or for a test that takes
// Turn. Without $PK_TEST_BWRAP it skips the test. With it, a sandbox that cannot be made is
// a failure.
func NewBoxInEveryRow(t testing.TB) *Box {
	t.Helper()
	bwrap := os.Getenv("PK_TEST_BWRAP")
	if bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test; CONTRIBUTING.md says how to run one")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &Box{Bin: Bin(t), Bwrap: bwrap, Project: filepath.Join(dir, "project"), Home: filepath.Join(dir, "home")}
	b.Mkdir(t, b.Project)
	b.Mkdir(t, b.Home)
	t.Cleanup(func() { b.sweep(t) })
	return b
}

// Turn reports whether a row of a table is this pass's. The matrix makes four, as root
// and as an ordinary user with two bwraps; each takes a quarter, and all of it if
// PK_ROUNDS is set.
func Turn(row int) bool {
	pass := 0
	if os.Getuid() != 0 {
		pass++
	}
	if isNew(os.Getenv("PK_TEST_BWRAP")) {
		pass += 2
	}
	return os.Getenv("PK_ROUNDS") != "" || row%4 == pass
}

// isNew reports whether this is the newer bwrap of the matrix.
func isNew(bwrap string) bool { return strings.Contains(bwrap, "0.12") }

// sweep ends the sessions of the box: their keepers would wait for the next
// command, and os.RemoveAll cannot remove all that overlays leave.
func (b *Box) sweep(t testing.TB) {
	t.Helper()
	b.AwaitOrphans(t)
	cmd := b.Command("pk-sweep", "--all", "--discard")
	cmd.Dir = "/"
	if got := Finish(t, cmd); got.Status != 0 || got.Stdout != "" || got.Stderr != "" {
		t.Errorf("pk-sweep --all --discard: %+v", got)
	}
	// A set-up program that was killed leaves directories without permissions in a layer.
	_ = filepath.WalkDir(filepath.Join(b.Home, ".cache"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

// AwaitOrphans waits for the end of the set-up programs. Those of killed monitors run another
// program in their place, and have no command line for a moment.
func (b *Box) AwaitOrphans(t testing.TB) {
	t.Helper()
	ours := []byte("\x00--pk-disarm\x00" + b.Home + "/")
	begun := time.Now()
	runs := func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(lines, func(name string) bool {
			line, _ := os.ReadFile(name) // it may have ended
			return bytes.Contains(line, ours) || time.Since(begun) < 2*time.Second && b.becomes(filepath.Dir(name), line)
		})
	}
	for runs() {
		if time.Since(begun) > time.Minute {
			t.Error("a set-up program is left")
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// becomes reports whether a process is about to become a set-up program, or the next program in
// its place. Until then it looks like its parent, or has no command line: it is a session leader
// then, and alive, though its first thread may have ended.
func (b *Box) becomes(dir string, line []byte) bool {
	if len(line) > 0 {
		cwd, _ := os.Readlink(dir + "/cwd")
		return cwd == b.Project && bytes.HasPrefix(line, []byte(b.Bin+"/pk-"))
	}
	stat, _ := os.ReadFile(dir + "/stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, session, threads = 0, 3, 17
	return len(fields) > threads && fields[session] == filepath.Base(dir) && (fields[state] != "Z" || fields[threads] != "1")
}

// Commands returns a directory for PATH that holds all of the binaries under
// their own names. Started by name, they use this box's bwrap as well.
func (b *Box) Commands(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(b.Project), "commands")
	entries, err := os.ReadDir(b.Bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		options := ""
		if e.Name() == "pk-bwrap" || e.Name() == "pk-bash" || e.Name() == "pk-mcp" {
			options = " --bwrap '" + b.Bwrap + "'"
		}
		b.Script(t, filepath.Join(dir, e.Name()), "exec '"+filepath.Join(b.Bin, e.Name())+"'"+options+" \"$@\"\n")
	}
	return dir
}

// Script makes an executable file of sh.
func (b *Box) Script(t testing.TB, path, body string) {
	t.Helper()
	b.Write(t, path, "#!/bin/sh\n"+body)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Mkdir makes a directory and those above it.
func (b *Box) Mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Write makes a file and the directories above it.
func (b *Box) Write(t testing.TB, path, content string) {
	t.Helper()
	b.Mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Outcome is the output and the exit status of a command.
type Outcome struct {
	Stdout, Stderr string
	Status         int
}

// Command prepares one of the binaries in the project, with this box's bwrap
// where the command takes one and no environment but the box's.
func (b *Box) Command(name string, args ...string) *exec.Cmd {
	if name == "pk-bwrap" || name == "pk-bash" || name == "pk-mcp" {
		args = append([]string{"--bwrap", b.Bwrap}, args...)
	}
	cmd := exec.Command(filepath.Join(b.Bin, name), args...)
	cmd.Dir = b.Project
	cmd.Env = append([]string{"HOME=" + b.Home, "PATH=" + os.Getenv("PATH")}, b.Env...)
	return cmd
}

// Run runs one of the binaries to its end.
func (b *Box) Run(t testing.TB, name string, args ...string) Outcome {
	t.Helper()
	return Finish(t, b.Command(name, args...))
}

// Finish runs cmd to its end.
func Finish(t testing.TB, cmd *exec.Cmd) Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return Outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Status is the exit status of a process as a shell tells it.
func Status(p *os.ProcessState) int {
	if status := p.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}

// Listing names everything below dir with type, mode, size and content, so that
// two listings are equal when nothing has changed.
func Listing(t testing.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out.WriteString(path + " " + info.Mode().String())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out.WriteString(" " + info.ModTime().String() + " " + string(content))
		}
		out.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Audit returns the name of an audit file that no command of the box sees.
func (b *Box) Audit(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(b.Project), "records")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "audit")
}

// Records returns the records of an audit file.
func Records(t testing.TB, name string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for line := range strings.Lines(string(text)) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}
