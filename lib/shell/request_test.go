package shell

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// allFields are the names of all fields.
var allFields = []string{
	"id", "op", "command", "command_base64", "description", "timeout", "cwd", "in", "wait_ms", "stdin", "tty", "events", "job", "since", "max_bytes",
	"input", "input_base64", "eof", "rows", "cols", "signal", "request", "jobs",
}

// FuzzRequest compares accepted requests with another reader of JSON: the command
// that runs is the one that was sent, and no field is ignored.
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
		`{"command":"\ud800 \\ufffd"}`,
		`{"command":"\\\ud83d\ude00\\ud800"}`,
		`{"command":"\ud83d\n"}`,
		`{"command":"\ud83d\ud83d\ude00"}`,
		`{"command":"\ude00\ud83d"}`,
		`{"op":"start","command":"a","tty":{"rows":1,"cols":2},"events":["exit"],"wait_ms":5}`,
		`{"op":"read","job":"j1","since":3,"max_bytes":1}`,
		`{"op":"write","job":"j1","input_base64":"/w==","eof":true}`,
		`{"op":"kill","job":"j1","signal":"SIGINT"}`,
		`{"op":"cancel","request":"\u0061"}`,
		`{"op":"reset","jobs":true}`,
		`{"op":"","command":"a"}`,
		`{"description":"\uDBFF\uDFFF","command_base64":"bHMK"}`,
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
			Op          string          `json:"op"`
			Job         string          `json:"job"`
			Input       string          `json:"input"`
			InputBase64 []byte          `json:"input_base64"`
			Since       *int64          `json:"since"`
			Wait        int64           `json:"wait_ms"`
			EOF, Jobs   bool
			Stdin       bool   `json:"stdin"`
			Cwd         string `json:"cwd"`
			TTY         *struct{ Rows, Cols uint16 }
			Events      []string `json:"events"`
			Command     *string  `json:"command"`
			Base64      []byte   `json:"command_base64"`
			Description string   `json:"description"`
			Timeout     *int     `json:"timeout"`
		}
		require.NoError(t, json.Unmarshal(line, &other), "%q", line)
		want := string(other.Base64)
		if other.Command != nil {
			want = *other.Command
		}
		assert.Equal(t, other.Op, string(r.Op), "%q", line)
		assert.Equal(t, other.Job, r.Job, "%q", line)
		assert.Equal(t, other.Input+string(other.InputBase64), r.Bytes, "%q", line)
		assert.Equal(t, other.Since, r.Since, "%q", line)
		assert.Equal(t, other.Wait, r.Wait.Milliseconds(), "%q", line)
		assert.Equal(t, []bool{other.EOF, other.Jobs, other.Stdin}, []bool{r.EOF, r.Jobs, r.Input}, "%q", line)
		assert.Equal(t, other.Cwd, r.Dir, "%q", line)
		assert.Equal(t, len(other.Events), len(r.Events), "%q", line)
		if other.TTY != nil {
			assert.Equal(t, Size(*other.TTY), *r.TTY, "%q", line)
		}
		assertUnits(t, r.Description, line, "description")
		if other.Command != nil {
			assertUnits(t, r.Command, line, "command")
		}
		assert.Equal(t, want, r.Command, "%q", line)
		assert.Equal(t, other.Description, r.Description, "%q", line)
		assert.Equal(t, other.Timeout, r.Timeout, "%q", line)
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(line, &fields))
		for name := range fields {
			assert.Contains(t, allFields, name)
		}
	})
}

// assertUnits compares an accepted text with the UTF-16 code units that were sent,
// which encoding/json does not show.
func assertUnits(t *testing.T, got string, line []byte, field string) {
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(line, &fields))
	if fields[field] == nil {
		return
	}
	var units []uint16
	literal := []rune(string(fields[field]))
	for i := 1; i < len(literal)-1; i++ {
		switch {
		case literal[i] != '\\':
			units = utf16.AppendRune(units, literal[i])
		case literal[i+1] == 'u':
			n, err := strconv.ParseUint(string(literal[i+2:i+6]), 16, 16)
			require.NoError(t, err)
			units = append(units, uint16(n))
			i += 5
		default:
			i++
			units = append(units, uint16(strings.NewReplacer("b", "\b", "f", "\f", "n", "\n", "r", "\r", "t", "\t").Replace(string(literal[i]))[0]))
		}
	}
	assert.True(t, slices.Equal(units, utf16.Encode([]rune(got))), "%q", line)
}

func TestHalfSurrogatePairs(t *testing.T) {
	for _, row := range []struct {
		name, literal string
		want          string // "" if it is refused
	}{
		{"a pair", `\ud83d\ude00`, "\U0001F600"},
		{"a pair in capitals", `\uD83D\uDE00`, "\U0001F600"},
		{"the replacement character", `\ufffd \uFFFD �`, "� � �"},
		{"the first half", `\ud800`, ""},
		{"the second half", `a\udc00b`, ""},
		{"the halves in the wrong order", `\udc00\ud800`, ""},
		{"the first half twice", `\ud800\ud800`, ""},
		{"the first half before a pair", `\ud83d\ud83d\ude00`, ""},
		{"the first half before another escape", `\ud800\n`, ""},
		{"the first half before an escaped quote", `\ud800\"`, ""},
		{"a half, and an escape that is none", `\ud800 \\ufffd`, ""},
		{"a half, and the replacement character", `\ud800 \ufffd`, ""},
		{"a half behind a backslash", `\\\ud800`, ""},
		{"the letters of a half", `\\ud800`, `\ud800`},
		{"the letters of a half behind a half", `\ud83d\\ude00`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, field := range []string{"command", "description"} {
				line := fmt.Sprintf(`{"%s":"%s"}`, field, row.literal)
				if field == "description" {
					line = fmt.Sprintf(`{"command":"ls","description":"%s"}`, row.literal)
				}
				r, err := ParseRequest([]byte(line))
				if row.want == "" {
					assert.EqualError(t, err, "the "+field+" holds half of a surrogate pair")
					continue
				}
				require.NoError(t, err)
				assert.Equal(t, row.want, map[string]string{"command": r.Command, "description": r.Description}[field])
			}
		})
	}
}
