package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

const filter = "the filter of system calls"

// plant is an attack that leaves a set-user-ID file. The call may use $old, an
// open file, $new, the name of another, $dir, and $how, an open_how that makes one.
func plant(name string, amd64, arm64 int, args string) attack {
	return attack{name: "leave a set-user-ID file by " + name, guard: filter, without: unfiltered, inBash: true, script: fmt.Sprintf(
		`perl -e '$old = "old"; $new = "new"; $dir = "."; open F, ">", $old; $how = pack "Q3", 0101, 04755, 0;
		$fd = syscall(%d, %s); print "in\n" if -u $old || -u $new || $fd > 2 && -u "/proc/self/fd/$fd"; unlink $old, $new'`,
		onArch(amd64, arm64), args)}
}

// reach is a call on a socket with a type that the kernel refuses with EINVAL
// before it looks for a driver.
func reach(name string, amd64, arm64, family, kind, protocol int) attack {
	return attack{name: name, guard: filter, without: unfiltered, inBash: true, script: fmt.Sprintf(
		`perl -e '$sv = pack "l2"; syscall(%d, %d, %d, %d, $sv); print "in\n" if $! == 22'`, onArch(amd64, arm64), family, kind|16, protocol)}
}

func filterAttacks() []attack {
	attacks := []attack{
		plant("fchmod", 91, 52, "fileno(F), 04755"),
		plant("fchmodat", 268, 53, "-100, $old, 04755"),
		plant("openat", 257, 56, "-100, $new, 0101, 04755"),
		plant("openat with O_TMPFILE", 257, 56, fmt.Sprintf(`-100, $dir, %d, 04755`, unix.O_TMPFILE|unix.O_WRONLY)),
		plant("openat2", 437, 437, "-100, $new, $how, 24"),
		plant("mknodat", 259, 33, "-100, $new, 0104755, 0"),
		{name: "give a file a capability", guard: noCaps, user: "root", without: all(drop("--cap-drop", "ALL"), drop("--disable-userns")),
			script: fmt.Sprintf(`perl -e '$f = "capable"; open F, ">", $f; $n = "security.capability"; $v = pack "V5", 0x02000001, 0x2000, 0, 0, 0;
				print "in\n" if syscall(%d, $f, $n, $v, 20, 0) == 0; unlink $f'`, onArch(188, 5))},
		reach("reach the host of a virtual machine", 41, 198, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		reach("reach a driver of ciphers", 41, 198, unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		reach("reach a driver by a pair of sockets", 53, 199, unix.AF_TIPC, unix.SOCK_SEQPACKET, 0),
		reach("reach packet sockets by way of AF_INET", 41, 198, unix.AF_INET, unix.SOCK_PACKET, 0),
		reach("reach SCTP", 41, 198, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		reach("watch the host's devices", 41, 198, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT),
		reach("list the host's sockets", 41, 198, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG),
	}
	if _, _, errno := unix.Syscall6(unix.SYS_FCHMODAT2, ^uintptr(0), 0, 0, 0, 0, 0); errno != unix.ENOSYS { // Linux 6.6
		attacks = append(attacks, plant("fchmodat2", 452, 452, "-100, $old, 04755, 0"))
	}
	if runtime.GOARCH == "amd64" {
		attacks = append(attacks,
			plant("chmod", 90, 0, "$old, 04755"),
			plant("creat", 85, 0, "$new, 04755"),
			plant("open", 2, 0, "$new, 0101, 04755"),
			plant("mknod", 133, 0, "$new, 0104755, 0"),
		)
	}
	return attacks
}

func TestAttacksOnTheFilter(t *testing.T) {
	attackAll(t, newGround(t, false), filterAttacks())
}

// TestModesOfEverydayTools pins the man page's statements about tools that set modes.
func TestModesOfEverydayTools(t *testing.T) {
	b := clitest.NewBox(t)
	in := func(script string) clitest.Outcome { return b.Run(t, "pk-bwrap", "--", "sh", "-c", script) }
	outside := exec.Command("sh", "-ec", `umask 022; mkdir src src/dir; echo x >src/suid; echo y >src/plain; chmod 4755 src/suid; chmod 2775 src/dir; tar -cf a.tar src`)
	outside.Dir = b.Project
	out, err := outside.CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, row := range []struct{ name, script, mode, path string }{
		{"git init --shared", "git init -q --shared=group repo", "2775", "repo/.git"},
		{"mkdir -m 2775", "mkdir -m 2775 made", "2775", "made"},
		{"install -d -m 2775", "install -d -m 2775 installed", "2775", "installed"},
		{"chmod g+s", "mkdir -m 775 d && chmod g+s d", "2775", "d"},
		{"cp -a of a directory", "cp -a src/dir dir", "2775", "dir"},
		{"cp of a set-user-ID file", "umask 022; cp src/suid suid", "755", "suid"},
		{"mv of a set-user-ID file", "mkdir moved && cp src/plain moved && mv src/suid moved && mv moved/suid src", "4755", "src/suid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := clitest.Outcome{Stdout: row.mode + "\n"}
			if repo, ok := strings.CutSuffix(row.path, "/.git"); ok {
				want.Stderr = alone(b.Project + "/" + repo)
			}
			assert.Equal(t, want, in(row.script+" && stat -c %a "+row.path))
		})
	}
	for _, row := range []struct{ name, script, says, rest string }{
		{"cp -a", "cp -a src copy", "cp: preserving permissions for", "copy/plain"},
		{"tar -xp", "mkdir x; tar -xpf a.tar -C x", "tar: src/suid: Cannot change mode", "x/src/plain"},
		{"install -m 4755", "install -m 4755 src/plain tool", "install: cannot change permissions", "tool"},
		{"chmod u+s", "chmod u+s src/plain", "chmod: changing permissions", "src/plain"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := in(row.script)
			assert.NotZero(t, got.Status)
			assert.Contains(t, got.Stderr, row.says)
			assert.Contains(t, got.Stderr, "Operation not permitted")
			content, err := os.ReadFile(b.Project + "/" + row.rest)
			require.NoError(t, err)
			assert.Equal(t, "y\n", string(content))
		})
	}
	found, err := exec.Command("find", b.Project, "-perm", "/4000", "-not", "-path", b.Project+"/src/suid").CombinedOutput()
	require.NoError(t, err)
	assert.Empty(t, string(found))
}
