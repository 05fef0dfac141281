package sandbox

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/monitor"
	"pikuri/lib/shell"
)

// A command without a sandbox is run by a shell.Job, which needs a process of its own:
// the kernel makes orphans children of that process, which ends them, and would end the
// other children of a program that uses this package. So each command gets a supervisor,
// a helper process in a session of its own. It ends the command when the program dies.

// supervisorOption is the mode of a supervisor.
const supervisorOption = "--pk-supervisor"

// Descriptors of a supervisor beyond the three streams.
const (
	controlFD = 3 // a socket: a request comes in, a report goes out, its end means stop
	workDirFD = 4 // the directory to start in
)

// request is the job of a supervisor.
type request struct {
	Argv      []string
	Env       []string
	Timeout   time.Duration // 0: none
	KillAfter time.Duration
	Resources Resources
}

// supervise is the main function of a supervisor.
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
			_, _ = control.Read(make([]byte, 1)) // returns when the other end is closed, or its process dead
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

// trusted reports whether requests from fd may be carried out. A setuid program refuses
// them: its caller has other privileges.
func trusted(fd int) bool {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && os.Getuid() == os.Geteuid() && os.Getgid() == os.Getegid()
}

// prepare gives this process the working directory and the limits of the command.
func (r *request) prepare() error {
	if err := unix.Fchdir(workDirFD); err != nil {
		return fmt.Errorf("cannot enter the working directory: %w", err)
	}
	if err := monitor.CloseInherited(); err != nil {
		return err
	}
	for _, l := range r.Resources.rlimits() {
		if err := l.Lower(); err != nil {
			return err
		}
	}
	return nil
}

// run runs the command and returns when none of its processes is left.
func (r *request) run(signals <-chan os.Signal) (report, error) {
	path, err := lookPath(r.Argv[0], r.Env)
	if err != nil {
		return report{}, err
	}
	return run(&shell.Job{
		Cmd: &exec.Cmd{Path: path, Args: r.Argv, Env: r.Env}, In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Timeout: r.Timeout, KillAfter: r.KillAfter, Signals: signals,
	})
}

// lookPath finds a command as execvp(3) does, in the PATH of the command and not in that
// of this program. It skips directories that are not absolute: they would be found in the
// workspace.
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
		// This user can run nothing in a directory that it may not search.
		if _, there := os.Stat(path); there == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("cannot find %q in PATH: %w", name, fs.ErrNotExist)
}

// pathOf returns the PATH of an environment, or the directories of the system's
// programs.
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
