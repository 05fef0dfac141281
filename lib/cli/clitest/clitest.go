// Package clitest runs the tests of a command against its real binary, and compares
// its help text, man page and completions with its registered options.
package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"pikuri/lib/cli"
)

// Root returns the top of the source tree.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("not inside the source tree")
	return ""
}

// Bin returns a directory that holds the real binaries: $PK_BIN when set (a
// test binary that runs as another user has no Go at hand), else a temporary
// one into which they are built.
func Bin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("PK_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-tags", "urfave_cli_no_docs", "-o", dir+"/", "./cmd/...")
	build.Dir = Root(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// Need skips a test about a program that not every machine has. In CI ($CI is true) its
// absence is a failure.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", program)
	}
	t.Skipf("%s is not installed", program)
}

// NeedModules skips a test that runs go in the rows of scripts/test, where the user's home
// has no Go modules. The run as the caller has them.
func NeedModules(t testing.TB) {
	t.Helper()
	if os.Getenv("PK_TEST_NO_MODULES") != "" {
		t.Skip("there are no Go modules here; another run has them")
	}
}

// Scripts runs testdata/*.txtar (see testscript) with the real binaries first
// in PATH. Beyond the built-in commands there is one:
//
//	status N COMMAND [ARG...]
//
// runs COMMAND, remembers its stdout and stderr for the next commands, and
// fails unless it exits with N.
func Scripts(t *testing.T, env ...string) {
	t.Helper()
	bin := Bin(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			for _, kv := range env {
				name, value, _ := strings.Cut(kv, "=")
				e.Setenv(name, value)
			}
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [arg...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d", args[1], got, want)
	}
}

// PolicyPage fails when pk-policy(5) does not name one of the options that a
// policy can give.
func PolicyPage(t *testing.T, options []cli.Option) {
	t.Helper()
	page := strings.NewReplacer(`\-`, "-", ",", " ").Replace(read(t, Root(t), "man", "pk-policy.5"))
	for _, o := range options {
		if o.Long != "policy" && !slices.Contains(strings.Fields(page), o.Long) {
			t.Errorf("pk-policy(5): option %q is missing", o.Long)
		}
	}
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
