package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// The test tries each sentence of the description in a command.
func TestDescribe(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/lib")
	b.Mkdir(t, b.Home+"/out")
	for _, test := range []struct {
		name    string
		options []string
		says    []string
		not     []string
		try     string // prints yes
	}{
		{"no options", nil,
			[]string{"in " + b.Project + ",", "Writable: the project, /tmp.", "the machine's own, its servers", "/tmp: empty at first", "cd and export do not last", "Time limit: 120 s", "first 15360"},
			[]string{b.Home, "trial", "loopback of its own", "as a job"}, "test -z \"$(ls /tmp)\" && ! touch ~/out/x 2>/dev/null && touch x && echo yes"},
		{"roots", []string{"--readable", b.Home + "/lib", "--writable", b.Home + "/out"},
			[]string{"Writable: the project, " + b.Home + "/out, /tmp.", "tool chains, " + b.Home + "/lib."}, nil, "touch ~/out/x && ! touch ~/lib/x 2>/dev/null && rm ~/out/x && echo yes"},
		{"no network", []string{"--net", "none", "--timeout", "7"}, []string{"Network: none. Each command has a loopback of its own.", "Time limit: 7 s"}, nil, "test $(grep -c : /proc/net/dev) = 1 && echo yes"},
		{"hosts", []string{"--net", "allow", "--allow-host", "example.com:443"}, []string{"TCP to these hosts, and nothing else: example.com:443."}, nil, "echo yes"},
		{"a session", []string{"--session", "s", "--net", "none"}, []string{"kept from command to command", "one reaches the servers of another"}, nil, "echo yes"},
		{"a trial", []string{"--session", "t", "--trial"}, []string{"Changes there are a trial"}, nil, "touch tried && echo yes"},
		{"a loop", []string{"--loop", "--state", "env"}, []string{"working directory and exported variables are kept", "start a server as a job"}, []string{"no terminal"}, ""},
		{"no sandbox", []string{"--no-sandbox"}, []string{"no sandbox. The command can read and change all that the user can"}, []string{"Writable"}, "touch ~/x && rm ~/x && echo yes"},
		{"a wrapper", []string{"--wrap", "env"}, []string{"to which the wrapper leads"}, []string{"Writable"}, ""},
		{"protects nothing", []string{"--no-protect"}, nil, []string{"kept from you"}, "mkdir -p .git/hooks && touch .git/hooks/x && rm -r .git && echo yes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := b.Run(t, "pk-bash", append(test.options, "--describe")...)
			require.Equal(t, 0, got.Status, got.Stderr)
			assert.Less(t, len(strings.Fields(got.Stdout)), 300)
			for _, said := range test.says {
				assert.Contains(t, got.Stdout, said)
			}
			for _, not := range append(test.not, ".cache/pikuri") {
				assert.NotContains(t, got.Stdout, not)
			}
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(b.Run(t, "pk-bash", append(test.options, "--describe", "--json")...).Stdout), &object))
			assert.Equal(t, []any{got.Stdout, b.Project}, []any{object["description"], object["project"]})
			if test.try != "" {
				assert.Equal(t, "yes\n", run(t, b, test.try, append(test.options, "--raw")...).Stdout)
			}
		})
	}
	b.Run(t, "pk-sweep", "--all", "--discard")
	got := b.Run(t, "pk-bash", "--describe", "-C", "/nonesuch")
	assert.Equal(t, 125, got.Status)
	assert.Empty(t, got.Stdout)
}

// The result names the processes that end with their command, for each way to start them.
// It does not name processes that end by themselves.
func TestWhatTheCommandLeft(t *testing.T) {
	b := clitest.NewBox(t)
	const begun = "until [ $(cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep) = %d ]; do :; done" // a child has the name of its parent at first
	for _, test := range []struct{ name, command, note string }{
		{"in the background", "sleep 1000 & sleep 1000 & " + fmt.Sprintf(begun, 2), `ended with the command: "sleep 1000" (2 processes); use a job of --loop, or --keep-background` + "\n"},
		{"a daemon", "(setsid -f setsid -f bash -c 'exec -a \"d\x1b[1m\" sleep 1000 >/dev/null 2>&1'); " + fmt.Sprintf(begun, 1), `ended with the command: "d\x1b[1m 1000" (1 process); use a job of --loop, or --keep-background` + "\n"},
		{"that has been waited for", "sleep 0 & wait; true | cat", ""},
		{"none", "true", ""},
		{"four names", "for n in 1 2 3 4; do sleep 100$n & done; " + fmt.Sprintf(begun, 4), `ended with the command: "sleep 1001", "sleep 1002", "sleep 1003" (4 processes); use a job of --loop, or --keep-background` + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, b, test.command)
			_, notes, _ := strings.Cut(got.Stdout, "\n\n")
			assert.Equal(t, test.note+"exit status: 0\n", notes[strings.LastIndex(notes, "\n\n")+1:])
		})
	}
}
