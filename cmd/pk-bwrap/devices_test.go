package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// listDevices names what is in /dev but for shm, whose mode the two disagree about:
// kind, mode, numbers, size of what is no directory, where links lead, and whether
// it is a mount of its own.
const listDevices = `cd /dev; find . -mindepth 1 ! -path './shm*' | LC_ALL=C sort | while read -r f; do
	stat -c '%n %F %a %t:%T' "$f"; readlink "$f"; mountpoint -q "$f" && grep -o " /dev/${f#./} [^ ]*" /proc/self/mountinfo; done; true`

// What the stage makes of /dev is what bwrap makes of it.
func TestDevicesAreThoseOfBwrap(t *testing.T) {
	b := clitest.NewBox(t)
	bwrap := []string{"--unshare-user", "--unshare-pid", "--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc"}
	for _, name := range []string{"bin", "lib", "lib64"} {
		bwrap = append(bwrap, "--symlink", "usr/"+name, "/"+name)
	}
	want := clitest.Finish(t, exec.Command(b.Bwrap, append(bwrap, "--", "/bin/bash", "-c", listDevices)...))
	require.Equal(t, 0, want.Status, want.Stderr)
	require.Contains(t, want.Stdout, "./null character special file")
	for _, options := range [][]string{nil, {"--session", "s"}} {
		assert.Equal(t, want, inside(t, b, listDevices, options...))
	}
	assert.Equal(t, clitest.Outcome{Stdout: "in\n"}, inside(t, b, "echo in >/dev/shm/f; cat /dev/shm/f"))
	assert.Equal(t, clitest.Outcome{Stdout: "/dev/pts/0\n"}, inside(t, b, "script -qec tty /dev/null | tr -d '\\r'"))
}

// A terminal has a name inside, though it is of another /dev/pts.
func TestTheTerminalHasAName(t *testing.T) {
	b := clitest.NewBox(t)
	for _, options := range [][]string{nil, {"--session", "s"}} {
		cmd := b.Command("pk-bwrap", append(options, "--", "bash", "-c", "tty <&1; stat -c %F /dev/console")...)
		assert.Equal(t, "/dev/console\ncharacter special file\n", clitest.OnTerminal(t, cmd))
	}
}

// A device that somebody has put into what is shown cannot be opened, whatever it
// is shown by. Only root can put one there.
func TestDevicesOpenInDevAlone(t *testing.T) {
	b := clitest.NewBox(t)
	for _, options := range [][]string{nil, {"--session", "s"}} {
		options = append(options, "--overlay", b.Project+"/laid", "--readable", b.Home+"/lib", "--deny", "sub/hidden", "--protect", "kept")
		for _, dir := range []string{b.Project + "/laid", b.Project + "/sub/hidden", b.Project + "/kept", b.Home + "/lib", b.Home + "/.cache/go-build"} {
			b.Mkdir(t, dir)
		}
		got := inside(t, b, `while read -r _ _ _ _ at flags _; do
			case ,$flags, in *,nosuid,*) ;; *) echo "setuid programs at $at" ;; esac
			case ,$flags, in *,nodev,*) ;; *) echo "devices at $at" ;; esac
		done </proc/self/mountinfo | sort`, options...)
		assert.Equal(t, clitest.Outcome{Stdout: "devices at /dev/full\ndevices at /dev/null\ndevices at /dev/pts\ndevices at /dev/random\n" +
			"devices at /dev/tty\ndevices at /dev/urandom\ndevices at /dev/zero\n"}, got)
		if os.Geteuid() != 0 {
			continue
		}
		script := "true"
		for _, dir := range []string{b.Project, b.Project + "/laid", b.Project + "/kept", b.Home + "/lib", b.Home + "/.cache/go-build"} {
			err := unix.Mknod(dir+"/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
			require.True(t, err == nil || err == unix.EEXIST, err)
			script += "; head -c 1 " + dir + "/zero"
		}
		got = inside(t, b, script+"; echo end", options...)
		assert.Equal(t, "end\n", got.Stdout)
		assert.Equal(t, 5, strings.Count(got.Stderr, "Permission denied"), got.Stderr)
	}
}
