package bwrap

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Messages of bwrap, verbatim.
const (
	saidEnospc   = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)\n"
	saidNo       = "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.\n"
	saidRoot     = "bwrap: Creating new namespace failed: Operation not permitted\n"
	saidUID      = "bwrap: setting up uid map: Permission denied\n"
	saidUIDEPERM = "bwrap: setting up uid map: Operation not permitted\n"
	saidLoopback = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n"
	saidProc     = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n"
	saidSlave    = "bwrap: Failed to make / slave: Operation not permitted\n"
	saidKernel   = "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces.  bwrap must be installed setuid on such systems.\n"
	saidCaps     = "bwrap: Unexpected capabilities but not setuid, old file caps config?\n"
	saidSetuid   = "bwrap: setuid use of bubblewrap is not supported\n"
)

// The whole advice, by the settings of a machine and the message of bwrap on it.
func TestEveryAilmentHasALineToType(t *testing.T) {
	const (
		appArmor = `as root: printf 'abi <abi/4.0>,\nprofile pk /{usr/bin/bwrap,usr/local/bin/pk-*} flags=(unconfined) { userns, }\n' >/etc/apparmor.d/pk && apparmor_parser -r /etc/apparmor.d/pk`
		docker   = "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
		podman   = "start the container with --security-opt seccomp=unconfined --security-opt unmask=ALL"
		pod      = "in the pod: hostUsers: false, and in the container's securityContext: {procMount: Unmasked, seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}"
	)
	for _, test := range []struct {
		name string
		host host
		said string
		want string
	}{
		{"Fedora and RHEL, user namespaces off", host{off: "user"}, saidEnospc,
			"user namespaces are off; as root: echo user.max_user_namespaces=15000 >/etc/sysctl.d/60-userns.conf && sysctl --system"},
		{"the same, for root", host{off: "user", root: true}, saidEnospc,
			"user namespaces are off; as root: echo user.max_user_namespaces=15000 >/etc/sysctl.d/60-userns.conf && sysctl --system"},
		{"the same, in a container", host{off: "user", container: "docker"}, saidEnospc,
			"user namespaces are off; on the machine around the container, as root: echo user.max_user_namespaces=15000 >/etc/sysctl.d/60-userns.conf && sysctl --system"},
		{"mount namespaces off", host{off: "mnt"}, saidEnospc,
			"mount namespaces are off; as root: echo user.max_mnt_namespaces=15000 >/etc/sysctl.d/60-userns.conf && sysctl --system"},
		{"process namespaces off", host{off: "pid"}, saidEnospc,
			"process namespaces are off; as root: echo user.max_pid_namespaces=15000 >/etc/sysctl.d/60-userns.conf && sysctl --system"},
		{"Debian, Arch's linux-hardened", host{clone: "0"}, saidNo,
			"only root may make user namespaces; as root: echo kernel.unprivileged_userns_clone=1 >/etc/sysctl.d/60-userns.conf && sysctl --system"},
		{"the same setting, and another cause", host{clone: "0", root: true}, saidProc,
			"parts of /proc are hidden, so no other can be mounted; unmount what is mounted below /proc"},
		{"Ubuntu's AppArmor", host{bwrap: "/usr/bin/bwrap", programs: "/usr/local/bin/pk-*", apparmor: "1"}, saidUID,
			"AppArmor denies user namespaces; " + appArmor},
		{"the same, seen later", host{bwrap: "/usr/bin/bwrap", programs: "/usr/local/bin/pk-*", apparmor: "1"}, saidLoopback,
			"AppArmor denies user namespaces; " + appArmor},
		{"docker's filter", host{container: "docker", filtered: true}, saidNo,
			"the container may not make namespaces; " + docker},
		{"docker, as root", host{container: "docker", filtered: true, root: true}, saidRoot,
			"the container may not make namespaces; " + docker},
		{"docker's /proc", host{container: "docker", masked: "/proc/kcore"}, saidProc,
			`parts of /proc are hidden ("/proc/kcore"), so no other can be mounted; ` + docker},
		{"podman's /proc", host{container: "podman", filtered: true, masked: "/proc/acpi"}, saidProc,
			`parts of /proc are hidden ("/proc/acpi"), so no other can be mounted; start the container with --security-opt unmask=ALL`},
		{"podman's filter", host{container: "podman", filtered: true}, saidNo,
			"the container may not make namespaces; " + podman},
		{"kubernetes", host{container: "kubernetes", filtered: true}, saidNo,
			"the container may not make namespaces; " + pod},
		{"another container", host{container: "systemd-nspawn", filtered: true}, saidNo,
			"the container may not make namespaces; let the container make namespaces and mount a proc of its own (no seccomp filter, nothing mounted below /proc)"},
		{"too many processes, in a container", host{container: "docker"}, "bwrap: Creating new namespace failed: Resource temporarily unavailable\n",
			"no more processes are allowed; raise the limit: ulimit -u"},
		{"mounting filtered in a container", host{container: "docker", filtered: true}, saidSlave,
			"mounting is denied, by a filter or by Landlock; " + docker},
		{"inside a Landlock sandbox", host{}, saidSlave,
			"mounting is denied, by a filter or by Landlock; start it outside that sandbox"},
		{"a systemd unit", host{filtered: true}, saidNo,
			"a system call filter denies namespaces; in a systemd unit: RestrictNamespaces=no, and no SystemCallFilter= without @mount"},
		{"a unit without the new calls to mount", host{filtered: true}, "bwrap: cannot show \"/usr\": open_tree: operation not permitted\n",
			"a system call filter denies namespaces; in a systemd unit: RestrictNamespaces=no, and no SystemCallFilter= without @mount"},
		{"an old filter in a container", host{container: "docker", filtered: true}, "bwrap: move_mount: function not implemented\n",
			"the kernel is older than 5.12, or a system call filter denies what a sandbox needs; " + docker},
		{"an old filter", host{filtered: true}, "bwrap: Failed to make / slave: Function not implemented\n",
			"mounting is denied, by a filter or by Landlock; start it outside that sandbox"},
		{"an old kernel", host{}, "bwrap: pivot_root: Function not implemented\n",
			"the kernel is older than 5.12, or a system call filter denies what a sandbox needs; in a systemd unit: no SystemCallFilter= without @mount"},
		{"WSL 1", host{wsl1: "Ubuntu", apparmor: "1"}, saidKernel,
			"WSL 1 has no namespaces; in Windows: wsl --set-version Ubuntu 2"},
		{"gVisor", host{gvisor: true, container: "docker"}, saidProc,
			"gVisor lacks what bwrap needs; start the container with --runtime=runc, or let it be the fence: pk-bash --no-sandbox"},
		{"inside a sandbox of pk", host{inside: true, nested: true, filtered: true}, saidEnospc,
			"this is inside a sandbox already; start the one around it with: pk-bwrap --allow-nested"},
		{"inside one whose limit is seen", host{inside: true, nested: true, off: "user"}, saidEnospc,
			"this is inside a sandbox already; start the one around it with: pk-bwrap --allow-nested"},
		{"root inside a sandbox of pk's root", host{inside: true, nested: true, root: true}, saidUIDEPERM,
			"this user cannot be mapped from here, as in a user namespace that does not know it; start it outside, or as an ordinary user"},
		{"a user namespace around", host{nested: true}, saidUIDEPERM,
			"this user cannot be mapped from here, as in a user namespace that does not know it; start it outside, or as an ordinary user"},
		{"too deep", host{nested: true}, saidEnospc,
			"no more namespaces are allowed; this is too deep in other sandboxes, or as root: sysctl user.max_user_namespaces=15000"},
		{"a kernel without them", host{}, saidKernel,
			"this kernel was built without user namespaces; boot one with CONFIG_USER_NS=y, as every distribution has"},
		{"ambient capabilities", host{}, saidCaps,
			"the caller has capabilities; start it with: setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all"},
		{"setuid", host{bwrap: "/usr/bin/bwrap"}, saidSetuid,
			"as root: chmod u-s /usr/bin/bwrap"},
		{"no loopback", host{}, "bwrap: loopback: Failed to look up lo\n",
			"the loopback address of the new network cannot be set; leave --net none out"},
		{"root without the capability", host{root: true}, saidRoot,
			"something denies namespaces that says no name; see what the kernel logged: as root: dmesg | tail"},
		{"anything else", host{}, "bwrap: Can't find source path /x: No such file or directory\n",
			"run bwrap by hand to see more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			no, ok := errors.AsType[*Unavailable](test.host.diagnose(test.said))
			require.True(t, ok)
			assert.Equal(t, "cannot make a sandbox: "+test.said[len("bwrap: "):len(test.said)-1], no.Error())
			assert.Equal(t, test.want, no.Hint())
		})
	}
}

func TestSilenceIsDiagnosedToo(t *testing.T) {
	assert.EqualError(t, new(host).diagnose(""), "cannot make a sandbox: bwrap failed and said nothing")
	assert.EqualError(t, new(host).diagnose("bwrap: one\nbwrap: two\n"), "cannot make a sandbox: one")
}

func TestContainersAreToldApart(t *testing.T) {
	for _, test := range []struct{ name, file, variable, want string }{
		{"none", "", "", ""},
		{"docker", "/.dockerenv", "", "docker"},
		{"podman", "/run/.containerenv", "", "podman"},
		{"kubernetes", "/.dockerenv", "KUBERNETES_SERVICE_HOST", "kubernetes"},
		{"what names itself", "", "container", "systemd-nspawn"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := container(func(path string) bool { return path == test.file }, func(name string) string {
				if name == test.variable {
					return "systemd-nspawn"
				}
				return ""
			})
			assert.Equal(t, test.want, got)
		})
	}
}

func TestKernelsAreToldApart(t *testing.T) {
	for _, test := range []struct {
		name, version, wsl1 string
		gvisor              bool
	}{
		{"Linux", "Linux version 6.12.0-1-amd64 (debian-kernel@lists.debian.org) #1 SMP\n", "", false},
		{"WSL 2", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) #1 SMP\n", "", false},
		{"WSL 1", "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) #1-Microsoft\n", "Debian", false},
		{"gVisor", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			wsl1, gvisor := kernelKind(test.version, "Debian")
			assert.Equal(t, test.wsl1, wsl1)
			assert.Equal(t, test.gvisor, gvisor)
		})
	}
	wsl1, _ := kernelKind("4.4.0-19041-Microsoft", "")
	assert.Equal(t, "DISTRIBUTION", wsl1)
}

func TestInitOfASandboxIsKnown(t *testing.T) {
	for cmdline, want := range map[string]bool{
		"/sbin/init\x00splash\x00": false,
		"":                         false,
		"/usr/bin/bwrap\x00--args\x009\x00--\x00make\x00":       true,
		"/proc/self/fd/200\x00--args\x009\x00--\x00make\x00":    true,
		"/usr/bin/pk-bwrap\x00--\x00make\x00":                   false,
		"/opt/x/bwrap\x00--ro-bind\x00/\x00/\x00":               true,
		"/usr/lib/systemd/systemd\x00--switched-root\x00--args": false,
	} {
		assert.Equal(t, want, bwrapIsInit([]byte(cmdline)), "%q", cmdline)
	}
}

// A failure of the set-up program's has a line to type if a filter or the kernel explains it.
func TestDeniedCall(t *testing.T) {
	for _, said := range []string{"fsopen tmpfs: operation not permitted", "cannot show \"/usr\": open_tree: function not implemented"} {
		assert.NotEmpty(t, DeniedCall(said), said)
	}
	for _, said := range []string{"", "cannot show \"/x\": open_tree: permission denied", "operation not permitted: no"} {
		assert.Empty(t, DeniedCall(said), said)
	}
}
