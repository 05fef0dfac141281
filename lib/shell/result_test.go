package shell

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestObservation(t *testing.T) {
	for _, test := range []struct {
		name string
		in   Result
		want string
	}{
		{"a success", Result{Outcome: Exited, Command: "echo hi", Output: []byte("hi\n")}, "$ echo hi\nhi\n\nexit status: 0\n"},
		{"no output", Result{Outcome: Exited, Command: "exit 7", Status: 7}, "$ exit 7\n\nexit status: 7\n"},
		{"output without a newline", Result{Outcome: Exited, Command: "printf x", Output: []byte("x")}, "$ printf x\nx\n\nexit status: 0\n"},
		{"several lines", Result{Outcome: Exited, Command: "a\nb", Output: []byte("1\n2\n")}, "$ a\n> b\n1\n2\n\nexit status: 0\n"},
		{"a signal", Result{Outcome: Signaled, Command: "kill $$", Status: 143, Signal: 15}, "$ kill $$\n\nexit status: 143\n"},
		{"out of time", Result{Outcome: TimedOut, Command: "sleep 9", Timeout: time.Second, Output: []byte("a\n"), Status: 124, Sent: []syscall.Signal{15}},
			"Error: command timed out after 1s (sent SIGTERM).\n\n$ sleep 9\na\n"},
		{"out of time, stubborn", Result{Outcome: TimedOut, Command: "sleep 9", Timeout: time.Second, Status: 124, Sent: []syscall.Signal{15, 9}},
			"Error: command timed out after 1s (sent SIGTERM, then SIGKILL).\n\n$ sleep 9\n"},
		{"declined", Result{Outcome: Declined, Error: "user declined the bash command."}, "Error: user declined the bash command.\n"},
		{"hidden text", Result{Outcome: Exited, Command: "a\x1b[2K", Output: []byte("\x1b]0;x\a\u202e\xff")}, `$ a\x1b[2K` + "\n" + `\x1b]0;x\x07\u{202E}\xff` + "\n\nexit status: 0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, test.in.Observation())
		})
	}
}

func TestJSON(t *testing.T) {
	for _, test := range []struct {
		name string
		in   Result
		want string
	}{
		{"a success", Result{Outcome: Exited, Command: "a <b >c & d", Output: []byte("hi\n"), Total: 3, Duration: 1234567},
			`{"command":"a <b >c & d","outcome":"exited","exit_status":0,"duration_ms":1,"output":"hi\n","output_bytes":3}`},
		{"no output", Result{Outcome: Exited, Command: "true"},
			`{"command":"true","outcome":"exited","exit_status":0,"duration_ms":0,"output":"","output_bytes":0}`},
		{"bytes that are not UTF-8", Result{Outcome: Exited, Command: "\xff", Output: []byte("a\xff"), Total: 2},
			`{"command":"�","command_base64":"/w==","outcome":"exited","exit_status":0,"duration_ms":0,"output":"a�","output_base64":"Yf8=","output_bytes":2}`},
		{"out of time", Result{Outcome: TimedOut, Command: "x", Status: 124, Signal: 9, Sent: []syscall.Signal{15, 9}, Total: 99, Omitted: 9, Survivors: 2},
			`{"command":"x","outcome":"timed-out","exit_status":124,"signal":"SIGKILL","sent":["SIGTERM","SIGKILL"],"duration_ms":0,"output":"","output_bytes":99,"omitted_bytes":9,"survivors":2}`},
		{"declined", Result{Outcome: Declined, Command: "x", Status: 126, Error: "no."},
			`{"command":"x","outcome":"declined","exit_status":126,"error":"no."}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.in.JSON()
			require.NoError(t, err)
			assert.Equal(t, test.want+"\n", string(got))
		})
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name, command string
		timeout       int
		want          string
	}{
		{"fine", "true", 120, ""},
		{"empty", "", 120, "empty bash command."},
		{"blank", " \n\t", 120, "empty bash command."},
		{"no time", "true", 0, "timeout must be >= 1, got 0"},
		{"too much time", "true", 601, "timeout must be <= 600, got 601"},
		{"a NUL", "a\x00b", 120, "the command holds a NUL byte, at byte 1."},
		{"as long as can be", string(make128k('a')), 120, ""},
		{"too long", string(make128k('a')) + "a", 120, "the command is 131072 bytes long, and 131071 is the most; put it into a file and run that."},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, Check(test.command, test.timeout))
		})
	}
}

func make128k(b byte) []byte {
	out := make([]byte, maxCommand)
	for i := range out {
		out[i] = b
	}
	return out
}
