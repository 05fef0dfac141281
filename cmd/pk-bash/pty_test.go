package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// terminal is the user's side of a pseudo terminal.
type terminal struct {
	t      *testing.T
	user   *os.File
	screen strings.Builder // all that was shown
}

// startOnTerminal starts cmd with a controlling terminal that is not one of its
// three streams.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	user, tty := clitest.Terminal(t)
	defer tty.Close()
	cmd.ExtraFiles = []*os.File{tty}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	require.NoError(t, cmd.Start())
	return &terminal{t: t, user: user}
}

// await reads until the screen shows text that it has not shown before.
func (u *terminal) await(text string) {
	u.t.Helper()
	seen := u.screen.Len()
	buf := make([]byte, 4096)
	for !strings.Contains(u.screen.String()[seen:], text) {
		n, err := u.user.Read(buf)
		u.screen.Write(buf[:n])
		require.NoError(u.t, err, "waiting for %q, got %q", text, u.screen.String()[seen:])
	}
}

func (u *terminal) type_(text string) {
	u.t.Helper()
	_, err := io.WriteString(u.user, text)
	require.NoError(u.t, err)
}
