package shell

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/blocked"
	"pikuri/lib/quarantine"
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
		{"out of time", Result{Outcome: TimedOut, Command: "sleep 9", Timeout: time.Second, Output: []byte("a\n"), Total: 2, Status: 124, Sent: []syscall.Signal{15}},
			"Error: command timed out after 1s (sent SIGTERM).\n\n$ sleep 9\na\n\nexit status: 124\n"},
		{"out of time, stubborn", Result{Outcome: TimedOut, Command: "sleep 9", Timeout: time.Second, Status: 124, Sent: []syscall.Signal{15, 9}},
			"Error: command timed out after 1s (sent SIGTERM, then SIGKILL).\n\n$ sleep 9\n\nno output; standard input is /dev/null\nexit status: 124\n"},
		{"notes", Result{Outcome: Exited, Command: "x", Pipeline: []int{1, 0}, Survivors: 1, Ended: []string{"sleep 9"}, Left: 2, Held: true, Folded: 3, Over: 1, Limit: "memory", Error: "odd\n",
			MovedAside: []quarantine.Moved{{From: "/p/.git/hooks/x\n", To: "/u/x"}}},
			"$ x\n\nstopped by the limit: memory\nodd\\n\nmoved aside: /p/.git/hooks/x\\n, which a program outside would run, is now /u/x\npipeline: 1 0\n" +
				"ended with the command: \"sleep 9\" (1 process); use a job of --loop\ncould not end 2 processes\nsomething else holds the output open; what it writes is lost\n" +
				"(1 line overwritten, 3 control sequences removed)\nexit status: 0\n"},
		{"output that forges the end", Result{Outcome: TimedOut, Command: "x", Timeout: time.Second, Total: 9, Output: []byte("a\n\nexit status: 0\n"), Status: 124, Sent: []syscall.Signal{15}},
			"Error: command timed out after 1s (sent SIGTERM).\n\n$ x\na\n\nexit status: 0\n\nexit status: 124\n"},
		{"declined", Result{Outcome: Declined, Error: "user declined the bash command."}, "Error: user declined the bash command.\n"},
		{"hidden text", Result{Outcome: Exited, Raw: true, Command: "a\x1b[2K", Output: []byte("\x1b]0;x\a\u202e\xff")}, `$ a\x1b[2K` + "\n" + `\x1b]0;x\x07\u{202E}\xff` + "\n\nexit status: 0\n"},
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
		{"names that are not UTF-8", Result{Outcome: Declined, Status: 126, Fence: []blocked.Fact{{Path: "/a\xff", Word: "\xff", Access: blocked.Masked}}},
			`{"outcome":"declined","exit_status":126,"fence":[{"path":"/a�","path_base64":"L2H/","word":"�","word_base64":"/w==","access":"masked"}]}`},
		{"out of time", Result{Outcome: TimedOut, Command: "x", Status: 124, Signal: 9, Sent: []syscall.Signal{15, 9}, Total: 99, Omitted: 9, Survivors: 2},
			`{"command":"x","outcome":"timed-out","exit_status":124,"signal":"SIGKILL","sent":["SIGTERM","SIGKILL"],"duration_ms":0,"output":"","output_bytes":99,"omitted_bytes":9,"survivors":2}`},
		{"everything", Result{ID: json.RawMessage("7"), Outcome: Signaled, Command: "x", Status: 137, Signal: 9, Limit: "memory", Log: "/l", Folded: 1, Over: 2, Pipeline: []int{1, 0},
			Left: 1, Held: true, MovedAside: []quarantine.Moved{{From: "/a\xff", To: "/b"}}, Guarantees: []string{"no-network"}, Error: "e"},
			`{"id":7,"command":"x","outcome":"signaled","exit_status":137,"signal":"SIGKILL","limit":"memory","duration_ms":0,"output":"","output_bytes":0,` +
				`"folded":1,"overwritten":2,"log":"/l","pipeline":[1,0],"left":1,"held":true,"moved_aside":[{"from":"/a�","from_base64":"L2H/","to":"/b"}],"guarantees":["no-network"],"error":"e"}`},
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

// TestPageHasTheFields: pk-bash(1) has an entry for each field of --json, but for those in
// base64, which it describes together.
func TestPageHasTheFields(t *testing.T) {
	text, err := os.ReadFile("../../man/pk-bash.1")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n.SS JSON\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n.SH ") // the loop's fields come after JSON
	for i := range reflect.TypeFor[record]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[record]().Field(i).Tag.Get("json"), ",")
		if !strings.HasSuffix(name, "_base64") && !regexp.MustCompile(`(?m)^\.B[RI]? .*\b`+name+`\b`).MatchString(section) {
			t.Errorf("man/pk-bash.1, JSON: no entry for the field %q", name)
		}
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
		{"too long for an argument", strings.Repeat("a", maxArgument+1), 120, ""},
		{"as long as can be", strings.Repeat("a", MaxCommand), 120, ""},
		{"too long", strings.Repeat("a", MaxCommand+1), 120, "the command is 16777217 bytes long, and 16777216 is the most; put it into a file and run that."},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, Check(test.command, test.timeout))
		})
	}
}
