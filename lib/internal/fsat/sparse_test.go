package fsat_test

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

func TestSparseHasTheBytes(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for round := range 200 {
		name := filepath.Join(t.TempDir(), "f")
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		var want bytes.Buffer
		s := fsat.Sparse{File: f}
		for range random.Intn(8) {
			piece := make([]byte, random.Intn(3*4096)+random.Intn(2)*4096)
			if random.Intn(2) == 0 && len(piece) > 0 {
				piece[random.Intn(len(piece))] = 1
			}
			want.Write(piece)
			n, err := s.Write(piece)
			require.NoError(t, err)
			require.Equal(t, len(piece), n)
		}
		require.NoError(t, s.End())
		require.NoError(t, f.Close())
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want.Bytes(), got), "round %d: %d bytes", round, want.Len())
	}
}

func TestSparseTakesNoSpace(t *testing.T) {
	for _, tc := range []struct {
		name        string
		first, last byte
		blocks      int64 // of 512 bytes, at most
	}{
		{"zeros alone", 0, 0, 8},
		{"a byte at the beginning", 1, 0, 16},
		{"a byte at the end", 0, 1, 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			require.NoError(t, err)
			defer f.Close()
			data := make([]byte, 1<<20)
			data[0], data[len(data)-1] = tc.first, tc.last
			s := fsat.Sparse{File: f}
			_, err = s.Write(data)
			require.NoError(t, err)
			require.NoError(t, s.End())
			var st unix.Stat_t
			require.NoError(t, unix.Fstat(int(f.Fd()), &st))
			assert.EqualValues(t, 1<<20, st.Size)
			assert.LessOrEqual(t, st.Blocks, tc.blocks)
		})
	}
}

func TestSparseTellsTheCount(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	r.Close()
	n, err := (&fsat.Sparse{File: w}).Write([]byte("x"))
	assert.Zero(t, n)
	assert.ErrorIs(t, err, unix.EPIPE)
}
