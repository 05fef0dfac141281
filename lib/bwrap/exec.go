package bwrap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exec becomes bwrap, and through it argv. It returns only when that fails.
// The caller's terminal, signals and place in the process tree stay as they
// are; every other inherited descriptor is closed.
//
// status is a file that bwrap's outer process keeps open as long as the sandbox
// lives, and in which it reports how it went (--json-status-fd), or nil. It may
// carry a lock. Nothing is left open in the sandbox's init, as --sync-fd would
// leave it: the command has the same uid and can reach what init holds through
// /proc/1/fd, change its mode, or take the lock over.
//
// last is called right before, when nothing is left to do but that; nil is
// nothing.
func (p *Plan) Exec(bwrap Binary, argv []string, status *os.File, last func() error) error {
	runtime.LockOSThread() // what follows is set per thread, and this one execs
	var files descriptors
	if err := dieWith(strconv.Itoa(starter)); err != nil {
		return err
	}
	line, err := p.commandLine(bwrap, argv, status, starter, files.own)
	if err != nil {
		return err
	}
	if err := CloseInherited(); err != nil {
		return err
	}
	if err := files.keep(p.PassFDs); err != nil {
		return err
	}
	clearAmbient()
	if err := p.harden(); err != nil {
		return err
	}
	if last != nil {
		if err := last(); err != nil {
			return err
		}
	}
	err = syscall.Exec(line[0], line, p.plain())
	runtime.KeepAlive(files)
	return fmt.Errorf("cannot start bwrap %q: %w", bwrap.Path, err)
}

// Command prepares bwrap around argv as a child process, to be supervised.
// Start it with Start, and call started once it runs: it closes what only the child needs, status
// included.
func (p *Plan) Command(bwrap Binary, argv []string, status *os.File) (cmd *exec.Cmd, started func(), err error) {
	files := descriptors{passed: p.PassFDs}
	line, err := p.commandLine(bwrap, argv, status, nobody, files.child) // whoever supervises it sees to its end
	if err == nil {
		err = files.pass()
	}
	if err != nil {
		return nil, nil, err
	}
	started = func() {
		for _, f := range files.list {
			if f != nil {
				f.Close()
			}
		}
	}
	return &exec.Cmd{Path: line[0], Args: line, Env: p.plain(), Dir: "/", ExtraFiles: files.list}, started, nil
}

// maxWords is how many words bwrap takes, its own options and those of the
// command together.
const maxWords = 9000

// commandLine renders the plan for running. The options, and the job of the stage,
// go through descriptors, so that the list of processes shows the command and not the
// plan; hand takes a file that bwrap is to have and tells the number that it will
// have there. parent is the process with which bwrap is to die.
func (p *Plan) commandLine(bwrap Binary, argv []string, status *os.File, parent int, hand func(*os.File) int) ([]string, error) {
	r := &rendering{staging: p.stagingToRun(bwrap), file: func(name string, data []byte) (int, error) {
		f, err := memFile(name, data)
		if err != nil {
			return -1, err
		}
		return hand(f), nil
	}}
	if bwrap.HoldsPlaces && r.staging == "" && p.Joined == nil {
		r.held = func(m Mount) (int, error) {
			fd, err := openHeld(m.Source, identity(m.Dev, m.Ino))
			if err != nil {
				return -1, err
			}
			return hand(os.NewFile(uintptr(fd), m.Source)), nil
		}
	}
	if status != nil {
		r.add("--json-status-fd", strconv.Itoa(hand(status)))
	}
	if p.Filter != nil {
		filter, err := memFile("filter", p.Filter)
		if err != nil {
			return nil, err
		}
		r.add("--seccomp", strconv.Itoa(hand(filter)))
	}
	r.env(p.widened())
	r.plan(p)
	if r.failure != nil {
		return nil, r.failure
	}
	if words := len(r.args) + len(argv) + 3; words > maxWords {
		return nil, &Refusal{
			Reason: fmt.Sprintf("bwrap takes %d words at most, and this would be %d", maxWords, words),
			Advice: "give the command fewer arguments, as with xargs -n 5000",
		}
	}
	options, err := memFile("options", []byte(strings.Join(r.args, "\x00")+"\x00"))
	if err != nil {
		return nil, err
	}
	chained := r.staging != "" || p.Joined != nil
	program, err := bwrap.program(chained, hand)
	if err != nil {
		return nil, err
	}
	line := append([]string{program, "--args", strconv.Itoa(hand(options)), "--"}, argv...)
	if !chained {
		return line, nil
	}
	self, err := os.Open("/proc/self/exe") // by descriptor: the file may be replaced while this runs
	if err != nil {
		return nil, fmt.Errorf("cannot open this program: %w", err)
	}
	start := fmt.Sprintf("%s%d", selfFD, hand(self))
	if len(r.job) > 0 {
		job, err := memFile("job", []byte(strings.Join(r.job, "\x00")+"\x00"))
		if err != nil {
			return nil, err
		}
		r.job = []string{jobRead, strconv.Itoa(hand(job))}
	}
	if p.Joined != nil {
		return p.joinedLine(r.staging, start, parent, hand, r.job, line), nil
	}
	return stageLine(r.staging, start, parent, r.job, line), nil
}

// nobody is no process: for a line that anybody may run.
const nobody = 0

// starter is the process that started this one, asked before anything else is
// done: later it may have gone, and an adopter be in its place. One that has gone
// even earlier cannot be told from one that adopts.
var starter = os.Getppid()

// dieWith asks to be killed when the parent ends, and fails when it has ended
// already. bwrap asks too, but later, and the kernel tells only of what happens
// after one has asked. It forgets when a process enters a user namespace.
func dieWith(parent string) error {
	if parent == strconv.Itoa(nobody) {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("cannot tie the sandbox to its starter: %w", err)
	}
	if strconv.Itoa(os.Getppid()) != parent {
		return errors.New("the starter of the sandbox has gone")
	}
	return nil
}

// plain is the part of the environment that bwrap itself starts with. It runs
// on the host, and so does the chain before it: what makes a program load code
// is not for them, even if the caller passes it to the command.
func (p *Plan) plain() []string {
	return slices.DeleteFunc(slices.Clone(p.Env), carriesMore)
}

// widened is the rest: it is set by bwrap, for the command alone.
func (p *Plan) widened() []string {
	return slices.DeleteFunc(slices.Clone(p.Env), func(kv string) bool { return !carriesMore(kv) })
}

func carriesMore(kv string) bool {
	name, value, _ := strings.Cut(kv, "=")
	return dropped(name, value) != "" && !slices.Contains(ownNames, name)
}

// CheckStreams refuses a standard stream that is a directory: from an open
// directory there is a way to its parent, out of any sandbox.
func CheckStreams() error {
	for fd, name := range []string{"standard input", "standard output", "standard error"} {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return &Refusal{Reason: "cannot hand on " + name + ": it is a directory", Advice: "redirect it from a file or /dev/null"}
		}
	}
	return nil
}

// CloseInherited marks every descriptor above standard error to be closed when
// another program is started. Go does that for the files that it opens, not
// for those it was given: an open directory among them would be a way out of
// any sandbox.
func CloseInherited() error {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return fmt.Errorf("cannot close inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// clearAmbient drops ambient capabilities, with which bwrap refuses to start.
// Failing means that there are none to drop.
func clearAmbient() {
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}
