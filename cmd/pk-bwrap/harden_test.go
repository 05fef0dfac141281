package main

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// both runs a python program in the sandbox of each command that makes one, with
// and without tool chains: these take other ways to start.
func both(t *testing.T, b *clitest.Box, program string, check func(clitest.Outcome)) {
	t.Helper()
	b.Mkdir(t, b.Home+"/.cache/go-build")
	b.Write(t, b.Project+"/attack.py", program)
	for _, options := range [][]string{nil, {"--no-toolchains"}} {
		check(b.Run(t, "pk-bwrap", append(options, "--", "/usr/bin/python3", "attack.py")...))
		check(b.Run(t, "pk-bash", append(options, "-y", "--raw", "/usr/bin/python3 attack.py")...))
	}
}

func TestAbstractSocketsAreOutOfReach(t *testing.T) {
	b := clitest.NewBox(t)
	name := fmt.Sprintf("pk-test-%d", os.Getpid())
	listener, err := net.Listen("unix", "@"+name)
	require.NoError(t, err)
	defer listener.Close()
	both(t, b, `
import socket
inner = socket.socket(socket.AF_UNIX); inner.bind("\0`+name+`-inner"); inner.listen()
socket.socket(socket.AF_UNIX).connect("\0`+name+`-inner"); print("own works")
try: socket.socket(socket.AF_UNIX).connect("\0`+name+`"); print("in")
except PermissionError: print("refused")
`, func(got clitest.Outcome) {
		assert.Equal(t, clitest.Outcome{Stdout: "own works\nrefused\n"}, got)
	})
}

func TestTheCallersKeysAreOutOfReach(t *testing.T) {
	b := clitest.NewBox(t)
	id, err := unix.AddKey("user", "pk-test", []byte("hunter2"), unix.KEY_SPEC_SESSION_KEYRING)
	require.NoError(t, err)
	defer func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_SESSION_KEYRING, 0, 0) }()
	both(t, b, fmt.Sprintf(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(100)
request_key, keyctl = (249, 250) if os.uname().machine == "x86_64" else (218, 219)
print(libc.syscall(request_key, b"user", b"pk-test", None, 0))
print(libc.syscall(keyctl, 11, %d, buffer, 100), buffer.value)
try: print(open("/proc/keys").read().count("pk-test"))
except PermissionError: print("refused")
`, id), func(got clitest.Outcome) {
		assert.Equal(t, clitest.Outcome{Stdout: "-1\n-1 b''\nrefused\n"}, got)
	})
}

func TestTheTerminalCannotBeTypedInto(t *testing.T) {
	b := clitest.NewBox(t)
	both(t, b, `
import fcntl, os, pty, errno
master, slave = pty.openpty()
for request in 0x5412, 0x541C, 0x5412 | 1 << 32 & 0xffffffff:
    try: fcntl.ioctl(slave, request, b"\x02"); print("in")
    except OSError as e: print(errno.errorcode[e.errno])
`, func(got clitest.Outcome) {
		assert.Equal(t, clitest.Outcome{Stdout: "EPERM\nEPERM\nEPERM\n"}, got)
	})
}
