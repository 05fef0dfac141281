package main

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/gate/gatetest"
)

// missing is a variable by which a program starts without a part of the kernel.
const missing = "PK_TEST_MISSING"

const separator = "\x1f" // of the program's words in another variable

// TestWithout starts a program for which some system calls fail, as on a kernel that lacks
// what they are for.
func TestWithout(t *testing.T) {
	what := os.Getenv(missing)
	if what == "" {
		t.Skip("it is started by the tests of the network")
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	differs := func(value int, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(value), Jf: skip}
	}
	number, argument, failure := unix.SYS_SOCKET, 0, unix.EAFNOSUPPORT
	value := unix.AF_INET6
	if what == "veth" {
		// Of the messages to the kernel, the one that makes the pair has this length.
		number, argument, value, failure = unix.SYS_SENDTO, 2, 100, unix.EOPNOTSUPP
	}
	filter := []unix.SockFilter{
		load(0), differs(number, 3), load(16 + 8*uint32(argument)), differs(value, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(failure)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	line := strings.Split(os.Getenv("PK_TEST_LINE"), separator)
	require.NoError(t, os.Unsetenv(missing))
	runtime.LockOSThread() // the filter is that of this thread
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	require.NoError(t, unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
	require.NoError(t, syscall.Exec(line[0], line, os.Environ()))
}

// Words that are run in place of pk-bwrap, and run it where a part of a common machine is
// missing.
const (
	// Docker's capabilities without CAP_NET_ADMIN and CAP_SYS_ADMIN, which it does not give
	// either.
	inContainer = `exec unshare -Ur setpriv --inh-caps=-all --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap -- "$@"`
	usedUp      = `exec unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_net_namespaces && exec "$@"' sh "$@"`
	ownEtc      = `exec unshare -Urm sh -ec 'cp -a /etc "$0" 2>/dev/null || :; mount --bind "$0/etc" /etc; mount -t tmpfs none /run; cp /etc/resolv.conf "$0/resolv.conf"; rm /etc/resolv.conf
ln -s ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf; `
	linked   = ownEtc + `mkdir -p /run/systemd/resolve; cp "$0/resolv.conf" /run/systemd/resolve/stub-resolv.conf; exec "$@"' "$DIR" "$@"`
	dangling = ownEtc + `exec "$@"' "$DIR" "$@"`
	withNscd = `exec unshare -Urm sh -ec 'mount -t tmpfs none /run; mkdir /run/nscd; mount --bind "$0" /run/nscd; exec "$@"' "$DIR" "$@"`
)

func TestNetworkOfOddMachines(t *testing.T) {
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		rules := allow("good.test", "dns.test", "six.test")
		words := []string{"get https://good.test/", "lookup good.test"}
		found := []string{"200 good.test HTTP/2.0 / 0", "1 and 1"}
		rows := []struct {
			name, place string
			words, want []string
			said        string
		}{
			{"a container without capabilities", inContainer, words, found, ""},
			{"no network namespaces", usedUp, words, nil, "pk-bwrap: hint: network namespaces are off; "},
			{"a resolv.conf of systemd-resolved", linked, append(slices.Clone(words), "get https://dns.test/"), append(slices.Clone(found), "200 dns.test HTTP/2.0 / 0"), ""},
			{"a resolv.conf that leads nowhere", dangling, append(slices.Clone(words), "lookup dns.test"), append(slices.Clone(found), "error: no such host"),
				"dns.test could not be reached: read udp "},
			{"nscd", withNscd, words, found, ""},
			{"no IPv6", "", append(slices.Clone(words), "get https://six.test/"), []string{"200 good.test HTTP/2.0 / 0", "1 and 0", "error: reset"},
				"six.test:443 could not be reached: "},
			{"no veth", "", words, nil, "cannot make the network of the sandbox: the kernel has no veth\npk-bwrap: hint: as root: modprobe veth\n"},
		}
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				dir := t.TempDir()
				cmd := b.Command("pk-bwrap", append(slices.Clone(rules), "--setenv", clientWords+"="+strings.Join(row.words, "\n"), "--setenv", clientRoots+"="+b.Project+"/roots.pem",
					"--", "./client", "-test.run=^TestClient$")...)
				line := cmd.Args
				if row.place == "" {
					self, err := os.Executable()
					require.NoError(t, err)
					cmd = exec.Command(self, "-test.run=^TestWithout$")
					cmd.Env = append(cmd.Env, missing+"="+strings.TrimPrefix(row.name, "no "), "PK_TEST_LINE="+strings.Join(line, separator))
				} else {
					cmd = exec.Command("sh", append([]string{"-c", row.place, "sh"}, line...)...)
					cmd.Env = append(cmd.Env, "DIR="+dir)
				}
				cmd.Dir = b.Project
				cmd.Env = append(cmd.Env, "HOME="+b.Home, "PATH="+os.Getenv("PATH"))
				if row.name == "nscd" {
					nscd, err := net.Listen("unix", dir+"/socket")
					require.NoError(t, err)
					defer nscd.Close()
					go func() {
						if c, err := nscd.Accept(); err == nil {
							c.Close()
							t.Error("nscd was asked")
						}
					}()
				}
				var out, said strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &said
				err := cmd.Run()
				if row.want == nil {
					assert.Equal(t, 125, cmd.ProcessState.ExitCode(), "%v", err)
				} else {
					assert.NoError(t, err, said.String())
					assert.Equal(t, row.want, strings.Split(strings.TrimSpace(out.String()), "\n"))
				}
				assert.Contains(t, said.String(), row.said)
				if row.said == "" {
					assert.Empty(t, said.String())
				}
			})
		}
	})
}
