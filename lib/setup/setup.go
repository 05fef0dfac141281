// Package setup is the set-up program: it makes the sandbox that a Job
// describes, has bwrap run in it, and stays until the last process of the
// sandbox has ended.
//
// A monitor, or a printed line, starts it through unshare(1), or in a session through nsenter(1),
// which give it a user namespace. It makes a mount namespace and builds one tree
// of mounts there; bwrap binds this tree as its root and adds the processes'
// part: a /proc, capabilities, the system call filter, an init. bwrap is the
// first process of a PID namespace, so the kernel kills the whole sandbox when
// bwrap dies, and bwrap dies with the set-up program or its monitor.
package setup

import (
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/gate"
	"pikuri/lib/internal/bytejson"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/overlay"
)

// Mode is the set-up program. It reads its job from descriptor 3, or from an argument
// in a line that --print has printed. In the place of a monitor that was killed it runs this
// program anew when the sandbox has ended, with the arguments that follow its own.
var Mode = hidden.Mode{Name: option, Run: main}

const option = "--pk-setup"

// Dismissed is the last byte that a monitor writes to descriptor 3, when its work after the end of
// the sandbox is done. Without it, the monitor was killed.
const Dismissed = 0

// GateWord as an argument has the set-up program start the gate of its sandbox before
// it knows its Job, whose Job.Net is not shared.
const GateWord = "gate"

// Job describes one sandbox. It travels as a message of lib/internal/wire; in a printed
// line it is JSON (Encode, Decode).
type Job struct {
	Mounts    []Mount  `json:"mounts"` // parents before children
	Unchanged []Inode  `json:"unchanged,omitempty"`
	Program   string   `json:"program"`          // bwrap
	Options   []string `json:"options"`          // of bwrap, but for those that name descriptors or the tree
	Argv      []string `json:"argv"`             // the command
	Env       []string `json:"env"`              // of bwrap itself
	Filter    []byte   `json:"filter,omitempty"` // a seccomp program, as bwrap takes it

	Rlimits []Rlimit `json:"rlimits,omitempty"` // of each process

	Terminal Terminal `json:"terminal,omitzero"`

	WritableRoot bool `json:"writable_root,omitempty"` // the root directory itself can be written

	// Suspends says that the command may stop itself as a job of a shell does, by SIGTSTP:
	// the set-up program's session has the terminal then, so the command's process group is not
	// orphaned. The session can have one.
	Suspends bool `json:"suspends,omitempty"`

	// Told are directories. The set-up program writes their content to FDs.Told in the
	// end.
	Told []string `json:"told,omitempty"`

	// Net is the network of the sandbox, if it is neither the host's nor, by an option
	// of bwrap, a loopback of its own.
	Net *gate.Config `json:"net,omitempty"`

	Keeper int         `json:"keeper,omitempty"` // process that holds the session's mount namespace
	FDs    Descriptors `json:"fds"`
}

// Rlimit is a limit of setrlimit(2). A process that has a lower one keeps that.
type Rlimit struct {
	Resource int    `json:"resource"` // RLIMIT_CPU and so on
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Descriptors are files by their index, from 1 on, among those sent with a job; for a
// job in an argument, by their descriptor. Zero stands for none.
type Descriptors struct {
	Control    int      `json:"control,omitempty"`     // the job's socket to the monitor
	Program    int      `json:"program,omitempty"`     // an executable to start instead of Job.Program
	Status     int      `json:"status,omitempty"`      // where bwrap reports (--json-status-fd)
	Cgroup     int      `json:"cgroup,omitempty"`      // directory of the cgroup to start bwrap in
	Mounts     int      `json:"mounts,omitempty"`      // the session's mount namespace
	KeeperLock int      `json:"keeper_lock,omitempty"` // the file that Job.Keeper has locked
	Held       []int    `json:"held,omitempty"`        // locked files; kept open to the end
	Note       int      `json:"note,omitempty"`        // the locked note of the journal; kept open to the end
	Session    int      `json:"session,omitempty"`     // directory of the session that shares Job.Net; none: it is not shared
	Report     int      `json:"report,omitempty"`      // where the gate's records go
	Told       int      `json:"told,omitempty"`        // where the content of Job.Told goes
	Failed     int      `json:"failed,omitempty"`      // where failed system calls go; the filter is one of seccomp.Tracing then
	Passed     []Placed `json:"passed,omitempty"`      // for the command
}

// Terminal is a terminal of the sandbox's own; the zero value for none.
type Terminal struct {
	Streams []int         `json:"streams,omitempty"` // standard streams that are it
	Modes   *unix.Termios `json:"modes,omitempty"`   // nil: a new one's
	Size    *unix.Winsize `json:"size,omitempty"`    // nil: unknown
}

// Placed is a file for the command: FD here, At there.
type Placed struct {
	FD int `json:"fd"`
	At int `json:"at"`
}

// Op is the operation of a Mount.
type Op string

// The operations.
const (
	Bind    Op = "bind"    // From, with everything mounted below it
	Keep    Op = "keep"    // At itself, which becomes a mount point
	Overlay Op = "overlay" // From as the lower layer; an upper layer in memory, on disk (Layer), or the session's
	Empty   Op = "empty"   // an empty directory in memory
	Copy    Op = "copy"    // a file with the content of From
	File    Op = "file"    // a file with the content Data
	Link    Op = "link"    // a symbolic link to From
	Hide    Op = "hide"    // an empty directory, or a file that cannot be opened
	Blank   Op = "blank"   // a file of Data, over another
	Dev     Op = "dev"     // devices, and /dev/shm
)

// Mount is one step of building the tree.
type Mount struct {
	Op   Op     `json:"op"`
	At   string `json:"at"` // in the sandbox: absolute, clean
	From string `json:"from,omitempty"`

	// Inode is the identity that From (Keep, Hide, Blank, Empty: At) had when the
	// plan was made. The zero value checks nothing.
	Inode Inode `json:"inode,omitzero"`

	Access  Access `json:"access,omitempty"`  // Bind, Keep, Dev; ReadOnly for Empty: in the end
	Perms   uint32 `json:"perms,omitempty"`   // Empty, Copy, File, Overlay without From
	Size    int64  `json:"size,omitempty"`    // Empty, Dev: the most it may hold, in bytes
	Data    []byte `json:"data,omitempty"`    // File
	Session string `json:"session,omitempty"` // Overlay: its path in the session's mount namespace

	// Layer is the layers of an Overlay on disk. With Session, the set-up program mounts
	// the overlay there if it is not mounted yet; mounts of one upper layer elsewhere in
	// the tree show the same overlay.
	Layer *overlay.Layers `json:"layer,omitempty"`
}

// Access is the permitted access to a mount of the host.
type Access string

// The kinds of access.
const (
	ReadOnly Access = "ro"
	Writable Access = "rw"
	Own      Access = "own" // writable, and pk's own: mount points may be made in it
)

// Inode identifies a file of the host that other processes can rename or
// replace while the sandbox is made. It is opened without following symbolic
// links, and must be the same inode. An Inode with a Path alone accepts any.
type Inode struct {
	Path string `json:"path,omitempty"` // of Job.Unchanged; elsewhere non-empty means checked
	Dev  uint64 `json:"dev,omitempty"`
	Ino  uint64 `json:"ino,omitempty"`
}

// checked reports whether symbolic links are refused.
func (i Inode) checked() bool { return i != Inode{} }

// below is a place relative to the root of the tree.
func below(place string) string { return filepath.Clean("/" + place)[1:] }

// Answer is the first message of the set-up program to its monitor. It tells whether bwrap
// was started, and as which process.
type Answer struct {
	Pid   int    // bwrap, as the monitor sees it
	Root  string // where the set-up program sees the sandbox's root
	Error string // nothing was started
	Hint  string
	Again bool // the session's keeper has ended: try again
}

// Ended is the last message to the monitor: all processes of the sandbox have ended. The
// kernel takes its mounts away while this process ends, which takes as long as the work that
// the monitor has to do then.
type Ended struct {
	Status int            // exit status of this process
	Usage  syscall.Rusage // of the processes of the sandbox together
}

// decode reads a job.
func decode(text []byte) (*Job, error) {
	j := new(Job)
	if err := bytejson.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("internal error: %s got a job that it cannot read: %w", option, err)
	}
	return j, nil
}

// selfFD is the directory in which a descriptor has a path.
const selfFD = "/proc/self/fd/"

func fdPath(fd int) string { return fmt.Sprintf("%s%d", selfFD, fd) }

// insideOwnNamespace tells a user namespace that maps one user from the
// machine's own, in which all processes would see the mounts.
func insideOwnNamespace() bool {
	var from, to, count int
	ids, err := fsat.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	n, _ := fmt.Sscan(string(ids), &from, &to, &count)
	return n == 3 && count == 1
}
