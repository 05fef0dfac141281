package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/gate"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/heap"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/internal/wire"
	"pikuri/lib/session"
	"pikuri/lib/trace"
)

// controlFD is the socket on which jobs come in. Each job has a socket of its own
// (Descriptors.Control): one Answer and Ended go out, and its end tells that the mounts are gone.
// When the monitor closes its end or is killed, the sandbox ends.
const controlFD = 3

// failedStatus is the exit status when there is no sandbox.
const failedStatus = 125

// main is the set-up program. It returns once its sandboxes have ended, with the exit
// status of bwrap, which is the command's, if there was one sandbox.
func main(args []string) error {
	heap.Prepare()
	runtime.LockOSThread()
	var link *gate.Link
	if len(args) > 0 && args[0] == GateWord {
		var err error
		if link, err = gate.Begin(); err != nil {
			return err
		}
		args = args[1:]
	}
	if !insideOwnNamespace() {
		return fmt.Errorf("%s works in a user namespace of its own: start it with unshare --user --map-root-user", option)
	}
	if len(args) == 1 {
		j, err := decode([]byte(args[0]))
		if err == nil {
			err = checkStreams()
		}
		if err == nil {
			err = prepare()
		}
		if err != nil {
			return err
		}
		r := &run{job: j}
		if j.FDs.Mounts == 0 {
			return r.alone(nil)
		}
		mounts, err := j.enterSession()
		ended := make(chan error)
		go func() { ended <- r.inSession(mounts, err) }()
		return <-ended
	}
	if kind, _ := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); kind != unix.SOCK_STREAM {
		return fmt.Errorf("%s %w", option, hidden.ErrOwnUse)
	}
	if err := prepare(); err != nil {
		return err
	}
	return serve(link, args)
}

// prepare sets up the process for all its sandboxes.
func prepare() error {
	if err := session.AssumeGroup(); err != nil {
		return err
	}
	// If the monitor is killed while this process is stopped, this process has to go on: it ends bwrap.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0); err != nil {
		return fmt.Errorf("cannot ask for a signal: %w", err)
	}
	if err := unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot close inherited descriptors: %w", err)
	}
	return nil
}

// serve makes a sandbox, or in a session any number of them, until the monitor closes the
// control socket. link leads to the gate of the first, and orphaned are the arguments for become.
func serve(link *gate.Link, orphaned []string) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		r, err := receive()
		if errors.Is(err, errDismissed) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			running.Wait()
			return become(orphaned)
		}
		if err != nil {
			return fmt.Errorf("cannot read the job of the sandbox: %w", err)
		}
		r.link, link = link, nil
		if r.job.FDs.Mounts == 0 {
			return r.alone(orphaned)
		}
		mounts, err := r.job.enterSession()
		running.Go(func() { _ = r.inSession(mounts, err) })
	}
}

// become runs this program with other arguments, in the place of this process. Another thread
// than the main one does that: it has the host's mounts.
func become(args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := make(chan error)
	go func() { err <- syscall.Exec(hidden.Self, append([]string{hidden.Self}, args...), os.Environ()) }()
	return <-err
}

// inSession makes a sandbox with mounts of the session, on a thread of its own: that has a
// copy of the host's mounts, and lives as long as the sandbox, since bwrap dies with it.
// The main thread is in the mount namespace of the session: if the keeper is killed, the
// next command finds the namespace through this process.
func (r *run) inSession(mounts map[string]int, err error) error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	var host int
	if err == nil {
		host, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = r.start(mounts)
	}
	for _, mount := range mounts {
		unix.Close(mount)
	}
	if err == nil {
		r.wait()
	} else {
		r.fail(err)
	}
	// The sandbox's mounts go now, and the end of the control socket tells.
	_ = unix.Setns(host, unix.CLONE_NEWNS)
	closeFile(&host)
	r.close()
	return err
}

// alone makes the only sandbox of this process, and returns its exit status.
func (r *run) alone(orphaned []string) error {
	err := r.start(nil)
	status := failedStatus
	if err == nil {
		status = r.wait()
	} else if r.fail(err); r.control == nil {
		return err
	}
	if r.control != nil {
		r.unmount()
		r.close()
		if _, err := receive(); errors.Is(err, io.EOF) {
			return become(orphaned)
		}
	}
	if status != 0 {
		return hidden.Status(status)
	}
	return nil
}

// unmount takes away the mounts of the only sandbox of this process.
func (r *run) unmount() {
	if r.root != "" {
		_ = unix.Unmount("/proc", unix.MNT_DETACH)
		_ = unix.Unmount(filepath.Dir(r.root), unix.MNT_DETACH)
	}
}

// fail tells the monitor why there is no sandbox.
func (r *run) fail(err error) {
	r.abandon()
	answer := Answer{Error: err.Error(), Again: errors.Is(err, errKeeperEnded)}
	if f, ok := errors.AsType[*failure](err); ok {
		answer.Hint = f.hint
	} else if errors.Is(err, unix.EMFILE) {
		answer.Hint = fsat.MoreFiles()
	}
	r.answer(answer)
}

// errDismissed says that the monitor needs no further sandbox.
var errDismissed = errors.New("there are no more jobs")

// receive reads a job. The error is errDismissed when there are no more, and io.EOF if the monitor
// was killed.
func receive() (*run, error) {
	for {
		text, files, err := receiveMessage(controlFD)
		if err != nil {
			return nil, err
		}
		j := new(Job)
		if err := wire.Decode(text, j); err != nil {
			return nil, err
		}
		if j.FDs.open(files) {
			return &run{job: j, control: os.NewFile(uintptr(j.FDs.Control), "control")}, nil
		}
		for _, fd := range files { // the control socket, too, or its other end is closed
			unix.Close(fd)
		}
	}
}

// checkStreams refuses a standard stream that is a directory: an open directory
// leads to its parent, out of the sandbox. A monitor has looked already.
func checkStreams() error {
	for fd := range 3 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return fmt.Errorf("cannot hand on descriptor %d: it is a directory", fd)
		}
	}
	return nil
}

// maxFiles is how many files the kernel lets go with one message (SCM_MAX_FD).
const maxFiles = 253

// receiveMessage reads a message from a socket, and the files that come with it.
func receiveMessage(socket int) (text []byte, files []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	for rest := wire.Rest(nil); rest > 0; rest = wire.Rest(text) {
		text = slices.Grow(text, rest)
		n, control, _, _, err := unix.Recvmsg(socket, text[len(text):len(text)+rest], oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n == 0 && len(text) == 1:
			err = errDismissed
		case err == nil && n == 0:
			err = io.EOF
		}
		if err != nil {
			return nil, nil, err
		}
		text = text[:len(text)+n]
		messages, err := unix.ParseSocketControlMessage(oob[:control])
		if err != nil {
			return nil, nil, err
		}
		for i := range messages {
			fds, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return nil, nil, err
			}
			files = append(files, fds...)
		}
	}
	return text, files, nil
}

// places lists all descriptors.
func (d *Descriptors) places() []*int {
	list := []*int{&d.Control, &d.Program, &d.Status, &d.Cgroup, &d.Mounts, &d.KeeperLock, &d.Note, &d.Session, &d.Report, &d.Told, &d.Failed}
	for i := range d.Held {
		list = append(list, &d.Held[i])
	}
	for i := range d.Passed {
		list = append(list, &d.Passed[i].FD)
	}
	return list
}

// open replaces the places of files in a message by their descriptors. It reports whether
// all have come: the kernel drops those that are above the limit of this process.
func (d *Descriptors) open(files []int) bool {
	for _, place := range d.places() {
		switch {
		case *place > len(files):
			return false
		case *place > 0:
			*place = files[*place-1]
		}
	}
	return true
}

// run is a sandbox that is being made, or runs.
type run struct {
	job     *Job
	control *os.File
	pid     int
	pidfd   int
	pty     [2]int // the sandbox's own terminal: master, slave
	filter  int    // a file for bwrap
	root    string // the tree
	joining chan joined
	mu      sync.Mutex
	over    bool          // it has ended
	tree    int           // the same, open, if there is something to tell of it
	link    *gate.Link    // to the gate of the sandbox's network, or nil
	tracer  *trace.Tracer // of the command's system calls, or nil

	input *reopened // or nil
}

// answer tells the monitor whether there is a sandbox.
func (r *run) answer(a Answer) {
	var rights []byte
	if r.pty[0] > 0 {
		rights = unix.UnixRights(r.pty[0])
	}
	r.say(&a, rights)
}

// say sends a message to the monitor, if there is one. One that was killed needs none.
func (r *run) say(v any, rights []byte) {
	if r.control == nil {
		return
	}
	if text, err := wire.Message(v); err == nil {
		_ = unix.Sendmsg(r.job.FDs.Control, text, rights, nil, unix.MSG_NOSIGNAL)
	}
}

// start makes the sandbox, on this thread.
func (r *run) start(session map[string]int) error {
	r.beginNetwork()
	if err := r.make(session); err != nil {
		return err
	}
	r.answer(Answer{Pid: r.pid, Root: r.root})
	r.letGo()
	for _, m := range r.job.Mounts { // while bwrap works
		if m.Layer != nil && m.Layer.Volatile {
			m.Layer.Unmark()
		}
	}
	return nil
}

// errKeeperEnded says that the next command of the session would not find this
// one in its namespaces.
var errKeeperEnded = errors.New("the keeper of the session has been killed meanwhile")

// enterSession enters the mount namespace of the session and takes clones of its
// overlays, by their path there.
func (j *Job) enterSession() (map[string]int, error) {
	if err := enterMounts(j.FDs.Mounts); err != nil {
		return nil, fmt.Errorf("cannot enter the session: %w", err)
	}
	lock := os.NewFile(uintptr(j.FDs.KeeperLock), "lock")
	j.FDs.KeeperLock = 0
	defer lock.Close()
	if !session.IsKeeper(lock, j.Keeper) {
		return nil, &failure{errKeeperEnded, "try again"}
	}
	mounts := map[string]int{}
	for _, m := range j.Mounts {
		if m.Session == "" || mounts[m.Session] > 0 {
			continue
		}
		if m.Layer != nil {
			if err := m.mountInSession(); err != nil {
				return nil, failed(m, err)
			}
		}
		fd, err := unix.Open(m.Session, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, failed(m, err)
		}
		mounts[m.Session], err = clone(fd, "")
		unix.Close(fd)
		if err != nil {
			return nil, failed(m, err)
		}
	}
	return mounts, nil
}

// make builds the tree of the sandbox. Meanwhile the first process becomes bwrap, which
// waits for its options.
func (r *run) make(session map[string]int) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot make a mount namespace: %w", err)
	}
	terminals := -1
	if len(r.job.Terminal.Streams) > 0 {
		var err error
		if terminals, err = r.openTerminal(); err != nil {
			return fmt.Errorf("cannot make a terminal: %w", err)
		}
	}
	options, err := newOptions()
	if err != nil {
		return err
	}
	defer options.close()
	files := r.files()
	words, argv, err := r.arguments(&files, options)
	if err != nil {
		return err
	}
	t, err := stage(r.job, terminals, func(path string) (int, error) { return dup(session[path]), nil })
	if err != nil {
		return err
	}
	defer t.close()
	r.root = t.path()
	var first *first
	if r.job.Net == nil {
		if first, err = r.startFirst(files, argv, t.proc(), -1); err != nil {
			return err
		}
		defer first.close()
	}
	if err := t.build(r.job); err != nil {
		return err
	}
	if r.job.FDs.Told > 0 {
		if r.tree, err = unix.Open(r.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
	}
	if r.job.Net != nil { // the gate makes the network meanwhile
		network, err := r.network()
		if err != nil {
			return err
		}
		if first, err = r.startFirst(files, argv, t.proc(), network); err != nil {
			return err
		}
		defer first.close()
	}
	if err := first.become(); err != nil {
		return err
	}
	if failed := r.job.FDs.Failed; failed > 0 {
		if r.tracer, err = trace.Start(r.pid, failed); err != nil {
			return &failure{err, "leave --trace out: a debugger or a --trace around this holds the command, or ptrace(2) is forbidden (kernel.yama.ptrace_scope)"}
		}
	}
	if err := unix.Mount(t.proc(), "/proc", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("cannot mount proc: %w", err)
	}
	// The tree's own mounts are nodev where they have to be.
	return options.give(append([]string{"--dev-bind", r.root, "/"}, words...))
}

// options is a socket from which bwrap reads its options. A bwrap that reads an end of
// file before its last option would run the command without a sandbox, so the death of
// this process must not be one: bwrap has the other end of the socket as well. A shutdown(2)
// is the end of file of both, though a script around bwrap may hold them open.
type options struct{ read, write int }

func newOptions() (*options, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	return &options{pair[0], pair[1]}, nil
}

// give sends all options. A bwrap that has ended needs none.
func (o *options) give(words []string) error {
	unix.Close(o.read) // a bwrap that ends closes the last one
	o.read = -1
	for text := []byte(strings.Join(words, "\x00") + "\x00"); len(text) > 0; {
		n, err := unix.SendmsgN(o.write, text, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EPIPE {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("cannot give bwrap its options: %w", err)
		}
		text = text[max(n, 0):]
	}
	return os.NewSyscallError("shutdown", unix.Shutdown(o.write, unix.SHUT_RDWR))
}

func (o *options) close() {
	unix.Close(o.read)
	unix.Close(o.write)
}

// joined is a connection to the gate, or the error of joining it.
type joined struct {
	link *gate.Link
	err  error
}

// beginNetwork starts or joins the gate of the sandbox's network while the tree is
// built. The gate gets the mounts and the network that this thread has: the host's.
func (r *run) beginNetwork() {
	if r.job.Net == nil {
		return
	}
	r.joining = make(chan joined, 1)
	go func() {
		j := joined{link: r.link}
		switch dir := r.job.FDs.Session; {
		case dir > 0:
			j.link, j.err = gate.Join(*r.job.Net, dir)
		case j.link == nil:
			if j.link, j.err = gate.Begin(); j.err != nil {
				break
			}
			fallthrough
		default:
			j.err = j.link.Configure(*r.job.Net)
		}
		r.joining <- j
	}()
}

// network returns the network namespace that the gate has made, open.
func (r *run) network() (int, error) {
	j := <-r.joining
	r.joining, r.link = nil, nil
	if j.err != nil {
		if f, ok := errors.AsType[*gate.Failure](j.err); ok {
			return -1, &failure{j.err, f.Advice}
		}
		return -1, j.err
	}
	r.link = j.link
	return r.link.Network, nil
}

// openTerminal makes a devpts of the sandbox's own, and a terminal in it.
func (r *run) openTerminal() (terminals int, err error) {
	if terminals, err = newTerminals(); err != nil {
		return -1, err
	}
	master, err := unix.Openat(terminals, "ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, os.NewSyscallError("unlockpt", err)
	}
	number, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, os.NewSyscallError("ptsname", err)
	}
	if modes := r.job.Terminal.Modes; modes != nil {
		_ = unix.IoctlSetTermios(master, unix.TCSETS, modes)
	}
	if size := r.job.Terminal.Size; size != nil {
		_ = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size)
	}
	slave, err := unix.Openat(terminals, strconv.Itoa(int(number)), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	r.pty = [2]int{master, slave}
	if err == nil && r.job.Suspends {
		err = lead(slave)
	}
	return terminals, err
}

// lead gives a terminal to the session that this process leads. It does not die when the
// monitor closes the other side: it has more to do then.
func lead(terminal int) error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	return os.NewSyscallError("TIOCSCTTY", unix.IoctlSetInt(terminal, unix.TIOCSCTTY, 0))
}

// closed stands for a descriptor that the child does not have.
const closed = ^uintptr(0)

// FilesAt are files by their number in a child, as syscall.ProcAttr takes them.
// The standard streams are the caller's where none is given.
func FilesAt(placed []Placed) []uintptr {
	files := []uintptr{0, 1, 2}
	for _, p := range placed {
		for len(files) <= p.At {
			files = append(files, closed)
		}
		files[p.At] = uintptr(p.FD)
	}
	return files
}

// files are the descriptors of the command.
func (r *run) files() []uintptr {
	files := FilesAt(r.job.FDs.Passed)
	if files[0] != closed {
		files[0] = uintptr(r.readOnly(int(files[0])))
	}
	for _, fd := range r.job.Terminal.Streams {
		files[fd] = uintptr(r.pty[1])
	}
	return files
}

// place gives bwrap a file at the first number that is free.
func place(files *[]uintptr, fd int) string {
	at := slices.Index((*files)[3:], closed) + 3
	if at < 3 {
		at = len(*files)
		*files = append(*files, closed)
	}
	(*files)[at] = uintptr(fd)
	return strconv.Itoa(at)
}

// arguments are those of bwrap, with the files that it needs besides those of the
// command. It reads its options from a socket: the list of processes shows the command,
// and not the plan. words are those options, but for the tree.
func (r *run) arguments(files *[]uintptr, from *options) (words, argv []string, err error) {
	words = slices.Clone(r.job.Options)
	if status := r.job.FDs.Status; status > 0 {
		words = append(words, "--json-status-fd", place(files, status))
	}
	if r.job.Filter != nil {
		if r.filter, err = fsat.Memfd("pk-filter", r.job.Filter); err != nil {
			return nil, nil, err
		}
		words = append(words, "--seccomp", place(files, r.filter))
	}
	return words, append([]string{r.job.Program, "--args", place(files, from.read), "--args", place(files, from.write), "--"}, r.job.Argv...), nil
}

// Lower sets the limit for this process and its children, for good. A limit that was
// lower already stays.
func (l Rlimit) Lower() error {
	limit, err := l.lowered()
	if err != nil {
		return err
	}
	// The system call alone would not do: the Go runtime gives children the limit on
	// open files that this process began with.
	if err := syscall.Setrlimit(l.Resource, limit); err != nil {
		return fmt.Errorf("cannot set a limit: %w", err)
	}
	return nil
}

func (l Rlimit) lowered() (*syscall.Rlimit, error) {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(l.Resource, &now); err != nil {
		return nil, fmt.Errorf("cannot read a limit: %w", err)
	}
	return &syscall.Rlimit{Cur: min(l.Soft, now.Cur), Max: min(l.Hard, now.Max)}, nil
}

// letGo closes the files of the command: the other end of a pipe would not see
// its end while this process held one.
func (r *run) letGo() {
	f := &r.job.FDs
	files := []*int{&f.Program, &f.Status, &f.Cgroup, &f.Mounts, &f.Session, &r.filter, &r.pty[0], &r.pty[1]}
	for i := range f.Passed {
		files = append(files, &f.Passed[i].FD)
	}
	if r.link != nil {
		files = append(files, &r.link.Network)
	}
	for _, fd := range files {
		closeFile(fd)
	}
}

// close closes all files of the sandbox, at last the control socket.
func (r *run) close() {
	if r.joining != nil {
		_, _ = r.network()
	}
	if r.link != nil {
		r.link.End()
	}
	r.letGo()
	control := &r.job.FDs.Control
	for _, fd := range r.job.FDs.places() {
		if fd != control {
			closeFile(fd)
		}
	}
	closeFile(&r.tree)
	if r.pid > 0 {
		closeFile(&r.pidfd)
	}
	if r.control != nil {
		_ = unix.Shutdown(*control, unix.SHUT_RDWR) // a thread may still read from it
		r.control.Close()
	}
}

// closeFile closes a descriptor once: another thread may get its number next.
func closeFile(fd *int) {
	if *fd > 2 {
		unix.Close(*fd)
	}
	*fd = 0
}

// wait returns the exit status of bwrap. When the monitor ends, the sandbox is
// killed: the kernel kills a whole PID namespace with its first process, and
// tells the parent once all have ended.
func (r *run) wait() int {
	if r.control != nil {
		go func() {
			_, _ = r.control.Read(make([]byte, 1))
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.over {
				r.kill()
			}
		}()
	}
	ws, usage := r.ended()
	r.moveOn()
	r.noteEnd()
	r.report()
	r.tell()
	e := Ended{Status: ws.ExitStatus(), Usage: usage}
	if ws.Signaled() {
		e.Status = 128 + int(ws.Signal())
	}
	r.say(&e, nil)
	return e.Status
}

// ended waits for the end of bwrap.
func (r *run) ended() (ws syscall.WaitStatus, usage syscall.Rusage) {
	defer func() {
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
	}()
	if r.tracer != nil {
		return r.tracer.Wait()
	}
	for {
		if _, err := syscall.Wait4(r.pid, &ws, 0, &usage); !errors.Is(err, syscall.EINTR) {
			return ws, usage
		}
	}
}

// report writes the records of the gate, one JSON object a line.
func (r *run) report() {
	if r.link == nil {
		return
	}
	records := r.link.End()
	r.link = nil
	to := r.job.FDs.Report
	if to == 0 {
		return
	}
	var text []byte
	for _, record := range records {
		line, err := json.Marshal(record)
		if err != nil {
			return
		}
		text = append(append(text, line...), '\n')
	}
	_ = fsat.Fill(to, text)
}

// noteEnd takes the write permission away from a note: its ctime is then the time of the
// sandbox's end.
func (r *run) noteEnd() {
	if note := r.job.FDs.Note; note > 0 {
		_ = unix.Fchmod(note, 0o400)
	}
}

// abandon ends the first process of a sandbox that cannot be made.
func (r *run) abandon() {
	if r.pid > 0 {
		r.kill()
		_, _ = r.ended()
	}
}

func (r *run) kill() {
	if r.pidfd < 0 { // before Linux 5.4
		_ = unix.Kill(r.pid, unix.SIGKILL)
		return
	}
	_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
}
