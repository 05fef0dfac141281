package session

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBase(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"only a home", map[string]string{"HOME": "/home/u"}, "/home/u/.cache/pikuri"},
		{"a cache directory", map[string]string{"HOME": "/home/u", "XDG_CACHE_HOME": "/var/c/"}, "/var/c/pikuri"},
		{"a cache directory, no home", map[string]string{"XDG_CACHE_HOME": "/var/c"}, "/var/c/pikuri"},
		{"a relative cache directory is ignored", map[string]string{"HOME": "/home/u", "XDG_CACHE_HOME": "c"}, "/home/u/.cache/pikuri"},
		{"an empty cache directory is ignored", map[string]string{"HOME": "/home/u", "XDG_CACHE_HOME": ""}, "/home/u/.cache/pikuri"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Base(func(name string) string { return test.env[name] })
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestCreate(t *testing.T) {
	base := newBase(t)
	u, err := Create(base)
	require.NoError(t, err)
	other, err := Create(base)
	require.NoError(t, err)
	assert.NotEqual(t, u.Path(), other.Path())
	assert.True(t, strings.HasPrefix(filepath.Base(u.Path()), Prefix))
	for _, dir := range []string{base, u.Path()} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, os.ModeDir|0o700, info.Mode(), dir)
	}
	tag, err := os.ReadFile(filepath.Join(base, cacheTag))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(tag), "Signature: 8a477f597d28d172789f06886806bc55\n"))
	assert.FileExists(t, filepath.Join(u.Path(), stamp))

	require.NoError(t, u.Remove())
	require.NoError(t, other.Remove())
	assert.Empty(t, leftIn(t, base))
	assert.NoError(t, u.Remove(), "a second time")
}

func TestOpen(t *testing.T) {
	base := newBase(t)
	first, err := Open(base, "review")
	require.NoError(t, err)
	second, err := Open(base, "review")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(base, "workspace-review"), first.Path())
	assert.Equal(t, first.Path(), second.Path())

	require.NoError(t, first.Release())
	assert.Equal(t, InUse, sweepAll(t, base, SweepOptions{All: true})["workspace-review"].Reason)
	require.NoError(t, second.Remove())
	assert.DirExists(t, second.Path(), "a session outlives its commands")
	assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true})["workspace-review"].Action)
}

func TestSessionNames(t *testing.T) {
	for _, test := range []struct {
		name    string
		session string
		allowed bool
	}{
		{"letters, digits and the three marks", "Az09._-", true},
		{"64 characters", strings.Repeat("x", 64), true},
		{"two dots are a name here", "..", true},
		{"65 characters", strings.Repeat("x", 65), false},
		{"empty", "", false},
		{"slash", "a/b", false},
		{"newline at the end", "a\n", false},
		{"NUL", "a\x00", false},
		{"letter beyond ASCII", "é", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := newBase(t)
			u, err := Open(base, test.session)
			if test.allowed {
				require.NoError(t, err)
				assert.Equal(t, base, filepath.Dir(u.Path()))
				assert.NoError(t, u.Release())
				return
			}
			assert.ErrorContains(t, err, "is not allowed")
			assert.NoDirExists(t, base, "nothing is made for a wrong name")
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	outside := t.TempDir()
	for _, test := range []struct {
		name string
		tree []string
		want string
	}{
		{"session directory is a link", []string{"pikuri/", "pikuri/workspace-s => " + outside}, "it is a symbolic link"},
		{"session directory is a dangling link", []string{"pikuri/", "pikuri/workspace-s => nowhere"}, "it is a symbolic link"},
		{"session directory is a file", []string{"pikuri/", "pikuri/workspace-s"}, "it is not a directory"},
		{"group can look into the session directory", []string{"pikuri/workspace-s/ 0750"}, "others can look into it (mode 0750)"},
		{"others can pass through the session directory", []string{"pikuri/workspace-s/ 0701"}, "others can look into it (mode 0701)"},
		{"base is a link", []string{"pikuri => " + outside}, "it is a symbolic link"},
		{"base is a file", []string{"pikuri"}, "not a directory"},
		{"others can write to the base", []string{"pikuri/ 0777"}, "others can write to it (mode 0777)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := newBase(t)
			grow(t, filepath.Dir(base), test.tree...)
			before := fingerprint(t, outside)
			_, err := Open(base, "s")
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "\n")
			assert.Equal(t, before, fingerprint(t, outside))
		})
	}
}

func TestOpenRefusesForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	for gift, want := range map[string]string{
		"pikuri/workspace-s/": "it belongs to user 4321",
		"pikuri/":             "it would be in a directory of user 4321",
		"./":                  "it would be in a directory of user 4321",
	} {
		base := newBase(t)
		grow(t, filepath.Dir(base), gift)
		require.NoError(t, os.Chown(filepath.Join(filepath.Dir(base), gift), 4321, 4321))
		_, err := Open(base, "s")
		assert.ErrorContains(t, err, want, gift)
		if gift == "./" {
			assert.NoDirExists(t, base)
		}
	}
}

func TestForeignBaseIsNotSwept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	base := newBase(t)
	abandoned(t, base, "s")
	require.NoError(t, os.Chown(base, 4321, 4321))
	assert.ErrorContains(t, Sweep(base, SweepOptions{All: true}, nil), "it belongs to user 4321")
}

func TestReadableBaseIsTightened(t *testing.T) {
	base := newBase(t)
	grow(t, filepath.Dir(base), "pikuri/ 0755")
	abandoned(t, base, "s")
	info, err := os.Stat(base)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestStamp(t *testing.T) {
	for _, test := range []struct {
		name   string
		age    time.Duration
		bumped bool
	}{
		{"half an hour old", 30 * time.Minute, false},
		{"two hours old", 2 * time.Hour, true},
		{"in the future", -2 * time.Hour, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := newBase(t)
			dir := abandoned(t, base, "s")
			when := time.Now().Add(-test.age).Truncate(time.Second)
			setTimes(t, dir, when)
			abandoned(t, base, "s")
			info, err := os.Stat(filepath.Join(dir, stamp))
			require.NoError(t, err)
			assert.Equal(t, test.bumped, !info.ModTime().Equal(when))
		})
	}
}

func TestStampIsNeverFollowed(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	precious := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(precious, nil, 0o600))
	past := time.Now().Add(-48 * time.Hour)
	require.NoError(t, os.Chtimes(precious, past, past))
	require.NoError(t, os.Remove(filepath.Join(dir, stamp)))
	require.NoError(t, os.Symlink(precious, filepath.Join(dir, stamp)))
	before := fingerprint(t, precious)
	abandoned(t, base, "s")
	assert.Equal(t, before, fingerprint(t, precious))
}

func TestTmp(t *testing.T) {
	u, err := Create(newBase(t))
	require.NoError(t, err)
	defer u.Remove()
	for _, mode := range []os.FileMode{0o700, 0o777 | os.ModeSticky, 0} {
		path, err := u.Tmp()
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(u.Path(), "playground"), path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.ModeDir|0o700, info.Mode())
		require.NoError(t, os.Chmod(path, mode), "as a sandboxed command may do")
	}
}

func TestTmpRefuses(t *testing.T) {
	outside := t.TempDir()
	before := fingerprint(t, outside)
	for _, test := range []struct{ name, line, want string }{
		{"a link", "playground => " + outside, "it is a symbolic link"},
		{"a file", "playground", "it is not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			u, err := Create(newBase(t))
			require.NoError(t, err)
			defer u.Remove()
			grow(t, u.Path(), test.line)
			_, err = u.Tmp()
			assert.ErrorContains(t, err, test.want)
			assert.Equal(t, before, fingerprint(t, outside))
		})
	}
}

func TestLockOutlivesRelease(t *testing.T) {
	base := newBase(t)
	cmd := child(t, "hold", filepath.Join(base, "unused"), "x")
	u, err := Open(base, "s")
	require.NoError(t, err)
	lent := u.Locked()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{lent}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, u.Release())

	assert.Equal(t, InUse, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Reason, "a child holds the lock")
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Action)
}

func TestRemoveWaitsForTheSandbox(t *testing.T) {
	base := newBase(t)
	u, err := Create(base)
	require.NoError(t, err)
	cmd := child(t, "hold", filepath.Join(base, "unused"), "x")
	lent := u.Locked()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{lent}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	removed := make(chan error)
	go func() { removed <- u.Remove() }()
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	assert.NoError(t, <-removed)
	assert.NoDirExists(t, u.Path())
}

func TestHolderIsRespectedUntilKilled(t *testing.T) {
	base := newBase(t)
	cmd := child(t, "hold", base, "s")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(stdout, make([]byte, len("holding")))
	require.NoError(t, err)

	dir := filepath.Join(base, "workspace-s")
	before := fingerprint(t, dir)
	assert.Equal(t, InUse, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Reason)
	assert.Equal(t, before, fingerprint(t, dir), "not touched")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Action)
}

// A umask of the first command must not take permissions that later commands, and a
// sweep, need: every file is made with its final mode.
func TestUmask(t *testing.T) {
	for _, mask := range []string{"0177", "0777", "0000"} {
		t.Run(mask, func(t *testing.T) {
			base := newBase(t)
			base = filepath.Join(filepath.Dir(base), "new", "pikuri")
			out, err := child(t, "umask", mask, base).CombinedOutput()
			require.NoError(t, err, string(out))
			for _, path := range []string{filepath.Dir(base), base, base + "/workspace-s", base + "/workspace-s/playground", base + "/workspace-s/overlay"} {
				info, err := os.Stat(path)
				require.NoError(t, err)
				assert.Equal(t, os.ModeDir|0o700, info.Mode(), path)
			}
			u, err := Open(base, "s")
			require.NoError(t, err)
			joined, err := Join(u, []string{t.TempDir()}, JoinOptions{Nsenter: nsenter(t), Idle: time.Minute})
			require.NoError(t, err)
			assert.Empty(t, joined.Refused)
			require.NoError(t, joined.Close())
			require.NoError(t, u.Release())
			assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Action)
		})
	}
}

// taskUmask is the first command of a session.
func taskUmask(args []string) error {
	mask, err := strconv.ParseInt(args[0], 8, 32)
	if err != nil {
		return err
	}
	syscall.Umask(int(mask))
	u, err := Open(args[1], "s")
	if err != nil {
		return err
	}
	if _, err := u.Tmp(); err != nil {
		return err
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	_, err = Join(u, []string{filepath.Dir(filepath.Dir(args[1]))}, JoinOptions{Nsenter: path, Idle: time.Minute})
	return err
}

// Directories made with a wrong umask get their permissions back.
func TestSessionWithoutOwnersPermissions(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0} {
		base := newBase(t)
		dir := abandoned(t, base, "s")
		require.NoError(t, os.Chmod(dir+"/"+TmpDir, mode))
		require.NoError(t, os.Chmod(dir, mode))
		u, err := Open(base, "s")
		require.NoError(t, err)
		_, err = u.Tmp()
		assert.NoError(t, err)
		assert.NoError(t, u.Release())
	}
}

func TestReservedMakesNothing(t *testing.T) {
	base := newBase(t)
	named, err := ReserveNamed(base, "s")
	require.NoError(t, err)
	for _, r := range []Reserved{Reserve(base), named} {
		assert.False(t, r.Exists())
		assert.Equal(t, r.Path()+"/playground", r.Tmp())
		assert.NoDirExists(t, base)
	}
	u, err := named.Open()
	require.NoError(t, err)
	assert.True(t, named.Exists())
	assert.Equal(t, named.Path(), u.Path())
	require.NoError(t, u.Remove())
	assert.DirExists(t, u.Path(), "nothing but a sweep removes a named session")
}

// After the last command, the keeper locks the directory for a moment, and may lose the
// processor meanwhile: neither a command nor a sweep treats that as use.
func TestKeepersMomentIsWaitedFor(t *testing.T) {
	base := newBase(t)
	dir := abandoned(t, base, "s")
	hold := func() (letGo func()) {
		f, err := os.Open(dir)
		require.NoError(t, err)
		require.NoError(t, flock(f, syscall.LOCK_EX))
		return func() { f.Close() }
	}
	time.AfterFunc(100*time.Millisecond, hold())
	u, err := Open(base, "s")
	require.NoError(t, err)
	require.NoError(t, u.Release())
	time.AfterFunc(100*time.Millisecond, hold())
	assert.Equal(t, Removed, sweepAll(t, base, SweepOptions{All: true})["workspace-s"].Action)
}

// No session directory is opened while a sweep removes one, and the other way round; many
// may be opened at once.
func TestLockOnTheBase(t *testing.T) {
	base := newBase(t)
	abandoned(t, base, "s")
	for _, test := range []struct {
		name  string
		how   int
		waits bool
		do    func()
	}{
		{"a command while another one opens", syscall.LOCK_SH, false, func() { abandoned(t, base, "s") }},
		{"a command while a sweep takes one", syscall.LOCK_EX, true, func() { abandoned(t, base, "s") }},
		{"a sweep while a command opens", syscall.LOCK_SH, true, func() { sweepAll(t, base, SweepOptions{All: true}) }},
	} {
		f, err := os.Open(base)
		require.NoError(t, err)
		require.NoError(t, flock(f, test.how))
		var released atomic.Bool
		timer := time.AfterFunc(100*time.Millisecond, func() {
			released.Store(true)
			f.Close()
		})
		test.do()
		assert.Equal(t, test.waits, released.Load(), test.name)
		if timer.Stop() {
			f.Close()
		}
	}
}
