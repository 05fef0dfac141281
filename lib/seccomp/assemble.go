package seccomp

import (
	"math"
	"slices"

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

// The x32 ABI uses the numbers of amd64 with one bit set. It has calls of its own
// from 512 on. Before Linux 5.4 the kernel took those without the bit as well:
// 514 was another ioctl.
const (
	x32Bit   = 0x40000000
	x32First = 512
	x32Last  = 547
)

// skipped is the number of a call that a debugger has cancelled. The kernel runs
// nothing, and the debugger's answer must stay as it is.
const skipped = math.MaxUint32

// assemble makes a program that branches on the ABI of a call, then on its
// number. What the rules allow of calls, it stops for a tracer.
func assemble(abis []abi, rules []rule, calls ...tracedCall) []unix.SockFilter {
	program := []unix.SockFilter{load(offsetABI)}
	for _, a := range abis {
		part := section(a, rules, calls)
		program = append(program, equal(audit[a], 1, 0), jump(len(part)))
		program = append(program, part...)
	}
	return append(program, answer(unix.SECCOMP_RET_KILL_PROCESS))
}

// section answers the calls of one ABI. It ends in a return on every path.
func section(a abi, rules []rule, calls []tracedCall) []unix.SockFilter {
	s := []unix.SockFilter{load(offsetNumber)}
	if a == amd64 {
		s = append(s, withoutX32()...)
	}
	for _, r := range rules {
		if number := r.number[a]; number != missing {
			s = append(s, r.code(number, allowed(calls, a, number))...)
		}
	}
	for _, c := range calls { // one that a rule names is not reached
		if number := c.number[a]; number != missing {
			s = append(s, rule{}.code(number, allowed(calls, a, number))...)
		}
	}
	return append(s, answer(unix.SECCOMP_RET_ALLOW))
}

// allowed answers a call that no rule refuses.
func allowed(calls []tracedCall, a abi, number uint32) unix.SockFilter {
	if at := slices.IndexFunc(calls, func(c tracedCall) bool { return c.number[a] == number }); at >= 0 {
		return answer(unix.SECCOMP_RET_TRACE | uint32(at+1))
	}
	return answer(unix.SECCOMP_RET_ALLOW)
}

// withoutX32 answers as a kernel built without x32 does.
func withoutX32() []unix.SockFilter {
	return []unix.SockFilter{
		equal(skipped, 0, 1),
		answer(unix.SECCOMP_RET_ALLOW),
		atLeast(x32Bit, 2, 0),
		atLeast(x32First, 0, 2),
		atLeast(x32Last+1, 1, 0),
		fail(unix.ENOSYS),
	}
}

// code answers the calls with this number, and leaves the others to the code
// behind it.
func (r rule) code(number uint32, rest unix.SockFilter) []unix.SockFilter {
	var body []unix.SockFilter
	for _, refusal := range r.refusals {
		body = append(body, refusal.code()...)
	}
	body = append(body, rest)
	return append([]unix.SockFilter{equal(number, 0, len(body))}, body...)
}

// code answers the call if all tests hold, and otherwise runs on behind it.
func (r refusal) code() []unix.SockFilter {
	code := []unix.SockFilter{fail(r.answer)}
	for _, t := range slices.Backward(r.when) {
		code = append(t.code(len(code)), code...)
	}
	return code
}

// code runs on if the test holds, and otherwise skips the rest behind it.
func (t test) code(rest int) []unix.SockFilter {
	code := []unix.SockFilter{load(offsetArguments + uint32(t.argument)*sizeArgument), and(t.mask)}
	for i, value := range t.values {
		found, none := len(t.values)-1-i, 0
		if t.not {
			found += rest
		} else if found == 0 {
			none = rest
		}
		code = append(code, equal(value, found, none))
	}
	return code
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func and(mask uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}
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

func fail(errno unix.Errno) unix.SockFilter {
	return answer(unix.SECCOMP_RET_ERRNO | uint32(errno))
}
