// Package seccomp makes the system call filter of the sandbox.
//
// Namespaces and missing capabilities are the first line of defence; the filter
// is the second. It refuses only calls that a process without capabilities could
// still use: calls on objects that no namespace separates (keys, the kernel log,
// vsock), calls that reach past the sandbox through a terminal, calls that leave
// a set-user-ID file to the host, and large parts of the kernel that everyday
// tools do without. The kernel itself refuses calls that need a capability on the
// host (modules, kexec, mounts, the clock), so the filter does not repeat them. A
// process may debug its own children: ptrace, process_vm_readv and pidfd_getfd
// stay.
//
// 32-bit programs run under the same rules, with their own system call numbers.
// One difference remains: a filter cannot see which family socketcall(2) asks
// for, so the filter refuses sockets made that way. musl then uses socket(2);
// glibc for i386 and Go do not, and their 32-bit programs have no sockets.
package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Filter returns the filter for the architecture of this program as bwrap's
// --seccomp reads it: an array of struct sock_filter in the machine's byte
// order. The bytes are always the same.
//
// A refused call fails with ENOSYS, EAFNOSUPPORT or EPROTONOSUPPORT where a
// kernel can be built without it, so that programs fall back as on such a
// kernel; otherwise it fails with EPERM. A call of an unknown architecture kills
// the process, since the meaning of its number is unknown.
//
// With nested, a sandbox may be started inside. bwrap cannot make one without
// openat2 since version 0.12, nor can pk-bwrap. A filter cannot read the mode for
// openat2, so a command can then leave a set-user-ID file.
//
// There are filters for amd64 and arm64. Elsewhere the error matches
// errors.ErrUnsupported.
func Filter(nested bool) ([]byte, error) { return encode(policy(nested)) }

func encode(rules []rule, calls ...tracedCall) ([]byte, error) {
	abis, ok := families[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no system call filter for %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, assemble(abis, rules, calls...)); err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return out.Bytes(), nil
}

// families lists the ABIs that the kernel of an architecture accepts.
var families = map[string][]abi{
	"amd64": {amd64, i386},
	"arm64": {arm64, arm},
}

// abi is a set of system call numbers.
type abi int

const (
	amd64 abi = iota
	i386
	arm64
	arm
)

// audit is the kernel's name for each ABI.
var audit = [...]uint32{
	amd64: unix.AUDIT_ARCH_X86_64,
	i386:  unix.AUDIT_ARCH_I386,
	arm64: unix.AUDIT_ARCH_AARCH64,
	arm:   unix.AUDIT_ARCH_ARM,
}

// rule says how the filter answers one system call: with the first refusal that
// applies. The filter allows a call to which none applies.
type rule struct {
	name     string
	number   [4]uint32 // by ABI
	refusals []refusal
}

// refusal applies when all its tests hold.
type refusal struct {
	answer unix.Errno
	when   []test
}

// test holds if the masked argument is one of the values; with not, if it is
// none of them. It reads the low 32 bits: of the arguments that the rules test,
// the kernel ignores the others.
type test struct {
	argument int
	mask     uint32
	values   []uint32
	not      bool
}

func is(argument int, values ...uint32) test { return test{argument, ^uint32(0), values, false} }

func isNot(argument int, values ...uint32) test { return test{argument, ^uint32(0), values, true} }

// has holds if one of the bits is set.
func has(argument int, bits uint32) test { return test{argument, bits, []uint32{0}, true} }

func refuse(answer unix.Errno, when ...test) []refusal { return []refusal{{answer, when}} }

// setUserID refuses a mode with the set-user-ID bit.
func setUserID(argument int, and ...test) []refusal {
	return refuse(unix.EPERM, append(and, has(argument, unix.S_ISUID))...)
}

// create holds if open(2) makes a file, and so looks at its mode. O_TMPFILE
// contains O_DIRECTORY, which has another value on each architecture; the kernel
// looks at this bit alone.
func create(argument int) test { return has(argument, unix.O_CREAT|tmpfile) }

const tmpfile = 0o20000000 // __O_TMPFILE in <asm-generic/fcntl.h>

// sockets is the list of socket types that everyday tools use. The kernel loads
// a driver for any process that asks for another one, and some of those reach past
// network namespaces: AF_VSOCK connects to the host of a virtual machine.
var sockets = []refusal{
	{unix.EAFNOSUPPORT, []test{isNot(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK)}},
	// The kernel makes an AF_PACKET socket for AF_INET with SOCK_PACKET, and
	// loads DCCP for SOCK_DCCP. Flags share the argument with the type.
	{unix.EAFNOSUPPORT, []test{{1, 0xf, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET}, true}}},
	// SCTP, DCCP, L2TP and SMC are drivers behind AF_INET. Go listens with MPTCP;
	// ping uses the ICMP protocols.
	{unix.EPROTONOSUPPORT, []test{is(0, unix.AF_INET, unix.AF_INET6), isNot(2, 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP,
		unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, unix.IPPROTO_MPTCP)}},
	// NETLINK_ROUTE lists addresses and routes: getaddrinfo, getifaddrs, Go's net
	// package, libuv and ip(8) use it. The others describe the host. ss reads /proc
	// instead of NETLINK_SOCK_DIAG. Programs that log to NETLINK_AUDIT take the error for a
	// kernel without it. The devices that libudev and Chromium watch by
	// NETLINK_KOBJECT_UEVENT are not in the sandbox.
	{unix.EPROTONOSUPPORT, []test{is(0, unix.AF_NETLINK), isNot(2, unix.NETLINK_ROUTE)}},
}

// missing is the number of a call that an ABI does not have.
const missing = ^uint32(0)

var rules = []rule{
	// Keys belong to users and sessions, not to namespaces: a command would find
	// the caller's. request_key makes the kernel run a program on the host.
	{"add_key", [4]uint32{248, 286, 217, 309}, refuse(unix.ENOSYS)},
	{"request_key", [4]uint32{249, 287, 218, 310}, refuse(unix.ENOSYS)},
	{"keyctl", [4]uint32{250, 288, 219, 311}, refuse(unix.ENOSYS)},

	// A ring makes other system calls, and no filter sees those. All three are
	// refused, since a command may inherit a ring.
	{"io_uring_setup", [4]uint32{425, 425, 425, 425}, refuse(unix.ENOSYS)},
	{"io_uring_enter", [4]uint32{426, 426, 426, 426}, refuse(unix.ENOSYS)},
	{"io_uring_register", [4]uint32{427, 427, 427, 427}, refuse(unix.ENOSYS)},

	// Many kernel exploits begin with code in the kernel, with counters that see
	// other processes, or with page faults that stop the kernel at a chosen place.
	{"bpf", [4]uint32{321, 357, 280, 386}, refuse(unix.ENOSYS)},
	{"perf_event_open", [4]uint32{298, 336, 241, 364}, refuse(unix.ENOSYS)},
	{"userfaultfd", [4]uint32{323, 374, 282, 388}, refuse(unix.ENOSYS)},

	// The host's kernel log is readable if kernel.dmesg_restrict is 0. The kernel
	// answers EPERM if it is 1.
	{"syslog", [4]uint32{103, 103, 116, 103}, refuse(unix.EPERM)},

	// TIOCSTI and TIOCLINUX type into the caller's terminal. TIOCSETD loads a line
	// discipline driver for any terminal, also one that the command made.
	{"ioctl", [4]uint32{16, 54, 29, 54}, refuse(unix.EPERM, is(1, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD))},

	{"socket", [4]uint32{41, 359, 198, 281}, sockets},
	{"socketpair", [4]uint32{53, 360, 199, 288}, sockets},
	// The arguments of socketcall are in memory, which a filter cannot read.
	{"socketcall", [4]uint32{missing, 102, missing, missing}, refuse(unix.ENOSYS, is(0, callSocket, callSocketpair))},

	// A set-user-ID file in a writable root, which is the caller's file on the
	// host, gives the caller's rights to any other user that runs it. EPERM makes
	// cp, tar and rsync report the file, copy the rest and exit non-zero. mkdir is
	// not here: the kernel ignores the bit there.
	//
	// The set-group-ID bit stays, as git init --shared and others set it on
	// directories, and a filter cannot tell those from files.
	{"chmod", [4]uint32{90, 15, missing, 15}, setUserID(1)},
	{"fchmod", [4]uint32{91, 94, 52, 94}, setUserID(1)},
	{"fchmodat", [4]uint32{268, 306, 53, 333}, setUserID(2)},
	{"fchmodat2", [4]uint32{452, 452, 452, 452}, setUserID(2)},
	{"creat", [4]uint32{85, 8, missing, 8}, setUserID(1)},
	{"open", [4]uint32{2, 5, missing, 5}, setUserID(2, create(1))},
	{"openat", [4]uint32{257, 295, 56, 322}, setUserID(3, create(2))},
	{"mknod", [4]uint32{133, 14, missing, 14}, setUserID(1)},
	{"mknodat", [4]uint32{259, 297, 33, 324}, setUserID(2)},
}

// openat2 reads its mode from memory. Its callers fall back to openat, as on
// Linux before 5.6: libpathrs, runc, crun, systemd, gnulib, cap-std.
var openat2 = rule{"openat2", [4]uint32{437, 437, 437, 437}, refuse(unix.ENOSYS)}

func policy(nested bool) []rule {
	if nested {
		return rules
	}
	return append(slices.Clip(rules), openat2)
}

// Operations of socketcall(2), from <linux/net.h>.
const (
	callSocket     = 1
	callSocketpair = 8
)
