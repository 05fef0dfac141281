package overlay

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

func TestReadFile(t *testing.T) {
	base := t.TempDir()
	at := func(name string) string { return base + "/" + name }
	require.NoError(t, os.WriteFile(at("file"), []byte("12345678"), 0o644))
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o644))
	require.NoError(t, os.WriteFile(at("large"), []byte(strings.Repeat("x", 9)), 0o644))
	require.NoError(t, os.Symlink("file", at("link")))
	require.NoError(t, os.Mkdir(at("directory"), 0o755))
	require.NoError(t, unix.Mkfifo(at("FIFO"), 0o644))
	require.NoError(t, unix.Mknod(at("whiteout"), unix.S_IFCHR, 0))
	dir, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(dir)
	for _, row := range []struct {
		name    string
		flags   int
		content []byte
		err     error
	}{
		{"file", unix.O_NOFOLLOW, []byte("12345678"), nil},
		{"empty", unix.O_NOFOLLOW, []byte{}, nil},
		{"large", unix.O_NOFOLLOW, nil, ErrTooLarge},
		{"link", unix.O_NOFOLLOW, nil, unix.ELOOP},
		{"link", 0, []byte("12345678"), nil},
		{"directory", unix.O_NOFOLLOW, nil, ErrNotRegular},
		{"FIFO", unix.O_NOFOLLOW, nil, ErrNotRegular},
		{"whiteout", unix.O_NOFOLLOW, nil, ErrNotRegular},
		{"missing", unix.O_NOFOLLOW, nil, unix.ENOENT},
	} {
		content, _, err := ReadFile(dir, row.name, row.flags, 8)
		assert.Equal(t, row.content, content, row.name)
		assert.ErrorIs(t, err, row.err, row.name)
		if st, err := fsat.Lstat(dir, row.name); err == nil {
			assert.Equal(t, row.name == "whiteout", IsWhiteout(st), row.name)
		}
	}
}

func TestIsOpaque(t *testing.T) {
	base := t.TempDir()
	dir, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(dir)
	assert.False(t, IsOpaque(dir))
	for value, want := range map[string]bool{"y": true, "x": false, "yy": false, "yes": false} {
		require.NoError(t, unix.Fsetxattr(dir, "user.overlay.opaque", []byte(value), 0))
		assert.Equal(t, want, IsOpaque(dir), value)
	}
}

func TestDirName(t *testing.T) {
	assert.NotEqual(t, DirName("pip", "/a/pip"), DirName("pip", "/b/pip"))
	assert.Regexp(t, `^pip-[0-9a-f]{16}$`, DirName("pip", "/a/pip"))
	assert.Regexp(t, `^_b__-[0-9a-f]{16}$`, DirName(".b \n", "/a/.b \n"))
	assert.LessOrEqual(t, len(DirName(strings.Repeat("x", 255), "/")), 60)
}
