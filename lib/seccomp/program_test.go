package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// call is the input of a filter.
type call struct {
	number uint32
	abi    uint32
	args   [6]uint64
}

// run interprets a filter as the kernel does. It knows only the instructions
// that the filter uses; any other is an error, and so is a jump out of the
// program.
func run(program []unix.SockFilter, c call) (uint32, error) {
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], c.number)
	binary.LittleEndian.PutUint32(data[4:], c.abi)
	for i, arg := range c.args {
		binary.LittleEndian.PutUint64(data[16+8*i:], arg)
	}
	var accumulator uint32
	for at := 0; at < len(program); at++ {
		in := program[at]
		branch := func(yes bool) {
			if yes {
				at += int(in.Jt)
			} else {
				at += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if in.K%4 != 0 || int(in.K) >= len(data) {
				return 0, fmt.Errorf("instruction %d reads at %d", at, in.K)
			}
			accumulator = binary.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			accumulator &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			branch(accumulator == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			branch(accumulator >= in.K)
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(in.K)
		case unix.BPF_RET | unix.BPF_K:
			return in.K, nil
		default:
			return 0, fmt.Errorf("instruction %d has the code %#x", at, in.Code)
		}
	}
	return 0, errors.New("the program has no end")
}

const (
	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
)

func fails(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

func TestDecisions(t *testing.T) {
	const high = 1 << 32
	rows := []struct {
		name string
		arch string
		abi  uint32
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{name: "read, amd64", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0, want: allow},
		{name: "keyctl, amd64", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 250, want: fails(unix.ENOSYS)},
		{name: "keyctl, i386", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 288, want: fails(unix.ENOSYS)},
		{name: "keyctl, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 219, want: fails(unix.ENOSYS)},
		{name: "keyctl, arm", arch: "arm64", abi: unix.AUDIT_ARCH_ARM, nr: 311, want: fails(unix.ENOSYS)},
		{name: "number of another ABI's keyctl", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 288, want: allow},
		{name: "ABI of another machine, amd64", arch: "amd64", abi: unix.AUDIT_ARCH_AARCH64, nr: 0, want: kill},
		{name: "ABI of another machine, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_X86_64, nr: 0, want: kill},
		{name: "unknown ABI", arch: "amd64", abi: 0, nr: 0, want: kill},

		{name: "x32 read", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0x40000000, want: fails(unix.ENOSYS)},
		{name: "x32 ioctl", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0x40000000 + 514, want: fails(unix.ENOSYS)},
		{name: "x32 keyctl", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0x40000000 + 250, want: fails(unix.ENOSYS)},
		{name: "x32 bit and another", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0xc0000000 + 250, want: fails(unix.ENOSYS)},
		{name: "last before x32's own numbers", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 511, want: allow},
		{name: "first of x32's own, without the bit", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 512, want: fails(unix.ENOSYS)},
		{name: "last of x32's own, without the bit", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 547, want: fails(unix.ENOSYS)},
		{name: "first after x32's own numbers", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 548, want: allow},
		{name: "cancelled by a debugger, amd64", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0xffffffff, want: allow},
		{name: "cancelled by a debugger, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 0xffffffff, want: allow},
		{name: "number of x32 on arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 514, want: allow},

		{name: "TIOCSTI with bits the kernel ignores", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0, 7*high + 0x5412}, want: fails(unix.EPERM)},
		{name: "TIOCSTI in the wrong argument", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0x5412, 0x5413, 0x5412}, want: allow},
		{name: "TIOCSTI, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 29, args: [6]uint64{0, high + 0x5412}, want: fails(unix.EPERM)},
		{name: "TCGETS, arm", arch: "arm64", abi: unix.AUDIT_ARCH_ARM, nr: 54, args: [6]uint64{0, 0x5401}, want: allow},
		{name: "AF_INET, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 198, args: [6]uint64{2, 1}, want: allow},
		{name: "routes, i386", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 359, args: [6]uint64{16, 3}, want: allow},
		{name: "AF_VSOCK with bits the kernel ignores", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 41, args: [6]uint64{high + 40, 1}, want: fails(unix.EAFNOSUPPORT)},
		{name: "socket by socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 102, args: [6]uint64{1}, want: fails(unix.ENOSYS)},
		{name: "socketpair by socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 102, args: [6]uint64{8}, want: fails(unix.ENOSYS)},
		{name: "connect by socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 102, args: [6]uint64{3}, want: allow},
		{name: "getuid, which has amd64's number of socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 102, args: [6]uint64{1}, want: allow},
		{name: "chmod 4755, arm", arch: "arm64", abi: unix.AUDIT_ARCH_ARM, nr: 15, args: [6]uint64{0, 0o4755}, want: fails(unix.EPERM)},
		{name: "fchmodat 4755, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 53, args: [6]uint64{0, 0, high + 0o4755}, want: fails(unix.EPERM)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := run(assemble(families[row.arch], policy(false)), call{row.nr, row.abi, row.args})
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("%#x", row.want), fmt.Sprintf("%#x", got))
		})
	}
}

// expected is the whole policy, written a second time without the table.
func expected(name string, args [6]uint64) uint32 {
	arg := func(i int) uint32 { return uint32(args[i]) }
	mode := func(i int, counts bool) uint32 {
		if counts && arg(i)&0o4000 != 0 {
			return fails(unix.EPERM)
		}
		return allow
	}
	const creates = 0o100 | 0o20000000 // O_CREAT, O_TMPFILE
	switch name {
	case "ADD_KEY", "REQUEST_KEY", "KEYCTL", "IO_URING_SETUP", "IO_URING_ENTER", "IO_URING_REGISTER",
		"BPF", "PERF_EVENT_OPEN", "USERFAULTFD", "OPENAT2":
		return fails(unix.ENOSYS)
	case "SYSLOG":
		return fails(unix.EPERM)
	case "IOCTL":
		if slices.Contains([]uint32{0x5412, 0x541c, 0x5423}, arg(1)) {
			return fails(unix.EPERM)
		}
	case "SOCKETCALL":
		if arg(0) == 1 || arg(0) == 8 {
			return fails(unix.ENOSYS)
		}
	case "SOCKET", "SOCKETPAIR":
		protocols, ok := map[uint32][]uint32{1: nil, 2: {0, 1, 6, 17, 58, 262}, 10: {0, 1, 6, 17, 58, 262}, 16: {0}}[arg(0)]
		if !ok || !slices.Contains([]uint32{1, 2, 3, 5}, arg(1)&0xf) {
			return fails(unix.EAFNOSUPPORT)
		}
		if protocols != nil && !slices.Contains(protocols, arg(2)) {
			return fails(unix.EPROTONOSUPPORT)
		}
	case "CHMOD", "FCHMOD", "CREAT", "MKNOD":
		return mode(1, true)
	case "FCHMODAT", "FCHMODAT2", "MKNODAT":
		return mode(2, true)
	case "OPEN":
		return mode(2, arg(1)&creates != 0)
	case "OPENAT":
		return mode(3, arg(2)&creates != 0)
	}
	return allow
}

// arguments has a value of each class that a rule distinguishes, and neighbours.
var arguments = []uint64{
	0, 1, 2, 3, 5, 6, 8, 10, 15, 16, 17, 38, 40, 58, 132, 256, 262, 1 << 32, 1<<32 + 1, 1<<32 + 40,
	0x5401, 0x5412, 0x541c, 0x5423, 1<<32 + 0x5412,
	0o755, 0o2755, 0o4000, 0o4755, 0o7777, 0o104755, 1<<32 + 0o4644,
	0o100, 0o1101, 0o20200002, 0o2000000, 0o2000001, 0o4001, 0o4002, 0xffffffff, 0xffffffffffffffff,
}

// combinations yields each pair of values in each pair of neighbouring arguments,
// with several values in the others, and the arguments of sockets.
func combinations(yield func([6]uint64) bool) {
	for first := range 3 {
		for _, a := range arguments {
			for _, b := range arguments {
				for _, rest := range []uint64{0, 1, 2, 16, 0o4755} {
					args := [6]uint64{rest, rest, rest, rest, rest, rest}
					args[first], args[first+1] = a, b
					if !yield(args) {
						return
					}
				}
			}
		}
	}
	for _, family := range []uint64{0, 1, 2, 3, 10, 16, 17, 40, 1<<32 + 2} {
		for _, kind := range []uint64{0, 1, 2, 3, 4, 5, 6, 10, 15, 0o2000001, 0o2004012, 1 << 32} {
			for _, protocol := range arguments {
				if !yield([6]uint64{family, kind, protocol}) {
					return
				}
			}
		}
	}
}

// abisOfKernels are the ABIs, with their names in Go.
var abisOfKernels = []struct {
	name, arch string
	abi        abi
}{
	{"amd64", "amd64", amd64},
	{"386", "amd64", i386},
	{"arm64", "arm64", arm64},
	{"arm", "arm64", arm},
}

var unixPackage = sync.OnceValues(exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output)

// numbers returns the system calls that golang.org/x/sys/unix knows.
func numbers(t *testing.T, arch string) map[string]uint32 {
	t.Helper()
	dir, err := unixPackage()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+arch+".go"))
	require.NoError(t, err)
	calls := map[string]uint32{}
	for _, c := range regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s*=\s*(\d+)$`).FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.ParseUint(c[2], 10, 32)
		require.NoError(t, err)
		calls[c[1]] = uint32(number)
	}
	require.Greater(t, len(calls), 300)
	return calls
}

// TestEveryCall asks about every system call that golang.org/x/sys/unix knows on
// each ABI, with arguments of every class.
func TestEveryCall(t *testing.T) {
	if os.Getenv("PK_TEST_BWRAP") != "" {
		t.Skip("this needs Go; it is the same with every bwrap")
	}
	for _, a := range abisOfKernels {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			rules := policy(false)
			program, nested := assemble(families[a.arch], rules), assemble(families[a.arch], policy(true))
			named := 0
			for name, number := range numbers(t, a.name) {
				ruled := slices.ContainsFunc(rules, func(r rule) bool { return r.number[a.abi] == number })
				for args := range combinations {
					got, err := run(program, call{number, audit[a.abi], args})
					require.NoError(t, err)
					if want := expected(name, args); want != got {
						require.Failf(t, "another answer", "%s %#x: want %#x, got %#x", name, args, want, got)
					}
					inside, err := run(nested, call{number, audit[a.abi], args})
					require.NoError(t, err)
					if inside != got && (inside != allow || name != "OPENAT2") {
						require.Failf(t, "another answer with nested", "%s %#x: %#x", name, args, inside)
					}
					if !ruled && args[0] != 0 {
						break // the program does not read its arguments
					}
				}
				if ruled {
					named++
				}
			}
			rulesHere := slices.DeleteFunc(slices.Clone(rules), func(r rule) bool { return r.number[a.abi] == missing })
			assert.Len(t, rulesHere, named)
		})
	}
}

// TestTracing holds the filter for a tracer against the other: it stops what that allows
// of the calls in the table, and no other call.
func TestTracing(t *testing.T) {
	if os.Getenv("PK_TEST_BWRAP") != "" {
		t.Skip("this needs Go; it is the same with every bwrap")
	}
	for _, a := range abisOfKernels {
		program, plain := assemble(families[a.arch], policy(false), traced...), assemble(families[a.arch], policy(false))
		stopped := 0
		for name, number := range numbers(t, a.name) {
			ruled := slices.ContainsFunc(policy(false), func(r rule) bool { return r.number[a.abi] == number })
			at := slices.IndexFunc(traced, func(c tracedCall) bool { return c.number[a.abi] == number })
			for args := range combinations {
				want, err := run(plain, call{number, audit[a.abi], args})
				require.NoError(t, err)
				if want == allow && at >= 0 {
					want = unix.SECCOMP_RET_TRACE | uint32(at+1)
				}
				got, err := run(program, call{number, audit[a.abi], args})
				require.NoError(t, err)
				if want != got {
					require.Failf(t, "another answer", "%s, %s %#x: want %#x, got %#x", a.name, name, args, want, got)
				}
				if !ruled && args[0] != 0 {
					break
				}
			}
			if at >= 0 {
				stopped++
				found, ok := Traced(uint32(at + 1))
				assert.True(t, ok)
				assert.Equal(t, strings.ToLower(strings.Replace(name, "NEWFSTATAT", "FSTATAT", 1)), strings.Replace(found.Name, "newfstatat", "fstatat", 1), a.name)
			}
		}
		here := slices.DeleteFunc(slices.Clone(traced), func(c tracedCall) bool { return c.number[a.abi] == missing })
		assert.Len(t, here, stopped, a.name)
	}
	for _, data := range []uint32{0, uint32(len(traced) + 1), 0xffff} {
		_, ok := Traced(data)
		assert.False(t, ok)
	}
}

// The kernel takes 4096 instructions, and none that jumps out of the program;
// run would not notice the latter on paths that are not taken.
func TestWellFormed(t *testing.T) {
	for arch, abis := range families {
		program := assemble(abis, policy(true), traced...)
		require.LessOrEqual(t, len(program), unix.BPF_MAXINSNS, arch)
		for at, in := range program {
			if in.Code&7 == unix.BPF_JMP {
				assert.Less(t, at+1+int(max(in.Jt, in.Jf)), len(program), arch)
			}
		}
		assert.Equal(t, unix.SockFilter{Code: unix.BPF_RET, K: kill}, program[len(program)-1], arch)
	}
}

func TestFilter(t *testing.T) {
	filter, err := Filter(false)
	if _, ok := families[runtime.GOARCH]; !ok {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	program := make([]unix.SockFilter, len(filter)/unix.SizeofSockFilter)
	require.NoError(t, binary.Read(bytes.NewReader(filter), binary.NativeEndian, program))
	assert.Equal(t, assemble(families[runtime.GOARCH], policy(false)), program)
	again, err := Filter(false)
	require.NoError(t, err)
	assert.Equal(t, filter, again)
}
