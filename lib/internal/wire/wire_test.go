package wire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type inner struct {
	Name string
	At   int64
}

type outer struct {
	On, Off bool
	N       int
	Small   uint16
	Large   uint64
	Text    string
	Raw     []byte
	Words   []string
	List    []inner
	Some    *inner
	None    *inner
	One     inner
	Fixed   [2]uint8
}

func full() outer {
	return outer{
		On: true, N: -7, Small: 1 << 15, Large: 1 << 63, Text: "a\xff\x00\né", Raw: []byte{0, 255},
		Words: []string{"", "b"}, List: []inner{{"c", -1}, {}}, Some: &inner{"d", 1 << 40}, One: inner{At: 3}, Fixed: [2]uint8{1, 255},
	}
}

func TestMessage(t *testing.T) {
	for name, want := range map[string]outer{"nothing": {}, "everything": full()} {
		text, err := Message(&want)
		require.NoError(t, err, name)
		var got, read, second outer
		require.NoError(t, Decode(text, &got), name)
		assert.Equal(t, want, got, name)
		both := bytes.NewReader(append(text, text...))
		require.NoError(t, Read(both, &read), name)
		assert.Equal(t, want, read, name)
		require.NoError(t, Read(both, &second), name)
		assert.Equal(t, want, second, name)
	}
}

func TestMessageIsCut(t *testing.T) {
	v := full()
	text, err := Message(&v)
	require.NoError(t, err)
	for n := range text {
		assert.Equal(t, n < header, n+Rest(text[:n]) == header, n)
		assert.Equal(t, n >= header, n+Rest(text[:n]) == len(text), n)
		assert.Error(t, Decode(text[:n], new(outer)), n)
		assert.Error(t, Read(bytes.NewReader(text[:n]), new(outer)), n)
		if n >= header { // the length is that of the rest
			cut := append([]byte{0, 0, byte((n - header) >> 8), byte(n - header)}, text[header:n]...)
			assert.Error(t, Decode(cut, new(outer)), n)
		}
	}
}

func TestMessageOfAnotherType(t *testing.T) {
	text, err := Message(&struct{ A, B string }{"a", "b"})
	require.NoError(t, err)
	assert.Error(t, Decode(text, &struct{ A string }{}))
	_, err = Message(&struct{ M map[string]int }{})
	assert.ErrorContains(t, err, "map[string]int")
	assert.Error(t, Decode(text, &struct{ M map[string]int }{}))
	assert.ErrorContains(t, Decode([]byte{0, 0, 0, 4, 255, 255, 255, 127}, &struct{ S []string }{}), "cut off", "a count that no message can hold")
}

func FuzzDecode(f *testing.F) {
	v := full()
	text, err := Message(&v)
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, again outer
		if Decode(text, &got) != nil {
			return
		}
		text, err := Message(&got)
		require.NoError(t, err)
		require.NoError(t, Decode(text, &again))
		require.Equal(t, got, again)
	})
}
