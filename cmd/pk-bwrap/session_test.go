package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/session"
	"pikuri/lib/setup"
)

// rounds is the number of tries of a rare failure: $PK_ROUNDS, or few enough for every
// day.
func rounds(t *testing.T, few int) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("PK_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return few
}

// caches are three directories that the table of tool chains overlays.
var caches = []string{"/.cache/pip", "/.cache/go-build", "/go/pkg/mod"}

// cachedBox has the caches, with something in each.
func cachedBox(t *testing.T) *clitest.Box {
	t.Helper()
	b := clitest.NewBox(t)
	for _, dir := range caches {
		b.Write(t, b.Home+dir+"/host", "host\n")
	}
	return b
}

// hostCaches lists the host's files in the caches.
func hostCaches(t *testing.T, b *clitest.Box) string {
	t.Helper()
	return clitest.Listing(t, b.Home+"/.cache/pip") + clitest.Listing(t, b.Home+"/.cache/go-build") + clitest.Listing(t, b.Home+"/go")
}

// keeper opens the session from outside and returns its keeper, 0 for none, and
// the marker of its mounts.
func keeper(t *testing.T, b *clitest.Box, name string) (pid int, marker string) {
	t.Helper()
	u, err := session.Open(b.Home+"/.cache/pikuri", name)
	require.NoError(t, err)
	defer u.Release()
	pid, err = u.Keeper()
	require.NoError(t, err)
	return pid, u.Marker()
}

// onlyTheTag checks that there is no session, and no note in the journal.
func onlyTheTag(t *testing.T, b *clitest.Box) {
	t.Helper()
	base := b.Home + "/.cache/pikuri"
	for dir, want := range map[string][]string{base: {"CACHEDIR.TAG", "git", "journal"}, base + "/journal": nil} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		var names []string
		for _, entry := range left {
			if !strings.HasPrefix(entry.Name(), ".new-") { // begun by a killed command, and no order yet
				names = append(names, entry.Name())
			}
		}
		assert.Equal(t, want, names)
	}
}

func TestSessionCachesLastAsLongAsTheSession(t *testing.T) {
	b := cachedBox(t)
	before := hostCaches(t, b)
	in := func(session, script string) clitest.Outcome {
		t.Helper()
		return inside(t, b, script, "--session", session)
	}
	assert.Equal(t, clitest.Outcome{Stdout: "host\n"}, in("one", "cat ~/.cache/pip/host; echo pip > ~/.cache/pip/new; mkdir -p ~/go/pkg/mod/m; echo mod > ~/go/pkg/mod/m/f; chmod 555 ~/go/pkg/mod/m; rm ~/.cache/go-build/host"))
	assert.Equal(t, clitest.Outcome{Stdout: "pip\nmod\n"}, in("one", "cat ~/.cache/pip/new ~/go/pkg/mod/m/f; ls ~/.cache/go-build"))
	assert.Equal(t, clitest.Outcome{Stdout: "host\nhost\nhost\n"}, in("two", "cd; cat .cache/pip/* .cache/go-build/* go/pkg/mod/*"))
	assert.Equal(t, clitest.Outcome{Stdout: "pip\n"}, b.Run(t, "pk-bash", "-y", "--raw", "--session", "one", "cat ~/.cache/pip/new"))
	assert.Equal(t, clitest.Outcome{Stdout: "host\n"}, inside(t, b, "ls ~/.cache/pip; echo x > ~/.cache/pip/lost"))
	assert.Equal(t, before, hostCaches(t, b))

	pid, marker := keeper(t, b, "one")
	require.NotZero(t, pid)
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--session", "one", "--session", "two"))
	assert.Empty(t, session.Seen(marker))
	onlyTheTag(t, b)
	assert.Equal(t, before, hostCaches(t, b))
}

// The next command can start a program that a command wrote to a cache.
func TestProgramInASessionCacheIsFound(t *testing.T) {
	b := cachedBox(t)
	program := b.Home + "/go/pkg/mod/tool"
	require.Equal(t, clitest.Outcome{}, inside(t, b, "cp /usr/bin/true "+program, "--session", "s"))
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-bwrap", "--session", "s", "--", program))
	assert.Equal(t, 127, b.Run(t, "pk-bwrap", "--session", "t", "--", program).Status)
}

// TestGoBuildsAgainInASession is the one recipe of lib/toolchain/recipes for
// which a machine that runs these tests has all it takes.
func TestGoBuildsAgainInASession(t *testing.T) {
	b := clitest.NewBox(t)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	cache += "/go-build"
	b.Mkdir(t, cache)
	b.Env = []string{"GOCACHE=" + cache, "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off"}
	b.Write(t, b.Project+"/go.mod", "module example\n\ngo 1.21\n")
	b.Write(t, b.Project+"/main.go", "package main\n\nfunc main() { println(\"built at "+b.Project+"\") }\n")
	before := stamps(t, cache)

	built := clitest.Outcome{Stderr: "built at " + b.Project + "\n"}
	assert.Equal(t, built, inside(t, b, "go build -o a && ./a", "--session", "go"))
	assert.Equal(t, built, inside(t, b, "rm a; go build -x -o a 2>steps; ! grep /compile steps && ./a", "--session", "go", "--net", "none"))
	assert.True(t, before == stamps(t, cache), "the host's cache has changed") // too long to be printed
}

// stamps is a clitest.Listing without content, for trees of gigabytes.
func stamps(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&out, path, info.Mode(), info.Size(), info.ModTime())
		}
		return err
	}))
	return out.String()
}

// superblocks prints the devices of the overlays: equal numbers at one time are
// one mount.
const superblocks = `awk '$0 ~ / - overlay / { print $3, $5 }' /proc/self/mountinfo | sort`

// TestParallelCommandsShareOneView: each command writes a file in three caches. It must
// find the files of all commands before it, and any file that it finds of those beside
// it must be whole.
func TestParallelCommandsShareOneView(t *testing.T) {
	clitest.TwoRows(t)
	b := cachedBox(t)
	before := hostCaches(t, b)
	const parallel = 16
	views := map[string]bool{}
	for round := range rounds(t, 2) {
		var all sync.WaitGroup
		got := make([]clitest.Outcome, parallel)
		for i := range parallel {
			all.Go(func() {
				script := fmt.Sprintf(`for d in ~/.cache/pip ~/.cache/go-build ~/go/pkg/mod; do
					cd $d; echo whole > .new.%[1]d.%[2]d; mv .new.%[1]d.%[2]d r%[1]d.%[2]d
					mkdir d%[1]d.%[2]d; echo whole > d%[1]d.%[2]d/f; rm -r d%[1]d.%[2]d
					for f in r%[1]d.* r$((%[1]d-1)).*; do [ ! -e $f ] || { read -r w <$f; [ "$w" = whole ] || echo "not whole: $f"; }; done
					n=$(ls | grep -c '^r'); [ $n -gt %[3]d ] || echo "only $n in $d"
				done; %[4]s`, round, i, round*parallel, superblocks)
				got[i] = inside(t, b, script, "--session", "s")
			})
		}
		all.Wait()
		for _, o := range got {
			require.Empty(t, o.Stderr)
			views[o.Stdout] = true
		}
	}
	assert.Len(t, views, 1, "each overlay is mounted once: %v", views)
	for view := range views {
		assert.GreaterOrEqual(t, strings.Count(view, "\n"), 3, view)
	}
	assert.Equal(t, before, hostCaches(t, b))
}

func TestCommandsBackToBack(t *testing.T) {
	b := cachedBox(t)
	const script = "echo line >> ~/.cache/pip/log; %s" + superblocks
	views := map[string]bool{}
	n := rounds(t, 15)
	for i := range n {
		linger := ""
		if i%3 == 0 {
			linger = "(while :; do echo x > ~/.cache/pip/busy; done) & "
		}
		got := inside(t, b, fmt.Sprintf(script, linger), "--session", "s")
		require.Equal(t, 0, got.Status, got.Stderr)
		views[got.Stdout] = true
	}
	assert.Len(t, views, 1, views)
	got := inside(t, b, "grep -cx line ~/.cache/pip/log", "--session", "s")
	assert.Equal(t, clitest.Outcome{Stdout: fmt.Sprintln(n)}, got)
}

func TestFurtherOverlayInARunningSession(t *testing.T) {
	b := cachedBox(t)
	own := filepath.Dir(b.Project) + "/data"
	b.Write(t, own+"/f", "host\n")
	require.Equal(t, 0, inside(t, b, "echo x > ~/.cache/pip/x", "--session", "s").Status)
	got := inside(t, b, "cat ~/.cache/pip/x "+own+"/f; echo new > "+own+"/f", "--session", "s", "--overlay", own)
	assert.Equal(t, clitest.Outcome{Stdout: "x\nhost\n"}, got)
	got = inside(t, b, "cat "+own+"/f", "--session", "s", "--overlay", own)
	assert.Equal(t, clitest.Outcome{Stdout: "new\n"}, got)
	content, err := os.ReadFile(own + "/f")
	require.NoError(t, err)
	assert.Equal(t, "host\n", string(content))
}

// An overlay below a writable root is mounted by descriptor.
func TestOverlayInsideTheProjectOfASession(t *testing.T) {
	b := cachedBox(t)
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "", "objects/x": "", "refs/x": ""} {
		b.Write(t, filepath.Join(b.Project, ".git", name), text)
	}
	b.Write(t, b.Project+"/target/f", "host\n")
	options := []string{"--session", "s", "--overlay", b.Project + "/target"}
	assert.Equal(t, clitest.Outcome{}, inside(t, b, "echo new > target/f; echo x > plain", options...))
	assert.Equal(t, clitest.Outcome{Stdout: "new\nx\n"}, inside(t, b, "cat target/f plain", options...))
	content, err := os.ReadFile(b.Project + "/target/f")
	require.NoError(t, err)
	assert.Equal(t, "host\n", string(content))
	inside(t, b, "echo '[x]' > .git/config", options...)
	config, err := os.ReadFile(b.Project + "/.git/config")
	require.NoError(t, err)
	assert.Empty(t, string(config), "still protected")
}

// running starts a command that prints "ready" and ends with its input.
func running(t *testing.T, b *clitest.Box, script string, options ...string) (cmd *exec.Cmd, end func() error) {
	t.Helper()
	cmd = b.Command("pk-bwrap", append(options, "--", "bash", "-c", script+"; echo ready; read -r x; exit 0")...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	n, _ := out.Read(make([]byte, 8))
	require.NotZero(t, n, "it did not start: %s", &said)
	return cmd, func() error { in.Close(); return cmd.Wait() }
}

func TestKilledKeeper(t *testing.T) {
	b := cachedBox(t)
	before := hostCaches(t, b)
	view := inside(t, b, superblocks, "--session", "s").Stdout
	_, end := running(t, b, "echo old > ~/.cache/pip/f", "--session", "s")
	pid, _ := keeper(t, b, "s")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))

	got := inside(t, b, superblocks+"; cat ~/.cache/pip/f; echo new > ~/.cache/pip/f", "--session", "s")
	assert.Equal(t, clitest.Outcome{Stdout: view + "old\n"}, got, "the mount that the running command has")
	require.NoError(t, end())
	pid, _ = keeper(t, b, "s")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	assert.Equal(t, clitest.Outcome{Stdout: "new\n"}, inside(t, b, "cat ~/.cache/pip/f", "--session", "s"))
	assert.Equal(t, before, hostCaches(t, b))
}

// A set-up program that enters the namespaces of a process that is no longer the
// keeper stops: the next command may already have mounted the same overlays
// elsewhere.
func TestNamespacesOfAFormerKeeper(t *testing.T) {
	b := cachedBox(t)
	require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	u, err := session.Open(b.Home+"/.cache/pikuri", "s")
	require.NoError(t, err)
	defer u.Release()
	pid, err := u.Keeper()
	require.NoError(t, err)
	enter := func(keeper int) clitest.Outcome {
		var files []*os.File
		for _, ns := range []string{"user", "mnt"} {
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			require.NoError(t, err)
			defer f.Close()
			files = append(files, f)
		}
		lock, err := u.KeeperLock()
		require.NoError(t, err)
		defer lock.Close()
		job, err := json.Marshal(setup.Job{Program: "/nonesuch", Keeper: keeper, FDs: setup.Descriptors{Mounts: 4, KeeperLock: 5}})
		require.NoError(t, err)
		cmd := exec.Command("nsenter", "--preserve-credentials", "--user=/proc/self/fd/3", "--", b.Bin+"/pk-bwrap", setup.Mode.Name, string(job))
		cmd.ExtraFiles, cmd.Env = append(files, lock), []string{}
		return clitest.Finish(t, cmd)
	}
	assert.Contains(t, enter(pid).Stderr, `cannot start bwrap "/nonesuch"`)
	assert.Equal(t, clitest.Outcome{Stderr: "pk-bwrap: the keeper of the session has been killed meanwhile\n", Status: 125}, enter(pid+1))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

// A keeper of an earlier boot has left its note, and nothing else.
func TestKeeperOfAnEarlierBoot(t *testing.T) {
	b := cachedBox(t)
	require.Equal(t, 0, inside(t, b, "echo kept > ~/.cache/pip/f", "--session", "s").Status)
	pid, marker := keeper(t, b, "s")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	for len(session.Seen(marker)) > 0 {
		time.Sleep(time.Millisecond)
	}
	b.Write(t, b.Home+"/.cache/pikuri/workspace-s/.keeper", "00000000-0000-0000-0000-000000000000\n")
	assert.Equal(t, clitest.Outcome{Stdout: "kept\n"}, inside(t, b, "cat ~/.cache/pip/f", "--session", "s"))
}

// TestKillsAtRandomMoments kills keepers, commands and sweepers while they
// start, run and end. Nothing on the host changes, nothing is left, and the
// session works all the time.
func TestKillsAtRandomMoments(t *testing.T) {
	clitest.TwoRows(t)
	b := cachedBox(t)
	before := hostCaches(t, b)
	_, marker := keeper(t, b, "s")
	for range rounds(t, 10) {
		var commands []*exec.Cmd
		for i := range 3 {
			name, args := "pk-bwrap", []string{"--session", "s", "--", "bash", "-c", "setsid bash -c 'while :; do echo x > ~/.cache/pip/a; rm -f ~/.cache/pip/a; done' & while :; do echo y > ~/go/pkg/mod/b; done"}
			if i == 1 {
				name, args = "pk-bash", []string{"-y", "--session", "s", args[4+1]}
			}
			cmd := b.Command(name, args...)
			require.NoError(t, cmd.Start())
			commands = append(commands, cmd)
		}
		sweeper := b.Command("pk-sweep", "--all")
		require.NoError(t, sweeper.Start())
		commands = append(commands, sweeper)
		if rand.IntN(2) == 0 {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			if pid := keeperIfAny(b); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		for _, i := range rand.Perm(len(commands)) {
			time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
			_ = commands[i].Process.Kill()
		}
		for _, cmd := range commands {
			_ = cmd.Wait()
		}
		got := inside(t, b, "echo works > ~/.cache/pip/w; cat ~/.cache/pip/w", "--session", "s")
		require.Equal(t, clitest.Outcome{Stdout: "works\n"}, got)
	}
	assert.Equal(t, before, hostCaches(t, b))
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := b.Run(t, "pk-sweep", "--session", "s")
		if got == (clitest.Outcome{}) {
			break
		}
		require.True(t, time.Now().Before(limit), "%+v", got)
	}
	assert.Equal(t, clitest.Outcome{}, b.Run(t, "pk-sweep", "--all"))
	assert.Empty(t, session.Seen(marker))
	onlyTheTag(t, b)
}

// mostKilled bounds the killed keepers: on a busy machine the start of a keeper may
// take longer than its life.
const mostKilled = 20

// A command whose keeper is killed while it starts finds the next keeper, or
// starts it, and prints nothing about it.
func TestCommandsWhileKeepersAreKilled(t *testing.T) {
	clitest.TwoRows(t)
	b := cachedBox(t)
	require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		killed := 0
		for {
			select {
			case <-stop:
				stopped <- killed
				return
			default:
			}
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			if pid := keeperIfAny(b); pid > 0 && killed < mostKilled && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}()
	var commands sync.WaitGroup
	for i := range 3 {
		commands.Go(func() {
			for round := range rounds(t, 10) {
				line := fmt.Sprintf("echo %[1]d > ~/.cache/pip/%[2]d; cat ~/.cache/pip/%[2]d", round, i)
				assert.Equal(t, clitest.Outcome{Stdout: fmt.Sprintln(round)}, inside(t, b, line, "--session", "s"))
			}
		})
	}
	commands.Wait()
	close(stop)
	assert.Positive(t, <-stopped, "no keeper was killed")
}

// keeperIfAny returns the keeper of session s without making the session.
func keeperIfAny(b *clitest.Box) int {
	f, err := os.OpenFile(b.Home+"/.cache/pikuri/workspace-s/.keeper", os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	ask := syscall.Flock_t{Type: syscall.F_WRLCK}
	if syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &ask) != nil || ask.Type == syscall.F_UNLCK {
		return 0
	}
	return int(ask.Pid)
}

// TestSweepersAndLiveSessions: sweepers that take everything that is not in
// use, while sessions work and others are left behind.
func TestSweepersAndLiveSessions(t *testing.T) {
	clitest.TwoRows(t)
	b := cachedBox(t)
	const sessions = 10
	var ends []func() error
	for i := range sessions {
		_, end := running(t, b, `(i=0; while [ -e /tmp/go ]; do i=$((i+1)); echo $i > ~/.cache/pip/f$i; echo $i > /tmp/f$i
			[ "$(cat ~/.cache/pip/f$((i/2+1)))" = $((i/2+1)) ] && [ "$(cat /tmp/f$((i/2+1)))" = $((i/2+1)) ] || echo lost >> lost
			done; echo $i > /tmp/done) & touch /tmp/go`, "--session", fmt.Sprint("live", i))
		ends = append(ends, end)
	}
	var removed []string
	deadline := time.Now().Add(sweepTime())
	for n := 0; time.Now().Before(deadline) || n == 0; n++ {
		stale := b.Run(t, "pk-bwrap", "--session", fmt.Sprint("stale", n), "--", "sh", "-c", "echo x > ~/.cache/pip/x; echo x > /tmp/x")
		require.Equal(t, clitest.Outcome{}, stale)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				got := b.Run(t, "pk-sweep", "--all")
				assert.Equal(t, clitest.Outcome{}, got)
			})
		}
		both.Wait()
		left, err := filepath.Glob(b.Home + "/.cache/pikuri/*stale*")
		require.NoError(t, err)
		if len(left) > 0 {
			t.Logf("%d: %v\n%s", n, left, b.Run(t, "pk-sweep", "--all", "--dry-run", "-v").Stdout)
		}
		removed = append(removed, left...)
	}
	assert.Empty(t, removed, "every stale session goes")
	for i, end := range ends {
		assert.NoError(t, end(), i)
	}
	assert.NoFileExists(t, b.Project+"/lost")
	left, err := filepath.Glob(b.Home + "/.cache/pikuri/workspace-live*")
	require.NoError(t, err)
	assert.Len(t, left, sessions)
}

// sweepTime is how long sweepers run beside live sessions.
func sweepTime() time.Duration {
	seconds, _ := strconv.Atoi(os.Getenv("PK_SECONDS"))
	return time.Duration(seconds) * time.Second
}

// The command has the keeper's uid, and must not find it.
func TestKeeperIsOutOfReach(t *testing.T) {
	b := cachedBox(t)
	require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	pid, _ := keeper(t, b, "s")
	dir := b.Home + "/.cache/pikuri/workspace-s"
	before, err := os.Stat(dir + "/.keeper")
	require.NoError(t, err)
	for _, options := range [][]string{nil, {"--allow-nested"}, {"--no-toolchains"}} {
		got := inside(t, b, fmt.Sprintf(`
			kill -9 %[1]d && echo in
			kill -9 -1
			ls /proc/%[1]d/root /proc/%[1]d/fd && echo in
			ls -a %[2]s/.keeper %[2]s/.lock %[2]s/overlay && echo in
			echo x > %[2]s/.keeper
			for p in /proc/[0-9]*; do
				grep -q pk-keeper $p/comm && echo in
				for f in $p/fd/*; do case $(readlink $f) in *%[2]s*|user:*|mnt:*) echo in ;; esac; done
			done
			umount -l %[3]s/.cache/pip && echo in
			nsenter -U -m -t 1 true && echo in
			unshare -Urm umount %[3]s/.cache/pip && echo in
			unshare -Urm nsenter -m -t 1 true && echo in
			echo tried`, pid, dir, b.Home), append(options, "--session", "s")...)
		assert.Equal(t, "tried\n", got.Stdout, "%v: %s", options, got.Stderr)
	}
	again, _ := keeper(t, b, "s")
	assert.Equal(t, pid, again)
	after, err := os.Stat(dir + "/.keeper")
	require.NoError(t, err)
	assert.Equal(t, before.Size(), after.Size())
}

// The set-up program works in a copy of the keeper's mounts, and leaves none in them.
func TestKeeperGathersNoMounts(t *testing.T) {
	b := cachedBox(t)
	b.Write(t, b.Project+"/.git/config", "")
	mounts := func() int {
		pid, _ := keeper(t, b, "s")
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		require.NoError(t, err)
		return bytes.Count(table, []byte("\n"))
	}
	require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	before := mounts()
	for range 5 {
		require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	}
	assert.Equal(t, before, mounts())
}

// A command that is killed while it enters the session leaves no process behind,
// though the kernel then clears the parent-death signal.
func TestKilledPkBashInASession(t *testing.T) {
	b := cachedBox(t)
	require.Equal(t, 0, inside(t, b, "true", "--session", "s").Status)
	_, marker := keeper(t, b, "s")
	for i := range rounds(t, 8) {
		cmd := b.Command("pk-bash", "-y", "--session", "s", "sleep 1000")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(i%40) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	for limit := time.Now().Add(time.Minute); len(session.Seen(marker)) > 1; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(limit), "%v still see the overlays", session.Seen(marker))
	}
}

// where runs pk-bwrap in a mount namespace in which setup was done first.
func where(t *testing.T, b *clitest.Box, setup string, args ...string) clitest.Outcome {
	t.Helper()
	pk := b.Command("pk-bwrap", args...)
	script := "set -e; " + setup + "; " + `"$@"; code=$?; exec "$(dirname "$1")/pk-sweep" --all --base ~/.cache/pikuri; exit $code`
	cmd := exec.Command("unshare", append([]string{"--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"}, pk.Args...)...)
	cmd.Dir, cmd.Env = pk.Dir, pk.Env
	return clitest.Finish(t, cmd)
}

// Where the session's directory lies on an overlay, as in a container, writes to
// caches are kept in memory; and a cache on an overlay over an overlay is
// read-only, with its reason.
func TestWhereOverlaysCannotBe(t *testing.T) {
	b := cachedBox(t)
	dir := filepath.Dir(b.Project)
	for _, name := range []string{"/u", "/w", "/u2", "/w2", "/empty"} {
		b.Mkdir(t, dir+name)
	}
	b.Mkdir(t, b.Home+"/.cache/pikuri")
	require.NoError(t, os.Chmod(b.Home+"/.cache/pikuri", 0o700))
	over := func(at, u, w string) string {
		return fmt.Sprintf("mount -t overlay overlay -o userxattr,lowerdir=%s,upperdir=%s,workdir=%s %s", at, dir+u, dir+w, at)
	}
	got := where(t, b, over(b.Home+"/.cache/pikuri", "/u", "/w"), "--session", "s", "--", "sh", "-c", "echo x > ~/.cache/pip/x && cat ~/.cache/pip/x")
	assert.Equal(t, "x\n", got.Stdout, got.Stderr)
	assert.Contains(t, got.Stderr, "pk-bwrap: warning: kept in memory, and no longer than commands of the session follow each other: [")

	got = where(t, b, "mount -t tmpfs tmpfs "+dir+"/empty; mkdir "+dir+"/empty/u "+dir+"/empty/w; "+over(b.Home+"/go/pkg/mod", "/u2", "/w2")+
		fmt.Sprintf("; mount -t overlay overlay -o userxattr,lowerdir=%[1]s,upperdir=%[2]s/u,workdir=%[2]s/w %[1]s", b.Home+"/go/pkg/mod", dir+"/empty"),
		"--session", "s", "--", "sh", "-c", "cat ~/go/pkg/mod/host; echo x > ~/go/pkg/mod/x || echo closed; echo y > ~/.cache/pip/y && echo open")
	assert.Equal(t, "host\nclosed\nopen\n", got.Stdout, got.Stderr)
	assert.Contains(t, got.Stderr, fmt.Sprintf("pk-bwrap: warning: %q is read-only inside: it lies on an overlay already, which cannot carry a further one\n", b.Home+"/go/pkg/mod"))
	got = where(t, b, "mount -t tmpfs tmpfs "+dir+"/empty; mkdir "+dir+"/empty/u "+dir+"/empty/w; "+over(b.Home+"/go/pkg/mod", "/u2", "/w2")+
		fmt.Sprintf("; mount -t overlay overlay -o userxattr,lowerdir=%[1]s,upperdir=%[2]s/u,workdir=%[2]s/w %[1]s", b.Home+"/go/pkg/mod", dir+"/empty"),
		"--session", "s", "--require", "overlay", "--", "echo", "in")
	assert.Empty(t, got.Stdout)
	assert.Contains(t, got.Stderr, "pk-bwrap: cannot promise \"overlay\"")
	for _, name := range []string{"/u", "/w", "/u2", "/w2"} {
		_ = exec.Command("chmod", "-R", "u+rwx", dir+name).Run()
	}
}

// The hidden modes refuse arguments that users try.
func TestHiddenModesRefuse(t *testing.T) {
	b := clitest.NewBox(t)
	for _, args := range [][]string{
		{"--pk-keeper"}, {"--pk-keeper", b.Home, "workspace-s", "1s"}, {"--pk-keeper-start"}, {"--pk-keeper-start", "", b.Home, "workspace-s", "1s"},
		{"--pk-keeper-mount", "/", "m", b.Home}, {"--pk-setup"}, {"--pk-setup", "{}"}, {"--pk-guard"}, {"--pk-disarm"}, {"--pk-disarm", b.Home},
	} {
		cmd := exec.Command(filepath.Join(b.Bin, "pk-bwrap"), args...)
		cmd.Env = []string{}
		got := clitest.Finish(t, cmd)
		if args[0] != "--pk-keeper-start" { // it reports to its caller, on a descriptor
			assert.Equal(t, 125, got.Status, args)
			assert.NotEmpty(t, got.Stderr, args)
		}
		assert.NoDirExists(t, b.Home+"/.cache/pikuri")
		assert.NoDirExists(t, b.Home+"/journal")
	}
}

func TestMountSinceTheSessionBegan(t *testing.T) {
	b := cachedBox(t)
	data := filepath.Dir(b.Project) + "/data"
	b.Write(t, data+"/covered", "")
	pk := strings.Join(b.Command("pk-bwrap").Args, " ")
	script := fmt.Sprintf(`%[1]s --session s -- true; mount -t tmpfs tmpfs %[2]s; %[1]s --session s --writable %[2]s -- sh -c "ls -A %[2]s; mountpoint %[2]s"; pk-sweep --all`, pk, data)
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
	cmd.Dir, cmd.Env = b.Project, append(b.Command("pk-bwrap").Env, "PATH="+b.Bin+":"+os.Getenv("PATH"))
	got := clitest.Finish(t, cmd)
	assert.Equal(t, clitest.Outcome{Stdout: data + " is a mountpoint\n"}, got)
}

// The keeper serves later commands, for which the limits of its namespace hold too: it has no soft
// limit of the command that has started it.
func TestKeeperHasNoSoftLimits(t *testing.T) {
	b := cachedBox(t)
	cmd := b.Command("pk-bwrap", "--session", "s", "--", "true")
	cmd.Path, cmd.Args = "/bin/bash", append([]string{"bash", "-c", `ulimit -S -u 3000; ulimit -S -i 100; ulimit -S -t 100; exec "$@"`, "bash"}, cmd.Args...)
	cmd.Args[4] = b.Bin + "/pk-bwrap"
	got := clitest.Finish(t, cmd)
	require.Equal(t, 0, got.Status, got.Stderr)
	pid, _ := keeper(t, b, "s")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		for _, name := range []string{"Max processes", "Max pending signals", "Max cpu time"} {
			if values, ok := strings.CutPrefix(line, name); ok {
				fields := strings.Fields(values)
				assert.Equal(t, fields[1], fields[0], line)
			}
		}
	}
}
