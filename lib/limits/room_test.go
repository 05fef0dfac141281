package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fake makes a host from lines "FILE=CONTENT". "proc/" has the kernel's files
// about the process, "cg/" the mounted tree of cgroups. {base} is the directory
// of both, {pid} this process.
func fake(t *testing.T, lines ...string) (host, string) {
	t.Helper()
	base := t.TempDir()
	defaults := []string{
		`proc/self/mountinfo=31 23 0:28 / /sys rw - sysfs sysfs rw|41 31 0:38 / {base}/cg rw,nosuid shared:9 - cgroup2 none rw|`,
		`proc/cgroups=#subsys_name	hierarchy	num_cgroups	enabled|memory	0	1	1|pids	0	1	1|`,
		`cg/cgroup.controllers=cpu memory pids`,
	}
	for _, line := range append(defaults, lines...) {
		name, content, _ := strings.Cut(line, "=")
		path := filepath.Join(base, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		content = strings.NewReplacer("|", "\n", "{base}", base, "{pid}", fmt.Sprint(os.Getpid())).Replace(content)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return host{
		proc:      filepath.Join(base, "proc"),
		delegated: func(string) bool { return false },
		writable:  func(string) error { return nil },
		scope:     func(scopeLike) error { return errors.New("cannot reach systemd: there is none") },
	}, base
}

// passes makes a cgroup that passes memory and pids on, or does not.
func passes(dir string) string { return "cg/" + dir + "cgroup.subtree_control=memory pids" }

func unit(names ...string) func(string) bool {
	return func(dir string) bool { return slices.Contains(names, filepath.Base(dir)) }
}

func TestRoom(t *testing.T) {
	both := []string{"memory", "pids"}
	for _, test := range []struct {
		name   string
		lines  []string
		change func(*host)
		want   room // dir below the tree
		reason string
		hint   string
	}{
		{name: "own cgroup passes on", lines: []string{"proc/self/cgroup=0::/a/b|", passes("a/b/")}, want: room{dir: "a/b"}},
		{name: "the one above passes on", lines: []string{"proc/self/cgroup=0::/a/b|", "cg/a/b/x=", passes("a/")}, want: room{dir: "a"}},
		{name: "the nearer of two", lines: []string{"proc/self/cgroup=0::/a/b|", passes("a/b/"), passes("a/")}, want: room{dir: "a/b"}},
		{
			name:  "alone in a cgroup that could pass on",
			lines: []string{"proc/self/cgroup=0::/a|", "cg/a/cgroup.type=domain", "cg/a/cgroup.controllers=memory pids", "cg/a/cgroup.procs={pid}|"},
			want:  room{dir: "a", enable: true, leave: true},
		},
		{
			name: "alone, but the one above passes on already",
			lines: []string{"proc/self/cgroup=0::/a/b|", "cg/a/b/cgroup.type=domain", "cg/a/b/cgroup.controllers=memory pids",
				"cg/a/b/cgroup.procs={pid}|", passes("a/")},
			want: room{dir: "a"},
		},
		{
			name: "empty one above could pass on",
			lines: []string{"proc/self/cgroup=0::/a/b|", "cg/a/b/cgroup.type=domain", "cg/a/b/cgroup.controllers=", "cg/a/cgroup.type=domain",
				"cg/a/cgroup.controllers=memory pids", "cg/a/cgroup.procs="},
			want: room{dir: "a", enable: true},
		},
		{
			name: "not alone",
			lines: []string{"proc/self/cgroup=0::/a|", "cg/a/cgroup.type=domain", "cg/a/cgroup.controllers=memory pids",
				"cg/a/cgroup.procs={pid}|1|"},
			reason: `the cgroup "{tree}/a" has processes in it, and so cannot pass the controllers on; cannot reach systemd: there is none`,
			hint: "move them down first: mkdir -p {tree}/a/main && for p in $(cat {tree}/a/cgroup.procs); do echo $p > {tree}/a/main/cgroup.procs; done; " +
				"echo +memory +pids > {tree}/a/cgroup.subtree_control",
		},
		{
			name:   "root cgroup does not pass on",
			lines:  []string{"proc/self/cgroup=0::/|", "cg/cgroup.procs={pid}|"},
			reason: "the root cgroup does not pass the controllers on: memory, pids; cannot reach systemd: there is none",
			hint:   "as root: echo +memory +pids > {tree}/cgroup.subtree_control",
		},
		{
			name: "root of a container's own tree",
			lines: []string{"proc/self/mountinfo=41 31 0:38 /docker/1 {base}/cg rw - cgroup2 none rw|", "proc/self/cgroup=0::/docker/1|",
				"cg/cgroup.type=domain", "cg/cgroup.procs={pid}|"},
			want: room{dir: "", enable: true, leave: true},
		},
		{
			name:   "not this user's",
			lines:  []string{"proc/self/cgroup=0::/a|", passes("a/")},
			change: func(h *host) { h.writable = func(string) error { return unix.EACCES } },
			reason: `the cgroup "{tree}/a" is not this user's: permission denied; cannot reach systemd: there is none`,
			hint:   "as root: systemd-run with -p Delegate=yes and -p User=, or chown the cgroup, its cgroup.procs and its cgroup.subtree_control",
		},
		{
			name:   "mounted read-only",
			lines:  []string{"proc/self/cgroup=0::/|", passes("")},
			change: func(h *host) { h.writable = func(string) error { return unix.EROFS } },
			reason: `the cgroup "{tree}" is mounted read-only; cannot reach systemd: there is none`,
			hint:   "start the container with a writable cgroup file system: podman run --cgroups=split, or docker run --privileged --cgroupns=private",
		},
		{
			name:   "threaded",
			lines:  []string{"proc/self/cgroup=0::/a|", "cg/a/cgroup.type=threaded", passes("a/"), "cg/cgroup.type=domain threaded"},
			reason: `the cgroup "{tree}/a" is threaded, which excludes limits of memory; cannot reach systemd: there is none`,
			hint:   "start this from another cgroup",
		},
		{
			name:   "given one controller of two",
			lines:  []string{"proc/self/cgroup=0::/a|", "cg/a/cgroup.type=domain", "cg/a/cgroup.controllers=pids", "cg/a/cgroup.procs={pid}|"},
			reason: `the cgroup "{tree}/a" was not given the memory controller; cannot reach systemd: there is none`,
			hint:   "as root: echo +memory > {tree}/cgroup.subtree_control",
		},
		{
			name:   "limits of its own would be left",
			lines:  []string{"proc/self/cgroup=0::/a/b|", "cg/a/b/memory.max=1048576|", "cg/a/b/cgroup.controllers=", "cg/a/b/cgroup.type=domain", passes("a/")},
			reason: `this process has limits that a scope of its own would leave: memory.max of "{tree}/a/b"`,
			hint: "put those limits on a cgroup above (in systemd, a slice), or start this where it may divide its cgroup: " +
				"systemd-run --user --scope -p Delegate=yes",
		},
		{name: "limits of its own are kept", lines: []string{"proc/self/cgroup=0::/a/b|", "cg/a/b/memory.max=1048576|", passes("a/b/")}, want: room{dir: "a/b"}},
		{
			name:  "no limits are none",
			lines: []string{"proc/self/cgroup=0::/a/b|", "cg/a/b/memory.max=max|", "cg/a/b/cpu.max=max 100000|", "cg/a/b/cpuset.cpus=|", passes("a/")},
			want:  room{dir: "a"},
		},
		{
			name:   "systemd's, not delegated",
			lines:  []string{"proc/self/cgroup=0::/user.slice/session-1.scope|", passes("user.slice/session-1.scope/")},
			change: func(h *host) { h.systemd = true },
			reason: `systemd has not delegated the cgroup of this process, "/user.slice/session-1.scope"; cannot reach systemd: there is none`,
			hint:   "log in so that systemd has a user manager for you (loginctl enable-linger), or start this with systemd-run --user --scope -p Delegate=yes",
		},
		{
			name:   "systemd's, delegated, and what is above stays systemd's",
			lines:  []string{"proc/self/cgroup=0::/s.slice/a.service/main|", passes("s.slice/a.service/"), passes("s.slice/")},
			change: func(h *host) { h.systemd, h.delegated = true, unit("a.service") },
			want:   room{dir: "s.slice/a.service"},
		},
		{
			name:   "the machine's root, with systemd",
			lines:  []string{"proc/self/cgroup=0::/|", passes("")},
			change: func(h *host) { h.systemd = true },
			reason: `systemd has not delegated the cgroup of this process, "/"; cannot reach systemd: there is none`,
			hint:   "log in so that systemd has a user manager for you (loginctl enable-linger), or start this with systemd-run --user --scope -p Delegate=yes",
		},
		{
			name:   "version 1 has the controller",
			lines:  []string{"proc/self/cgroup=8:pids:/|4:memory,x:/|0::/|", "cg/cgroup.controllers=hugetlb"},
			reason: "the memory controller belongs to cgroup v1 here",
			hint:   unified,
		},
		{
			name:   "the kernel was told not to count memory",
			lines:  []string{"proc/self/cgroup=0::/|", "cg/cgroup.controllers=cpu pids", "proc/cgroups=memory	0	1	0|pids	0	1	1|"},
			reason: "the kernel has the memory controller switched off",
			hint:   "boot with cgroup_enable=memory on the kernel's command line",
		},
		{
			name:   "controller kept from this part of the tree",
			lines:  []string{"proc/self/cgroup=0::/|", "cg/cgroup.controllers=memory"},
			reason: "the pids controller is not available to this part of the cgroup tree",
			hint:   "enable it for this container or unit from outside, or in the kernel's configuration",
		},
		{
			name:   "no version 2 at all",
			lines:  []string{"proc/self/cgroup=4:memory:/|"},
			reason: "this kernel has no cgroup v2",
			hint:   unified,
		},
		{
			name:   "not mounted",
			lines:  []string{"proc/self/cgroup=0::/|", "proc/self/mountinfo=31 23 0:28 / /sys rw - sysfs sysfs rw|"},
			reason: "cgroup v2 is not mounted here, or without the cgroup of this process",
			hint:   "in a container, give it a cgroup namespace (docker run --cgroupns=private); elsewhere: mount -t cgroup2 none /sys/fs/cgroup",
		},
		{
			name:   "another part of the tree is mounted",
			lines:  []string{"proc/self/cgroup=0::/../b|", "proc/self/mountinfo=41 31 0:38 /a {base}/cg rw - cgroup2 none rw|"},
			reason: "cgroup v2 is not mounted here, or without the cgroup of this process",
			hint:   "in a container, give it a cgroup namespace (docker run --cgroupns=private); elsewhere: mount -t cgroup2 none /sys/fs/cgroup",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, base := fake(t, test.lines...)
			if test.change != nil {
				test.change(&h)
			}
			tree := filepath.Join(base, "cg")
			before := listing(t, base)
			r, err := h.room(both)
			assert.Equal(t, before, listing(t, base), "something was changed")
			if test.reason == "" {
				require.NoError(t, err)
				test.want.dir = filepath.Join(tree, test.want.dir)
				assert.Equal(t, test.want, r)
				return
			}
			require.EqualError(t, err, strings.ReplaceAll(test.reason, "{tree}", tree))
			var no *Refusal
			require.ErrorAs(t, err, &no)
			assert.Equal(t, strings.ReplaceAll(test.hint, "{tree}", tree), no.Hint())
		})
	}
}

// If systemd makes a scope, it is the room.
func TestScopeIsTheRoom(t *testing.T) {
	h, base := fake(t, "proc/self/cgroup=0::/user.slice/session-1.scope|",
		"cg/user.slice/pk-x.scope/cgroup.type=domain", "cg/user.slice/pk-x.scope/cgroup.controllers=memory pids", "cg/user.slice/pk-x.scope/cgroup.procs={pid}|")
	h.systemd = true
	h.scope = func(scopeLike) error {
		return os.WriteFile(filepath.Join(base, "proc/self/cgroup"), []byte("0::/user.slice/pk-x.scope\n"), 0o644)
	}
	r, err := h.room([]string{"memory"})
	require.NoError(t, err)
	assert.Equal(t, room{dir: filepath.Join(base, "cg/user.slice/pk-x.scope"), enable: true, leave: true}, r)

	h.scope = func(scopeLike) error { return nil } // reports success without moving the process
	require.NoError(t, os.WriteFile(filepath.Join(base, "proc/self/cgroup"), []byte("0::/user.slice/session-1.scope\n"), 0o644))
	_, err = h.room([]string{"memory"})
	assert.EqualError(t, err, `systemd has made a scope, and this process is in "/user.slice/session-1.scope"`)
}

// The scope stays in the slice of this process, since that may have limits. It
// does not stay in one of the machine's systemd, to which a user cannot add.
func TestScopeIsLikeWhatItLeaves(t *testing.T) {
	user := fmt.Sprintf("/user.slice/user-%d.slice", os.Geteuid())
	manager := fmt.Sprintf("%s/user@%d.service", user, os.Geteuid())
	outside := map[bool]string{true: filepath.Base(user), false: ""}[os.Geteuid() == 0] // root asks the machine's
	for own, want := range map[string]string{
		"/": "", "/a": "",
		manager + "/app.slice/x.scope":               "app.slice",
		manager + "/app.slice/app-y.slice/z.service": "app-y.slice",
		user + "/session-1.scope":                    outside,
	} {
		h, base := fake(t, "cg"+own+"/pids.max=77|", "cg"+filepath.Dir(own)+"/memory.max=1|")
		got, err := h.scopeLike(place{filepath.Join(base, "cg"), own})
		require.NoError(t, err)
		want := scopeLike{slice: want, tasks: 77}
		if own == "/" {
			want.tasks = 0 // the root has no limits, and this process does not leave it
		}
		assert.Equal(t, want, got, own)
	}
}

func TestSwapThatIsNotCounted(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"memory.max", "memory.oom.group", "pids.max"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	l := Limits{Memory: 64 << 20, Pids: 20}
	require.NoError(t, l.impose(dir, false))
	for name, want := range map[string]string{"memory.max": "67108864", "memory.oom.group": "1", "pids.max": "22"} {
		assert.Equal(t, []string{want}, words(dir, name), name)
	}
	assert.EqualError(t, l.impose(dir, true), "the kernel does not count swap, and there is some")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.swap.max"), nil, 0o644))
	require.NoError(t, l.impose(dir, true))
	assert.Equal(t, []string{"0"}, words(dir, "memory.swap.max"))
	require.NoError(t, os.Remove(filepath.Join(dir, "pids.max")))
	assert.ErrorIs(t, l.impose(dir, true), os.ErrNotExist)
	_, err := os.Stat(filepath.Join(dir, "pids.max"))
	assert.ErrorIs(t, err, os.ErrNotExist, "never made")
}

func TestStoppedTellsTheCause(t *testing.T) {
	dir := t.TempDir()
	b := &Box{limits: Limits{Memory: 1 << 30, Pids: 20, CPUTime: 10e9, FileSize: 1 << 20}, dir: dir}
	for _, test := range []struct {
		name   string
		events string
		death  unix.Signal
		used   int64 // seconds
		want   Name
	}{
		{"ended by itself", "oom 0\noom_kill 0\n", 0, 0, ""},
		{"out of memory", "max 9\noom 1\noom_kill 3\noom_group_kill 1\n", unix.SIGKILL, 0, Memory},
		{"out of memory, in a shell that went on", "oom 1\noom_kill 1\n", 0, 0, Memory},
		{"the whole machine was out of memory", "oom 0\noom_kill 1\n", unix.SIGKILL, 0, ""},
		{"near the limit, and killed by somebody", "max 9\noom 1\noom_kill 0\n", unix.SIGKILL, 1, ""},
		{"out of time", "", unix.SIGXCPU, 10, CPUTime},
		{"out of time, SIGXCPU ignored", "", unix.SIGKILL, 10, CPUTime},
		{"killed early", "", unix.SIGKILL, 5, ""},
		{"terminated late", "", unix.SIGTERM, 11, ""},
		{"file too large", "", unix.SIGXFSZ, 0, FileSize},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte(test.events), 0o644))
			got, ok := b.Stopped(test.death, time.Duration(test.used)*time.Second)
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.want != "", ok)
		})
	}
	none := &Box{dir: dir}
	_, ok := none.Stopped(unix.SIGXCPU, 0)
	assert.False(t, ok, "a limit that was not asked for")
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		content, _ := os.ReadFile(path)
		fmt.Fprintf(&out, "%s %q\n", path, content)
		return err
	}))
	return out.String()
}
