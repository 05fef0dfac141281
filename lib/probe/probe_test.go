package probe

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
)

// The test binary is its own target.
func TestMain(m *testing.M) {
	if job := hidden.Dispatch(os.Args[1:], Modes(os.Stdin, os.Stdout)...); job != nil {
		if job() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newScene(t *testing.T) *Scene {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	s, err := New(t.TempDir(), "/proc/self/exe", os.Getuid(), os.Getgid())
	require.NoError(t, err)
	return s
}

func TestNothingOfASceneStays(t *testing.T) {
	s := newScene(t)
	pid, key, leaked := s.PID, s.Key, s.leaked
	info, err := os.Stat(s.Dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, s.Remove())
	assert.NoDirExists(t, s.Dir)
	assert.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)
	_, err = unix.FcntlInt(uintptr(leaked), unix.F_GETFD, 0)
	assert.ErrorIs(t, err, unix.EBADF)
	if key != 0 {
		_, err = unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", s.KeyName, 0)
		assert.Error(t, err)
	}
	assert.Error(t, connect("unix", s.Abstract))
	assert.Error(t, connect("tcp", s.TCP))
}

// TestTargetsHoldNoSecret: the program inside learns where the secret is, and not
// its content.
func TestTargetsHoldNoSecret(t *testing.T) {
	s := newScene(t)
	defer s.Remove()
	secret, err := os.ReadFile(s.secret())
	require.NoError(t, err)
	assert.NotContains(t, s.Argument(), strings.TrimSpace(string(secret)))
}

// TestSilenceIsNoRefusal: an attack without a result was not refused.
func TestSilenceIsNoRefusal(t *testing.T) {
	s := newScene(t)
	defer s.Remove()
	for _, output := range []string{"", "noise\n{}\n", `{"name":"an attack that there is not","outcome":"refused"}`} {
		results := s.Judge(strings.NewReader(output))
		assert.Len(t, results, len(Attacks()))
		for _, r := range results {
			assert.Equal(t, Untried, r.Outcome, r.Name)
		}
	}
}

// TestTheSceneIsBelievedAndNotTheProbe: an attack that leaves a trace outside is
// judged by the trace.
func TestTheSceneIsBelievedAndNotTheProbe(t *testing.T) {
	claims := func(outcome Outcome) string {
		var out strings.Builder
		for _, a := range Attacks() {
			if a.got != nil {
				out.WriteString(`{"name":"` + a.Name + `","outcome":"` + string(outcome) + `"}` + "\n")
			}
		}
		return out.String()
	}
	judged := func(s *Scene, claim Outcome) map[string]Outcome {
		outcomes := map[string]Outcome{}
		for _, r := range s.Judge(strings.NewReader(claims(claim))) {
			if r.Outcome != Untried {
				outcomes[r.Name] = r.Outcome
			}
		}
		return outcomes
	}
	s := newScene(t)
	for name, outcome := range judged(s, In) {
		assert.Equal(t, Refused, outcome, name)
	}
	require.NoError(t, s.Remove())

	s = newScene(t)
	defer s.Remove()
	require.NoError(t, os.MkdirAll(s.planted()+"/.git", 0o755))
	for _, file := range []string{filepath.Dir(s.secret()) + "/new", s.cache() + "/poison", s.victim() + "/hooks", s.Project() + "/litter",
		s.hook(), s.gitConfig(), s.planted() + "/.git/HEAD"} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	require.NoError(t, unix.Kill(s.PID, unix.SIGTERM))
	outcomes := judged(s, Refused)
	assert.Len(t, outcomes, 8)
	for name, outcome := range outcomes {
		assert.Equal(t, In, outcome, name)
	}
}

func TestLitterIsAnythingThatChanged(t *testing.T) {
	for name, change := range map[string]func(*Scene) error{
		"a new file":    func(s *Scene) error { return os.WriteFile(s.Project()+"/x", nil, 0o644) },
		"a new mode":    func(s *Scene) error { return os.Chmod(s.Project()+"/main.c", 0o600) },
		"a longer file": func(s *Scene) error { return os.WriteFile(s.Project()+"/main.c", make([]byte, 99), 0o644) },
		"one less":      func(s *Scene) error { return os.Remove(s.Project() + "/main.c") },
		"in the home":   func(s *Scene) error { return os.Mkdir(s.home()+"/.config", 0o755) },
		"another hook":  func(s *Scene) error { return os.WriteFile(s.hook()+"2", nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			defer s.Remove()
			assert.False(t, s.littered())
			require.NoError(t, change(s))
			assert.True(t, s.littered())
		})
	}
}

// TestTracingForCapabilities attacks a process of root, which has capabilities:
// bwrap's init never has one.
func TestTracingForCapabilities(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", targetOption)
	hold, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	err = traceForCapabilities(cmd.Process.Pid)
	if status, _ := statusOf("self"); strings.Trim(status["CapPrm"], "0") != "" {
		assert.NoError(t, err)
	} else {
		assert.Error(t, err)
	}
	require.NoError(t, hold.Close())
	require.NoError(t, cmd.Wait()) // it was detached
}

func TestTheProbeIsNoProgramForPeople(t *testing.T) {
	for _, args := range [][]string{nil, {""}, {"{}"}, {"x"}, {`{"dir":"/x"}`, "more"}} {
		var stdout bytes.Buffer
		assert.ErrorIs(t, attack(args, &stdout), hidden.ErrOwnUse)
		assert.Empty(t, stdout.String())
	}
}

func TestNamesAreUsedOnce(t *testing.T) {
	names := map[string]bool{}
	for _, a := range Attacks() {
		assert.False(t, names[a.Name], a.Name)
		names[a.Name] = true
		assert.NotEmpty(t, a.Guarantee, a.Name)
		assert.NotNil(t, a.try, a.Name)
	}
}
