package sandbox

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/confine"
	"pikuri/lib/gitrepo"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/shell"
	"pikuri/lib/toolchain"
)

// A command is run by shell.Job, which wants a process to itself: orphans fall
// to that process and are ended, and so would be the children of a program that
// uses this package. So each command gets a supervisor, a helper process in a
// session of its own. It ends the command when the program that started it dies.

// supervisorOption is the mode of a supervisor.
const supervisorOption = "--pk-supervisor"

// Descriptors of a supervisor beyond the three streams.
const (
	controlFD = 3 // a socket: a request comes in, a report goes out, its end means stop
	workDirFD = 4 // the directory to start in
)

// Modes are the modes in which a program that uses a runner starts itself again.
// They are for the commands of this module; other programs call Main.
func Modes() []hidden.Mode {
	return append(bwrap.Modes(), shell.GuardMode, hidden.Mode{Name: supervisorOption, Run: supervise})
}

// Main has to be called before anything else in the main function of a program
// that makes a LocalRunner or a BwrapRunner, and in TestMain of its tests. The
// runners start this program again, as helper processes; in such a process Main
// does the helper's work and exits. In any other it does nothing, whatever the
// options of the program are.
//
// In a program that has not called Main no runner can be made.
func Main() {
	job := hidden.DispatchSelf(os.Args, Modes()...)
	if job == nil {
		return
	}
	if err := job(); err != nil {
		fmt.Fprintf(os.Stderr, "sandbox: %v\n", err)
		os.Exit(statusHelperFailed)
	}
	os.Exit(0)
}

// statusHelperFailed is the exit status of a helper process that failed.
const statusHelperFailed = 125

// ready refuses to make a runner in a program that does not call Main: each
// helper process would run that program's own main.
func ready() error {
	if hidden.Check(supervisorOption) != nil {
		return fmt.Errorf("%w: the program has to call sandbox.Main first in its main function", ErrNotAvailable)
	}
	return nil
}

// request is what a supervisor is told.
type request struct {
	Argv      []string
	Env       []string
	Timeout   time.Duration // 0: none
	KillAfter time.Duration
	FileBytes int64
	OpenFiles int64
	Fence     *fence // nil: no sandbox
}

// fence is a sandbox to be made around the command.
type fence struct {
	Bwrap       string
	Roots       []confine.Root
	Toolchains  []toolchain.Entry
	Masks       []string
	Net         bool
	AllowNested bool
	NoProtect   bool
	Env         bwrap.EnvPolicy
	Chdir       string
}

// report is what a supervisor answers: how the command ended, or why there was
// none.
type report struct {
	Outcome   shell.Outcome // "" if there was none
	Status    int
	Signal    syscall.Signal
	Stopped   bool // it was told to stop
	Duration  time.Duration
	Survivors int
	Usage     Usage

	Kind  failureKind
	Error string
}

// failureKind sorts why a command was not started, as errors do not travel.
type failureKind string

const (
	failedMissing     failureKind = "missing"
	failedNotExec     failureKind = "not-executable"
	failedUnavailable failureKind = "unavailable"
	failedOther       failureKind = "other"
)

var kinds = map[failureKind]error{
	failedMissing:     ErrNotFound,
	failedNotExec:     ErrNotExecutable,
	failedUnavailable: ErrNotAvailable,
	failedOther:       errors.New("sandbox: cannot start"),
}

// supervise is the supervisor.
func supervise([]string) error {
	if !trusted(controlFD) {
		return hidden.ErrOwnUse
	}
	control := os.NewFile(controlFD, "control")
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	var r request
	decoder := gob.NewDecoder(control)
	err := decoder.Decode(&r)
	if err == nil {
		go func() {
			_, _ = control.Read(make([]byte, 1)) // returns when the other end is closed, or dead
			signals <- syscall.SIGTERM
		}()
		err = r.prepare()
	}
	var answer report
	if err == nil {
		answer, err = r.run(signals)
	}
	if err != nil {
		answer = report{Kind: kindOf(err), Error: err.Error()}
	}
	return gob.NewEncoder(control).Encode(answer)
}

// trusted reports whether requests from fd may be carried out. In a setuid program
// they come from a caller with other privileges than the program's.
func trusted(fd int) bool {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && os.Getuid() == os.Geteuid() && os.Getgid() == os.Getegid()
}

// prepare makes this process what the command is to inherit.
func (r *request) prepare() error {
	if err := unix.Fchdir(workDirFD); err != nil {
		return fmt.Errorf("cannot enter the working directory: %w", err)
	}
	if err := bwrap.CloseInherited(); err != nil {
		return err
	}
	for _, limit := range []struct {
		resource int
		asked    bool
		value    int64
	}{
		{unix.RLIMIT_CORE, true, 0}, // a core file would be litter, with secrets in it
		{unix.RLIMIT_FSIZE, r.FileBytes > 0, r.FileBytes},
		{unix.RLIMIT_NOFILE, r.OpenFiles > 0, r.OpenFiles},
	} {
		if !limit.asked {
			continue
		}
		if err := lower(limit.resource, uint64(limit.value)); err != nil {
			return fmt.Errorf("cannot set a limit: %w", err)
		}
	}
	return nil
}

// lower sets a limit for good, and never raises one.
func lower(resource int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}

// run runs the command and returns when nothing of it is left.
func (r *request) run(signals <-chan os.Signal) (report, error) {
	job := &shell.Job{Out: os.Stdout, Err: os.Stderr, Timeout: r.Timeout, KillAfter: r.KillAfter, Signals: signals}
	if job.Timeout == 0 {
		job.Timeout = math.MaxInt64
	}
	command := r.command
	if r.Fence != nil {
		command = r.fenced
	}
	if err := command(job); err != nil {
		return report{}, err
	}
	job.Cmd.Stdin = os.Stdin
	result, err := job.Run()
	if err != nil {
		return report{}, err
	}
	return report{
		Outcome: result.Outcome, Status: result.Status, Signal: result.Signal, Stopped: len(result.Sent) > 0,
		Duration: result.Duration, Survivors: result.Survivors, Usage: usage(),
	}, nil
}

// usage is what all ended processes below this one took.
func usage() Usage {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) != nil {
		return Usage{}
	}
	return Usage{User: duration(ru.Utime), System: duration(ru.Stime), MaxRSS: ru.Maxrss << 10}
}

func duration(t unix.Timeval) time.Duration { return time.Duration(t.Nano()) }

// command prepares the command as it is.
func (r *request) command(job *shell.Job) error {
	path, err := lookPath(r.Argv[0], r.Env)
	if err != nil {
		return err
	}
	job.Cmd = &exec.Cmd{Path: path, Args: r.Argv, Env: r.Env}
	return nil
}

// fenced prepares bwrap around the command.
func (r *request) fenced(job *shell.Job) error {
	binary, plan, err := r.Fence.plan()
	if err != nil {
		return err
	}
	if err := plan.FindCommand(r.Argv[0]); err != nil {
		return err
	}
	status, write, err := os.Pipe()
	if err != nil {
		return err
	}
	job.Sandbox, job.Status = true, status
	job.Start = plan.Start
	job.Cmd, job.Started, err = plan.Command(binary, r.Argv, write)
	return err
}

// plan finds bwrap and says what the sandbox contains.
func (f *fence) plan() (bwrap.Binary, *bwrap.Plan, error) {
	binary, err := bwrap.FindBinary(f.Bwrap, writable(f.Roots))
	if err != nil {
		return binary, nil, err
	}
	protect, err := f.protected()
	if err != nil {
		return binary, nil, err
	}
	plan, err := bwrap.New(bwrap.Options{
		Roots: f.Roots, Toolchains: f.Toolchains, Masks: f.Masks, Protect: protect, NoProtect: f.NoProtect,
		Bwrap: binary, Net: f.Net, AllowNested: f.AllowNested, Env: f.Env,
	})
	if err == nil && f.Chdir != "" {
		plan.Chdir = f.Chdir
	}
	return binary, plan, err
}

// protectTime is for a disk that is asleep: a usual project takes a millisecond.
const protectTime = 10 * time.Second

// protected lists what makes git on the host run code, in the repositories of the
// writable roots: a command could have it run once the sandbox is gone. What git
// itself writes in the course of its work is left out.
func (f *fence) protected() ([]bwrap.Protected, error) {
	var list []bwrap.Protected
	for _, root := range writable(f.Roots) {
		if f.NoProtect {
			break
		}
		repos, err := gitrepo.Find(root, gitrepo.Limits{Time: protectTime}, os.LookupEnv)
		if err != nil {
			return nil, &bwrap.Refusal{Reason: fmt.Sprintf("cannot protect what git runs in %q: %v", root, err), Advice: "name a narrower root"}
		}
		for _, repo := range repos {
			for _, sink := range repo.Sinks() {
				if !sink.Watch {
					list = append(list, bwrap.Protected{Path: filepath.Join(root, sink.Path), Rule: "git: " + sink.Why, Default: true})
				}
			}
		}
	}
	return list, nil
}

func writable(roots []confine.Root) []string {
	var paths []string
	for _, root := range roots {
		if root.Writable {
			paths = append(paths, root.Path)
		}
	}
	return paths
}

// lookPath finds a command as execvp(3) would, in the PATH that the command
// itself is to have: that of the runner's program is none of its business. A
// directory that is not absolute is passed over, as it would be looked for in
// the workspace.
func lookPath(name string, env []string) (string, error) {
	if name == "" {
		return "", fs.ErrNotExist
	}
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	var denied error
	for _, dir := range filepath.SplitList(pathOf(env)) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		// A directory that may not be searched has nothing for this user in it.
		if _, there := os.Stat(path); there == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("cannot find %q in PATH: %w", name, fs.ErrNotExist)
}

// pathOf returns the PATH of an environment; without one, where the system's
// programs are.
func pathOf(env []string) string {
	for _, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("cannot run %q: %w", path, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("cannot run %q: %w", path, errors.Unwrap(err))
	case info.IsDir() || unix.Access(path, unix.X_OK) != nil:
		return fmt.Errorf("cannot run %q: %w", path, fs.ErrPermission)
	}
	return nil
}

func kindOf(err error) failureKind {
	_, missing := errors.AsType[*bwrap.NotFound](err)
	_, notExec := errors.AsType[*bwrap.NotExecutable](err)
	_, refused := errors.AsType[*bwrap.Refusal](err)
	_, unavailable := errors.AsType[*bwrap.Unavailable](err)
	switch {
	case missing || errors.Is(err, fs.ErrNotExist):
		return failedMissing
	case notExec || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOEXEC):
		return failedNotExec
	case refused || unavailable:
		return failedUnavailable
	}
	return failedOther
}
