package shell

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
	"pikuri/lib/monitor"
)

// A gate is a socket between the shell and this program, for two facts that have no
// other source.
//
// bwrap exits with status 137 both for a command that was killed by signal 9 and
// for a command that exits with 137. Since Linux 6.15 the kernel tells the two apart,
// through a pidfd that was opened before the process ended. So bash, before it reads
// the command, says hello and waits: the kernel adds the sender's process ID to the
// message, and this program opens its pidfd. The command cannot forge any of this.
//
// The other is how the stages of the last pipeline ended, which bash knows when
// it exits. It reports that in a trap, which is set only where the command may hold a
// pipeline: bash becomes the last program of a command only if there is no trap,
// and a program that crashes looks different in the two cases. A command can lie
// here, but only about itself.
//
// Both are in a script that bash reads because of BASH_ENV, which no option
// turns off. If it cannot be read, the command runs all the same.
type gate struct {
	ours, theirs *os.File
	script       *os.File
	done         chan struct{} // nothing will be said any more

	shell  int   // the process id of bash
	pidfd  int   // of bash, 0 for none
	stages []int // as bash said
	state  *State
	dir    bool // bash will say whether the directory to begin in is there
	noDir  bool // it is not

	keep     Keep
	env      []string // of bash, before it reads the script
	isBegun  bool
	ready    chan monitor.Running // the command, once it is started; closed without one
	looked   chan struct{}        // closed once the remaining processes are known; nil without such a check
	leftover []string             // command lines of processes that bash left
	asked    atomic.Bool          // a signal was sent to the command
	keeps    bool                 // the background of bash runs on
	kept     chan keptCommand     // gets the command, if it left something
}

// Numbers at which the command has the files of a gate. Shells use descriptors up
// to 9 and from 10 on, bash itself 63 and 255.
const (
	heldFD   = 249 // the socket, as bash holds it
	gateFD   = 250 // the socket, as bash gets it
	scriptFD = 251 // the script that bash reads first
	longFD   = 252 // a command that is too long for an argument
)

// maxReport bounds a report without the state: a pipeline of some hundred stages.
const maxReport = 4096

// newGate makes a gate. It holds bash until the caller knows whether there is a sandbox,
// and reports a pipeline if the command may contain one.
func newGate(j *Job) (*gate, error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur <= longFD {
		return nil, fmt.Errorf("too many open files: the limit is %d, and the command has files with numbers up to %d: ulimit -n 1024 raises it", limit.Cur, longFD)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	g := &gate{
		ours: os.NewFile(uintptr(pair[0]), "gate"), theirs: os.NewFile(uintptr(pair[1]), "gate"),
		done: make(chan struct{}), ready: make(chan monitor.Running, 1), keep: j.Keep, dir: j.Dir != "" || j.State.Dir != "",
		keeps: j.Background != nil, kept: make(chan keptCommand, 1),
	}
	if j.Fence != nil {
		g.env = j.Fence.Plan.Env
	} else {
		g.env = j.Cmd.Env
	}
	err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		g.script, err = memFile("script", gateScript(j))
	}
	if err != nil {
		g.handedOver()
		g.ours.Close()
		return nil, err
	}
	go g.listen()
	return g, nil
}

// gateScript is the script that bash reads first. Nothing of it is left when the
// command begins: no variable, no function, no descriptor but the one that the trap
// needs. The trap makes sure that its descriptor is not another file by now, and
// is not seen by set -x, wherever bash writes that. It ends a trap of the command's for DEBUG, whose output would be in the report.
//
// Bash says hello before it takes anything of the state, which an earlier command has
// decided.
func gateScript(j *Job) string {
	script := fmt.Sprintf("unset BASH_ENV\nexec %d<&-\n", scriptFD)
	if j.Fence != nil {
		script += fmt.Sprintf("{ builtin echo hello >&%[1]d && builtin read -r -u %[1]d _; } 2>/dev/null\n", gateFD)
	}
	tell, fd := j.Keep.tell(), gateFD
	if tellsPipeline(j.Command) {
		tell = `builtin echo "stages ${__[@]}"; ` + tell
	}
	if tell != "" {
		script += closeOnExec
		fd = heldFD
	}
	script += j.State.script()
	if dir := cmp.Or(j.Dir, j.State.Dir); dir != "" {
		otherwise := fmt.Sprintf("builtin echo nodir >&%d", fd)
		if j.Dir != "" {
			otherwise = fmt.Sprintf("{ %s; exit 125; }", otherwise)
		}
		script += fmt.Sprintf("if builtin cd -- %s 2>/dev/null; then builtin echo dir >&%d; else %s; fi\n", Quote(dir), fd, otherwise)
	}
	if tell == "" {
		return script + fmt.Sprintf("exec %d>&-\n", fd) + posix + lastWord
	}
	return script + posix + fmt.Sprintf("trap '{ __=(\"${PIPESTATUS[@]}\"); builtin trap - DEBUG; set +e; [[ -S /dev/fd/%[1]d ]] && { %[2]s} >&%[1]d; } 2>/dev/null {BASH_XTRACEFD}>/dev/null' EXIT\n",
		fd, strings.ReplaceAll(tell, "'", `'\''`)) + lastWord
}

// lastWord gives $_ the value that it has when bash begins.
const lastWord = `builtin : "$0"` + "\n"

// posix gives the command the POSIX mode that its environment asks for.
const posix = "[[ -z ${" + posixLater + "+x} ]] || { export POSIXLY_CORRECT=\"$" + posixLater + "\"; unset " + posixLater + "; }\n"

// closeOnExec leaves heldFD in the place of gateFD: bash alone has it, and no program that bash
// starts. While a group of commands has a descriptor redirected, bash keeps the old one at a
// number from 10 on, close-on-exec; a copy of that is close-on-exec too (redir.c). The caller's
// soft limit on open files may not allow these numbers; the hard one does.
var closeOnExec = strings.NewReplacer("GATE", strconv.Itoa(gateFD), "HELD", strconv.Itoa(heldFD), "COPY", strconv.Itoa(scriptFD)).Replace(`unset __ ___
{ exec COPY>&GATE; } 2>/dev/null || { ___=$(builtin ulimit -Sn); builtin ulimit -Sn 256; exec COPY>&GATE; }
{ for __ in /dev/fd/[1-9]*; do [[ -S $__ && $__ -ef /dev/fd/COPY && $__ != /dev/fd/COPY ]] && exec HELD>&"${__##*/}"; done; } GATE>&- 2>/dev/null
exec GATE>&- COPY>&-
[[ -z ${___-} ]] || builtin ulimit -Sn "$___"
unset __ ___
`)

// placed are the files of the command.
func (g *gate) placed() []monitor.Placed {
	return []monitor.Placed{{At: gateFD, File: g.theirs}, {At: scriptFD, File: g.script}}
}

// readsScript returns the environment variable that makes bash read the script.
func readsScript() string { return "BASH_ENV=/dev/fd/" + strconv.Itoa(scriptFD) }

// handedOver closes the files that only the command needs.
func (g *gate) handedOver() {
	g.theirs.Close()
	if g.script != nil {
		g.script.Close()
	}
}

// listen answers the hello and keeps the report. The first to speak is bash
// itself, before it has run anything; other processes are ignored.
func (g *gate) listen() {
	defer close(g.done)
	most := maxReport
	if g.keep == KeepDir || g.keep == KeepEnv {
		most += maxState
	}
	var heard strings.Builder
	for buf := make([]byte, min(most, 16<<10)); ; {
		text, pid := g.receive(buf)
		if text == "" {
			break
		}
		if g.shell == 0 {
			g.shell = pid
		}
		switch {
		case pid != g.shell:
		case text == "hello\n" && g.pidfd == 0:
			g.pidfd, _ = unix.PidfdOpen(pid, 0)
			g.hold()
			g.goOn()
		case g.dir: // what bash says before the command begins
			g.dir = false
			if text, g.noDir = strings.CutPrefix(text, "nodir\n"); !g.noDir {
				text = strings.TrimPrefix(text, "dir\n")
			}
			heard.WriteString(text)
		case heard.Len()+len(text) <= most: // bash waits for a reader of the rest
			heard.WriteString(text)
		}
	}
	report, state, told := strings.Cut(heard.String(), "state\n")
	g.stages = stagesIn(report)
	if told {
		g.state = g.keep.stateIn(state, g.env)
	}
}

// begun gives the gate its command, nil for none. Bash waits for this call.
func (g *gate) begun(command monitor.Running) {
	if g.isBegun {
		return
	}
	g.isBegun = true
	if command != nil {
		g.ready <- command
	}
	close(g.ready)
}

// hold keeps the sandbox after the end of bash, until look has listed its processes.
func (g *gate) hold() {
	sandbox, ok := (<-g.ready).(*monitor.Sandbox)
	if !ok || g.pidfd <= 0 {
		return
	}
	g.looked = make(chan struct{})
	sandbox.Hold()
	go func() {
		fds := []unix.PollFd{{Fd: int32(g.pidfd), Events: unix.POLLIN}}
		for {
			if _, err := unix.Poll(fds, -1); err != unix.EINTR {
				break
			}
		}
		g.leftover = g.look(sandbox)
		if g.keeps && len(g.leftover) > 0 && !g.asked.Load() {
			if status, ok := sandbox.HeldStatus(); ok {
				g.kept <- keptCommand{g.leftover, status}
				g.leftover = nil
				sandbox.AwaitProcesses()
			}
		} else if len(g.leftover) == 0 && !g.asked.Load() {
			// The init ends now. If bwrap ended first, the kernel would reap the init for it,
			// and not add up the processor times (zap_pid_ns_processes).
			sandbox.AwaitInit()
		}
		sandbox.LetGo()
		close(g.looked)
	}()
}

// keptCommand is a command that has ended, and the command lines of its processes, which
// have not.
type keptCommand struct {
	left   []string
	status syscall.WaitStatus
}

// look lists the processes that bash has left. It gives them endingTime to end.
func (g *gate) look(sandbox *monitor.Sandbox) (left []string) {
	for limit := time.Now().Add(endingTime); !g.asked.Load(); time.Sleep(time.Millisecond) {
		if left = sandbox.Left(); len(left) == 0 || time.Now().After(limit) {
			return left
		}
	}
	return nil
}

// endingTime is the time that other processes have to end by themselves after bash.
const endingTime = 50 * time.Millisecond

// left lists the command lines of processes that ended with the sandbox.
func (g *gate) left() []string {
	if g.looked != nil {
		<-g.looked
	}
	return g.leftover
}

// goOn lets bash begin. If it has ended, that is no signal for this process.
func (g *gate) goOn() {
	if raw, err := g.ours.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.SendmsgN(int(fd), []byte("\n"), nil, nil, unix.MSG_NOSIGNAL) })
	}
}

// receive returns one message and the process that sent it, "" at the end.
// It takes no descriptors: the buffer has no room for them.
func (g *gate) receive(buf []byte) (text string, pid int) {
	raw, err := g.ours.SyscallConn()
	if err != nil {
		return "", 0
	}
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	_ = raw.Read(func(fd uintptr) bool {
		n, space, _, _, err := unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		if err != nil || n <= 0 {
			return true
		}
		text = string(buf[:n])
		messages, err := unix.ParseSocketControlMessage(oob[:space])
		for _, m := range messages {
			if cred, cerr := unix.ParseUnixCredentials(&m); err == nil && cerr == nil {
				pid = int(cred.Pid)
			}
		}
		return true
	})
	return text, pid
}

// stagesIn reads the last complete report.
func stagesIn(text string) []int {
	text = text[:strings.LastIndexByte(text, '\n')+1]
	list, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), "stages ")
	if !ok {
		return nil
	}
	var stages []int
	for word := range strings.FieldsSeq(list) {
		n, err := strconv.ParseUint(word, 10, 8)
		if err != nil {
			return nil
		}
		stages = append(stages, int(n))
	}
	return stages
}

// shut ends the listening after the last message of bash, even if processes that bash left
// have its socket.
func (g *gate) shut() {
	if raw, err := g.ours.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
}

// exit asks the kernel how bash ended. The kernel knows that once bash has ended, since
// Linux 6.15.
func (g *gate) exit() (syscall.WaitStatus, bool) {
	if g.pidfd <= 0 {
		return 0, false
	}
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := unix.IoctlPidfdInfo(g.pidfd, &info)
	return syscall.WaitStatus(info.Exit_code), err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

// close ends the listening and waits for that.
func (g *gate) close() {
	_ = g.ours.SetReadDeadline(past)
	<-g.done
	_ = g.left()
	g.ours.Close()
	if g.pidfd > 0 {
		unix.Close(g.pidfd)
	}
}

// tellsPipeline reports whether bash is to tell of a command's last pipeline. It does so in a trap,
// which trap -p would show and set -v print.
func tellsPipeline(command string) bool {
	return hasPipeline(command) && !strings.Contains(command, "trap") && !strings.Contains(command, "set -v")
}

// hasPipeline tells whether a command may hold a pipeline: a bar that is not one
// of a pair, nor part of >|. It may be in quotes.
func hasPipeline(command string) bool {
	for i := range len(command) {
		if command[i] == '|' && (i == 0 || command[i-1] != '|' && command[i-1] != '>') &&
			(i+1 == len(command) || command[i+1] != '|') {
			return true
		}
	}
	return false
}

// memFile returns a file in memory that is read from its beginning.
func memFile(name, text string) (*os.File, error) {
	fd, err := fsat.Memfd("pk-"+name, []byte(text))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
