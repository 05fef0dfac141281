package session

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

const (
	GateSocket = ".gate"   // in a session directory: the socket at which its gate listens
	GateTitle  = "pk-gate" // the first word of a gate's command line
)

// endGate ends a gate that no command uses and that does not end by itself, such as one
// that was stopped. The caller holds the directory's lock exclusively. A command that sees the
// session directory in a root may have put another socket there: only a gate is ended.
func endGate(dir *os.File) {
	at, err := unix.Openat(fd(dir), GateSocket, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(at)
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(conn)
	if unix.Connect(conn, &unix.SockaddrUnix{Name: fsat.Path(at)}) != nil {
		return
	}
	peer, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || peer.Pid <= 0 {
		return
	}
	gate, err := unix.PidfdOpen(int(peer.Pid), 0)
	if err != nil {
		return
	}
	defer unix.Close(gate)
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", peer.Pid))
	if bytes.HasPrefix(line, []byte(GateTitle+"\x00")) && unix.PidfdSendSignal(gate, unix.SIGKILL, nil, 0) == nil {
		AwaitEnd(gate, endWait)
	}
}
