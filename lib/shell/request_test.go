package shell

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzRequest holds what is accepted to what another reader of JSON makes of it:
// the command that runs is the one that was sent, and no field is passed over.
func FuzzRequest(f *testing.F) {
	for _, line := range []string{
		`{"command":"ls"}`,
		`{"id":1,"command":"printf '\\u00e9'","timeout":3,"description":"d"}`,
		`{"id":"a","command_base64":"bHMK"}`,
		`{"command":"\ud800","id":null}`,
		`{"command":"\ud83d\ude00 \ufffd"} `,
		`{"command":"a","command":"b"}`,
		`{"command":"a"}{}`,
		`{"Command":"a"}`,
		`["command"]`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseRequest(line)
		if err != nil {
			return
		}
		var other struct {
			ID          json.RawMessage `json:"id"`
			Command     *string         `json:"command"`
			Base64      []byte          `json:"command_base64"`
			Description string          `json:"description"`
			Timeout     *int            `json:"timeout"`
		}
		require.NoError(t, json.Unmarshal(line, &other), "%q", line)
		want := string(other.Base64)
		if other.Command != nil {
			want = *other.Command
		}
		assert.Equal(t, want, r.Command, "%q", line)
		assert.Equal(t, other.Description, r.Description, "%q", line)
		assert.Equal(t, other.Timeout, r.Timeout, "%q", line)
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(line, &fields))
		for name := range fields {
			assert.Contains(t, []string{"id", "command", "command_base64", "description", "timeout"}, name)
		}
	})
}
