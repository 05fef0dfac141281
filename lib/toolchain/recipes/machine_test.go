// Package recipes holds no code, only tests: everyday work, and real builds
// with real tools, inside the sandbox.
//
// They run in a small Debian that scripts/testroot makes. A plain bwrap starts
// it as a machine of its own, with a temporary home. In it the commands of pk
// start the sandbox with the bwrap under test.
package recipes

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// machine is a Debian of its own, as far as the programs in it can tell. They
// have no network but a loopback.
type machine struct {
	root     string // the tree that is /
	registry string // packages to install
	bwrap    string // the bwrap under test
	bin      string // the commands of pk
	goroot   string // the host's Go
	home     string // the host's directory that is the user's home inside
	uid      int    // 0, or ada's
	mounts   []string
	serving  bool // with a registry on the loopback
}

// Places inside.
const (
	adaHome   = "/home/ada"
	rootHome  = "/root"
	bwrapDir  = "/mnt"           // the bwrap under test
	registry  = "/srv"           // the packages that scripts/testroot fetched
	goroot    = "/usr/local/go"  // where Go is installed by hand, as a rule
	pkDir     = "/usr/local/bin" // the commands of pk
	serverDir = "/var/local"     // this test's binary, when it is the registry
)

const adaID = 1000

// newMachine makes a machine for the user that runs the test: root is a root with
// all capabilities in it; any other user is ada.
//
// It needs $PK_TEST_BWRAP. Without it the test is skipped; with it, a machine
// that cannot be made is a failure.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{bwrap: os.Getenv("PK_TEST_BWRAP")}
	if m.bwrap == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	m.bin = clitest.Bin(t)
	debian := os.Getenv("PK_TEST_DEBIAN")
	require.NotEmpty(t, debian, "PK_TEST_DEBIAN has to be the directory that scripts/testroot made")
	m.root, m.registry = filepath.Join(debian, "root"), filepath.Join(debian, "registry")
	m.goroot = os.Getenv("PK_TEST_GOROOT")
	require.DirExists(t, m.goroot, "PK_TEST_GOROOT has to be where Go is")
	if os.Geteuid() != 0 {
		m.uid = adaID
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	m.home = filepath.Join(dir, "home")
	t.Cleanup(func() { writable(m.home) })
	require.NoError(t, os.MkdirAll(filepath.Join(m.home, "project"), 0o755))
	return m
}

// userHome is the home inside.
func (m *machine) userHome() string {
	if m.uid == 0 {
		return rootHome
	}
	return adaHome
}

func (m *machine) user() string {
	if m.uid == 0 {
		return "root"
	}
	return "ada"
}

// text puts this machine's names into a text.
func (m *machine) text(s string) string {
	return strings.NewReplacer("{home}", m.userHome(), "{user}", m.user()).Replace(s)
}

// innerBwrap is the path of the bwrap under test inside the machine.
func (m *machine) innerBwrap() string { return bwrapDir + "/" + filepath.Base(m.bwrap) }

func (m *machine) project() string { return m.userHome() + "/project" }

// mount shows a directory of the host in the machine, writable. A directory must exist
// in its place.
func (m *machine) mount(host, inside string) {
	m.mounts = append(m.mounts, "--bind", host, inside)
}

// command prepares a command in the machine, in the project.
func (m *machine) command(argv ...string) *exec.Cmd {
	id := strconv.Itoa(m.uid)
	args := []string{
		"--unshare-user", "--uid", id, "--gid", id, "--unshare-all", "--hostname", "build", "--die-with-parent",
		"--ro-bind", m.root, "/", "--dev", "/dev",
		"--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/home", "--tmpfs", "/var/tmp",
		"--bind", m.home, m.userHome(),
		"--ro-bind", filepath.Dir(m.bwrap), bwrapDir, "--ro-bind", m.registry, registry,
		"--ro-bind", m.goroot, goroot, "--ro-bind", m.bin, pkDir,
		"--chdir", m.project(),
	}
	args = append(args, m.mounts...)
	if m.serving {
		self, _ := os.Executable() // a test that cannot find itself fails below
		args = append(args, "--ro-bind", filepath.Dir(self), serverDir)
		argv = append([]string{serverDir + "/" + filepath.Base(self), withRegistry}, argv...)
	}
	if m.uid == 0 {
		// The /proc that bwrap mounts for root has read-only parts, and the kernel
		// allows no further /proc mount inside where parts of one are covered.
		args = append(args, "--cap-add", "ALL", "--bind", "/proc", "/proc")
		argv = append([]string{"sh", "-c", `mount -t proc proc /proc && exec "$@"`, "-"}, argv...)
	} else {
		args = append(args, "--proc", "/proc")
	}
	args = append(args, "--")
	cmd := exec.Command(m.bwrap, append(args, argv...)...)
	cmd.Env = []string{
		"HOME=" + m.userHome(), "USER=" + m.user(), "LOGNAME=" + m.user(), "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/bash",
		"PATH=" + m.userHome() + "/.local/bin:" + m.userHome() + "/.npm-global/bin:" + m.userHome() + "/.nix-profile/bin:" + pkDir + ":" + goroot + "/bin:/usr/bin:/bin:/usr/sbin",
	}
	return cmd
}

// host runs a script as the user would, outside the sandbox. It has to succeed.
func (m *machine) host(t *testing.T, script string) string {
	t.Helper()
	out := clitest.Finish(t, m.command("bash", "-euc", script))
	require.Zero(t, out.Status, "on the machine: %s\n%s%s", script, out.Stdout, out.Stderr)
	return out.Stdout
}

// fenced runs a script in the sandbox, with options of pk-bwrap.
func (m *machine) fenced(t *testing.T, script string, options ...string) clitest.Outcome {
	t.Helper()
	args := append([]string{pkDir + "/pk-bwrap", "--bwrap", m.innerBwrap()}, options...)
	return clitest.Finish(t, m.command(append(args, "--", "bash", "-euc", script)...))
}

// warmGo fills the cache of Go, as if it had been used before.
func (m *machine) warmGo(t *testing.T) {
	t.Helper()
	if cache := os.Getenv("PK_TEST_GOCACHE"); cache != "" { // else the first build is slow
		require.NoError(t, os.CopyFS(filepath.Join(m.home, ".cache", "go-build"), os.DirFS(cache)))
	}
}

// write makes a file in the home, and the directories above it.
func (m *machine) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(m.home, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// snapshot describes everything in the home but the project and where sessions
// are kept: kinds, modes, sizes, times and contents. Times of directories are
// left out.
func (m *machine) snapshot(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(m.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch path {
		case filepath.Join(m.home, "project"), filepath.Join(m.home, ".cache", "pikuri"):
			return fs.SkipDir
		}
		line, err := describe(path, d)
		out.WriteString(line)
		return err
	})
	require.NoError(t, err)
	return out.String()
}

func describe(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	line := path + " " + info.Mode().String()
	switch {
	case info.Mode().IsRegular():
		sum, err := digest(path)
		return fmt.Sprintf("%s %d %s %x\n", line, info.Size(), info.ModTime(), sum), err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return line + " " + target + "\n", err
	}
	return line + "\n", nil
}

func digest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// writable makes every directory below dir removable: Go's module cache is not.
func writable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
}
