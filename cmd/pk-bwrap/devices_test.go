package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// listDevices names the entries of /dev but for shm, whose mode the two disagree about:
// kind, mode, numbers, size of files, targets of links, and whether the entry is a
// mount of its own.
const listDevices = `cd /dev; find . -mindepth 1 ! -path './shm*' | LC_ALL=C sort | while read -r f; do
	stat -c '%n %F %a %t:%T' "$f"; readlink "$f"; mountpoint -q "$f" && grep -o " /dev/${f#./} [^ ]*" /proc/self/mountinfo; done; true`

// The /dev of the set-up program is the same as bwrap's.
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

// A device inside a root, an overlay or a mask cannot be opened, by whichever kind of
// mount it is shown. Only root can put one there.
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

// Each /dev/pts counts from zero: in another one, the number of the caller's terminal
// is that of another terminal.
func TestATerminalOfAnotherMachineIsNoConsole(t *testing.T) {
	b := clitest.NewBox(t)
	for _, options := range []string{"", "--session s --overlay " + b.Project + "/laid"} {
		b.Mkdir(t, b.Project+"/laid")
		script := `n=$(readlink /proc/$$/fd/1); n=${n##*/}
			mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts || exit
			for i in $(seq 0 "$n"); do exec {fd}<>/dev/pts/ptmx; done
			[ -e "/dev/pts/$n" ] || echo "no victim"
			` + asWords(b, "pk-bwrap") + " " + options + ` -- bash -c 'ls /dev/console; tty <&1'; pk-sweep --session s`
		got := clitest.OnTerminal(t, elsewhere(b, script))
		assert.Contains(t, got, "/dev/console': No such file or directory\nnot a tty\n")
		assert.NotContains(t, got, "no victim")
	}
}

// In a sandbox, the terminal is its console; and in one inside that, again.
func TestTheTerminalHasANameFurtherInside(t *testing.T) {
	b := clitest.NewBox(t)
	bwraps := filepath.Dir(b.Bwrap)
	cmd := b.Command("pk-bwrap", "--readable", b.Bin, "--readable", bwraps, "--allow-nested", "--",
		b.Bin+"/pk-bwrap", "--bwrap", b.Bwrap, "--", "bash", "-c", "tty <&1")
	got := clitest.OnTerminal(t, cmd)
	if os.Geteuid() == 0 {
		assert.Contains(t, got, "cannot make a sandbox: setting up uid map")
		return
	}
	assert.Equal(t, "/dev/console\n", got)
}

func TestAFileIsNoDevice(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/tty", "")
	got := clitest.Finish(t, elsewhere(b, "mount --bind tty /dev/tty && "+asWords(b, "pk-bwrap")+" -- true"))
	assert.Equal(t, clitest.Outcome{Status: 125, Stderr: "pk-bwrap: cannot make a sandbox: cannot show \"/dev\": /dev/tty: it is not a character device\n"}, got)
}

// A mount that the host makes while a command runs would be seen as it is there:
// writable, with devices.
func TestMountsOfTheHostDoNotCome(t *testing.T) {
	b := clitest.NewBox(t)
	outside := filepath.Dir(b.Project)
	b.Write(t, outside+"/disk/secret", "")
	for _, dir := range []string{outside + "/ro/mid", b.Project + "/mid", b.Project + "/laid"} {
		b.Mkdir(t, dir)
	}
	require.NoError(t, unix.Mkfifo(b.Project+"/go", 0o600))
	require.NoError(t, unix.Mkfifo(b.Project+"/ready", 0o600))
	for _, options := range []string{"", "--no-toolchains", "--session s --overlay " + b.Project + "/laid"} {
		script := `mount --make-rshared / || exit
			` + asWords(b, "pk-bwrap") + " --readable ../ro " + options + ` -- sh -c 'echo >ready; read _ <go; ls ../ro/mid mid; echo seen' &
			read _ <ready; mount --bind ../disk ../ro/mid; mount --bind ../disk mid; echo >go; wait
			umount ../ro/mid mid; pk-sweep --all`
		assert.Equal(t, clitest.Outcome{Stdout: "../ro/mid:\n\nmid:\nseen\n"}, clitest.Finish(t, elsewhere(b, script)), options)
	}
}

// elsewhere runs a script in the project with mounts of its own.
func elsewhere(b *clitest.Box, script string) *exec.Cmd {
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "bash", "-c", script)
	cmd.Dir, cmd.Env = b.Project, append(b.Command("pk-bwrap").Env, "PATH="+b.Bin+":"+os.Getenv("PATH"))
	return cmd
}

// asWords is a command of pk, for a shell.
func asWords(b *clitest.Box, name string) string { return strings.Join(b.Command(name).Args, " ") }

// A circle of links in the place of git's own files does not prevent a start.
func TestACircleOfLinksInTheRepository(t *testing.T) {
	b := clitest.NewBox(t)
	out, err := exec.Command("git", "init", "-q", b.Project).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for link, target := range map[string]string{"remotes": "a", "a": "b", "b": "remotes"} {
		require.NoError(t, os.Symlink(target, b.Project+"/.git/"+link))
	}
	assert.Equal(t, clitest.Outcome{Stdout: "in\n"}, inside(t, b, "echo in"))
}

func TestWithoutUnshare(t *testing.T) {
	b := clitest.NewBox(t)
	got := clitest.Finish(t, elsewhere(b, "mount --bind /dev/null $(command -v unshare) && "+asWords(b, "pk-bwrap")+" -- true"))
	assert.Equal(t, clitest.Outcome{Status: 125, Stderr: "pk-bwrap: cannot make a sandbox: unshare is missing\npk-bwrap: hint: install util-linux\n"}, got)
}
