package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// host is a directory of the host: d/f, d/sub/deep, other/f, and links.
func host(t *testing.T) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, dir := range []string{"d/sub", "other"} {
		require.NoError(t, os.MkdirAll(base+"/"+dir, 0o755))
	}
	for _, file := range []string{"d/f", "d/sub/deep", "other/f"} {
		require.NoError(t, os.WriteFile(base+"/"+file, []byte(file+"\n"), 0o644))
	}
	require.NoError(t, os.Symlink("d", base+"/way"))
	require.NoError(t, os.Symlink(base+"/other", base+"/d/out"))
	return base
}

func TestOperations(t *testing.T) {
	for _, test := range []struct {
		name   string
		mounts func(base string) []Mount
		look   string
		want   string
	}{
		{"a readable directory", func(base string) []Mount { return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: ReadOnly}} },
			"cat p/f p/sub/deep; touch p/new 2>/dev/null || echo no", "d/f\nd/sub/deep\nno\n"},
		{"a writable directory", func(base string) []Mount { return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Writable}} },
			"touch p/new && rm p/new && echo yes", "yes\n"},
		{"a file", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/deep/down/f", From: base + "/d/f", Access: ReadOnly}}
		},
			"cat deep/down/f; stat -c %a deep", "d/f\n755\n"},
		{"a part that is kept, read-only", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Writable}, {Op: Keep, At: "/p/sub", Access: ReadOnly}}
		}, "cat p/sub/deep; touch p/sub/x 2>/dev/null || echo no; mv p/sub p/s 2>/dev/null || echo pinned", "d/sub/deep\nno\npinned\n"},
		{"a directory in memory", func(string) []Mount { return []Mount{{Op: Empty, At: "/e", Perms: 0o1777, Size: 65536}} },
			"stat -c %a e; touch e/x && ls e; head -c 100000 /dev/zero 2>/dev/null > e/x || echo full", "1777\nx\nfull\n"},
		{"an overlay", func(base string) []Mount { return []Mount{{Op: Overlay, At: "/o", From: base + "/d"}} },
			"cat o/f; echo mine > o/f; cat o/f", "d/f\nmine\n"},
		{"two overlays", func(base string) []Mount {
			return []Mount{{Op: Overlay, At: "/a", From: base + "/d"}, {Op: Overlay, At: "/b", From: base + "/d"}}
		}, "echo mine > a/f; cat b/f", "d/f\n"},
		{"an overlay of what is missing", func(string) []Mount { return []Mount{{Op: Overlay, At: "/o", Perms: 0o700}} },
			"stat -c %a o; touch o/x && ls o", "700\nx\n"},
		{"a copy", func(base string) []Mount { return []Mount{{Op: Copy, At: "/etc/c", From: base + "/d/f", Perms: 0o444}} },
			"cat etc/c; stat -c %a etc/c", "d/f\n444\n"},
		{"a file made up", func(string) []Mount { return []Mount{{Op: File, At: "/etc/x", Data: []byte("x\n"), Perms: 0o644}} }, "cat etc/x", "x\n"},
		{"a symbolic link", func(string) []Mount { return []Mount{{Op: Link, At: "/l", From: "nowhere"}} }, "readlink l", "nowhere\n"},
		{"a hidden directory", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Writable}, {Op: Hide, At: "/p/sub"}}
		}, "ls -A p/sub; touch p/sub/x 2>/dev/null || echo no", "no\n"},
		{"a hidden file", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Writable}, {Op: Hide, At: "/p/f"}}
		}, "cat p/f 2>/dev/null || echo no", "no\n"},
		{"a hidden file that is not there", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Writable}, {Op: Hide, At: "/p/gone"}}
		}, "ls p", "f\nout\nsub\n"},
		{"a blank file", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Writable}, {Op: Blank, At: "/p/f"}}
		}, "wc -c < p/f; echo x 2>/dev/null > p/f || echo no", "0\nno\n"},
		{"devices", func(string) []Mount { return []Mount{{Op: Dev, At: "/dev", Access: ReadOnly, Size: 65536}} },
			"head -c 3 dev/zero | wc -c; echo x > dev/null; echo x > dev/shm/x && cat dev/shm/x; touch dev/x 2>/dev/null || echo no; readlink dev/ptmx dev/stdin; ls dev/pts",
			"3\nx\nno\npts/ptmx\n/proc/self/fd/0\nptmx\n"},
		{"no device but those of /dev", func(string) []Mount {
			return []Mount{{Op: Bind, At: "/p", From: "/dev/null", Access: Writable}}
		}, "echo x 2>/dev/null > p || echo no", "no\n"},
		{"a mount point in a directory of pk's own", func(base string) []Mount {
			return []Mount{{Op: Bind, At: "/tmp", From: base + "/d", Access: Own}, {Op: Bind, At: "/tmp/made", From: base + "/other", Access: ReadOnly}}
		}, "cat tmp/made/f; rmdir tmp/made 2>/dev/null || echo busy", "other/f\nbusy\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr := in(t, "", test.look, test.mounts(host(t))...)
			assert.Equal(t, test.want, stdout, stderr)
		})
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%p %y %m %s\n").Output()
	require.NoError(t, err)
	return string(out)
}

// No mount point is made in a tree of the host, and no link is followed.
func TestRefusals(t *testing.T) {
	base := host(t)
	project := Mount{Op: Bind, At: "/p", From: base + "/d", Access: Writable}
	other := func(at string) Mount { return Mount{Op: Bind, At: at, From: base + "/other", Access: ReadOnly} }
	held := func(m Mount, as string) Mount {
		m.Inode = inode(t, as)
		return m
	}
	before := listing(t, base)
	for _, test := range []struct {
		name   string
		want   string
		mounts []Mount
	}{
		{"a missing mount point", `cannot show "/p/new": no such file or directory`, []Mount{project, other("/p/new")}},
		{"a missing mount point, deeper", `cannot show "/p/new/deep": no such file or directory`, []Mount{project, other("/p/new/deep")}},
		{"a mount point below a file", `cannot show "/p/f/x": not a directory`, []Mount{project, other("/p/f/x")}},
		{"a mount point behind a link", `cannot show "/p/out/x": too many levels of symbolic links`, []Mount{project, other("/p/out/x")}},
		{"a mount point that is a link", `cannot show "/p/out": `, []Mount{project, other("/p/out")}},
		{"a missing mount point in a directory of pk's own, too deep", `cannot show "/p/a/b": no such file or directory`,
			[]Mount{{Op: Bind, At: "/p", From: base + "/d", Access: Own}, other("/p/a/b")}},
		{"a source that was replaced", `cannot show "/x": it has changed since it was checked`, []Mount{held(other("/x"), base+"/d")}},
		{"a source behind a link", `cannot show "/x": too many levels of symbolic links`,
			[]Mount{held(Mount{Op: Bind, At: "/x", From: base + "/way/sub", Access: ReadOnly}, base+"/d/sub")}},
		{"a source that is missing", `cannot show "/x": no such file or directory`, []Mount{{Op: Bind, At: "/x", From: base + "/gone"}}},
		{"a kept part that was replaced", `cannot show "/p/sub": it has changed since it was checked`, []Mount{project, held(Mount{Op: Keep, At: "/p/sub"}, base+"/other")}},
		{"a hidden file that was replaced", `cannot show "/p/f": it has changed since it was checked`, []Mount{project, held(Mount{Op: Hide, At: "/p/f"}, base+"/other/f")}},
		{"an operation that there is not", `internal error: --pk-setup got the operation "magic"`, []Mount{project, {Op: "magic", At: "/p"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr := in(t, "", "echo started", test.mounts...)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, test.want)
			assert.Equal(t, before, listing(t, base), "something was left on the host")
		})
	}
}

func TestUnchanged(t *testing.T) {
	base := host(t)
	program := t.TempDir() + "/bwrap"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho started\n"), 0o755))
	lower := inode(t, base+"/d")
	stdout, stderr := start(t, "", &Job{Program: program, Unchanged: []Inode{lower}})
	assert.Equal(t, "started\n", stdout, stderr)
	lower.Path = base + "/other"
	stdout, stderr = start(t, "", &Job{Program: program, Unchanged: []Inode{lower}})
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "it has changed since it was checked")
}

// Mounts below a directory come along with its restrictions.
func TestMountsOfTheHost(t *testing.T) {
	base := host(t)
	before := "mount -t tmpfs tmpfs " + base + "/d/sub; echo below > " + base + "/d/sub/x;"
	for access, want := range map[Access]string{ReadOnly: "below\nro,nosuid,nodev\nno\n", Writable: "below\nrw,nosuid,nodev\nyes\n"} {
		stdout, stderr := in(t, before, `cat p/sub/x; findmnt -no VFS-OPTIONS -T p/sub | cut -d, -f1-3; { touch p/sub/new 2>/dev/null && echo yes; } || echo no`,
			Mount{Op: Bind, At: "/p", From: base + "/d", Access: access})
		assert.Equal(t, want, stdout, stderr)
	}
	stdout, stderr := in(t, "", "mount -t tmpfs tmpfs "+base+"/d/sub && ls p/sub", Mount{Op: Bind, At: "/p", From: base + "/d", Access: Writable})
	assert.Equal(t, "deep\n", stdout, "a later mount is not seen: %s", stderr)
}

func TestFewDescriptors(t *testing.T) {
	base := host(t)
	var mounts []Mount
	for _, at := range "abcdefghijklmnopqrstuvwxyz" {
		mounts = append(mounts, Mount{Op: Bind, At: "/" + string(at), From: base + "/d", Access: ReadOnly})
	}
	stdout, stderr := in(t, "ulimit -n 20;", "echo started", mounts...)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "too many open files")
}

// The Go library raises the soft limit of this process.
func TestLimitOnOpenFilesIsTheCallers(t *testing.T) {
	base := host(t)
	stdout, stderr := in(t, "ulimit -Sn 200;", "ulimit -Sn", Mount{Op: Bind, At: "/d", From: base + "/d", Access: ReadOnly})
	assert.Equal(t, "200\n", stdout, stderr)
}

func TestCalledByHand(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, test := range []struct {
		name string
		line []string
		want string
	}{
		{"outside of a user namespace", []string{self, option, "{}"}, "--pk-setup works in a user namespace of its own: start it with unshare --user --map-root-user"},
		{"no job", []string{"unshare", "--user", "--map-root-user", self, option}, "--pk-setup is for pk's own use"},
		{"a job that is no JSON", []string{"unshare", "--user", "--map-root-user", self, option, "x"}, "--pk-setup got a job that it cannot read"},
		{"a program that is missing", []string{"unshare", "--user", "--map-root-user", self, option, `{"program":"/nonesuch"}`}, `cannot start bwrap "/nonesuch"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := exec.Command(test.line[0], test.line[1:]...).CombinedOutput()
			assert.Error(t, err)
			assert.Contains(t, string(out), test.want)
		})
	}
}

// The gate is started while the tree is built. If its process had a file of the tree open
// for writing until it execs, the tree could not be made read-only.
func TestForkWaitsForFiles(t *testing.T) {
	dir := t.TempDir()
	root, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(root)
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer from.Close()
	made := make(chan error)
	go func() { made <- (&tree{root: root}).file(Mount{Op: Copy, At: "/f", Perms: 0o444}, int(from.Fd())) }()
	require.Eventually(t, func() bool { _, err := os.Lstat(dir + "/f"); return err == nil }, time.Minute, time.Millisecond)
	if !assert.False(t, syscall.ForkLock.TryLock()) {
		syscall.ForkLock.Unlock()
	}
	require.NoError(t, to.Close())
	require.NoError(t, <-made)
	require.True(t, syscall.ForkLock.TryLock())
	syscall.ForkLock.Unlock()
}
