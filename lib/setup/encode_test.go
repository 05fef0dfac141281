package setup

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEncodeKeepsBytes(t *testing.T) {
	for _, row := range []struct{ name, text string }{
		{"ASCII", "a"},
		{"empty", ""},
		{"UTF-8", "é\u2028"},
		{"a byte that is not UTF-8", "a\xff/é"},
		{"the replacement character", "\ufffd"},
		{"both", "\ufffd\xff"},
		{"the escape of the replacement character", `\ufffd`},
		{"the escape of a NUL", `\u0000AA==`},
	} {
		t.Run(row.name, func(t *testing.T) {
			job := Job{
				Mounts: []Mount{{Op: Bind, At: row.text, Inode: Inode{Path: row.text, Ino: 7}, Data: []byte("\xff")}},
				Argv:   []string{"x", row.text}, Program: row.text, FDs: Descriptors{Terminal: []int{0}},
			}
			argv := job.Argv
			text, err := Encode(&job)
			require.NoError(t, err)
			assert.True(t, json.Valid(text))
			assert.Equal(t, row.text, argv[1], "the caller's value has changed")
			var got Job
			require.NoError(t, Decode(text, &got))
			assert.Equal(t, job, got)
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{`{`, `{"argv":["\u0000?"]}`} {
		assert.Error(t, Decode([]byte(text), new(Job)), text)
	}
}
