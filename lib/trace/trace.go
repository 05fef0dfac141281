// Package trace follows the processes of a sandbox with ptrace(2), and notes which of
// their system calls failed for a path or an address.
//
// The filter of the sandbox (seccomp.Tracing) stops these calls, and no others. A tracer
// of the set-up program's lies outside of the sandbox: the command does not see it, and
// cannot end it. A process has one tracer, so debuggers in the sandbox are refused.
//
// Paths and addresses come from the memory of the command. Another thread may have changed
// them since the kernel read them.
package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"pikuri/lib/seccomp"
)

// Failure is a system call that failed.
type Failure struct {
	Errno   unix.Errno
	Path    []byte         // absolute, as called in the sandbox; or nil
	Creates bool           // the call was to make Path
	Device  bool           // the call was to make a device node
	Address netip.AddrPort // of a connection; or zero
	Number  int            // in the order of the calls
}

// Missing reports whether there was no such name. The kernel says EISDIR if a call is to
// make a file at a name that ends in a slash.
func (f Failure) Missing() bool {
	return f.Errno == unix.ENOENT || f.Errno == unix.ENOTDIR || f.Errno == unix.EISDIR
}

// answers are the errors that a sandbox may be the cause of.
var answers = []unix.Errno{
	unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.EACCES, unix.EPERM, unix.EROFS, unix.EBUSY,
	unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.ECONNREFUSED,
}

// Bounds of the notes. A command may fail as often as it likes: later failures replace
// earlier ones. A search in many directories does not replace refusals.
const (
	slotSize  = 2048 // of a note
	longest   = 1024 // path
	refusals  = 128  // notes
	searches  = 640  // notes of names that are missing
	pathLimit = 4096 // of the kernel's, with the NUL
)

// Tracer follows processes.
type Tracer struct {
	first  int
	to     int
	ended  chan end
	begun  map[int]entry  // calls that have not ended, by thread
	noted  map[string]int // slots
	texts  map[int]string // the same, by slot
	counts [2]int         // of refusals, of searches
	number int
}

// end is how the first process ended, and the processor time of all.
type end struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
}

type entry struct {
	call seccomp.Call
	args [6]uint64
}

// Start traces a process, which has not loaded its filter, and all that it starts. Failures
// go to the file to. The process is a child of this one, and only Wait may wait for it.
func Start(pid, to int) (*Tracer, error) {
	t := &Tracer{first: pid, to: to, ended: make(chan end, 1), begun: map[int]entry{}, noted: map[string]int{}, texts: map[int]string{}}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // of which the processes are tracees
		const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
			unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
		err := ptrace(unix.PTRACE_SEIZE, pid, 0, options)
		started <- err
		if err == nil {
			t.follow()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot trace the command: %w", err)
	}
	return t, nil
}

// Wait returns how the first process ended, and the resources that it and the processes
// below it have used.
func (t *Tracer) Wait() (syscall.WaitStatus, syscall.Rusage) {
	e, ok := <-t.ended
	if !ok {
		e.status = syscall.WaitStatus(unix.SIGKILL) // something else has waited for it
	}
	return e.status, e.usage
}

func ptrace(request, pid int, addr, data uintptr) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), addr, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// follow waits for the processes, to the end of the last. It takes all stops before any
// process goes on: the kernel reports the youngest process first, so a few busy ones would
// keep the others waiting.
func (t *Tracer) follow() {
	defer close(t.ended)
	stops := map[int]syscall.WaitStatus{}
	for {
		var ws syscall.WaitStatus
		var usage syscall.Rusage
		options := unix.WALL | unix.WNOTHREAD
		if len(stops) > 0 {
			options |= unix.WNOHANG
		}
		pid, err := syscall.Wait4(-1, &ws, options, &usage)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case pid == 0:
			t.resume(stops)
		case ws.Stopped():
			stops[pid] = ws
		default:
			delete(stops, pid)
			delete(t.begun, pid)
			if pid == t.first {
				t.ended <- end{ws, usage}
			}
		}
	}
}

// resume handles the stops, and removes them.
func (t *Tracer) resume(stops map[int]syscall.WaitStatus) {
	for pid, ws := range stops {
		request, signal := t.stopped(pid, ws)
		_ = ptrace(request, pid, 0, uintptr(signal)) // it may have been killed
	}
	clear(stops)
}

// stopped handles a stop, and returns how the process goes on.
func (t *Tracer) stopped(pid int, ws syscall.WaitStatus) (request int, signal syscall.Signal) {
	signal = ws.StopSignal()
	switch event := int(ws) >> 16; {
	case event == unix.PTRACE_EVENT_SECCOMP:
		if t.begin(pid) {
			return unix.PTRACE_SYSCALL, 0
		}
	case event == unix.PTRACE_EVENT_STOP && signal != unix.SIGTRAP:
		return unix.PTRACE_LISTEN, 0 // the signal has stopped the process
	case event == unix.PTRACE_EVENT_EXEC:
		var thread uint // that has become the process
		_ = ptrace(unix.PTRACE_GETEVENTMSG, pid, 0, uintptr(unsafe.Pointer(&thread)))
		delete(t.begun, int(thread))
	case event != 0:
	case signal == unix.SIGTRAP|0x80:
		t.end(pid)
	case signal == unix.SIGSTOP && fromInside(pid) && isInit(pid):
	default:
		return unix.PTRACE_CONT, signal
	}
	return unix.PTRACE_CONT, 0
}

// fromInside reports whether the signal of a stop may come from the PID namespace of the
// process. The kernel gives a sender in an outer namespace the number 0. A process can
// forge that, but not together with the code of kill(2), nor a code above that.
func fromInside(pid int) bool {
	var info struct {
		_, _, code, _, sender int32
		_                     [108]byte
	}
	err := ptrace(unix.PTRACE_GETSIGINFO, pid, 0, uintptr(unsafe.Pointer(&info)))
	return err == nil && (info.sender != 0 || info.code < 0)
}

// isInit reports whether the process is the first of its PID namespace. The kernel ignores a
// SIGSTOP to it from inside, except if it is traced.
func isInit(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.HasSuffix(line, "\t1")
}

// info is struct ptrace_syscall_info, as it is in a stop of a filter, and at the end of a
// call, where Number is the result.
type info struct {
	Op     uint8
	_      [3]uint8
	Arch   uint32
	_, _   uint64
	Number uint64
	Args   [6]uint64
	Data   uint32
	_      uint32
}

func (t *Tracer) ask(pid int, op uint8) (i info, ok bool) {
	err := ptrace(unix.PTRACE_GET_SYSCALL_INFO, pid, unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)))
	return i, err == nil && i.Op == op
}

// begin notes a call that begins, and reports whether its end matters.
func (t *Tracer) begin(pid int) bool {
	i, ok := t.ask(pid, unix.PTRACE_SYSCALL_INFO_SECCOMP)
	if !ok {
		return false
	}
	call, ok := seccomp.Traced(i.Data)
	if ok {
		t.begun[pid] = entry{call, i.Args}
	}
	return ok
}

// end notes the call if it failed.
func (t *Tracer) end(pid int) {
	e := t.begun[pid]
	delete(t.begun, pid)
	i, ok := t.ask(pid, unix.PTRACE_SYSCALL_INFO_EXIT)
	errno := unix.Errno(-int64(i.Number))
	if !ok || !slices.Contains(answers, errno) {
		return
	}
	if e.call.Address {
		t.connection(pid, e, errno)
	}
	for _, p := range e.call.Paths {
		name, ok := text(pid, e.args[p.At], pathLimit)
		if !ok || name == "" {
			continue
		}
		creates := p.Creates || e.call.Flags > 0 && e.args[e.call.Flags]&unix.O_CREAT != 0
		kind := uint32(0)
		if strings.HasPrefix(e.call.Name, "mknod") {
			kind = uint32(e.args[p.At+1]) & unix.S_IFMT
		}
		dir := int32(unix.AT_FDCWD)
		if !p.WorkingDir() {
			dir = int32(e.args[p.Dir])
		}
		if path := absolute(pid, dir, name); path != "" {
			t.note(Failure{Errno: errno, Path: []byte(path), Creates: creates, Device: kind == unix.S_IFCHR || kind == unix.S_IFBLK})
		}
	}
}

// connection notes an address, or the path of a socket.
func (t *Tracer) connection(pid int, e entry, errno unix.Errno) {
	raw := make([]byte, min(e.args[2], unix.SizeofSockaddrUnix))
	if raw = raw[:read(pid, e.args[1], raw)]; len(raw) < 3 {
		return
	}
	port := func() uint16 { return binary.BigEndian.Uint16(raw[2:]) }
	switch family := binary.NativeEndian.Uint16(raw); {
	case family == unix.AF_INET && len(raw) >= unix.SizeofSockaddrInet4:
		t.note(Failure{Errno: errno, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:])), port())})
	case family == unix.AF_INET6 && len(raw) >= unix.SizeofSockaddrInet6-4: // without a scope
		t.note(Failure{Errno: errno, Address: netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:])).Unmap(), port())})
	case family == unix.AF_UNIX && raw[2] != 0:
		if path := absolute(pid, unix.AT_FDCWD, unix.ByteSliceToString(raw[2:])); path != "" {
			t.note(Failure{Errno: errno, Path: []byte(path)})
		}
	}
}

// absolute is a path from the root of the sandbox, "" if that cannot be determined.
func absolute(pid int, dir int32, name string) string {
	from := "root"
	switch {
	case name[0] == '/':
	case dir == unix.AT_FDCWD:
		from = "cwd"
	default:
		from = fmt.Sprintf("fd/%d", dir)
	}
	base, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, from))
	if err != nil || !strings.HasPrefix(base, "/") || strings.HasSuffix(base, " (deleted)") {
		return ""
	}
	return filepath.Join(base, name)
}

// text reads a string of the process, with at most so many bytes.
func text(pid int, addr uint64, most int) (string, bool) {
	buf := make([]byte, most)
	buf = buf[:read(pid, addr, buf)]
	end := bytes.IndexByte(buf, 0)
	if end < 0 {
		return "", false
	}
	return string(buf[:end]), true
}

// read reads the memory of the process as far as there is some, page by page.
func read(pid int, addr uint64, buf []byte) (n int) {
	page := uint64(os.Getpagesize())
	for n < len(buf) {
		from := addr + uint64(n)
		part := buf[n:min(uint64(len(buf)), uint64(n)+page-from%page)]
		local := []unix.Iovec{{Base: &part[0]}}
		local[0].SetLen(len(part))
		got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(from), Len: len(part)}}, 0)
		if err != nil || got <= 0 {
			break
		}
		n += got
	}
	return n
}

// note writes a failure to the file, unless it is there.
func (t *Tracer) note(f Failure) {
	key := strconv.Itoa(int(f.Errno)) + strconv.FormatBool(f.Creates) + strconv.FormatBool(f.Device) + f.Address.String() + string(f.Path)
	if _, ok := t.noted[key]; ok || len(f.Path) > longest {
		return
	}
	slot := &t.counts[0]
	at := *slot % refusals
	if f.Missing() {
		slot = &t.counts[1]
		at = refusals + *slot%searches
	}
	*slot++
	t.number++
	f.Number = t.number
	line, err := json.Marshal(f)
	if err != nil || len(line) > slotSize {
		return
	}
	delete(t.noted, t.texts[at])
	t.noted[key], t.texts[at] = at, key
	_, _ = unix.Pwrite(t.to, append(line, make([]byte, slotSize-len(line))...), int64(at)*slotSize)
}

// Read returns the failures that a file has, the latest first. The command may still run.
func Read(file *os.File) (list []Failure) {
	for at := range int64(refusals + searches) {
		slot := make([]byte, slotSize)
		if n, _ := file.ReadAt(slot, at*slotSize); n < slotSize {
			continue
		}
		var f Failure
		if json.Unmarshal(bytes.TrimRight(slot, "\x00"), &f) == nil {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Failure) int { return b.Number - a.Number })
	return list
}
