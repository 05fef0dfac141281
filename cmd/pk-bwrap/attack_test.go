package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/setup"
)

// An attack is a script that prints "in" when it succeeds, or changes the host's git
// directory. The guard that it names must prevent that. So the test runs it twice: in
// pk-bwrap, and without the guard, where it has to succeed. The second run is that of
// the printed line, with the guard taken out of its job. Guards that the set-up program
// puts on every job are in no job: there the second run is a plain bwrap.
//
// Where an attack without its guard still fails, another guard stands behind it, or the
// kernel does; alone says which.
type attack struct {
	name, guard string
	script      string
	options     []string
	inGit       bool // a changed file of the host's git directory is the success, and not the output
	without     edit
	plain       string // options of a plain bwrap
	user        string // "root" or "user": whom the guard is for; "" for both
	alone       string
	inBash      bool   // try it in pk-bash too
	needs       string // files of which the machine has to have one, for the attack to mean anything
}

// edit takes a guard out of a job.
type edit func(*ground, *setup.Job)

// bare are the options of a plain bwrap that has all namespaces but that of the
// network. It shows the host.
const bare = "--unshare-user --unshare-all --share-net --setenv OWN in-argv " + host

const host = "--ro-bind / / --dev /dev --proc /proc"

// ground is the target of the attacks.
type ground struct {
	*clitest.Box
	outside, lib, cache string
	host                int // a process outside
	port                int // of a listener outside, on the loopback address
	abstract            string
	files               []*os.File // descriptors left open: 9 a file, 10 a directory
	git                 string     // a listing of the project's git directory
}

// newGround makes a project beside a home, or inOne, as most are, in it.
func newGround(t *testing.T, inOne bool) *ground {
	b := clitest.NewBoxInEveryRow(t)
	dir := filepath.Dir(b.Project)
	if inOne {
		b.Home = dir
	}
	g := &ground{Box: b, outside: dir + "/outside", lib: dir + "/lib", cache: b.Home + "/.cache/go-build", host: os.Getpid()}
	b.Write(t, g.outside+"/secret", "in\n")
	b.Write(t, g.lib+"/f", "lib\n")
	b.Write(t, g.cache+"/cached", "cached\n")
	b.Write(t, b.Home+"/.ssh/id_ed25519", "in\n")
	b.Write(t, b.Project+"/.env", "in\n")
	b.Write(t, b.Project+"/conf/app/key", "in\n")
	b.Write(t, b.Project+"/evil.sh", "echo in\n")
	require.NoError(t, os.Symlink(g.outside, b.Project+"/link"))
	for _, args := range [][]string{{"init", "-q", "--template="}, {"config", "user.name", "a"}, {"config", "user.email", "a@example.org"}} {
		out, err := exec.Command("git", append([]string{"-C", b.Project}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	b.Write(t, b.Project+"/.git/hooks/pre-commit", "#!/bin/sh\n")
	b.Write(t, b.Project+"/.git/info/attributes", "")
	g.git = clitest.Listing(t, b.Project+"/.git")
	copyGit(t, b.Project+"/.git", dir+"/git")
	g.listen(t)
	for _, name := range []string{g.outside + "/secret", g.outside} {
		f, err := os.Open(name)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		g.files = append(g.files, f)
	}
	return g
}

func copyGit(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to))
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// forget removes the layer over the project's git directory, in which the next
// attack would find the work of the one before.
func (g *ground) forget(t *testing.T) {
	t.Helper()
	state := g.Home + "/.cache/pikuri/git"
	require.NoError(t, filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && d.IsDir() { // the kernel makes work/work without permissions
			err = os.Chmod(path, 0o700)
		}
		return err
	}))
	require.NoError(t, os.RemoveAll(state))
}

// in reports whether the attack got through, and undoes it.
func (g *ground) in(t *testing.T, a attack, got clitest.Outcome) bool {
	t.Helper()
	if !a.inGit {
		return strings.Contains(got.Stdout, "in\n")
	}
	changed := clitest.Listing(t, g.Project+"/.git") != g.git
	if changed {
		copyGit(t, filepath.Dir(g.Project)+"/git", g.Project+"/.git")
	}
	g.forget(t)
	return changed
}

func (g *ground) listen(t *testing.T) {
	g.abstract = fmt.Sprintf("pk-attack-%d", os.Getpid())
	abstract, err := net.Listen("unix", "@"+g.abstract)
	require.NoError(t, err)
	loopback, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { abstract.Close(); loopback.Close() })
	g.port = loopback.Addr().(*net.TCPAddr).Port
}

// fill puts the ground's names into a script.
func (g *ground) fill(script string) string {
	return strings.NewReplacer("OUTSIDE", g.outside, "LIB", g.lib, "CACHE", g.cache, "HOSTPID", fmt.Sprint(g.host),
		"PORT", fmt.Sprint(g.port), "ABSTRACT", g.abstract, "PROJECT", g.Project).Replace(script)
}

// environment is the caller's: it has secrets, and variables that carry code.
func (g *ground) environment() []string {
	return append([]string{"HOME=" + g.Home, "PATH=" + os.Getenv("PATH")},
		"API_TOKEN=hunter2", "BASH_ENV="+g.Project+"/evil.sh", "PROXY=http://u:hunter2@h/")
}

// withKey becomes its arguments, in a session keyring of their own. A user has
// room for so many, and those of ended commands count until the kernel has
// collected them, without a notification: it tries again for a while.
var withKey = fmt.Sprintf(`@s = ("user", "pk-attack", "in");
	for (1 .. 1000) {
		last if $ok = syscall(%d, 1, 0) >= 0 && syscall(%d, $s[0], $s[1], $s[2], 2, -3) >= 0;
		$! == 122 or die "$!"; # EDQUOT
		select undef, undef, undef, 0.01;
	}
	$ok or die; exec @ARGV`,
	onArch(250, 219), onArch(248, 217))

// onArch is the number of a system call on this processor.
func onArch(amd64, arm64 int) int {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}

func (g *ground) run(t *testing.T, argv, env []string) clitest.Outcome {
	t.Helper()
	// The shell around it is in the process group that a command may signal, and
	// has a session keyring with a key in it.
	cmd := exec.Command("perl", append([]string{"-e", withKey, "/bin/sh", "-c", `trap 'echo in' USR1; "$@" & wait $!; s=$?; [ $s != 138 ] || wait; exit $s`, "sh"}, argv...)...)
	cmd.Dir, cmd.Env = g.Project, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{nil, nil, nil, nil, nil, nil, g.files[0], g.files[1]}
	return clitest.Finish(t, cmd)
}

func (g *ground) fenced(t *testing.T, a attack) clitest.Outcome {
	t.Helper()
	argv := append([]string{g.Bin + "/pk-bwrap", "--bwrap", g.Bwrap}, g.filled(a.options)...)
	return g.run(t, append(argv, "--", "bash", "-c", g.fill(a.script)), g.environment())
}

func (g *ground) filled(words []string) []string {
	var filled []string
	for _, w := range words {
		filled = append(filled, g.fill(w))
	}
	return filled
}

// unguarded is a line that runs the attack without its guard.
func (g *ground) unguarded(t *testing.T, a attack) []string {
	t.Helper()
	command := []string{"--", "bash", "-c", g.fill(a.script)}
	if a.plain != "" {
		return slices.Concat([]string{g.Bwrap}, strings.Fields(a.plain), command)
	}
	got := g.Run(t, "pk-bwrap", slices.Concat([]string{"--print", "-z"}, g.filled(a.options), command)...)
	require.Equal(t, 0, got.Status, got.Stderr)
	line := strings.Split(strings.TrimSuffix(got.Stdout, "\x00"), "\x00")
	var job setup.Job
	text := &line[len(line)-1]
	require.NoError(t, json.Unmarshal([]byte(*text), &job))
	a.without(g, &job)
	edited, err := json.Marshal(job)
	require.NoError(t, err)
	require.NotEqual(t, *text, string(edited), "the job has no such guard")
	*text = string(edited)
	return line
}

// drop takes a run of words out of the options of bwrap.
func drop(run ...string) edit {
	return func(_ *ground, j *setup.Job) {
		for i := 0; i+len(run) <= len(j.Options); i++ {
			if slices.Equal(j.Options[i:i+len(run)], run) {
				j.Options = slices.Delete(j.Options, i, i+len(run))
				return
			}
		}
	}
}

func writableRoot(_ *ground, j *setup.Job) { j.WritableRoot = true }

// add puts an option in front of the others.
func add(option string) edit {
	return func(_ *ground, j *setup.Job) { j.Options = slices.Insert(j.Options, 2, option) }
}

// show adds a mount of the host.
func show(place string, access setup.Access) edit {
	return func(g *ground, j *setup.Job) {
		at := filepath.Clean(g.fill(place))
		j.Mounts = append(j.Mounts, setup.Mount{Op: setup.Bind, At: at, From: at, Access: access})
	}
}

// unmounted leaves out the mounts at PLACE in the project, and with deep those
// below it.
func unmounted(place string, deep bool) edit {
	return func(g *ground, j *setup.Job) {
		at := g.Project + "/" + place
		j.Mounts = slices.DeleteFunc(j.Mounts, func(m setup.Mount) bool {
			return m.At == at || deep && strings.HasPrefix(m.At, at+"/")
		})
	}
}

func unprotected(place string) edit { return unmounted(place, false) }

func unpinned(place string) edit { return unmounted(place, true) }

// writable takes no mount for read-only.
func writable(_ *ground, j *setup.Job) {
	for i := range j.Mounts {
		if j.Mounts[i].Access == setup.ReadOnly {
			j.Mounts[i].Access = setup.Writable
		}
	}
}

// endless takes the bound from directories in memory.
func endless(_ *ground, j *setup.Job) {
	for i := range j.Mounts {
		if j.Mounts[i].Size > 0 {
			j.Mounts[i].Size = 1 << 40
		}
	}
}

func unfiltered(_ *ground, j *setup.Job) { j.Filter = nil }

func wholeEnvironment(g *ground, j *setup.Job) { j.Env = g.environment() }

func all(steps ...edit) edit {
	return func(g *ground, j *setup.Job) {
		for _, step := range steps {
			step(g, j)
		}
	}
}

// call is a system call made for its answer: "in" unless it is refused before
// the kernel looked at its arguments.
func call(amd64, arm64 int, args string) string {
	return fmt.Sprintf(`perl -e '@s = ("user", "pk-attack", "y"); $! = 0; $r = syscall(%d, %s); print $r >= 0 || $! != 1 && $! != 38 ? "in\n" : "refused\n"'`, onArch(amd64, arm64), args)
}

const (
	noCaps = "no capabilities"
	view   = "only what is shown is there"
	layer  = "a layer over the git directory"
)

var attacks = []attack{
	// Reading.
	{name: "read a neighbour of the project", guard: view, script: "cat OUTSIDE/secret", without: show("OUTSIDE", setup.ReadOnly)},
	{name: "read through a link in the project", guard: view, script: "cat link/secret", without: show("OUTSIDE", setup.ReadOnly)},
	{name: "read by way of ..", guard: view, script: "cat PROJECT/../outside/secret", without: show("OUTSIDE", setup.ReadOnly)},
	{name: "read by way of /proc/self/root", guard: view, script: "cat /proc/self/root/OUTSIDE/secret", without: show("OUTSIDE", setup.ReadOnly)},
	{name: "read by way of init's root", guard: view, script: "cat /proc/1/root/OUTSIDE/secret", without: show("OUTSIDE", setup.ReadOnly)},
	{name: "read by way of init's directory", guard: view, script: "cat /proc/1/cwd/../outside/secret /proc/1/cwd/OUTSIDE/secret", without: show("OUTSIDE", setup.ReadOnly)},
	{name: "read a key in the home", guard: "an empty home", script: "cat ~/.ssh/id_ed25519", without: show("PROJECT/../home", setup.ReadOnly)},
	{name: "read the shadow file", guard: "the /etc allowlist", script: "cat /etc/shadow >/dev/null && echo in", without: show("/etc/shadow", setup.ReadOnly), user: "root"},
	{name: "read the host's accounts", guard: "synthetic accounts", script: "[ $(wc -l < /etc/passwd) -gt 4 ] && echo in", without: show("/etc/passwd", setup.ReadOnly)},
	{name: "read the machine's identity", guard: "the /etc allowlist", script: "ls -d /etc/debian_version /etc/fstab && echo in", without: show("/etc", setup.ReadOnly)},
	{name: "list the run-time directory", guard: view, script: "ls -A /run | grep -q . && echo in", without: show("/run", setup.ReadOnly)},
	{name: "list the host's logs", guard: view, script: "ls -A /var/log | grep -q . && echo in", without: show("/var/log", setup.ReadOnly)},
	{name: "read the kernel's devices", guard: view, script: "[ -e /sys/kernel ] && echo in", without: show("/sys", setup.ReadOnly)},
	{name: "read a block device", guard: "a small /dev", script: "ls " + devices + " 2>/dev/null | grep -q . && echo in", needs: devices, without: show("/dev", "")},
	{name: "read a denied file", guard: "a mask", options: []string{"--deny", ".env"}, script: "cat .env", without: unmounted(".env", false)},
	{name: "read what a denied directory holds", guard: "a mask", options: []string{"--deny", "conf/app"}, script: "cat conf/app/key", without: unmounted("conf/app", false)},
	{name: "read the names of the caller's keys", guard: "a mask", script: "head -c1 /proc/keys >/dev/null && echo in", without: drop("--ro-bind", "/dev/null", "/proc/keys")},

	// Writing.
	{name: "write to a readable root", guard: "it is mounted read-only", options: []string{"--readable", "LIB"}, script: "echo x > LIB/new && rm LIB/new && echo in", without: writable},
	{name: "change a readable file through a mapping", guard: "it is mounted read-only", options: []string{"--readable", "LIB"}, script: `perl -e 'open(F, "+<", "LIB/f") and print "in\n"'`, without: writable},
	{name: "move a readable file away", guard: "it is mounted read-only", options: []string{"--readable", "LIB"}, script: "mv LIB/f LIB/g && mv LIB/g LIB/f && echo in", without: writable},
	{name: "change the mode of a readable file", guard: "it is mounted read-only", options: []string{"--readable", "LIB"}, script: "chmod 600 LIB/f && chmod 644 LIB/f && echo in", without: writable},
	{name: "write through a link in the project", guard: view, script: "echo x > link/new && rm link/new && echo in", without: show("OUTSIDE", setup.Writable)},
	{name: "write to the root directory", guard: "it is read-only", script: "touch /x && echo in", without: writableRoot},
	{name: "write to /etc", guard: "the root directory is read-only", script: "touch /etc/x && echo in", without: writableRoot},
	{name: "make an account", guard: "the root directory is read-only", script: "chmod u+w /etc/passwd; echo evil::0:0::/: >> /etc/passwd && echo in", without: writableRoot},
	{name: "write to /dev", guard: "it is read-only", script: "touch /dev/x && echo in", without: writable},
	{name: "take all memory through /dev/shm", guard: "a size", script: "[ $(df --output=size /dev/shm | tail -1) -gt 2200000 ] && echo in", without: endless},
	{name: "take all memory through /tmp", guard: "a size", script: "[ $(df --output=size /tmp | tail -1) -gt 2200000 ] && echo in", without: endless},
	{name: "take all memory through the home", guard: "a size", script: "[ $(df --output=size ~ | tail -1) -gt 2200000 ] && echo in", without: endless},
	{name: "write where --allow-write does not say", guard: "a read-only root", options: []string{"--allow-write", "conf/**"}, script: "touch new && rm new && echo in", without: writable},
	{name: "write a protected file", guard: "it is mounted on itself read-only", options: []string{"--protect", "conf/app/key"}, script: ": >> conf/app/key && echo in", without: unprotected("conf/app/key")},
	{name: "rename the directory of a protected file", guard: "a pin", options: []string{"--protect", "conf/app/key"}, script: "mv conf/app conf/b && mv conf/b conf/app && echo in", without: unpinned("conf/app")},
	{name: "rename the directory of a denied file", guard: "a pin", options: []string{"--deny", "conf/app/key"}, script: "mv conf/app conf/b && mv conf/b conf/app && echo in", without: unpinned("conf/app")},

	// Git on the host. Inside, git works; only the host's files count.
	{name: "change a git hook", guard: layer, script: "echo x >> .git/hooks/pre-commit", inGit: true, without: unprotected(".git")},
	{name: "add a git hook", guard: layer, script: "echo x > .git/hooks/new", inGit: true, without: unprotected(".git")},
	{name: "move the hooks away", guard: layer, script: "mv .git/hooks .git/h", inGit: true, without: unprotected(".git")},
	{name: "put a link in the place of the hooks", guard: layer, script: "rm -r .git/hooks && ln -s ../conf .git/hooks", inGit: true, without: unprotected(".git")},
	{name: "change git's configuration", guard: layer, script: "git config core.fsmonitor ./evil.sh", inGit: true, without: unprotected(".git")},
	{name: "have git's configuration include a file", guard: layer, script: "git config include.path ../evil.sh", inGit: true, without: unprotected(".git")},
	{name: "append to git's configuration", guard: layer, script: "echo '#' >> .git/config", inGit: true, without: unprotected(".git")},
	{name: "change git's attributes", guard: layer, script: "echo '* filter=x' >> .git/info/attributes", inGit: true, without: unprotected(".git")},
	{name: "put another git directory in the place of the project's", guard: layer, script: "rm -rf .git/* && git init -q --bare .git && git --git-dir=.git config core.fsmonitor ./evil.sh", inGit: true, without: unprotected(".git")},
	{name: "put another repository in the place of the project's", guard: "a pin", script: "mv .git .g && mv .g .git && echo in", without: unpinned(".git")},

	// Mounts and capabilities.
	{name: "remount the system writable", guard: noCaps, script: "mount -o remount,bind,rw /usr && echo in", alone: "its mounts belong to the user namespace around bwrap's"},
	{name: "unmount the empty home", guard: noCaps, script: "umount -l ~ && echo in", alone: "its mounts belong to the user namespace around bwrap's"},
	{name: "mount something", guard: noCaps, script: "mount -t tmpfs none /tmp && echo in", without: all(drop("--cap-drop", "ALL"), drop("--disable-userns")), user: "root"},
	{name: "have a capability", guard: noCaps, script: "grep -q '^CapEff:.0*$' /proc/self/status || echo in", without: all(drop("--cap-drop", "ALL"), drop("--disable-userns")), user: "root"},
	{name: "gain privileges by a setuid program", guard: "no_new_privs", script: "grep -q '^NoNewPrivs:.1$' /proc/self/status || echo in", alone: "bwrap always sets it"},
	{name: "make a user namespace", guard: "--disable-userns", script: "unshare --user true && echo in", without: drop("--disable-userns")},
	{name: "make a mount namespace", guard: "--disable-userns", script: "unshare --user --mount true && echo in", without: drop("--disable-userns")},
	{name: "make a device", guard: "a user namespace", script: "mknod /tmp/d b 254 0 && echo in", alone: "the kernel makes no devices in a user namespace"},
	{name: "have core dumps run a program of the host", guard: "/proc/sys is read-only", script: ": >> /proc/sys/kernel/core_pattern && echo in", without: drop("--ro-bind", "/proc/sys", "/proc/sys"), user: "root"},
	{name: "change another setting of the kernel", guard: "/proc/sys is read-only", script: ": >> /proc/sys/kernel/panic && echo in", without: drop("--ro-bind", "/proc/sys", "/proc/sys"), user: "root"},

	// Processes.
	{name: "see a process of the host", guard: "processes of its own", script: "[ -e /proc/HOSTPID/cmdline ] && echo in", plain: "--unshare-user --unshare-ipc " + host},
	{name: "signal a process of the host", guard: "processes of its own", script: "kill -0 HOSTPID && echo in", plain: "--unshare-user --unshare-ipc " + host},
	{name: "signal the caller's process group", guard: "a session of its own", script: "trap '' USR1; kill -USR1 0", plain: bare},
	{name: "read System V memory of the host", guard: "IPC of its own", script: "[ $(wc -l < /proc/sysvipc/shm) -gt 1 ] && echo in", alone: "needs a segment of somebody else's"},
	{name: "change the host's name", guard: "a host name of its own", script: "echo x > /proc/sys/kernel/hostname && echo in", alone: "nothing but /proc/sys and capabilities would change it"},

	// The environment.
	{name: "read a secret in the environment", guard: "the filter of variables", script: "env | grep -q hunter2 && echo in", without: wholeEnvironment},
	{name: "read a secret in init's environment", guard: "bwrap starts with the filtered one", script: "tr '\\0' '\\n' < /proc/1/environ | grep -q hunter2 && echo in", plain: bare, inBash: true},
	{name: "run the caller's start-up file", guard: "the filter of variables", script: ":", without: wholeEnvironment},
	{name: "read a secret in the arguments of bwrap", guard: "options go through a descriptor", options: []string{"--setenv", "OWN=in-argv"}, script: "tr '\\0' '\\n' < /proc/1/cmdline | grep -qx in-argv && echo in", plain: bare, inBash: true},

	// Descriptors.
	{name: "read a file that was left open", guard: "descriptors are closed", script: "cat <&9", plain: bare, inBash: true},
	{name: "read out of a directory that was left open", guard: "descriptors are closed", script: "cat /proc/self/fd/10/secret", plain: bare, inBash: true},
	{name: "write out of a directory that was left open", guard: "descriptors are closed", script: "echo x > /proc/self/fd/10/../outside/new && rm /proc/self/fd/10/new && echo in", plain: bare, inBash: true},
	{name: "read a descriptor of init's", guard: "descriptors are closed", script: "cat /proc/1/fd/10/secret", alone: "bwrap's init closes what it does not need"},

	// The network.
	{name: "connect to an abstract socket", guard: "a scope of Landlock", script: `perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack("S a*", AF_UNIX, "\0ABSTRACT")) and print "in\n"'`, plain: bare, inBash: true},
	{name: "connect to an abstract socket from a child", guard: "a scope of Landlock", script: `setsid perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack("S a*", AF_UNIX, "\0ABSTRACT")) and print "in\n"'`, plain: bare, inBash: true},
	{name: "connect to the loopback address", guard: "--net none", options: []string{"--net", "none"}, script: "(: < /dev/tcp/127.0.0.1/PORT) && echo in", without: add("--share-net")},
	{name: "see the host's interfaces", guard: "--net none", options: []string{"--net", "none"}, script: "[ $(wc -l < /proc/net/dev) -gt 3 ] && echo in", without: add("--share-net")},

	// System calls.
	{name: "find the caller's key", guard: "a keyring of its own", script: call(249, 218, `$s[0], $s[1], 0, 0`), plain: bare, inBash: true},
	{name: "use keys", guard: "the filter of system calls", script: call(250, 219, "0, -3, 0, 0, 0"), without: unfiltered, inBash: true},
	{name: "make a key", guard: "the filter of system calls", script: call(248, 217, `$s[0], $s[1], $s[2], 1, -3`), without: unfiltered, inBash: true},
	{name: "set up io_uring", guard: "the filter of system calls", script: call(425, 425, "1, 0"), without: unfiltered, inBash: true},
	{name: "open performance events", guard: "the filter of system calls", script: call(298, 241, "0, 0, -1, -1, 0"), without: unfiltered, inBash: true},
	{name: "load a program into the kernel", guard: "the filter of system calls", script: call(321, 280, "999, 0, 0"), alone: "many kernels refuse it to users anyway"},
	{name: "handle page faults", guard: "the filter of system calls", script: call(323, 282, "1"), alone: "many kernels refuse it to users anyway"},
}

// Devices that a machine has, and a container need not have.
const devices = "/dev/vda /dev/sda /dev/nvme0n1 /dev/kmsg /dev/mem /dev/fuse"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAttacks(t *testing.T) {
	require.Greater(t, len(attacks), 60)
	attackAll(t, newGround(t, false), attacks)
}

// The guards of a project in a home are mounts in the home's tree.
func TestAttacksInAHome(t *testing.T) {
	guards := []string{"a mask", "a pin", "a read-only root", "it is mounted on itself read-only", "it is mounted read-only", layer}
	inside := slices.DeleteFunc(slices.Clone(attacks), func(a attack) bool { return !slices.Contains(guards, a.guard) })
	require.Greater(t, len(inside), 15)
	attackAll(t, newGround(t, true), inside)
}

func attackAll(t *testing.T, g *ground, attacks []attack) {
	// Sessions have a directory of their own, which is made with the first one.
	g.Run(t, "pk-bash", "-y", "true")
	g.forget(t)
	before := clitest.Listing(t, filepath.Dir(g.Project))
	user := map[bool]string{true: "root", false: "user"}[os.Getuid() == 0]
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			clitest.TwoRows(t)
			got := g.fenced(t, a)
			assert.False(t, g.in(t, a, got), "it got through: %s", got.Stdout)
			assert.NotEqual(t, 125, got.Status, got.Stderr) // the sandbox did start
			if a.inBash {
				argv := append([]string{g.Bin + "/pk-bash", "--bwrap", g.Bwrap, "-y", "--raw"}, g.filled(a.options)...)
				got = g.run(t, append(argv, g.fill(a.script)), g.environment())
				assert.NotContains(t, got.Stdout, "in\n", "it got through pk-bash")
			}
			if a.needs != "" && !slices.ContainsFunc(strings.Fields(a.needs), exists) {
				if os.Getenv("CI") == "true" {
					t.Fatalf("this machine has none of %s", a.needs)
				}
				t.Skipf("this machine has none of %s", a.needs)
			}
			if a.without == nil && a.plain == "" || a.user != "" && a.user != user {
				return
			}
			got = g.run(t, g.unguarded(t, a), g.environment())
			assert.True(t, g.in(t, a, got), "without %q it should have got through: %s", a.guard, got.Stderr)
		})
	}
	g.forget(t)
	assert.Equal(t, before, clitest.Listing(t, filepath.Dir(g.Project)), "something was left behind")
}
