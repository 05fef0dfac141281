package probe

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls: parts of the kernel that no namespace separates, or that everyday tools
// do without.
var calls = []Attack{
	{Name: "read one of the caller's keys by its number", Guarantee: "syscalls", try: readKey},
	{Name: "search for one of the caller's keys", Guarantee: "syscalls", try: searchKey},
	// A mount hides the list. With --allow-nested there is none: the kernel allows
	// no new mount of proc where a file of the old one is covered.
	{Name: "list the caller's keys", Guarantee: "nested", try: listKeys},
	{Name: "add a key", Guarantee: "syscalls", try: addKey},
	{Name: "make a ring with io_uring_setup", Guarantee: "syscalls", try: ring},
	{Name: "make a map with bpf", Guarantee: "syscalls", try: bpfMap},
	{Name: "count with perf_event_open", Guarantee: "syscalls", try: counter},
	{Name: "stop page faults with userfaultfd", Guarantee: "syscalls", try: pageFaults},
	{Name: "open a socket to the host of a virtual machine", Guarantee: "syscalls",
		try: func(*Targets) error { return opens(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
	{Name: "open a packet socket by way of AF_INET", Guarantee: "syscalls",
		try: func(*Targets) error { return opens(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_PACKET, 0) }},
	{Name: "open a pair of sockets of another family", Guarantee: "syscalls",
		try: func(*Targets) error { return opens(unix.SYS_SOCKETPAIR, unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
	{Name: "listen to the kernel's messages about devices", Guarantee: "syscalls",
		try: func(*Targets) error {
			return opens(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
		}},
	{Name: "leave a set-user-ID file by chmod", Guarantee: "syscalls", try: plant(plantByChmod)},
	{Name: "leave a set-user-ID file by open", Guarantee: "syscalls", try: plant(plantByOpen)},
	{Name: "leave a set-user-ID file by mknod", Guarantee: "syscalls", try: plant(plantByMknod)},
	// With --allow-nested the filter allows openat2: bwrap needs it.
	{Name: "leave a set-user-ID file by openat2", Guarantee: "nested", try: plant(plantByOpenat2)},
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

// addKey adds a key to the thread's own keyring, which ends with the thread.
func addKey(*Targets) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := unix.AddKey("user", "pk-check", []byte("x"), unix.KEY_SPEC_THREAD_KEYRING)
	return call("add_key", err)
}

// made closes the descriptor that a call returned.
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

// opens asks for a socket with a flag that no kernel knows, so that no driver is
// loaded for the question: the kernel answers EINVAL, and a filter something else.
func opens(call uintptr, family, kind, protocol int) error {
	const unknown = 16
	var pair [2]int32
	_, _, errno := unix.Syscall6(call, uintptr(family), uintptr(kind|unknown), uintptr(protocol), pointer(&pair), 0, 0)
	if errno == unix.EINVAL {
		return nil
	}
	return os.NewSyscallError("socket", errno)
}

// plant makes a file in the project, and succeeds if the file has the set-user-ID
// bit.
func plant(create func(path string) error) func(*Targets) error {
	return func(t *Targets) error {
		path := filepath.Join(t.Project(), "planted")
		err := create(path)
		info, statErr := os.Lstat(path)
		_ = os.Remove(path)
		switch {
		case statErr == nil && info.Mode()&os.ModeSetuid != 0:
			return nil
		case err != nil:
			return err
		}
		return errors.New("the bit is not set")
	}
}

const setUserID = unix.S_ISUID | 0o755

func plantByChmod(path string) error {
	if err := write(path); err != nil {
		return err
	}
	return call("chmod", unix.Chmod(path, setUserID))
}

func plantByOpen(path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_CLOEXEC, setUserID)
	if err != nil {
		return call("open", err)
	}
	return unix.Close(fd)
}

func plantByMknod(path string) error {
	return call("mknod", unix.Mknod(path, unix.S_IFREG|setUserID, 0))
}

func plantByOpenat2(path string) error {
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_CLOEXEC, Mode: setUserID}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return call("openat2", err)
	}
	return unix.Close(fd)
}
