package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/probe"
)

// checkBox is a box with a temporary directory of its own, in which a test sees
// the files that a check leaves.
func checkBox(t *testing.T) (b *clitest.Box, temporary string) {
	t.Helper()
	b = clitest.NewBox(t)
	temporary = filepath.Join(filepath.Dir(b.Project), "tmp")
	b.Mkdir(t, temporary)
	b.Env = append(b.Env, "TMPDIR="+temporary)
	return b, temporary
}

// checked runs a check and reads its JSON.
func checked(t *testing.T, b *clitest.Box, options ...string) (verdicts map[string]verdict, status int) {
	t.Helper()
	got := b.Run(t, "pk-bwrap", append(options, "--check", "--json")...)
	verdicts = map[string]verdict{}
	for line := range strings.Lines(got.Stdout) {
		var v verdict
		require.NoError(t, json.Unmarshal([]byte(line), &v), line)
		if v.Kind == "check" {
			verdicts[v.Guarantee] = v
		}
	}
	require.NotEmpty(t, verdicts, got.Stderr)
	return verdicts, got.Status
}

// knob reads a setting of the kernel; "" where it has none.
func knob(path string) string {
	value, _ := os.ReadFile("/proc/sys/" + path)
	return strings.TrimSpace(string(value))
}

func TestEverythingHoldsHere(t *testing.T) {
	b, temporary := checkBox(t)
	before := clitest.Listing(t, filepath.Dir(b.Project))
	verdicts, status := checked(t, b)
	assert.Equal(t, 0, status)
	tried := 0
	for name, v := range verdicts {
		want := holds
		if name == "network" || name == "net-allow" {
			want = off
		}
		assert.Equal(t, want, v.State, "%+v", v)
		for _, a := range v.Attacks {
			if want == holds {
				assert.Equal(t, probe.Refused, a.Outcome, "%+v", a)
			}
			tried++
		}
	}
	assert.Equal(t, len(probe.Attacks()), tried)
	assert.Equal(t, before, clitest.Listing(t, filepath.Dir(b.Project)))
	assert.Empty(t, clitest.Listing(t, temporary)[len(temporary+" drwxr-xr-x\n"):])
}

func TestWhatIsSwitchedOffIsOff(t *testing.T) {
	b, _ := checkBox(t)
	for _, test := range []struct {
		options []string
		name    string
		attack  probe.Outcome
	}{
		{nil, "network", probe.In},
		{[]string{"--allow-nested"}, "nested", probe.In},
		{[]string{"--no-protect"}, "protect", probe.In},
	} {
		t.Run(test.name, func(t *testing.T) {
			verdicts, status := checked(t, b, test.options...)
			assert.Equal(t, 0, status)
			v := verdicts[test.name]
			assert.Equal(t, off, v.State)
			require.NotEmpty(t, v.Attacks)
			for _, a := range v.Attacks {
				assert.Equal(t, test.attack, a.Outcome, "%+v", a)
			}
		})
	}
	verdicts, status := checked(t, b, "--net", "none")
	assert.Equal(t, 0, status)
	assert.Equal(t, holds, verdicts["network"].State)
	assert.Equal(t, probe.Refused, verdicts["network"].Attacks[0].Outcome)
}

func TestPassedVariablesAreNoFinding(t *testing.T) {
	b, _ := checkBox(t)
	verdicts, status := checked(t, b, "--env-inherit")
	assert.Equal(t, 0, status)
	assert.Equal(t, probe.Absent, verdicts["environment"].Attacks[0].Outcome)
}

func TestListsAreReadFromStandardInputWhenChecking(t *testing.T) {
	b, _ := checkBox(t)
	cmd := b.Command("pk-bwrap", "--check", "--readable-from", "-")
	cmd.Stdin = strings.NewReader("/nonesuch\n")
	got := clitest.Finish(t, cmd)
	assert.Equal(t, clitest.Outcome{Status: 125, Stderr: `pk-bwrap: cannot use "/nonesuch" as a readable root: no such file or directory
pk-bwrap: hint: make it first, or name an existing directory
`}, got)
}

// In another user's project, root is checked as that user.
func TestChecksAsTheProjectsOwner(t *testing.T) {
	b, _ := checkBox(t)
	want := ""
	if os.Getuid() == 0 {
		want = fmt.Sprintf(", who becomes uid %d", giveAway(t, b.Project))
	}
	got := b.Run(t, "pk-bwrap", "--check")
	assert.Equal(t, 0, got.Status, got.Stdout+got.Stderr)
	assert.Regexp(t, fmt.Sprintf(`(?m)^user    .*uid %d%s$`, os.Getuid(), want), got.Stdout)
}

// A check removes its files, also with the options of a trial.
func TestACheckIsNoTrial(t *testing.T) {
	b, _ := checkBox(t)
	for _, options := range [][]string{{"--trial"}, {"--session", "s", "--trial"}} {
		verdicts, status := checked(t, b, options...)
		assert.Zero(t, status, "%v: %+v", options, verdicts)
	}
	assert.NoDirExists(t, b.Home+"/.cache/pikuri/workspace-s")
}

// fakeBwrap writes a script that is used as bwrap. It answers questions about
// itself as the real one does.
func fakeBwrap(t *testing.T, b *clitest.Box, script string) *clitest.Box {
	t.Helper()
	path := filepath.Join(filepath.Dir(b.Project), "fake-bwrap")
	b.Write(t, path, "#!/bin/bash\ncase $1 in --help|--version) exec '"+b.Bwrap+"' \"$1\" ;; esac\n"+script+"\n")
	require.NoError(t, os.Chmod(path, 0o755))
	faked := *b
	faked.Bwrap = path
	return &faked
}

// A bwrap that shows more than its options say. --args is taken first, so that
// the added options come last.
func TestAnAttackThatGetsThroughIsReported(t *testing.T) {
	b, temporary := checkBox(t)
	b = fakeBwrap(t, b, `options=
while [ "$1" != -- ]; do options="$options $1"; shift; done
exec '`+b.Bwrap+`' $options --bind `+temporary+" "+temporary+` "$@"`)
	verdicts, status := checked(t, b)
	assert.Equal(t, 1, status)
	succeeded := func(guarantee string) (in []string) {
		assert.Equal(t, fails, verdicts[guarantee].State)
		for _, a := range verdicts[guarantee].succeeded() {
			in = append(in, a.Name)
		}
		return in
	}
	assert.Equal(t, []string{"read a file beside the project", "read through a link in the project", "read a key in the home",
		"read through the root of a process", "read through the working directory of a process", "write beside the project",
		"connect to a socket beside the project"}, succeeded("files"))
	// The repository is made inert afterwards all the same.
	assert.Equal(t, []string{"write a git hook", "change git's configuration", "change a task of an editor"}, succeeded("protect"))
	assert.Equal(t, holds, verdicts["processes"].State)

	got := b.Run(t, "pk-bwrap", "--check")
	assert.Equal(t, 1, got.Status)
	assert.Contains(t, got.Stdout, `no  files             only what is shown can be read or written
                      got through: read a file beside the project
`)
	assert.Contains(t, got.Stdout, `                      it was promised, and an attack got through
    fix: do not rely on it; report it as a bug, with what --check --json says
`)
}

func TestMachinesWithoutASandbox(t *testing.T) {
	b, temporary := checkBox(t)
	for _, test := range []struct{ name, bwrap, want string }{
		{"no bwrap", "/nonesuch/bwrap", `no  sandbox           a command can be fenced in at all
                      cannot use bwrap "/nonesuch/bwrap": no such file or
                      directory
    fix: name one with --bwrap PATH

0 ok, 1 no, 0 off; 0 attacks tried
`},
		{"one that fails", fakeBwrap(t, b, "echo 'bwrap: Unexpected capabilities but not setuid, old file caps config?' >&2; exit 1").Bwrap, `no  sandbox           a command can be fenced in at all
                      cannot make a sandbox: Unexpected capabilities but not
                      setuid, old file caps config?
    fix: the caller has capabilities; start it with: setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all

0 ok, 1 no, 0 off; 0 attacks tried
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			faked := *b
			faked.Bwrap = test.bwrap
			got := faked.Run(t, "pk-bwrap", "--check")
			assert.Equal(t, 1, got.Status)
			assert.Empty(t, got.Stderr)
			assert.Equal(t, test.want, withoutMachine(got).Stdout)
			assert.Empty(t, clitest.Listing(t, temporary)[len(temporary+" drwxr-xr-x\n"):])
		})
	}
	nobody := b.Command("pk-bwrap", "--check")
	nobody.Env = append(nobody.Env, "HOME=/nonesuch")
	assert.Equal(t, clitest.Outcome{Status: 1, Stdout: `no  sandbox           a command can be fenced in at all
                      cannot make cache directory "/nonesuch/.cache/pikuri": no
                      such file or directory
    fix: set XDG_CACHE_HOME to a directory of your own

0 ok, 1 no, 0 off; 0 attacks tried
`}, withoutMachine(clitest.Finish(t, nobody)))
	got := b.Run(t, "pk-bwrap", "--check", "--bwrap", b.Project+"/..", "--json") // the last one counts
	assert.Equal(t, 1, got.Status)
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	require.Len(t, lines, 2)
	assert.Equal(t, fmt.Sprintf(`{"kind":"check","guarantee":"sandbox","state":"no","text":"a command can be fenced in at all","why":"cannot use bwrap %s: not an executable file","fix":"name one with --bwrap PATH"}`,
		strings.ReplaceAll(fmt.Sprintf("%q", b.Project+"/.."), `"`, `\"`)), lines[1])
}

// withoutMachine cuts the lines about the machine.
func withoutMachine(o clitest.Outcome) clitest.Outcome {
	_, o.Stdout, _ = strings.Cut(o.Stdout, "\n\n")
	return o
}

func TestCheckingIsCalledRight(t *testing.T) {
	b, temporary := checkBox(t)
	for _, test := range []struct {
		name    string
		options []string
		want    string
	}{
		{"an operand", []string{"--check", "ls"}, `--check takes no operands, and got "ls"`},
		{"with --print", []string{"--check", "--print"}, "--check cannot be used with --print"},
		{"with --explain", []string{"--check", "--explain"}, "--check cannot be used with --explain"},
		{"with --json and -z", []string{"--check", "--json", "-z"}, "--json cannot be used with --zero"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := b.Run(t, "pk-bwrap", test.options...)
			assert.Equal(t, clitest.Outcome{Status: 125, Stderr: "pk-bwrap: " + test.want + "\npk-bwrap: hint: pk-bwrap --help lists the options\n"}, got)
		})
	}
	got := b.Run(t, "pk-bwrap", "--check", "--writable", "/")
	assert.Equal(t, 125, got.Status)
	assert.Empty(t, got.Stdout)
	assert.Contains(t, got.Stderr, `pk-bwrap: `)
	for _, part := range []string{sandboxOption, probe.Option} {
		got := clitest.Finish(t, exec.Command(filepath.Join(b.Bin, "pk-bwrap"), part, "{}"))
		assert.NotEqual(t, 0, got.Status)
		assert.Contains(t, got.Stderr, "is for pk's own use\n")
	}
	assert.Empty(t, clitest.Listing(t, temporary)[len(temporary+" drwxr-xr-x\n"):])
}

func TestAnInterruptedCheckLeavesNothing(t *testing.T) {
	b, temporary := checkBox(t)
	started := filepath.Join(filepath.Dir(b.Project), "started")
	require.NoError(t, unix.Mkfifo(started, 0o600))
	b = fakeBwrap(t, b, "echo > "+started+"; exec sleep 1000")
	cmd := b.Command("pk-bwrap", "--check")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	f, err := os.Open(started) // returns when the other end is opened
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 125, cmd.ProcessState.ExitCode())
	assert.Contains(t, stderr.String(), "pk-bwrap: the check was ended: ")
	assert.Empty(t, clitest.Listing(t, temporary)[len(temporary+" drwxr-xr-x\n"):])
}

// The places where an attack is shown to work. An attack that fails everywhere would
// find nothing in a sandbox either.
const (
	unfenced = "unfenced"     // without a sandbox, for every user
	byRoot   = "by root"      // without one, for root alone; others have no right to it
	weak     = "weak"         // in a sandbox that was given too much
	old      = "old"          // while an old bwrap makes a sandbox
	apart    = "in lib/probe" // no option of bwrap gives its init anything
)

var shown = map[string]string{
	"read a file beside the project":                   unfenced,
	"read through a link in the project":               unfenced,
	"read a key in the home":                           unfenced,
	"read the shadow file":                             byRoot,
	"read through the root of a process":               unfenced,
	"read through the working directory of a process":  unfenced,
	"write beside the project":                         unfenced,
	"write to /usr":                                    weak,
	"write to /":                                       weak,
	"set the kernel's core_pattern":                    byRoot,
	"connect to a socket beside the project":           unfenced,
	"find a descriptor that was left open":             unfenced,
	"find a directory that another process holds open": unfenced,
	"remount /usr writable":                            weak,
	"unmount the home":                                 weak,
	"mount a file system":                              weak,
	"change the root directory":                        weak,
	"make a device":                                    byRoot,
	"hold a capability":                                weak,
	"hold one in the sandbox's init, and trace it":     apart,
	"gain privileges by a set-user-ID program":         unfenced,
	"see a process of the host":                        unfenced,
	"trace a process of the host":                      unfenced,
	"read the memory of a process of the host":         unfenced,
	"signal a process of the host":                     unfenced,
	"find a secret in the environment of a process":    unfenced,
	"make a user namespace":                            unfenced,
	"open the caller's terminal":                       unfenced,
	"type into the caller's terminal":                  unfenced,
	"paste into a virtual console":                     unfenced,
	"read one of the caller's keys by its number":      unfenced,
	"search for one of the caller's keys":              unfenced,
	"list the caller's keys":                           unfenced,
	"add a key":                                        unfenced,
	"make a ring with io_uring_setup":                  unfenced,
	"make a map with bpf":                              byRoot,
	"count with perf_event_open":                       unfenced,
	"stop page faults with userfaultfd":                unfenced,
	"open a socket to the host of a virtual machine":   unfenced,
	"open a packet socket by way of AF_INET":           unfenced,
	"open a pair of sockets of another family":         unfenced,
	"listen to the kernel's messages about devices":    unfenced,
	"leave a set-user-ID file by chmod":                unfenced,
	"leave a set-user-ID file by open":                 unfenced,
	"leave a set-user-ID file by mknod":                unfenced,
	"leave a set-user-ID file by openat2":              unfenced,
	"connect to an abstract socket of the host":        unfenced,
	"connect to a service on the loopback address":     unfenced,
	"connect to a service that no rule names":          unfenced,
	"write a git hook":                                 unfenced,
	"change git's configuration":                       unfenced,
	"rename the directory of the hooks' directory":     unfenced,
	"make a repository for git on the host":            unfenced,
	"change a task of an editor":                       unfenced,
	"have a mount point made behind a planted link":    old,
	"leave something in the project or the home":       weak,
	"poison a cache of the host":                       unfenced,
}

// closed are the attacks that a machine may prevent without any sandbox, for users
// other than root or for all.
func closed() map[string]bool {
	root := os.Getuid() == 0
	yama := knob("kernel/yama/ptrace_scope")
	return map[string]bool{
		"trace a process of the host":              yama != "" && yama != "0" && !root,
		"read the memory of a process of the host": yama != "" && yama != "0" && !root,
		"type into the caller's terminal":          knob("dev/tty/legacy_tiocsti") == "0" && !root,
		"make a ring with io_uring_setup":          knob("kernel/io_uring_disabled") == "2" || knob("kernel/io_uring_disabled") == "1" && !root,
		"count with perf_event_open":               knob("kernel/perf_event_paranoid") > "2" && !root,
	}
}

func TestEveryAttackWorksWithoutItsGuard(t *testing.T) {
	b, temporary := checkBox(t)
	outcomes := map[string]map[string]probe.Outcome{
		unfenced: attackUnfenced(t, b, temporary),
		weak:     attackWeak(t, b, temporary),
	}
	outcomes[byRoot] = outcomes[unfenced]
	closed := closed()
	for _, a := range probe.Attacks() {
		where, known := shown[a.Name]
		require.True(t, known, a.Name)
		switch {
		case where == apart, where == old && !strings.Contains(b.Bwrap, "0.8"):
		case where == old:
			assert.Equal(t, probe.In, outcomes[weak][a.Name], a.Name)
		case where == byRoot && os.Getuid() != 0, closed[a.Name]:
			assert.Equal(t, probe.Refused, outcomes[where][a.Name], a.Name)
		default:
			assert.Equal(t, probe.In, outcomes[where][a.Name], a.Name)
		}
	}
	assert.Len(t, shown, len(probe.Attacks()))
}

// attackUnfenced runs the probe as it is, and keeps it from doing harm.
func attackUnfenced(t *testing.T, b *clitest.Box, temporary string) map[string]probe.Outcome {
	t.Helper()
	return attackScene(t, b, temporary, func(s *probe.Scene) *exec.Cmd {
		s.Unfenced = true
		return exec.Command(filepath.Join(b.Bin, "pk-bwrap"), probe.Option, s.Argument())
	})
}

// attackWeak runs the probe in a sandbox in which it may do everything, to objects that
// are not the machine's.
func attackWeak(t *testing.T, b *clitest.Box, temporary string) map[string]probe.Outcome {
	t.Helper()
	return attackScene(t, b, temporary, func(s *probe.Scene) *exec.Cmd {
		s.Home = "/nobody"
		args := []string{
			"--unshare-user", "--unshare-pid", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--proc", "/proc", "--dev", "/dev",
			"--tmpfs", "/usr", "--tmpfs", "/nobody", "--bind", s.Dir, s.Dir, "--ro-bind", filepath.Join(b.Bin, "pk-bwrap"), probePath,
			"--ro-bind", "/dev/null", s.Project() + "/litter",
		}
		if strings.Contains(b.Bwrap, "0.8") { // others refuse to follow it
			args = append(args, "--ro-bind", "/dev/null", s.Second()+"/.git/hooks")
		}
		return exec.Command(b.Bwrap, append(args, "--", probePath, probe.Option, s.Argument())...)
	})
}

func attackScene(t *testing.T, b *clitest.Box, temporary string, prepare func(*probe.Scene) *exec.Cmd) map[string]probe.Outcome {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := probe.New(temporary, filepath.Join(b.Bin, "pk-bwrap"), os.Getuid(), os.Getgid())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Remove()) }()
	cmd := prepare(s)
	cmd.Dir, cmd.Env, cmd.Stdin = s.Project(), s.Environ(nil), s.Terminal()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	got := clitest.Finish(t, cmd)
	require.Equal(t, 0, got.Status, got.Stderr)
	outcomes := map[string]probe.Outcome{}
	for _, r := range s.Judge(strings.NewReader(got.Stdout)) {
		outcomes[r.Name] = r.Outcome
	}
	return outcomes
}

// A bwrap that leaves out one guard, or does the opposite: exactly the guarantees of
// that guard fail.
func TestEachGuardIsMissedByItsAttacks(t *testing.T) {
	b, temporary := checkBox(t)
	for _, test := range []struct {
		name   string
		before string   // bwrap
		sed    string   // on the words of bwrap's options, each ending in NUL
		named  []string // the guarantees
		attack string   // on the first, one that gets through
	}{
		// The filter stays open, as nothing takes it.
		{"no filter", "", `/^--seccomp$/{N;d}`, []string{"syscalls", "nested", "terminal", "descriptors"}, "make a ring with io_uring_setup"},
		{"capabilities", "", `/^--cap-drop$/s/drop/add/`, []string{"capabilities"}, "hold a capability"},
		{"user namespaces", "", `/^--disable-userns$/d`, []string{"nested"}, "make a user namespace"},
		{"a writable root directory", "mount -o remount,bind,rw /mnt/root", "", []string{"files"}, "write to /"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if closed()[test.attack] {
				return // this machine has a second guard
			}
			options := filepath.Join(temporary, "options")
			// The options may name any other descriptor.
			b := fakeBwrap(t, b, `
sed -z '`+test.sed+`' <&$2 >`+options+`
`+test.before+`
eval "exec $2<`+options+`"
exec '`+b.Bwrap+`' "$@"`)
			verdicts, status := checked(t, b)
			assert.Equal(t, 1, status)
			for name, v := range verdicts {
				assert.Equal(t, slices.Contains(test.named, name), v.State == fails, "%+v", v)
			}
			assert.Contains(t, fmt.Sprint(verdicts[test.named[0]].succeeded()), test.attack)
		})
	}
}
