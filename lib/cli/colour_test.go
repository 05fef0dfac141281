package cli

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Testing a stream changes nothing for other processes that share it.
func TestTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	pipe, other, err := os.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	defer other.Close()
	assert.True(t, Terminal(master))
	for name, stream := range map[string]any{
		"a character device": null, "a pipe": other, "a buffer": new(bytes.Buffer), "no file": (*os.File)(nil), "nothing": nil,
	} {
		assert.False(t, Terminal(stream), name)
	}
	raw, err := pipe.SyscallConn()
	require.NoError(t, err)
	assert.False(t, Terminal(pipe))
	require.NoError(t, raw.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		assert.NoError(t, err)
		assert.NotZero(t, flags&unix.O_NONBLOCK)
	}))
}

// A terminal gets colours, unless its user says no; nothing else does.
func TestWhoGetsColours(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	pipe, other, err := os.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	defer other.Close()
	env := func(kv ...string) func(string) string {
		return func(name string) string {
			if len(kv) == 2 && kv[0] == name {
				return kv[1]
			}
			return ""
		}
	}
	assert.True(t, bool(Colours(master, env())))
	assert.True(t, bool(Colours(master, env("NO_COLOR", ""))))
	assert.False(t, bool(Colours(master, env("NO_COLOR", "1"))))
	assert.False(t, bool(Colours(master, env("TERM", "dumb"))))
	assert.False(t, bool(Colours(other, env())))
	assert.False(t, bool(Colours(new(bytes.Buffer), env())))
}

func TestPaintingChangesNoWord(t *testing.T) {
	assert.Equal(t, "\x1b[32mok\x1b[m", Palette(true).Paint(Good, "ok"))
	assert.Equal(t, "ok", Palette(true).Paint("", "ok"))
	assert.Equal(t, "ok", Palette(false).Paint(Good, "ok"))
}
