package sandboxflags

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// In a user namespace the number of nobody is that of all owners whom it does not map, too.
func TestOwnerOf(t *testing.T) {
	const inside = "PK_TEST_OWNER_OF"
	if path := os.Getenv(inside); path != "" {
		st, known, err := ownerOf(path)
		fmt.Println(st.Uid, known, err)
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root makes files of others")
	}
	path := t.TempDir()
	for _, test := range []struct {
		name          string
		mapped, owner int
		want          string
	}{
		{"no namespace, nobody", 0, overflowID, "65534 true <nil>\n"},
		{"no namespace, another", 0, 70_000, "70000 true <nil>\n"},
		{"nobody is mapped", 65_536, overflowID, "65534 true <nil>\n"},
		{"nobody is mapped, the owner is not", 65_536, 70_000, "65534 false <nil>\n"},
		{"neither is mapped", 1, 70_000, "65534 false <nil>\n"},
		{"nobody is not mapped", 1, overflowID, "65534 false <nil>\n"},
		{"the owner is mapped", 65_536, 4_321, "4321 true <nil>\n"},
	} {
		require.NoError(t, os.Chown(path, test.owner, test.owner))
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnerOf$")
		cmd.Env = []string{inside + "=" + path}
		if test.mapped > 0 {
			ids := []syscall.SysProcIDMap{{Size: test.mapped}}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, test.name)
		assert.Equal(t, test.want, string(out), test.name)
	}
}

// Another user must not have been first in the place where root makes the cache of
// a user without a home.
func TestOwnCache(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes directories for others")
	}
	dir := filepath.Join(t.TempDir(), "pikuri")
	for range 2 { // made, and there
		path, err := ownCache(dir, 4321, 4322)
		require.NoError(t, err)
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(path, &st))
		assert.Equal(t, []uint32{4321, 4322, unix.S_IFDIR | 0o700}, []uint32{st.Uid, st.Gid, st.Mode})
		require.NoError(t, unix.Lstat(dir, &st))
		assert.Equal(t, []uint32{0, unix.S_IFDIR | 0o755}, []uint32{st.Uid, st.Mode})
		assert.Equal(t, dir+"/4321", path)
	}
	for _, test := range []struct {
		name  string
		plant func(t *testing.T, dir string) error
		want  string
	}{
		{"another user's", func(t *testing.T, dir string) error { return os.Chown(dir+"/4321", 4444, 4444) }, "belongs to uid 4444"},
		{"a symbolic link", func(t *testing.T, dir string) error {
			require.NoError(t, os.Remove(dir+"/4321"))
			return os.Symlink(t.TempDir(), dir+"/4321")
		}, "not a directory"},
		{"all of it another user's", func(t *testing.T, dir string) error { return os.Chown(dir, 4444, 4444) }, "belongs to uid 4444"},
	} {
		require.NoError(t, test.plant(t, dir))
		_, err := ownCache(dir, 4321, 4322)
		assert.ErrorContains(t, err, test.want, test.name)
	}
}
