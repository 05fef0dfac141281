package monitor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/setup"
)

// program is a set-up program that was started. It waits for its job, and ends
// when its control is closed before.
type program struct {
	pid     int
	control *os.File
	said    *said
}

// Ahead is a set-up program that starts before its sandbox is planned.
type Ahead struct {
	done chan outcome
	user [2]uint64 // the user namespace of a keeper, by device and inode
	gate bool      // it has a gate
}

type outcome struct {
	*program
	err error
}

// StartAhead starts the set-up program for a Config with that Keeper, or with none;
// gate says that its plan has a gate that no session shares. The caller closes the Ahead.
// The files of k stay the caller's.
func StartAhead(k *Keeper, gate bool) *Ahead {
	a := &Ahead{done: make(chan outcome, 1), user: k.namespace(), gate: gate}
	var user *os.File
	if k != nil {
		fd, err := unix.FcntlInt(k.User.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil
		}
		user = os.NewFile(uintptr(fd), k.User.Name())
	}
	go func() {
		p, err := startProgram(user, gate)
		user.Close() // nil can be closed
		a.done <- outcome{p, err}
	}()
	return a
}

// namespace identifies the user namespace of a keeper.
func (k *Keeper) namespace() (id [2]uint64) {
	var st unix.Stat_t
	if k != nil && unix.Fstat(int(k.User.Fd()), &st) == nil {
		id = [2]uint64{st.Dev, st.Ino}
	}
	return id
}

// Close ends the program, unless Start has taken it.
func (a *Ahead) Close() {
	if a == nil || a.done == nil {
		return
	}
	if o := <-a.done; o.err == nil {
		o.end()
	}
	a.done = nil
}

// take returns the program that was started ahead, or starts one: a session's has
// to be in the user namespace of its keeper.
func (a *Ahead) take(k *Keeper, gate bool) (*program, error) {
	if a != nil && a.done != nil && a.user == k.namespace() && a.gate == gate {
		o := <-a.done
		a.done = nil
		return o.program, o.err
	}
	a.Close()
	if k == nil {
		return startProgram(nil, gate)
	}
	return startProgram(k.User, gate)
}

// startProgram starts the set-up program in that user namespace, or with nil in a
// new one. It has a session of its own: the terminal's signals are for the monitor,
// which passes them on.
func startProgram(user *os.File, gate bool) (*program, error) {
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
	const closed = ^uintptr(0)
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
	return &program{pid, ours, listen(read)}, nil
}

// wait waits for the end of the program.
func (p *program) wait() (status syscall.WaitStatus, usage syscall.Rusage, err error) {
	for {
		if _, err = syscall.Wait4(p.pid, &status, 0, &usage); !errors.Is(err, syscall.EINTR) {
			return status, usage, err
		}
	}
}

// end ends a program that has begun nothing.
func (p *program) end() {
	p.control.Close()
	_, _, _ = p.wait()
}
