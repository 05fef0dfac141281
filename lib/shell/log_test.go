package shell

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLog(t *testing.T) {
	for _, test := range []struct {
		name        string
		wait        int
		most        int64
		writes      []string
		kept, note  string
		total, omit int64
	}{
		{"nothing is cut", 8, 100, []string{"abc", "defgh"}, "", "", 8, 0},
		{"something is cut", 8, 100, []string{"abc", "defgh", "i"}, "abcdefghi", "full output: ", 9, 1},
		{"all at once", 8, 100, []string{"abcdefghijk"}, "abcdefghijk", "full output: ", 11, 3},
		{"more than it holds", 8, 10, []string{"abcdefgh", "ijkl", "mnop"}, "abcdefghij", "the first 10 bytes are in ", 16, 8},
		{"as much as it holds", 8, 10, []string{"abcdefgh", "ij"}, "abcdefghij", "full output: ", 10, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			opened := 0
			log := NewLog(test.wait, test.most, func() (*os.File, error) { opened++; return os.Create(path) })
			o := NewOutput(4, 4, false, log, nil)
			for _, w := range test.writes {
				_, _ = o.Write([]byte(w))
			}
			var r Result
			o.Finish(&r)
			assert.NoError(t, r.LogErr)
			assert.Equal(t, test.total, r.Total)
			assert.Equal(t, test.omit, r.Omitted)
			if test.kept == "" {
				assert.Zero(t, opened)
				assert.Empty(t, r.Log)
				return
			}
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, test.kept, string(content))
			assert.Equal(t, path, r.Log)
			assert.Contains(t, string(r.Output), test.note+path)
		})
	}
}

// A log that turns out to be useless is not left behind.
func TestLogOfABarIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	o := NewOutput(100, 100, false, NewLog(200, MaxLog, func() (*os.File, error) { return os.Create(path) }), nil)
	for range 1000 {
		_, _ = o.Write([]byte("\r50%"))
	}
	var r Result
	o.Finish(&r)
	assert.Equal(t, "50%", string(r.Output))
	assert.Empty(t, r.Log)
	assert.NoFileExists(t, path)
}

func TestLogThatCannotBeMade(t *testing.T) {
	o := NewOutput(4, 4, false, NewLog(8, 100, func() (*os.File, error) { return nil, errors.New("full") }), nil)
	_, _ = o.Write([]byte("abcdefghijk"))
	_, _ = o.Write([]byte("l"))
	var r Result
	o.Finish(&r)
	assert.EqualError(t, r.LogErr, "full")
	assert.Equal(t, "abcd\n... [4 bytes omitted of 12 total] ...\nijkl", string(r.Output))
}

// The limits hold for the visible form of binary data, which is longer.
func TestBinaryOutputIsNotLonger(t *testing.T) {
	o := NewOutput(1000, 1000, false, nil, nil)
	_, _ = o.Write(bytes.Repeat([]byte{0}, 1900))
	var r Result
	o.Finish(&r)
	assert.Less(t, len(r.Output), 2100)
	assert.Equal(t, int64(1900-500), r.Omitted)
	assert.Contains(t, string(r.Output), "[1400 bytes omitted of 1900 total]")
}

func TestOpenLogFollowsNoLink(t *testing.T) {
	umbrella, victim := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(victim, filepath.Join(umbrella, "log")))
	_, err := OpenLog(umbrella)
	assert.Error(t, err)
	require.NoError(t, os.Symlink(umbrella, victim+"/link"))
	_, err = OpenLog(victim + "/link")
	assert.Error(t, err)
	left, _ := os.ReadDir(victim)
	assert.Len(t, left, 1)
}

func TestOldLogsMakeRoom(t *testing.T) {
	umbrella := t.TempDir()
	dir := filepath.Join(umbrella, "log")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for _, name := range []string{"1.out", "2.out", "3.out", "9.other"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		require.NoError(t, os.Truncate(filepath.Join(dir, name), 200<<20))
	}
	f, err := OpenLog(umbrella)
	require.NoError(t, err)
	defer f.Close()
	assert.NoFileExists(t, dir+"/1.out")
	assert.FileExists(t, dir+"/3.out")
	assert.FileExists(t, dir+"/9.other")
}

func TestCreateLog(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/old", []byte("old"), 0o644))
	f, err := CreateLog(dir + "/old")
	require.NoError(t, err)
	f.Close()
	content, _ := os.ReadFile(dir + "/old")
	assert.Empty(t, content)

	require.NoError(t, os.WriteFile(dir+"/victim", []byte("v"), 0o644))
	require.NoError(t, os.Symlink(dir+"/victim", dir+"/link"))
	require.NoError(t, os.Link(dir+"/victim", dir+"/hard"))
	require.NoError(t, syscall.Mkfifo(dir+"/fifo", 0o600))
	for _, name := range []string{"link", "hard", "fifo", ".", "no/such"} {
		_, err := CreateLog(dir + "/" + name)
		assert.Error(t, err, name)
	}
	content, _ = os.ReadFile(dir + "/victim")
	assert.Equal(t, "v", string(content))
}

func TestLive(t *testing.T) {
	var out bytes.Buffer
	l := NewLive(&out, nil, true, time.Minute)
	_, _ = l.Write([]byte("a\x1b[2K\u202e\n"))
	assert.NoError(t, l.Close())
	assert.Equal(t, `a\x1b[2K\u{202E}`+"\n", out.String())
}

// A stopped terminal does not block the writer.
func TestLiveNeverBlocks(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	l := NewLive(w, nil, true, time.Minute)
	for range 100 {
		_, _ = l.Write([]byte(strings.Repeat("x", 10<<10)))
	}
	assert.NoError(t, l.Close())
	buf := make([]byte, 64<<10)
	n, err := r.Read(buf)
	require.NoError(t, err)
	assert.Positive(t, n)
}

func TestLiveOnATerminal(t *testing.T) {
	l := &Live{columns: func() int { return 24 }, timeout: 2 * time.Minute, begun: time.Now()}
	first := l.frame([]byte("one\ntw\x1bo three\n"), 0, true, false)
	assert.Regexp(t, `^\[0s, 2m0s left\] tw\\x1bo $`, first)
	assert.LessOrEqual(t, len(first), 24)
	assert.Equal(t, "\r\x1b[K", l.frame(nil, 0, false, true), "it goes at the end")

	l.lines = true
	assert.Equal(t, "a\n", l.frame([]byte("a\n"), 0, false, false))
	assert.Equal(t, "[0s, 2m0s left]", l.frame(nil, 0, true, false))
	assert.Equal(t, "\r\x1b[Kb\n... [7 bytes not shown] ...\n", strings.TrimSuffix(l.frame([]byte("b\n"), 7, false, false), "[0s, 2m0s left]"))
}
