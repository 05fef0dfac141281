// Package seccomp makes the system call filter of the sandbox.
//
// The filter is the second line. Namespaces and missing capabilities are the
// first, so it names only what a process without any capability could still
// call: what the host's kernel keeps outside all namespaces (its keys, its log,
// the other end of a virtual machine's socket), what reaches past the sandbox
// through a terminal, and large parts of the kernel that everyday tools do
// without. What takes a capability of the host (modules, kexec, mounts, the
// clock) is refused by the kernel itself and is not repeated here, and
// debugging one's own processes stays: ptrace, process_vm_readv, pidfd_getfd.
// Nothing in it stands in the way of sandboxes inside the sandbox.
//
// 32-bit programs run, under the same rules by their own numbers. One thing is
// different for them: sockets made through socketcall, the old way, are
// refused, since a filter cannot see which family is asked for. C libraries ask
// again by the new way; 32-bit programs written in Go have no network.
package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Filter returns the filter for the architecture this program was built for,
// as bwrap's --seccomp reads it: an array of struct sock_filter in the
// machine's byte order. It is the same bytes every time.
//
// What may not be called fails: with ENOSYS where a kernel can be built without
// it, so that programs do what they do on such a kernel; with EPERM or
// EAFNOSUPPORT where the call as such exists. A call by the rules of an unknown
// architecture kills the process: what it would do cannot be told.
//
// There are filters for amd64 and arm64. The error matches
// errors.ErrUnsupported elsewhere.
func Filter() ([]byte, error) {
	abis, ok := families[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no system call filter for %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, assemble(abis)); err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return out.Bytes(), nil
}

// families are the ways into the kernel that a machine has.
var families = map[string][]abi{
	"amd64": {amd64, i386},
	"arm64": {arm64, arm},
}

// abi is a way into the kernel: a set of system call numbers.
type abi int

const (
	amd64 abi = iota
	i386
	arm64
	arm
)

// audit is how the kernel names the ABI to a filter.
var audit = [...]uint32{
	amd64: unix.AUDIT_ARCH_X86_64,
	i386:  unix.AUDIT_ARCH_I386,
	arm64: unix.AUDIT_ARCH_AARCH64,
	arm:   unix.AUDIT_ARCH_ARM,
}

// rule refuses a system call, or some uses of it.
type rule struct {
	name   string
	number [4]uint32 // by ABI
	answer unix.Errno
	only   *condition // nil: every use
}

// condition looks at the low half of an argument. The kernel does the same with
// those that are looked at here, so that bits above change nothing.
type condition struct {
	argument int
	values   []uint32
	permits  bool // the values are permitted, and all else is refused
}

// missing is the number of a call that an ABI does not have.
const missing = ^uint32(0)

var rules = []rule{
	// Keys belong to users and sessions, not to namespaces: a command would find
	// those of the caller. request_key has the kernel run a program on the host.
	{"add_key", [4]uint32{248, 286, 217, 309}, unix.ENOSYS, nil},
	{"request_key", [4]uint32{249, 287, 218, 310}, unix.ENOSYS, nil},
	{"keyctl", [4]uint32{250, 288, 219, 311}, unix.ENOSYS, nil},

	// A ring does what other calls do, and no filter sees it. All three: a ring
	// may also have been inherited.
	{"io_uring_setup", [4]uint32{425, 425, 425, 425}, unix.ENOSYS, nil},
	{"io_uring_enter", [4]uint32{426, 426, 426, 426}, unix.ENOSYS, nil},
	{"io_uring_register", [4]uint32{427, 427, 427, 427}, unix.ENOSYS, nil},

	// Code that runs in the kernel, counters that see across processes, and page
	// faults that stop the kernel where an attacker likes: settings of the host
	// decide who may, and these are what most exploits begin with or lean on.
	{"bpf", [4]uint32{321, 357, 280, 386}, unix.ENOSYS, nil},
	{"perf_event_open", [4]uint32{298, 336, 241, 364}, unix.ENOSYS, nil},
	{"userfaultfd", [4]uint32{323, 374, 282, 388}, unix.ENOSYS, nil},

	// The host's kernel log, where the setting kernel.dmesg_restrict is 0. EPERM
	// is what it is where that is 1.
	{"syslog", [4]uint32{103, 103, 116, 103}, unix.EPERM, nil},

	// What types into the caller's terminal, and what puts it, or a terminal of
	// the command's own, under a driver that has to be loaded for it.
	{"ioctl", [4]uint32{16, 54, 29, 54}, unix.EPERM, &condition{argument: 1, values: []uint32{
		unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD,
	}}},

	// Some families know no network namespaces: AF_VSOCK reaches the host of a
	// virtual machine, and its guests, from a sandbox without any network. The
	// rest is drivers that are loaded for whoever asks.
	{"socket", [4]uint32{41, 359, 198, 281}, unix.EAFNOSUPPORT, &condition{argument: 0, values: []uint32{
		unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK,
	}, permits: true}},
	// The arguments are in memory, where a filter cannot look.
	{"socketcall", [4]uint32{missing, 102, missing, missing}, unix.ENOSYS, &condition{argument: 0, values: []uint32{
		sysSocket,
	}}},
}

// sysSocket is the socketcall that makes a socket, SYS_SOCKET in <linux/net.h>.
const sysSocket = 1
