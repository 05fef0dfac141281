package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
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
	b.Mkdir(t, b.Project+"/src")
	b.Write(t, b.Project+"/.env", "secret\n")
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
		{"a session", []string{"--session", "s", "--net", "none"}, []string{"kept from command to command", "share their loopback"}, nil, "echo yes"},
		{"a trial", []string{"--session", "t", "--trial"}, []string{"Changes there are a trial"}, nil, "touch tried && echo yes"},
		{"a loop", []string{"--loop", "--state", "env"}, []string{"working directory and exported variables are kept", "start a server as a job"}, []string{"no terminal"}, ""},
		{"no sandbox", []string{"--no-sandbox"}, []string{"no sandbox. The command can read and change all that the user can"}, []string{"Writable"}, "touch ~/x && rm ~/x && echo yes"},
		{"a wrapper", []string{"--wrap", "ssh host"}, []string{`through "ssh host"`, "of the place to which this leads", "may outlive"}, []string{"Writable", b.Project, "begins in the project", "end with their command"}, ""},
		{"rules", []string{"--deny", ".env", "--allow-write", "src/**"}, []string{"Writable: the project, but only what matches src/** (new files only where a whole directory does), /tmp.", "Hidden: .env."}, nil,
			"touch /tmp/x src/new && ! touch new 2>/dev/null && ! cat .env 2>/dev/null && rm src/new && echo yes"},
		{"an overlay", []string{"--overlay", b.Home + "/lib"}, []string{"Writable, but unchanged outside: " + b.Home + "/lib."}, nil, "touch ~/lib/x && echo yes"},
		{"protects nothing", []string{"--no-protect"}, nil, []string{"git hooks"}, "mkdir -p .git/hooks && touch .git/hooks/x && rm -r .git && echo yes"},
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
			assert.NoFileExists(t, b.Home+"/lib/x")
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

// Each option is described, or changes nothing for a model.
func TestDescribeEveryOption(t *testing.T) {
	b := clitest.NewBox(t)
	for _, dir := range []string{"/lib", "/out", "/layer"} {
		b.Mkdir(t, b.Home+dir)
	}
	b.Mkdir(t, b.Project+"/src")
	b.Write(t, b.Home+"/list", b.Home+"/lib\n")
	b.Write(t, b.Home+"/outs", b.Home+"/out\n")
	b.Write(t, b.Home+"/hosts", "listed.test:22\n")
	b.Write(t, b.Home+"/policy", "deny policy.txt\n")
	b.Script(t, b.Home+"/answer", "exit 0")
	type row struct {
		with []string // other options
		args []string // the option's values
		says string   // "" for an option that changes nothing
	}
	none, hosts := []string{"--net", "none"}, []string{"--net", "allow", "--allow-host", "example.com"}
	const less = "-" // the description is shorter with it
	rows := map[string]row{
		"--project-root":    {nil, []string{b.Project + "/src"}, "in " + b.Project + "/src,"},
		"--readable":        {nil, []string{b.Home + "/lib"}, "tool chains, " + b.Home + "/lib."},
		"--readable-from":   {nil, []string{b.Home + "/list"}, "tool chains, " + b.Home + "/lib."},
		"--writable":        {nil, []string{b.Home + "/out"}, "the project, " + b.Home + "/out, /tmp"},
		"--writable-from":   {nil, []string{b.Home + "/outs"}, "the project, " + b.Home + "/out, /tmp"},
		"--overlay":         {nil, []string{b.Home + "/layer"}, "Writable, but unchanged outside: " + b.Home + "/layer."},
		"--overlay-from":    {nil, []string{b.Home + "/list"}, "Writable, but unchanged outside: " + b.Home + "/lib."},
		"--session":         {nil, []string{"s"}, "kept from command to command"},
		"--temp":            {nil, []string{b.Home + "/out"}, "/tmp: a directory that the user has chosen"},
		"--no-alias-tmp":    {[]string{"--no-sandbox"}, nil, ""},
		"--no-protect":      {nil, nil, less},
		"--protect":         {nil, []string{"src"}, ", files that editors and agents run, " + b.Project + "/src."},
		"--deny":            {nil, []string{"**/.env"}, "Hidden: **/.env."},
		"--deny-read":       {nil, []string{"**/*.key"}, "Hidden: **/*.key."},
		"--allow-write":     {nil, []string{"src/**"}, "only what matches src/** (new"},
		"--policy":          {nil, []string{b.Home + "/policy"}, "Hidden: policy.txt."},
		"--trial":           {nil, nil, "Changes there are a trial"},
		"--no-toolchains":   {nil, nil, "besides: system programs."},
		"--net":             {nil, none[1:], "Network: none"},
		"--allow-host":      {hosts, []string{"a.test:22"}, ", a.test:22."},
		"--allow-host-from": {hosts, []string{b.Home + "/hosts"}, ", listed.test:22."},
		"--publish":         {none, []string{"8080"}, "the user reaches your servers at port 8080."},
		"--connect":         {none, []string{"5432"}, "at 127.0.0.1 the machine's servers at port 5432."},
		"--env-inherit":     {nil, nil, "secrets included"},
		"--pass-env":        {nil, []string{"TOKEN"}, "the user has added TOKEN."},
		"--setenv":          {nil, []string{"A=secret"}, "the user has added A."},
		"--require":         {nil, []string{"files"}, ""},
		"--pass-fd":         {nil, []string{"3"}, "Open descriptors: 3."},
		"--allow-nested":    {nil, nil, "User namespaces can be made."},
		"--trace":           {nil, nil, "debuggers fail"},
		"--memory":          {nil, []string{"1G"}, "Limits: memory 1G."},
		"--pids":            {nil, []string{"99"}, "Limits: 99 processes"},
		"--cpu-time":        {nil, []string{"5"}, "Limits: 5 s of processor time"},
		"--file-size":       {nil, []string{"1M"}, "Limits: files 1M."},
		"--audit":           {nil, []string{b.Home + "/log"}, ""},

		"--timeout":         {nil, []string{"7"}, "Time limit: 7 s"},
		"--kill-after":      {nil, []string{"8"}, "after 8 s SIGKILL"},
		"--yes":             {nil, nil, less},
		"--no":              {nil, nil, "Every command is declined."},
		"--confirm-command": {nil, []string{b.Home + "/answer"}, "A program of the user's approves"},
		"--no-sandbox":      {nil, nil, "no sandbox"},
		"--wrap":            {nil, []string{"ssh host"}, `through "ssh host"`},
		"--loop":            {nil, nil, "start a server as a job"},
		"--state":           {[]string{"--loop"}, []string{"cwd"}, "the working directory is kept"},
		"--keep-background": {[]string{"--loop"}, nil, "outlive their command"},
		"--head":            {nil, []string{"99"}, "the first 99"},
		"--tail":            {nil, []string{"98"}, "last 98"},
		"--log":             {nil, []string{b.Home + "/out/log"}, "the user has all in " + b.Home + "/out/log."},
		"--no-log":          {nil, nil, "the rest is lost"},
		"--description":     {nil, []string{"label"}, ""},
		"--follow":          {nil, nil, ""},
		"--no-follow":       {nil, nil, ""},
		"--zero":            {nil, nil, ""},
	}
	other := []string{"--command", "--raw", "--audit-check", // not with --describe
		"--describe", "--json", "--status-fd", "--bwrap", "--help", "--version"} // of this call
	describe := func(t *testing.T, options ...string) string {
		cmd := b.Command("pk-bash", append(options, "--describe")...)
		cmd.ExtraFiles = []*os.File{os.Stdin} // for --pass-fd
		out, err := cmd.Output()
		require.NoError(t, err, options)
		assert.Less(t, len(strings.Fields(string(out))), 300, options)
		return string(out)
	}
	base := map[string]string{} // by the other options
	for _, name := range command().OptionNames() {
		r, known := rows[name]
		if !strings.HasPrefix(name, "--") || slices.Contains(other, name) {
			continue
		}
		if !assert.True(t, known, "describe.go says nothing about the option %s", name) {
			continue
		}
		delete(rows, name)
		option := append([]string{name}, r.args...)
		before, told := base[fmt.Sprint(r.with)]
		if !told {
			before = describe(t, r.with...)
			base[fmt.Sprint(r.with)] = before
		}
		now := describe(t, append(slices.Clone(r.with), option...)...)
		switch r.says {
		case "":
			assert.Equal(t, before, now, name)
		case less:
			assert.Less(t, len(now), len(before), name)
		default:
			assert.NotContains(t, before, r.says, name)
			assert.Contains(t, now, r.says, name)
		}
	}
	assert.Empty(t, rows, "there are no such options")
}

// Many options and long lists do not make the description longer than a model's client wants.
func TestDescribeIsShort(t *testing.T) {
	b := clitest.NewBox(t)
	b.Mkdir(t, b.Home+"/tmp")
	options := []string{"--describe", "--loop", "--keep-background", "--session", "s", "--temp", b.Home + "/tmp", "--net", "allow",
		"--env-inherit", "--allow-nested", "--trace", "--memory", "1G", "--pids", "99", "--cpu-time", "5", "--file-size", "1M", "--no-log", "--confirm-command", "true", "--no-toolchains"}
	for i := range 20 {
		n := strconv.Itoa(i)
		for option, value := range map[string]string{
			"--readable": b.Home + "/read only " + n, "--writable": b.Home + "/to write " + n, "--overlay": b.Home + "/over " + n, "--protect": "kept " + n,
			"--deny": "a secret " + n, "--deny-read": "another " + n, "--allow-write": "any thing " + n, "--allow-host": "h" + n + ".test private",
			"--publish": strconv.Itoa(8000 + i), "--connect": strconv.Itoa(9000 + i), "--pass-env": "V" + n, "--setenv": "S" + n + "=a b c",
		} {
			options = append(options, option, value)
			if strings.HasPrefix(value, b.Home) {
				b.Mkdir(t, value)
			}
		}
	}
	got := b.Run(t, "pk-bash", options...)
	require.Equal(t, 0, got.Status, got.Stderr)
	assert.Less(t, len(strings.Fields(got.Stdout)), 300)
	for _, said := range []string{"Writable: the project, ", "only what matches ", "unchanged outside: ", "system programs, ", "Hidden: ", "agents run, ", "else: ", "machine's servers at port 90",
		"your servers at port 80", "secrets included, ", "User namespaces", "traced", "5 s of", "files 1M", "not named here"} {
		assert.Contains(t, got.Stdout, said)
	}
	b.Run(t, "pk-sweep", "--all", "--discard")
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
