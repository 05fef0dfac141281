package probe

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls: parts of the kernel that are outside all namespaces, or that everyday
// tools do without.
var calls = []Attack{
	{Name: "read one of the caller's keys by its number", Guarantee: "syscalls", try: readKey},
	{Name: "search for one of the caller's keys", Guarantee: "syscalls", try: searchKey},
	// The list is hidden by a mount, and where the command may make namespaces
	// there can be none over a file of /proc: the kernel would let it mount no
	// other.
	{Name: "list the caller's keys", Guarantee: "nested", try: listKeys},
	{Name: "add a key", Guarantee: "syscalls", try: addKey},
	{Name: "make a ring with io_uring_setup", Guarantee: "syscalls", try: ring},
	{Name: "make a map with bpf", Guarantee: "syscalls", try: bpfMap},
	{Name: "count with perf_event_open", Guarantee: "syscalls", try: counter},
	{Name: "stop page faults with userfaultfd", Guarantee: "syscalls", try: pageFaults},
}

func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func readKey(t *Targets) error {
	if t.Key == 0 {
		return absent("no key could be made")
	}
	_, err := unix.KeyctlBuffer(unix.KEYCTL_READ, t.Key, make([]byte, 16), 0)
	return call("keyctl", err)
}

func searchKey(t *Targets) error {
	if t.Key == 0 {
		return absent("no key could be made")
	}
	_, err := unix.RequestKey("user", t.KeyName, "", 0)
	return call("request_key", err)
}

func listKeys(t *Targets) error {
	if t.Key == 0 {
		return absent("no key could be made")
	}
	list, err := os.ReadFile("/proc/keys")
	if err != nil {
		return err
	}
	if !strings.Contains(string(list), t.KeyName) {
		return errors.New("it is not in the list")
	}
	return nil
}

// addKey adds one that goes with the thread.
func addKey(*Targets) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := unix.AddKey("user", "pk-check", []byte("x"), unix.KEY_SPEC_THREAD_KEYRING)
	return call("add_key", err)
}

// made closes what a call returned.
func made(name string, fd uintptr, errno unix.Errno) error {
	if errno != 0 {
		return call(name, errno)
	}
	return unix.Close(int(fd))
}

func ring(*Targets) error {
	var parameters [120]byte // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, pointer(&parameters), 0)
	return made("io_uring_setup", fd, errno)
}

func bpfMap(*Targets) error {
	const create, array = 0, 2                           // BPF_MAP_CREATE, BPF_MAP_TYPE_ARRAY
	attributes := [32]uint32{0: array, 1: 4, 2: 4, 3: 1} // type, size of a key, of a value, how many
	fd, _, errno := unix.Syscall(unix.SYS_BPF, create, pointer(&attributes), unsafe.Sizeof(attributes))
	return made("bpf", fd, errno)
}

func counter(*Targets) error {
	attributes := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attributes.Size = uint32(unsafe.Sizeof(attributes))
	fd, err := unix.PerfEventOpen(&attributes, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return call("perf_event_open", err)
	}
	return unix.Close(fd)
}

func pageFaults(*Targets) error {
	const userModeOnly = 1
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	return made("userfaultfd", fd, errno)
}
