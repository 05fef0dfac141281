package bytejson

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type inner struct {
	Path  string
	Array [2]byte
	Below []string
}

type outer struct {
	inner
	List    []inner
	Data    []byte
	Pointer *inner
	Map     map[string]string
	Deep    map[string]map[string]inner
	Numbers map[string]int64
	None    map[string]string

	unexported string
}

func TestKeepsBytes(t *testing.T) {
	for _, row := range []struct{ name, text string }{
		{"ASCII", "a"},
		{"empty", ""},
		{"UTF-8", "é\u2028"},
		{"a byte that is not UTF-8", "a\xff/é"},
		{"the replacement character", "\ufffd"},
		{"both", "\ufffd\xff"},
		{"the escape of the replacement character", `\ufffd`},
		{"the escape of a NUL", `\u0000AA==`},
		{"a NUL first", "\x00AA=="},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := inner{Path: row.text, Array: [2]byte{1, 2}, Below: []string{"x", row.text}}
			value := outer{
				List: []inner{in}, Data: []byte("\xff"), Pointer: &in,
				Map:     map[string]string{row.text: row.text, "\xfe": "one", "\xfd": "two"},
				Deep:    map[string]map[string]inner{row.text: {row.text: in}},
				Numbers: map[string]int64{row.text: 7},
			}
			text, err := Marshal(&value)
			require.NoError(t, err)
			assert.True(t, json.Valid(text))
			assert.Equal(t, row.text, in.Below[1], "the caller's value has changed")
			got := outer{unexported: "kept"}
			require.NoError(t, Unmarshal(text, &got))
			value.unexported = "kept"
			assert.Equal(t, value, got)
		})
	}
}

// Records of earlier versions are plain JSON.
func TestReadsPlainJSON(t *testing.T) {
	var got outer
	require.NoError(t, Unmarshal([]byte(`{"Map":{"k�":"\ufffd"},"Numbers":{"a":1}}`), &got))
	assert.Equal(t, outer{Map: map[string]string{"k\ufffd": "\ufffd"}, Numbers: map[string]int64{"a": 1}}, got)
}

func TestRefuses(t *testing.T) {
	for _, text := range []string{`{`, `{"Map":{"a":"\u0000?"}}`, `{"Map":{"\u0000?":"a"}}`} {
		assert.Error(t, Unmarshal([]byte(text), new(outer)), text)
	}
}
