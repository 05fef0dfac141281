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
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// call is what a filter is shown.
type call struct {
	number uint32
	abi    uint32
	args   [6]uint64
}

// run is the kernel's interpreter, as far as the filter uses it. It takes less
// than the kernel does: an instruction it does not know is an error, and so is
// a jump out of the program.
func run(program []unix.SockFilter, c call) (uint32, error) {
	data := new(bytes.Buffer)
	for _, field := range []any{c.number, c.abi, uint64(0), c.args} {
		if err := binary.Write(data, binary.LittleEndian, field); err != nil {
			return 0, err
		}
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
			if in.K%4 != 0 || int(in.K) >= data.Len() {
				return 0, fmt.Errorf("instruction %d reads at %d", at, in.K)
			}
			accumulator = binary.LittleEndian.Uint32(data.Bytes()[in.K:])
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
		{name: "ABI nobody knows", arch: "amd64", abi: 0, nr: 0, want: kill},

		{name: "x32 read", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0x40000000, want: fails(unix.ENOSYS)},
		{name: "x32 ioctl", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0x40000000 + 514, want: fails(unix.ENOSYS)},
		{name: "x32 keyctl", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0x40000000 + 250, want: fails(unix.ENOSYS)},
		{name: "x32 bit and another", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0xc0000000 + 250, want: fails(unix.ENOSYS)},
		{name: "last before x32's own numbers", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 511, want: allow},
		{name: "first of x32's own, without the bit", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 512, want: fails(unix.ENOSYS)},
		{name: "last of x32's own, without the bit", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 547, want: fails(unix.ENOSYS)},
		{name: "first after x32's own numbers", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 548, want: allow},
		{name: "taken out by a debugger, amd64", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 0xffffffff, want: allow},
		{name: "taken out by a debugger, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 0xffffffff, want: allow},
		{name: "number of x32 on arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 514, want: allow},

		{name: "TIOCSTI", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0, 0x5412}, want: fails(unix.EPERM)},
		{name: "TIOCSTI with bits the kernel ignores", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0, 7*high + 0x5412}, want: fails(unix.EPERM)},
		{name: "TIOCLINUX", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0, 0x541c}, want: fails(unix.EPERM)},
		{name: "TIOCSETD", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0, 0x5423}, want: fails(unix.EPERM)},
		{name: "TIOCGWINSZ", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0, 0x5413}, want: allow},
		{name: "TIOCSTI in the wrong argument", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 16, args: [6]uint64{0x5412, 0x5413, 0x5412}, want: allow},
		{name: "TIOCSTI, i386", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 54, args: [6]uint64{0, 0x5412}, want: fails(unix.EPERM)},
		{name: "TIOCSTI, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 29, args: [6]uint64{0, high + 0x5412}, want: fails(unix.EPERM)},
		{name: "TIOCSTI, arm", arch: "arm64", abi: unix.AUDIT_ARCH_ARM, nr: 54, args: [6]uint64{0, 0x5412}, want: fails(unix.EPERM)},
		{name: "TCGETS, arm", arch: "arm64", abi: unix.AUDIT_ARCH_ARM, nr: 54, args: [6]uint64{0, 0x5401}, want: allow},

		{name: "AF_UNIX", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 41, args: [6]uint64{1, 1}, want: allow},
		{name: "AF_INET", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 198, args: [6]uint64{2, 1}, want: allow},
		{name: "AF_INET6", arch: "arm64", abi: unix.AUDIT_ARCH_ARM, nr: 281, args: [6]uint64{10, 2}, want: allow},
		{name: "AF_NETLINK", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 359, args: [6]uint64{16, 3}, want: allow},
		{name: "AF_VSOCK", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 41, args: [6]uint64{40, 1}, want: fails(unix.EAFNOSUPPORT)},
		{name: "AF_VSOCK with bits the kernel ignores", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 41, args: [6]uint64{high + 40, 1}, want: fails(unix.EAFNOSUPPORT)},
		{name: "AF_ALG, arm64", arch: "arm64", abi: unix.AUDIT_ARCH_AARCH64, nr: 198, args: [6]uint64{38, 5}, want: fails(unix.EAFNOSUPPORT)},
		{name: "AF_VSOCK, i386", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 359, args: [6]uint64{40, 1}, want: fails(unix.EAFNOSUPPORT)},
		{name: "socket by socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 102, args: [6]uint64{1}, want: fails(unix.ENOSYS)},
		{name: "connect by socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_I386, nr: 102, args: [6]uint64{3}, want: allow},
		{name: "getuid, which has amd64's number of socketcall", arch: "amd64", abi: unix.AUDIT_ARCH_X86_64, nr: 102, args: [6]uint64{1}, want: allow},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := run(assemble(families[row.arch]), call{row.nr, row.abi, row.args})
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("%#x", row.want), fmt.Sprintf("%#x", got))
		})
	}
}

// refused is the whole list, apart from the table that the filter is made from.
var refused = map[string]unix.Errno{
	"ADD_KEY": unix.ENOSYS, "REQUEST_KEY": unix.ENOSYS, "KEYCTL": unix.ENOSYS,
	"IO_URING_SETUP": unix.ENOSYS, "IO_URING_ENTER": unix.ENOSYS, "IO_URING_REGISTER": unix.ENOSYS,
	"BPF": unix.ENOSYS, "PERF_EVENT_OPEN": unix.ENOSYS, "USERFAULTFD": unix.ENOSYS,
	"SYSLOG": unix.EPERM,
}

// TestNumbers asks about every system call that golang.org/x/sys/unix knows on
// each ABI, with arguments that say nothing: what is on the list is refused,
// and nothing else is.
func TestNumbers(t *testing.T) {
	if os.Getenv("PK_TEST_BWRAP") != "" {
		t.Skip("this needs Go; it is the same with every bwrap")
	}
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s*=\s*(\d+)$`)
	for _, a := range []struct {
		name, arch string
		abi        uint32
	}{
		{"amd64", "amd64", unix.AUDIT_ARCH_X86_64},
		{"386", "amd64", unix.AUDIT_ARCH_I386},
		{"arm64", "arm64", unix.AUDIT_ARCH_AARCH64},
		{"arm", "arm64", unix.AUDIT_ARCH_ARM},
	} {
		t.Run(a.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "zsysnum_linux_"+a.name+".go"))
			require.NoError(t, err)
			program := assemble(families[a.arch])
			calls := line.FindAllStringSubmatch(string(text), -1)
			require.Greater(t, len(calls), 300)
			seen := 0
			for _, c := range calls {
				number, err := strconv.ParseUint(c[2], 10, 32)
				require.NoError(t, err)
				want := uint32(allow)
				if errno, ok := refused[c[1]]; ok {
					want = fails(errno)
					seen++
				}
				if c[1] == "SOCKET" { // AF_UNSPEC
					want = fails(unix.EAFNOSUPPORT)
				}
				got, err := run(program, call{number: uint32(number), abi: a.abi})
				require.NoError(t, err)
				assert.Equal(t, want, got, c[1])
			}
			assert.Equal(t, len(refused), seen)
		})
	}
}

// The kernel takes 4096 instructions, and none that jumps out of the program;
// run would not notice the latter on paths that are not taken.
func TestWellFormed(t *testing.T) {
	for arch, abis := range families {
		program := assemble(abis)
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
	filter, err := Filter()
	if _, ok := families[runtime.GOARCH]; !ok {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	program := make([]unix.SockFilter, len(filter)/unix.SizeofSockFilter)
	require.NoError(t, binary.Read(bytes.NewReader(filter), binary.NativeEndian, program))
	assert.Equal(t, assemble(families[runtime.GOARCH]), program)
	again, err := Filter()
	require.NoError(t, err)
	assert.Equal(t, filter, again)
}
