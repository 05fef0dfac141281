package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/cli/clitest"
	"pikuri/lib/probe"
)

// sample is a report in which everything occurs.
func sample() report {
	r := judge(found{
		opening: opening{Guarantees: []bwrap.Guarantee{
			{Name: "files", Text: "only what is shown can be read or written", Holds: true},
			{Name: "processes", Text: "no process outside is seen, signalled or traced", Holds: true},
			{Name: "network", Text: "no network but a loopback of its own", Off: true, Why: "the host's network is shared", Fix: "--net none"},
			{Name: "abstract-sockets", Text: "no abstract socket of the host is reached", Why: "Landlock 3 cannot close them", Fix: "--net none, or Linux 6.12"},
			{Name: "terminal", Text: "nothing is typed into the caller's terminal", Holds: true},
			{Name: "syscalls", Text: "no keys", Why: "no filter is known for this processor"},
		}},
		results: []probe.Result{
			{Name: "read a file", Guarantee: "files", Outcome: probe.Refused, Said: "open: no such file or directory"},
			{Name: "find nothing", Guarantee: "files", Outcome: probe.Absent, Said: "nothing to try it on"},
			{Name: "see a process", Guarantee: "processes", Outcome: probe.In},
			{Name: "trace a process", Guarantee: "processes", Outcome: probe.Refused},
			{Name: "connect by TCP", Guarantee: "network", Outcome: probe.In},
			{Name: "connect to an abstract socket", Guarantee: "abstract-sockets", Outcome: probe.In},
			{Name: "type", Guarantee: "terminal", Outcome: probe.Untried, Said: "the probe ended before"},
		},
	})
	r.machine = machine{Kind: "machine", Bwrap: "/usr/bin/bwrap", Version: "0.11.1", Kernel: "6.8.0", User: "root", RunAs: 1000}
	return r
}

const sampleText = `bwrap   /usr/bin/bwrap, 0.11.1
kernel  6.8.0
user    root, uid 0, who becomes uid 1000

ok  sandbox           a command can be fenced in at all
ok  files             only what is shown can be read or written
no  processes         no process outside is seen, signalled or traced
                      got through: see a process
                      it was promised, and an attack got through
    fix: do not rely on it; report it as a bug, with what --check --json says
off network           no network but a loopback of its own
                      the host's network is shared; otherwise: --net none
no  abstract-sockets  no abstract socket of the host is reached
                      got through: connect to an abstract socket
                      Landlock 3 cannot close them
    fix: --net none, or Linux 6.12
no  terminal          nothing is typed into the caller's terminal
                      the probe ended before it was attacked
    fix: try again
no  syscalls          no keys
                      no filter is known for this processor

2 ok, 4 no, 1 off; 5 attacks tried
`

func TestAReportReadsAtAGlance(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, sample().write(&cli.Context{Stdout: &out}, false))
	assert.Equal(t, sampleText, out.String())
	assert.Equal(t, 1, sample().status())
	for line := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), columns)
	}
}

func TestColourChangesNoWord(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, sample().write(&cli.Context{Stdout: &out}, true))
	assert.Contains(t, out.String(), "\x1b[1;31mno \x1b[m processes")
	plain := strings.NewReplacer("\x1b[32m", "", "\x1b[1;31m", "", "\x1b[33m", "", "\x1b[m", "").Replace(out.String())
	assert.Equal(t, sampleText, plain)
}

func TestAReportInJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, sample().writeJSON(&cli.Context{Stdout: &out}))
	lines := strings.Split(out.String(), "\n")
	assert.Equal(t, `{"kind":"machine","bwrap":"/usr/bin/bwrap","version":"0.11.1","kernel":"6.8.0","user":"root","uid":0,"run_as":1000}`, lines[0])
	assert.Equal(t, `{"kind":"check","guarantee":"sandbox","state":"ok","text":"a command can be fenced in at all"}`, lines[1])
	assert.Equal(t, `{"kind":"check","guarantee":"network","state":"off","text":"no network but a loopback of its own","why":"the host's network is shared","fix":"--net none","attacks":[{"name":"connect by TCP","guarantee":"network","outcome":"in"}]}`, lines[4])
	assert.Len(t, lines, 9)
}

// Every guarantee that a plan can name is attacked, and every attack is on one
// that it names.
func TestEveryGuaranteeHasItsAttacks(t *testing.T) {
	attacked := map[string]bool{}
	for _, a := range probe.Attacks() {
		attacked[a.Guarantee] = true
		assert.Contains(t, shown, a.Name, "check_test.go says where an attack is shown to work")
	}
	page, err := os.ReadFile("../../man/pk-bwrap.1")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n.SH GUARANTEES\n")
	section, _, _ = strings.Cut(section, "\n.SH ")
	described := map[string]bool{}
	for _, entry := range regexp.MustCompile(`(?m)^\.TP\n\.B (\S+)$`).FindAllStringSubmatch(section, -1) {
		described[strings.ReplaceAll(entry[1], `\-`, "-")] = true
	}
	named := map[string]bool{}
	for _, g := range new(bwrap.Plan).Guarantees() {
		named[g.Name] = true
		assert.LessOrEqual(t, margin+len(g.Text), columns, g.Name)
	}
	assert.Equal(t, named, attacked)
	assert.Equal(t, named, described, "GUARANTEES in pk-bwrap(1)")
}

// On a terminal there are colours, unless its user says no, and never in JSON.
func TestColoursOnATerminal(t *testing.T) {
	b := clitest.NewBox(t)
	uncoloured := regexp.MustCompile("\x1b\\[[0-9;]*m")
	tried := regexp.MustCompile(`\d+ attacks tried`) // depends on the sockets that other processes have at the moment
	for _, options := range [][]string{{"--explain"}, {"--explain", ".", "/nonesuch"}, {"--check"}, {"--explain", "--json", "."}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			t.Parallel()
			want := tried.ReplaceAllString(b.Run(t, "pk-bwrap", options...).Stdout, "attacks tried")
			require.NotEmpty(t, want)
			for _, env := range []string{"TERM=xterm", "NO_COLOR=1", "TERM=dumb"} {
				cmd := b.Command("pk-bwrap", options...)
				cmd.Env = append(cmd.Env, env)
				got := clitest.OnTerminal(t, cmd)
				assert.Equal(t, env == "TERM=xterm" && !slices.Contains(options, "--json"), strings.Contains(got, "\x1b["), env)
				assert.Equal(t, want, tried.ReplaceAllString(uncoloured.ReplaceAllString(got, ""), "attacks tried"), env)
			}
		})
	}
}
