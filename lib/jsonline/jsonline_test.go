package jsonline

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMistakes(t *testing.T) {
	for _, row := range []struct{ line, want string }{
		{`{}`, ""},
		{` {"id":1, "path":"p", "n":3, "all":true} `, ""},
		{`{"path_base64":"cA=="}`, ""},
		{``, "the request is not a JSON object"},
		{`x`, "the request is not a JSON object"},
		{`[1]`, "the request is not a JSON object"},
		{`"path"`, "the request is not a JSON object"},
		{`{"path":"p"`, "the request is not a JSON object"},
		{`{"path":"p"}}`, "something follows the request on its line"},
		{`{"path":"p"}{}`, "something follows the request on its line"},
		{"{\"path\":\"\xff\"}", "the request is not UTF-8"},
		{`{"path":"p","path":"p"}`, `the field "path" is there twice`},
		{`{"Path":"p"}`, `the field "Path" is unknown`},
		{`{"b":1,"a":1}`, `the field "b" is unknown`},
		{`{"path":1}`, "the path is not a string"},
		{`{"path":null}`, "the path is not a string"},
		{`{"path":"\ud800"}`, "the path holds half of a surrogate pair"},
		{`{"path":"p","path_base64":"cA=="}`, "the request has both path and path_base64"},
		{`{"path_base64":"c"}`, "the path_base64 is not base64"},
		{`{"path_base64":1}`, "the path_base64 is not base64"},
		{`{"n":1.5}`, "the n is not a whole number"},
		{`{"n":"1"}`, "the n is not a whole number"},
		{`{"n":null}`, "the n is not a whole number"},
		{`{"n":99999999999999999999}`, "the n is not a whole number"},
		{`{"all":1}`, "the all is neither true nor false"},
		{`{"all":null}`, "the all is neither true nor false"},
		{`{"id":{}}`, "the id is neither a string nor a number"},
		{`{"id":[1]}`, "the id is neither a string nor a number"},
		{`{"id":true}`, "the id is neither a string nor a number"},
		{`{"id":null}`, "the id is neither a string nor a number"},
		{`{"id":1e308}`, ""},
		{`{"id":1e-400}`, ""},
		{`{"id":1e400}`, "the id is too large for a number"},
		{`{"id":-1e309}`, "the id is too large for a number"},
		{`{"id":1` + strings.Repeat("0", 400) + `}`, "the id is too large for a number"},
		{`{"id":"1e400"}`, ""},
		{`{"id":"` + strings.Repeat("x", maxID) + `"}`, "the id is longer than 1024 bytes"},
	} {
		o := Parse([]byte(row.line))
		o.ID()
		o.Text("path")
		o.Int("n")
		o.Bool("all")
		if err := o.End(); row.want == "" {
			assert.NoError(t, err, row.line)
		} else {
			assert.EqualError(t, err, row.want, row.line)
		}
	}
}

func TestValues(t *testing.T) {
	o := Parse([]byte(`{"id":"a b","path_base64":"/w==","text":"é\n","n":-4,"all":true,"none":false}`))
	assert.Equal(t, `"a b"`, string(o.ID()))
	path, ok := o.Text("path")
	assert.True(t, ok)
	assert.Equal(t, "\xff", path)
	text, ok := o.String("text")
	assert.True(t, ok)
	assert.Equal(t, "é\n", text)
	assert.Equal(t, -4, *o.Int("n"))
	assert.True(t, o.Bool("all"))
	assert.False(t, o.Bool("none"))
	_, ok = o.Text("missing")
	assert.False(t, ok)
	assert.Nil(t, o.Int("missing"))
	assert.False(t, o.Bool("missing"))
	require.NoError(t, o.End())
}

// A refusal repeats the request's id if the parser could read it.
func TestIDOfARefusal(t *testing.T) {
	for _, line := range []string{`{"id":7,"x":`, `{"id":7,"x":1}`, `{"id":7} y`, `{"id":7,"id":8}`} {
		o := Parse([]byte(line))
		assert.Equal(t, "7", string(o.ID()), line)
		assert.Error(t, o.End(), line)
	}
}

func TestReadLine(t *testing.T) {
	in := bufio.NewReaderSize(strings.NewReader("one\n\n"+strings.Repeat("x", 100)+"\ntwo\r\nlast"), 16)
	for _, want := range []string{"one", "", "-", "two\r", "last"} {
		line, err := ReadLine(in, 20)
		if want == "-" {
			assert.EqualError(t, err, "the request is longer than 20 bytes")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, want, string(line))
	}
	_, err := ReadLine(in, 20)
	assert.EqualError(t, err, "EOF")
}
