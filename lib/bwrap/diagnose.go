package bwrap

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Diagnose turns the message of a bwrap that failed into the line to type. It keeps the
// message: users search for it.
func Diagnose(message string) error { return diagnose(message) }

func diagnose(message string) *Unavailable {
	return readHost(cmp.Or(FindTrusted("bwrap"), "/usr/bin/bwrap")).diagnose(message)
}

// host has the facts about a machine on which bwrap failed.
type host struct {
	bwrap     string
	programs  string // the pattern of AppArmor for the programs that start bwrap
	root      bool
	off       string // the first kind of namespaces whose number is 0, or ""
	clone     string // kernel.unprivileged_userns_clone
	apparmor  string // kernel.apparmor_restrict_unprivileged_userns
	container string // docker, podman, kubernetes, another's name, or ""
	wsl1      string // the name of the WSL 1 distribution, or ""
	gvisor    bool
	inside    bool   // this process is in a sandbox of bwrap
	nested    bool   // this process is in a user namespace
	filtered  bool   // this process has a system call filter
	masked    string // a mount point below /proc, or ""
}

func readHost(bwrap string) *host {
	h := &host{
		bwrap:     bwrap,
		programs:  programs(),
		root:      os.Geteuid() == 0,
		clone:     knob("kernel/unprivileged_userns_clone"),
		apparmor:  knob("kernel/apparmor_restrict_unprivileged_userns"),
		container: container(exists, os.Getenv),
		nested:    nested(),
		filtered:  filtered(),
		masked:    mountBelow(OwnMounts(), "/proc", binfmt),
	}
	for _, kind := range namespaceKinds {
		if knob("user/max_"+kind+"_namespaces") == "0" {
			h.off = kind
			break
		}
	}
	version, _ := os.ReadFile("/proc/version")
	h.wsl1, h.gvisor = kernelKind(string(version), os.Getenv("WSL_DISTRO_NAME"))
	init, _ := os.ReadFile("/proc/1/cmdline")
	h.inside = bwrapIsInit(init)
	return h
}

// container returns the engine that started the container around this process, by the
// files that each leaves in it.
func container(exists func(string) bool, getenv func(string) string) string {
	switch {
	case getenv("KUBERNETES_SERVICE_HOST") != "":
		return "kubernetes"
	case exists("/run/.containerenv"):
		return "podman"
	case exists("/.dockerenv"):
		return "docker"
	}
	return getenv("container")
}

// gvisorVersion is the kernel version that all versions of gVisor report. It does
// not name gVisor.
const gvisorVersion = "#1 SMP Sun Jan 10 15:06:54 PST 2016"

// kernelKind finds in /proc/version the two kernels that claim to be Linux and are not.
// The kernel of WSL 2 is Linux, and spells microsoft in lower case.
func kernelKind(version, distribution string) (wsl1 string, gvisor bool) {
	if strings.Contains(version, "-Microsoft") {
		wsl1 = cmp.Or(distribution, "DISTRIBUTION")
	}
	return wsl1, strings.Contains(version, gvisorVersion)
}

// bwrapIsInit reports whether the first process is bwrap's, by its command line.
// In a container, the first process may be pk-bwrap.
func bwrapIsInit(cmdline []byte) bool {
	words := bytes.Split(cmdline, []byte{0})
	return filepath.Base(string(words[0])) == "bwrap" || len(words) > 1 && string(words[1]) == "--args"
}

// The lines to type for more than one ailment.
const (
	setting   = "as root: echo %s=%s >/etc/sysctl.d/60-userns.conf && sysctl --system"
	onTheHost = "on the machine around the container, "

	// All three are needed: each restriction shows only when the one before is gone.
	dockerFlags = "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
	podmanFlags = "start the container with --security-opt seccomp=unconfined --security-opt unmask=ALL"
	// The filter of Podman 3.2 and later lets bwrap get as far as /proc.
	podmanProc  = "start the container with --security-opt unmask=ALL"
	podSpec     = "in the pod: hostUsers: false, and in the container's securityContext: {procMount: Unmasked, seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}"
	nspawnFlags = "let the container make namespaces and mount a proc of its own (no seccomp filter, nothing mounted below /proc)"
)

// ailment is one reason why bwrap fails, and the line to type.
type ailment struct {
	has    func(h *host, said string) bool
	advice func(h *host) string
}

// ailments are in the order in which they are checked: a reason that explains every
// failure comes before one for a single message, and a setting that can be read before a
// guess from a message.
var ailments = []ailment{
	{func(h *host, _ string) bool { return h.wsl1 != "" }, func(h *host) string {
		return "WSL 1 has no namespaces; in Windows: wsl --set-version " + h.wsl1 + " 2"
	}},
	{func(h *host, _ string) bool { return h.gvisor }, always(
		"gVisor lacks what bwrap needs; start the container with --runtime=runc, or let it be the fence: pk-bash --no-sandbox")},
	{anyOf("setuid use of", "not permitted in setuid mode"), func(h *host) string {
		return "as root: chmod u-s " + h.bwrap
	}},
	{anyOf("Unexpected capabilities"), always(
		"the caller has capabilities; start it with: setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all")},
	{func(h *host, said string) bool {
		// A sandbox without --allow-nested denies the namespace, and not its maps.
		return h.inside && deniesNamespace(said) && !deniesMap(h, said)
	}, always(
		"this is inside a sandbox already; start the one around it with: pk-bwrap --allow-nested")},
	{func(h *host, _ string) bool { return h.off != "" }, func(h *host) string {
		return h.kind("%s namespaces are off; ", h.off) + h.where() + fmt.Sprintf(setting, "user.max_"+h.off+"_namespaces", "15000")
	}},
	{func(h *host, said string) bool { return h.clone == "0" && !h.root && deniesNamespace(said) }, func(h *host) string {
		return "only root may make user namespaces; " + h.where() + fmt.Sprintf(setting, "kernel.unprivileged_userns_clone", "1")
	}},
	{func(h *host, said string) bool { return h.apparmor == "1" && deniesUse(said) }, func(h *host) string {
		return "AppArmor denies user namespaces; " + h.where() + h.profile()
	}},
	{anyOf("does not support user namespaces", "CONFIG_USER_NS"), always(
		"this kernel was built without user namespaces; boot one with CONFIG_USER_NS=y, as every distribution has")},
	{anyOf("mount proc"), func(h *host) string {
		advice := h.flags("unmount what is mounted below /proc")
		if h.container == "podman" {
			advice = podmanProc
		}
		return "parts of /proc are hidden" + h.maskedBy() + ", so no other can be mounted; " + advice
	}},
	{anyOf("make / slave"), func(h *host) string {
		return "mounting is denied, by a filter or by Landlock; " + h.flags("start it outside that sandbox")
	}},
	{anyOf(unix.ENOSYS.Error(), "Function not implemented"), func(h *host) string {
		return "the kernel is older than 5.12, or a system call filter denies what a sandbox needs; " + h.flags("in a systemd unit: no SystemCallFilter= without @mount")
	}},
	{anyOf("Resource temporarily unavailable"), always(
		"no more processes are allowed; raise the limit: ulimit -u")},
	{func(h *host, said string) bool { return h.container != "" && deniesUse(said) }, func(h *host) string {
		return "the container may not make namespaces; " + h.flags("")
	}},
	{func(h *host, said string) bool {
		return h.filtered && deniesUse(said) && !strings.Contains(said, "ENOSPC")
	}, always(
		"a system call filter denies namespaces; in a systemd unit: RestrictNamespaces=no, and no SystemCallFilter= without @mount")},
	{deniesMap, always(
		"this user cannot be mapped from here, as in a user namespace that does not know it; start it outside, or as an ordinary user")},
	{anyOf("ENOSPC", "nesting depth"), always(
		"no more namespaces are allowed; this is too deep in other sandboxes, or as root: sysctl user.max_user_namespaces=15000")},
	{anyOf("RTM_NEWADDR", "loopback"), always(
		"the loopback address of the new network cannot be set; leave --net none out")},
	{deniesUseOf, always(
		"something denies namespaces that says no name; see what the kernel logged: as root: dmesg | tail")},
}

func anyOf(parts ...string) func(*host, string) bool {
	return func(_ *host, said string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(said, part) })
	}
}

func always(advice string) func(*host) string { return func(*host) string { return advice } }

// deniesMap: the kernel denied bwrap the ID maps of its user namespace.
var deniesMap = anyOf("uid map", "gid map")

// deniesNamespace: the kernel denied bwrap a user namespace.
func deniesNamespace(said string) bool {
	return anyOf("No permissions to create", "namespace failed")(nil, said) || deniesMap(nil, said)
}

// deniesUse: bwrap made a user namespace, but the kernel denied its use.
func deniesUse(said string) bool {
	return deniesNamespace(said) || anyOf(unix.EPERM.Error(), "Operation not permitted", "Permission denied", "RTM_NEWADDR")(nil, said)
}

func deniesUseOf(_ *host, said string) bool { return deniesUse(said) }

// minFiles is the limit on open files that a start needs: pk-bash gives its command files
// with numbers up to 252. About 60 are open at once with the mounts of a common machine.
// With fewer, the dynamic linker and Go's runtime fail with messages of their own.
const minFiles = 256

// CheckFiles reports a limit on open files that is too low to start a sandbox. The hard
// limit counts: Go programs raise the soft one at their start.
func CheckFiles() error {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil || files.Max >= minFiles {
		return nil
	}
	return &Unavailable{
		Reason: fmt.Sprintf("cannot make a sandbox: too many open files: the limit is %d, a start needs %d", files.Max, minFiles),
		Advice: fsat.MoreFiles(),
	}
}

// DeniedCall is Diagnose for a failure of the set-up program's that a filter of system calls, an old
// kernel, or a limit on the size of files explains. It returns "" for any other.
func DeniedCall(message string) (advice string) {
	if advice := smallFiles(message); advice != "" {
		return advice
	}
	if !strings.HasSuffix(message, unix.ENOSYS.Error()) && !strings.HasSuffix(message, unix.EPERM.Error()) {
		return ""
	}
	return diagnose(message).Advice
}

// smallFiles is the hint for a failure by the caller's limit on the size of files, or "".
func smallFiles(message string) string {
	var limit unix.Rlimit
	if !strings.HasSuffix(message, unix.EFBIG.Error()) || unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) != nil {
		return ""
	}
	return fmt.Sprintf("the caller's limit on the size of files is %d bytes, too few for a start; raise it: ulimit -f 1024", limit.Cur)
}

func (h *host) diagnose(message string) *Unavailable {
	said := strings.TrimPrefix(firstLine(message), "bwrap: ")
	no := &Unavailable{Reason: "cannot make a sandbox: " + said, Advice: "run bwrap by hand to see more"}
	if said == "" {
		no.Reason = "cannot make a sandbox: bwrap failed and said nothing"
		return no
	}
	for _, a := range ailments {
		if a.has(h, said) {
			no.Advice = a.advice(h)
			break
		}
	}
	return no
}

func (h *host) kind(format, kind string) string {
	names := map[string]string{"mnt": "mount", "pid": "process", "ipc": "IPC", "uts": "host name", "net": "network"}
	return fmt.Sprintf(format, cmp.Or(names[kind], kind))
}

// where names the machine on which to change the kernel: a container shares its host's.
func (h *host) where() string {
	if h.container != "" {
		return onTheHost
	}
	return ""
}

func (h *host) maskedBy() string {
	if h.masked == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", h.masked)
}

// flags returns the options with which a container of this kind can make a sandbox, or
// the advice for a machine that is not a container.
func (h *host) flags(otherwise string) string {
	switch h.container {
	case "docker":
		return dockerFlags
	case "podman":
		return podmanFlags
	case "kubernetes":
		return podSpec
	case "":
		return otherwise
	}
	return nspawnFlags
}

// profile returns an AppArmor profile for bwrap and for the programs that start it:
// unshare(1) makes the user namespace, and keeps the profile of the program that runs it.
// The setting that frees every program is not proposed.
func (h *host) profile() string {
	return fmt.Sprintf("as root: printf 'abi <abi/4.0>,\\nprofile pk /{%s,%s} flags=(unconfined) { userns, }\\n' >/etc/apparmor.d/pk && apparmor_parser -r /etc/apparmor.d/pk",
		strings.TrimPrefix(h.bwrap, "/"), strings.TrimPrefix(h.programs, "/"))
}

// programs returns the commands of pk, or the program that uses lib/sandbox.
func programs() string {
	self, _ := os.Executable()
	if dir, name := filepath.Split(self); strings.HasPrefix(name, "pk-") {
		return dir + "pk-*"
	}
	return self
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
