package seccomp

import (
	"math"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both architectures are little-endian: the low
// half of an argument comes first.
const (
	offsetNumber    = 0
	offsetABI       = 4
	offsetArguments = 16
	sizeArgument    = 8
)

// The numbers of the x32 ABI are those of amd64 with a bit set. Before Linux
// 5.4, the calls that x32 has for itself were also there without it: ioctl was
// 514, too.
const (
	x32Bit   = 0x40000000
	x32First = 512
	x32Last  = 547
)

// skipped is the number of a call that a debugger has taken out. The kernel
// does nothing for it, and what the debugger answers should stay as it is.
const skipped = math.MaxUint32

// assemble makes a program that goes by the ABI of a call, then by its number.
func assemble(abis []abi) []unix.SockFilter {
	program := []unix.SockFilter{load(offsetABI)}
	for _, a := range abis {
		part := section(a)
		program = append(program, equal(audit[a], 1, 0), jump(len(part)))
		program = append(program, part...)
	}
	return append(program, answer(unix.SECCOMP_RET_KILL_PROCESS))
}

// section decides about the calls of one ABI. No path leads out of it.
func section(a abi) []unix.SockFilter {
	s := []unix.SockFilter{load(offsetNumber)}
	if a == amd64 {
		s = append(s, withoutX32()...)
	}
	for _, r := range rules {
		if number := r.number[a]; number != missing {
			s = append(s, r.code(number)...)
		}
	}
	return append(s, answer(unix.SECCOMP_RET_ALLOW))
}

// withoutX32 answers as a kernel does that was built without x32, which most
// are.
func withoutX32() []unix.SockFilter {
	return []unix.SockFilter{
		equal(skipped, 0, 1),
		answer(unix.SECCOMP_RET_ALLOW),
		atLeast(x32Bit, 2, 0),
		atLeast(x32First, 0, 2),
		atLeast(x32Last+1, 1, 0),
		refuse(unix.ENOSYS),
	}
}

// code decides about the calls with this number, and leaves the others to what
// follows it.
func (r rule) code(number uint32) []unix.SockFilter {
	if r.only == nil {
		return []unix.SockFilter{equal(number, 0, 1), refuse(r.answer)}
	}
	listed, other := refuse(r.answer), answer(unix.SECCOMP_RET_ALLOW)
	if r.only.permits {
		listed, other = other, listed
	}
	n := len(r.only.values)
	code := []unix.SockFilter{equal(number, 0, n+3), load(offsetArguments + uint32(r.only.argument)*sizeArgument)}
	for i, value := range r.only.values {
		code = append(code, equal(value, n-i, 0))
	}
	return append(code, other, listed)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// equal and atLeast skip yes or no instructions.
func equal(k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
}

func atLeast(k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
}

func jump(n int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(n)}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func refuse(errno unix.Errno) unix.SockFilter {
	return answer(unix.SECCOMP_RET_ERRNO | uint32(errno))
}
