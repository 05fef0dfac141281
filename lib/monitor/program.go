package monitor

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/setup"
)

// program is a set-up program that was started. It waits for jobs, and ends when its
// control is closed and its sandboxes have ended.
type program struct {
	pid     int
	control *os.File
	sending sync.Mutex // of one job after another
	said    *said
	wait    func() (exit, error) // waits for its end
}

// dismiss tells a program that this process has no more work for it, and is not being killed.
func (p *program) dismiss() {
	_ = send(p.control, []byte{setup.Dismissed}, nil)
	p.control.Close()
}

type exit struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
}

// Ahead holds a set-up program that starts before its sandbox is planned. The zero
// value holds none; Close it.
type Ahead struct {
	Keep bool // a session's program stays, and makes further sandboxes of the session

	// Orphaned are arguments with which this program runs when the sandbox has ended, if this
	// process was killed before it had done the work of Config.After.
	Orphaned []string

	mu      sync.Mutex
	started chan outcome // of a program that starts, or nil
	program *program     // of a session
	user    [2]uint64    // the user namespace of a keeper, by device and inode
	gate    bool         // it has a gate
}

type outcome struct {
	*program
	err error
}

// Start starts the set-up program for a Config with that Keeper, or with none, unless there
// is one; gate says that its plan has a gate that no session shares. The files of k stay
// the caller's.
func (a *Ahead) Start(k *Keeper, gate bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fits(k, gate) {
		return
	}
	a.replace()
	var user *os.File
	if k != nil {
		fd, err := unix.FcntlInt(k.User.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return
		}
		user = os.NewFile(uintptr(fd), k.User.Name())
	}
	started := make(chan outcome, 1)
	a.started, a.user, a.gate = started, k.namespace(), gate
	go func() {
		p, err := startProgram(user, gate, a.Orphaned)
		user.Close() // nil can be closed
		started <- outcome{p, err}
	}()
}

// Await returns once the program that starts is a process. From then on, work that this
// process leaves is done if it is killed.
func (a *Ahead) Await() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started != nil {
		o := <-a.started
		a.started <- o
	}
}

// fits reports whether there is a program that can make a sandbox of that kind.
func (a *Ahead) fits(k *Keeper, gate bool) bool {
	return a.user == k.namespace() && a.gate == gate && (a.started != nil || a.program.alive())
}

// alive reports whether a program has not ended.
func (p *program) alive() bool {
	if p == nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.control.Fd()), Events: unix.POLLRDHUP}}
	n, err := fsat.Again(func() (int, error) { return unix.Poll(fds, 0) })
	return n == 0 && err == nil
}

// namespace identifies the user namespace of a keeper.
func (k *Keeper) namespace() (id [2]uint64) {
	var st unix.Stat_t
	if k != nil && unix.Fstat(int(k.User.Fd()), &st) == nil {
		id = [2]uint64{st.Dev, st.Ino}
	}
	return id
}

// Close ends the program when its sandboxes have ended.
func (a *Ahead) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.drop(); p != nil {
		_, _ = p.wait()
	}
}

// drop gives the program up, and returns it.
func (a *Ahead) drop() *program {
	p := a.program
	if a.started != nil {
		o := <-a.started
		p = o.program
	}
	a.started, a.program = nil, nil
	if p != nil {
		p.dismiss()
	}
	return p
}

// replace gives up a program that may have sandboxes.
func (a *Ahead) replace() {
	if p := a.drop(); p != nil {
		go p.wait()
	}
}

// take returns the program that was started ahead, or starts one: a session's has
// to be in the user namespace of its keeper. A program that is not kept is the caller's.
func (a *Ahead) take(k *Keeper, gate bool) (p *program, kept bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.fits(k, gate) {
		a.replace()
		p, err = startProgram(k.user(), gate, a.Orphaned)
	} else if p = a.program; p == nil {
		o := <-a.started
		p, err = o.program, o.err
	}
	a.started = nil
	if kept = a.Keep && k != nil && err == nil; kept {
		a.program, a.user, a.gate = p, k.namespace(), gate
	}
	return p, kept, err
}

func (k *Keeper) user() *os.File {
	if k == nil {
		return nil
	}
	return k.User
}

// closed stands for a file that a child does not have.
const closed = ^uintptr(0)

// roomyFile is a number of a file that is above those of the mounts of a common sandbox.
const roomyFile = 255

// withRoom adds one more file at a high number, so that the child gets a large table of
// files, which it keeps when it execs. In a process with several threads, such as the set-up
// program, the kernel takes ten milliseconds to enlarge the table (synchronize_rcu in
// expand_fdtable).
func withRoom(files []uintptr, file uintptr) []uintptr {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur < 2*roomyFile {
		return files // ForkExec uses still higher numbers
	}
	for len(files) < roomyFile {
		files = append(files, closed)
	}
	return append(files, file)
}

// startProgram starts the set-up program in that user namespace, or with nil in a
// new one. It has a session of its own: the terminal's signals are for the monitor,
// which passes them on.
func startProgram(user *os.File, gate bool, orphaned []string) (*program, error) {
	if err := hidden.Check(setup.Mode.Name); err != nil {
		return nil, err
	}
	self, err := os.Open(hidden.Self) // by descriptor: the file may be replaced meanwhile
	if err != nil {
		return nil, fmt.Errorf("cannot open this program: %w", err)
	}
	defer self.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	read, write, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer write.Close()
	files := []uintptr{closed, closed, write.Fd(), theirs.Fd(), self.Fd()} // 3 is setup's controlFD
	name, options := "unshare", []string{"--user", "--map-root-user"}
	if user != nil {
		name, options = "nsenter", []string{"--preserve-credentials", "--user=/proc/self/fd/5"}
		files = append(files, user.Fd())
	}
	pid := 0
	if path := bwrap.FindTrusted(name); path == "" {
		err = &bwrap.Refusal{Reason: "cannot make a sandbox: " + name + " is missing", Advice: "install util-linux"}
	} else {
		line := append(append([]string{path}, options...), "--", "/proc/self/fd/4", setup.Mode.Name)
		if gate {
			line = append(line, setup.GateWord)
		}
		line = append(line, orphaned...)
		files = withRoom(files, self.Fd())
		// os.StartProcess would start another process, to test the kernel's features.
		pid, err = syscall.ForkExec(path, line, &syscall.ProcAttr{
			Dir: "/", Env: []string{"LC_ALL=C", "GOMAXPROCS=1"}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			err = fmt.Errorf("cannot start %q: %w", path, err)
		}
	}
	if err != nil {
		ours.Close()
		read.Close()
		return nil, err
	}
	return &program{pid: pid, control: ours, said: listen(read), wait: sync.OnceValues(func() (e exit, err error) {
		for {
			if _, err = syscall.Wait4(pid, &e.status, 0, &e.usage); !errors.Is(err, syscall.EINTR) {
				return e, err
			}
		}
	})}, nil
}
