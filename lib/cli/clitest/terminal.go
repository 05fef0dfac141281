package clitest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal opens a pseudo terminal: the user's side, which is closed with the
// test, and the side that programs get.
func Terminal(t testing.TB) (user, tty *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return user, tty
}

// OnTerminal runs cmd to its end with both of its output streams on a terminal,
// and returns the output, with its escape sequences.
func OnTerminal(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	user, tty := Terminal(t)
	cmd.Stdout, cmd.Stderr = tty, tty
	shown := make(chan string)
	go func() {
		var screen strings.Builder
		_, _ = io.Copy(&screen, user) // ends with EIO when all processes have closed the other side
		shown <- screen.String()
	}()
	err := cmd.Run()
	tty.Close()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}
