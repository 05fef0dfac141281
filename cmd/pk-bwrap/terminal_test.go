package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// shellSession is an interactive shell on a terminal, as a user has it. Its pk-bwrap is
// the one under test.
type shellSession struct {
	*clitest.Box
	fd    int
	user  *os.File // the user's side of the terminal
	shell *exec.Cmd
	close func() // the terminal
	shown bytes.Buffer
}

// shownTime bounds the wait for output.
const shownTime = 10 * time.Second

func newShell(t *testing.T) *shellSession {
	t.Helper()
	notIgnored(t)
	b := clitest.NewBox(t)
	user, tty := clitest.Terminal(t)
	fd, err := unix.FcntlInt(user.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(fd, true)) // for deadlines
	s := &shellSession{Box: b, fd: fd, user: os.NewFile(uintptr(fd), "terminal")}
	t.Cleanup(func() { s.user.Close() })
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	cmd.Dir, cmd.Env = b.Project, append(b.Command("pk-bwrap").Env, "PS1=ready:", "TERM=dumb", "HISTFILE=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	tty.Close()
	s.shell, s.close = cmd, func() { s.user.Close(); user.Close() }
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	s.wait(t, "ready:")
	s.typed(t, "stty -echo; PATH="+b.Commands(t)+":$PATH\n")
	s.wait(t, "ready:")
	return s
}

func (s *shellSession) typed(t *testing.T, keys string) {
	t.Helper()
	_, err := s.user.Write([]byte(keys))
	require.NoError(t, err)
}

// wait reads until text is shown, and returns the output before it.
func (s *shellSession) wait(t *testing.T, text string) string {
	t.Helper()
	require.NoError(t, s.user.SetReadDeadline(time.Now().Add(shownTime)))
	buf := make([]byte, 4096)
	for !strings.Contains(s.shown.String(), text) {
		n, err := s.user.Read(buf)
		s.shown.Write(buf[:n])
		require.NoError(t, err, "waiting for %q, got %q", text, s.shown.String())
	}
	before, after, _ := strings.Cut(s.shown.String(), text)
	s.shown.Reset()
	s.shown.WriteString(after)
	return before
}

// run types a command and returns its output.
func (s *shellSession) run(t *testing.T, command string) string {
	t.Helper()
	s.typed(t, command+"\n")
	return strings.ReplaceAll(s.wait(t, "ready:"), "\r\n", "\n")
}

// untilKilled prints on descriptor $1 that it runs, and runs again, in words that the
// shell's echo of the command does not have. It does not fork after that: a process
// that is stopped in vfork(2) keeps its parent from being stopped.
const untilKilled = `sh -c 'trap "echo ag\"\"ain >&$1" CONT; sleep 100 & echo be""gun >&$1; while :; do wait; done' sh `

func TestKeysOfTheTerminal(t *testing.T) {
	s := newShell(t)
	before := s.run(t, "stty -g")
	for _, command := range []string{"1", "1 2>/dev/null", "2 | cat", "1 </dev/null"} {
		command = "pk-bwrap -- " + untilKilled + command
		t.Log(command)
		s.typed(t, command+"\n")
		s.wait(t, "begun")
		s.typed(t, "\x03")
		s.wait(t, "ready:")
		require.Equal(t, "130\n", s.run(t, "echo ${PIPESTATUS[0]}"), command)

		s.typed(t, command+"\n")
		s.wait(t, "begun")
		s.typed(t, "\x1a")
		s.wait(t, "Stopped")
		s.wait(t, "ready:")
		require.Equal(t, before, s.run(t, "stty -g"), "the modes of the terminal while it is stopped: %s", command)
		s.typed(t, "fg\n")
		s.wait(t, "again") // in the foreground
		s.typed(t, "\x03")
		s.wait(t, "ready:")
		require.Equal(t, before, s.run(t, "stty -g"), command)
		require.Empty(t, s.run(t, "jobs"), command)
	}
	s.typed(t, "for i in 1 2; do pk-bwrap -- "+untilKilled+"1; done\n")
	s.wait(t, "begun")
	s.typed(t, "\x03")
	require.NotContains(t, s.wait(t, "ready:"), "begun", "the shell sees of what its command has died")
	s.typed(t, "pk-bwrap -- "+untilKilled+"1\n")
	s.wait(t, "begun")
	s.typed(t, "\x1c")
	s.wait(t, "Quit")
	s.wait(t, "ready:")
}

// A key's signal goes to the script around pk-bwrap too, as without it.
func TestKeysReachTheScriptAround(t *testing.T) {
	s := newShell(t)
	s.Script(t, s.Project+"/script", `for i in 1 2; do pk-bwrap -- `+untilKilled+`1; echo "af""ter"; done`+"\n")
	s.typed(t, "./script\n")
	s.wait(t, "begun")
	s.typed(t, "\x1a")
	s.wait(t, "Stopped")
	s.wait(t, "ready:")
	s.typed(t, "fg\n")
	s.wait(t, "again")
	s.typed(t, "\x03")
	require.NotContains(t, s.wait(t, "ready:"), "after")
	require.Equal(t, "130\n", s.run(t, "echo $?"))
}

// Of two on one terminal, one has it, and neither takes the modes of the other for the caller's.
func TestTwoOnOneTerminal(t *testing.T) {
	s := newShell(t)
	before := s.run(t, "stty -g")
	s.Script(t, s.Project+"/two", `rm -f a b first second; mkfifo a b first second
		pk-bwrap -- sh -c 'echo >a; read x <first' </dev/tty & first=$!
		read x <a
		pk-bwrap -- sh -c 'echo >b; read x <second' </dev/tty & second=$!
		read x <b
		for f in $1 $2; do echo >$f; eval wait \$$f || exit; done
		echo all en""ded`+"\n")
	for _, ends := range []string{"first second", "second first"} {
		s.typed(t, "./two "+ends+"\n")
		s.wait(t, "all ended")
		s.wait(t, "ready:")
		require.Equal(t, before, s.run(t, "stty -g"), ends)
	}
}

// A shell sends no signal to a running job that it puts into the foreground.
func TestJobThatComesToTheForeground(t *testing.T) {
	s := newShell(t)
	const command = `sh -c 'echo be""gun; read x; echo "go""t $x"'`
	s.typed(t, "pk-bwrap -- "+command+"\n")
	s.wait(t, "begun")
	s.typed(t, "\x1a")
	s.wait(t, "Stopped")
	s.wait(t, "ready:")
	require.Contains(t, s.run(t, "bg"), "pk-bwrap")
	s.typed(t, "fg\n")
	s.typed(t, "hi\r")
	s.wait(t, "got hi")
	s.wait(t, "ready:")
	s.typed(t, "pk-bwrap -- "+command+" &\n")
	s.wait(t, "begun")
	s.typed(t, "fg\n")
	s.typed(t, "ho\r") // the shell reads its own lines in modes in which this key ends none
	s.wait(t, "got ho")
	s.wait(t, "ready:")
}

// A reader in the background gets no signal when its terminal goes, and sees its end.
func TestTerminalOfAJobGoes(t *testing.T) {
	s := newShell(t)
	s.typed(t, `pk-bwrap -- sh -c 'echo be""gun; cat' &`+"\n")
	s.wait(t, "begun")
	s.typed(t, "echo process=$!.\n")
	s.wait(t, "process=")
	pid, err := strconv.Atoi(s.wait(t, "."))
	require.NoError(t, err)
	process, err := unix.PidfdOpen(pid, 0)
	require.NoError(t, err)
	defer unix.Close(process)
	s.typed(t, "exit\n")
	_ = s.shell.Wait() // with any status
	s.close()
	ended := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
	n, err := unix.Poll(ended, int(shownTime.Milliseconds()))
	require.NoError(t, err)
	require.Equal(t, 1, n, "it has ended")
}

// As editors, pagers and agents do when the suspend key is typed, which they read as any other.
func TestCommandThatStopsItself(t *testing.T) {
	s := newShell(t)
	before := s.run(t, "stty -g")
	for _, stops := range []string{"kill -TSTP $$", "kill -STOP $$", "kill -TSTP 0"} {
		t.Log(stops)
		s.typed(t, `pk-bwrap -- sh -c 'stty raw -echo; head -c 1; stty cooked; `+stops+`; read x; echo "go""t $x"'`+"\n")
		s.typed(t, "!")
		s.wait(t, "Stopped")
		s.wait(t, "ready:")
		require.Equal(t, before, s.run(t, "stty -g"), "the modes of the terminal while it is stopped")
		s.typed(t, "fg\n")
		s.typed(t, "hi\n")
		s.wait(t, "got hi")
		s.wait(t, "ready:")
	}
}

func TestPkBashIsSuspended(t *testing.T) {
	s := newShell(t)
	sleep := fmt.Sprintf("sleep 1000.%d", os.Getpid())
	s.typed(t, `pk-bash -y --raw 'trap "echo go\"\"t; exit" CONT; sh -c "echo be\"\"gun; exec `+sleep+`" & wait'`+"\n")
	s.wait(t, "begun")
	s.typed(t, "\x1a")
	s.wait(t, "Stopped")
	s.wait(t, "ready:")
	states := strings.Fields(s.run(t, `for p in /proc/[0-9]*; do { case "$(tr '\0' ' ' <$p/cmdline)" in 'sh -c'*'`+sleep+` '|'`+sleep+` ') awk '/^State/ {print $2}' $p/status;; esac } 2>/dev/null; done`))
	require.Equal(t, []string{"T"}, states, "the state of a process of the command")
	s.typed(t, "fg\n")
	s.wait(t, "got")
	s.wait(t, "ready:")
}

// The shell sees that the command has died of SIGINT, and ends its loop.
func TestInterruptedLoop(t *testing.T) {
	s := newShell(t)
	s.typed(t, "for i in 1 2; do pk-bash -y --raw 'echo be\"\"gun; sleep 1000'; done\n")
	s.wait(t, "begun")
	s.typed(t, "\x03")
	require.NotContains(t, s.wait(t, "ready:"), "begun")
}

func TestAShellInTheSandboxHasJobControl(t *testing.T) {
	s := newShell(t)
	before := s.run(t, "stty -g")
	s.typed(t, "pk-bwrap -- bash --norc --noprofile -i\n")
	require.NotContains(t, s.wait(t, "ready:"), "job control")
	s.typed(t, "stty -echo\n")
	s.wait(t, "ready:")
	require.Equal(t, "/dev/pts/0\n", s.run(t, "tty"))
	s.typed(t, untilKilled+"1\n")
	s.wait(t, "begun")
	s.typed(t, "\x1a")
	s.wait(t, "Stopped")
	s.wait(t, "ready:")
	s.typed(t, "fg\n")
	s.wait(t, "again")
	s.typed(t, "\x03")
	s.wait(t, "ready:")
	require.Equal(t, "130\n", s.run(t, "echo $?"))

	require.NoError(t, unix.IoctlSetWinsize(s.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}))
	s.typed(t, "until [ \"$(stty size)\" = '33 77' ]; do :; done; echo resized\n")
	s.wait(t, "resized")
	s.wait(t, "ready:")
	s.typed(t, "exit 7\n")
	s.wait(t, "exit")
	s.wait(t, "ready:")
	require.Equal(t, "7\n", s.run(t, "echo $?"))
	require.Equal(t, before, s.run(t, "stty -g"))
}

func TestOutputOnATerminal(t *testing.T) {
	s := newShell(t)
	for range 5 {
		require.Equal(t, "within\n", s.run(t, "pk-bwrap -- echo within"))
	}
	require.Equal(t, "100000\n", s.run(t, "pk-bwrap -- seq 100000 | tail -n 1"))
	s.typed(t, "pk-bwrap -- sh -c 'seq 100000; echo last'\n")
	s.wait(t, "100000\r\nlast\r\n")
	s.wait(t, "ready:")
	s.typed(t, "pk-bwrap -- sh -c 'echo begun >&2; cat' | cat\n")
	s.wait(t, "begun")
	s.typed(t, "within\n\x04")
	s.wait(t, "within\r\nready:")
}

// A terminal may take no output for a while, as over a network. Nothing tells when it is long enough.
func TestTerminalThatPauses(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.typed(t, "pk-bwrap -- sh -c 'seq 5000; echo last'\n")
	time.Sleep(5 * time.Second / 2)
	s.wait(t, "5000\r\nlast\r\n")
	s.wait(t, "ready:")
}

// A command whose input is no terminal has the caller's as its output, and can lock it and
// stop it.
func TestTerminalIsGivenBack(t *testing.T) {
	b := clitest.NewBox(t)
	user, tty := clitest.Terminal(t)
	const exclusive, flow = 0x540C, 0x540A // TIOCEXCL, TCXONC
	cmd := b.Command("pk-bwrap", "--", "perl", "-e", fmt.Sprintf("ioctl(STDOUT, %d, 0) or die; ioctl(STDOUT, %d, 0) or die; chmod(0666, *STDOUT) or die", exclusive, flow))
	cmd.Stdout = tty
	before, err := tty.Stat()
	require.NoError(t, err)
	require.NoError(t, cmd.Run())
	locked, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGEXCL)
	require.NoError(t, err)
	require.Zero(t, locked)
	after, err := tty.Stat()
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode())
	_, err = tty.Write([]byte("hello\n"))
	require.NoError(t, err)
	line := make([]byte, 100)
	n, err := user.Read(line)
	require.NoError(t, err)
	require.Equal(t, "hello\r\n", string(line[:n]))
}

// A command finds the caller's modes and size, and nothing sets them again once it has begun.
func TestModesAndSizeFromTheBeginning(t *testing.T) {
	s := newShell(t)
	require.NoError(t, unix.IoctlSetWinsize(s.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}))
	s.run(t, "stty erase ^H -ixon")
	want := s.run(t, "stty -g; stty size")
	require.Contains(t, want, "33 77\n")
	for range 5 {
		require.Equal(t, want, s.run(t, "pk-bwrap -- sh -c 'stty -g; stty size'"))
	}
}

// A command that has begun in the background keeps the modes that it has set.
func TestModesSetInTheBackground(t *testing.T) {
	s := newShell(t)
	s.run(t, `pk-bwrap -- sh -c 'stty -echo -icanon; touch set; head -c 1 >key; stty sane; echo en""ded' &`)
	s.run(t, "until [ -e set ]; do :; done")
	s.typed(t, "fg\n")
	s.typed(t, "k")
	s.wait(t, "ended")
	s.wait(t, "ready:")
	require.Equal(t, "k", strings.TrimSpace(s.run(t, "cat key; echo")))
}

// A signal ends a command that writes to a terminal which takes no output.
func TestSignalWhileTheTerminalPauses(t *testing.T) {
	b := clitest.NewBox(t)
	_, tty := clitest.Terminal(t)
	cmd := b.Command("pk-bwrap", "--", "sh", "-c", "touch begun; yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	until(t, func() bool { _, err := os.Stat(b.Project + "/begun"); return err == nil })
	until(t, func() bool { // full
		fds := []unix.PollFd{{Fd: int32(tty.Fd()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		return n == 0 && err == nil
	})
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	err := cmd.Wait()
	failed, _ := errors.AsType[*exec.ExitError](err)
	require.NotNil(t, failed, err)
	require.Equal(t, unix.SIGTERM, failed.Sys().(syscall.WaitStatus).Signal())
}

// Stopped by another process, and continued in the background, it leaves the terminal to the shell.
func TestContinuedInTheBackground(t *testing.T) {
	s := newShell(t)
	s.run(t, "mkfifo go")
	s.typed(t, `pk-bwrap -- sh -c 'echo be""gun; read x <go; echo en""ded; exit 5'`+"\n")
	s.wait(t, "begun")
	require.NoError(t, unix.Kill(foregroundOf(t, s), unix.SIGSTOP))
	s.wait(t, "Stopped")
	s.wait(t, "ready:")
	s.run(t, "bg")
	require.Contains(t, s.run(t, "echo >go; wait %1; echo status=$?"), "status=5")
	require.Equal(t, "none\n", s.run(t, "jobs; echo none"))
}

// foregroundOf returns the process group in the foreground.
func foregroundOf(t *testing.T, s *shellSession) int {
	t.Helper()
	group, err := unix.IoctlGetInt(s.fd, unix.TIOCGPGRP)
	require.NoError(t, err)
	return group
}

// Keys typed while a command runs in the background are the shell's, whichever streams of the command are terminals.
func TestKeysForTheShell(t *testing.T) {
	s := newShell(t)
	for _, streams := range []string{"<&0 >/dev/null 2>&1", "<&1 </dev/null >/dev/tty 2>/dev/null", "<&2 </dev/null >/dev/null 2>/dev/tty"} {
		from, others, _ := strings.Cut(streams, " ")
		s.run(t, `pk-bwrap -- sh -c 'touch begun; cat `+from+` >>read' `+others+" &")
		s.run(t, "until [ -e begun ]; do :; done")
		for i := range 5 {
			require.Contains(t, s.run(t, fmt.Sprintf("echo $((%d+1))", i)), strconv.Itoa(i+1))
		}
		s.run(t, "kill %%; wait; rm begun")
	}
	require.Equal(t, "0\n", s.run(t, "stat -c %s read"))
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, shownTime, time.Millisecond)
}

// A program that holds the other side of a terminal types there, though no session has it.
func TestTerminalWithoutASession(t *testing.T) {
	for name, attributes := range map[string]*syscall.SysProcAttr{"the caller's session": nil, "one of its own": {Setsid: true}} {
		b := clitest.NewBox(t)
		user, tty := clitest.Terminal(t)
		cmd := b.Command("pk-bwrap", "--", "sh", "-c", "read x; echo got $x >said; stty -icanon; head -c 1 >>said; echo >>said; until [ \"$(stty size)\" = '33 77' ]; do :; done; read x; echo $x >>said")
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = tty, tty, tty, attributes
		require.NoError(t, cmd.Start())
		said := func(want string) {
			until(t, func() bool { text, _ := os.ReadFile(b.Project + "/said"); return string(text) == want })
		}
		_, err := user.WriteString("line\n")
		require.NoError(t, err)
		said("got line\n")
		_, err = user.WriteString("k")
		require.NoError(t, err)
		said("got line\nk\n")
		require.NoError(t, unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}))
		_, err = user.WriteString("last\n")
		require.NoError(t, err)
		require.NoError(t, cmd.Wait(), name)
		said("got line\nk\nlast\n")
	}
}

// When that program ends, SIGHUP ends the command, or each line that it reads if it ignores the signal. The signal of a
// key is for the command alone.
func TestTerminalWithoutASessionGoes(t *testing.T) {
	notIgnored(t)
	others := make(chan os.Signal, 1)
	signal.Notify(others, unix.SIGINT, unix.SIGTSTP)
	defer signal.Stop(others)
	for _, row := range []struct {
		command, keys string
		death         syscall.Signal
	}{
		{"stty -icanon; touch begun; head -c 1", "", unix.SIGHUP},
		{`trap "" HUP; touch begun; cat; cat`, "", 0},
		{`exec perl -e 'open(F, ">begun"); sleep'`, "\x1a\x03", unix.SIGINT},
	} {
		b := clitest.NewBox(t)
		user, tty := clitest.Terminal(t)
		cmd := b.Command("pk-bwrap", "--", "sh", "-c", row.command)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		require.NoError(t, cmd.Start())
		until(t, func() bool { _, err := os.Stat(b.Project + "/begun"); return err == nil })
		if row.keys == "" {
			require.NoError(t, user.Close())
		} else {
			until(t, func() bool { // relayed: before, it is the terminal that takes them
				modes, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
				return err == nil && modes.Lflag&unix.ISIG == 0
			})
			_, err := user.WriteString(row.keys)
			require.NoError(t, err)
		}
		_ = cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if row.death == 0 {
			require.Zero(t, status.ExitStatus(), row.command)
		} else {
			require.Equal(t, row.death, status.Signal(), row.command)
		}
		require.Empty(t, others, row.command)
	}
}

// A terminal of another session is not read: setsid(1) leaves it to the caller's shell.
func TestTerminalOfAnotherSession(t *testing.T) {
	s := newShell(t)
	s.run(t, "mkfifo end")
	s.run(t, `setsid pk-bwrap -- sh -c '(touch begun; read x <end; kill $$) & exec cat >read' &`)
	s.run(t, "until [ -e begun ]; do :; done")
	for i := range 5 {
		require.Contains(t, s.run(t, fmt.Sprintf("echo $((%d+1))", i)), strconv.Itoa(i+1))
	}
	s.run(t, "echo >end")
	require.Equal(t, "0\n", s.run(t, "stat -c %s read"))
}

// Root that becomes the owner of a project keeps the caller's terminal from it.
func TestTheOwnerHasATerminalOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	s := newShell(t)
	owner := giveAway(t, s.Project)
	require.Equal(t, fmt.Sprintf("%d\n/dev/pts/0\n", owner), s.run(t, "pk-bwrap -- sh -c 'id -u; tty'"))
	require.Equal(t, "/dev/pts/0\n", s.run(t, "pk-bwrap -- tty | cat"))
}

func TestInTheBackground(t *testing.T) {
	s := newShell(t)
	s.typed(t, "pk-bwrap -- sh -c 'echo back; exit 3' & wait $!; echo status $?\n")
	s.wait(t, "back")
	s.wait(t, "status 3")
	s.wait(t, "ready:")
	s.typed(t, "pk-bwrap -- true & echo next\n")
	s.wait(t, "next")
	s.wait(t, "ready:")
	s.typed(t, "wait; timeout 60 pk-bwrap -- sh -c 'echo within'; echo status $?\n")
	s.wait(t, "within")
	s.wait(t, "status 0")
}
