package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/passwd"
	"pikuri/lib/probe"
)

// state is the verdict of a check on a guarantee.
type state string

const (
	holds state = "ok"
	fails state = "no"
	off   state = "off" // by an option, or for lack of one
)

// verdict is one guarantee, judged. Its fields are those of the JSON.
type verdict struct {
	Kind      string         `json:"kind"`
	Guarantee string         `json:"guarantee"`
	State     state          `json:"state"`
	Text      string         `json:"text"`
	Why       string         `json:"why,omitempty"`
	Fix       string         `json:"fix,omitempty"`
	Attacks   []probe.Result `json:"attacks,omitempty"`
}

// machine describes the machine that was checked.
type machine struct {
	Kind    string `json:"kind"`
	Bwrap   string `json:"bwrap,omitempty"`
	Version string `json:"version,omitempty"`
	Kernel  string `json:"kernel"`
	User    string `json:"user"`
	UID     int    `json:"uid"`
	RunAs   int    `json:"run_as,omitempty"` // whom root becomes
}

type report struct {
	machine  machine
	verdicts []verdict
}

// judge compares the guarantees with the results. The first line is about making a
// sandbox at all; without one there are no others.
func judge(f found) report {
	r := report{machine: describeMachine(f.opening)}
	first := verdict{Kind: "check", Guarantee: "sandbox", State: holds, Text: "a command can be fenced in at all"}
	if f.Refused != "" {
		first.State, first.Why, first.Fix = fails, f.Refused, f.Advice
		r.verdicts = []verdict{first}
		return r
	}
	r.verdicts = append(r.verdicts, first)
	for _, g := range f.Guarantees {
		r.verdicts = append(r.verdicts, judgeOne(g, f.results))
	}
	return r
}

func judgeOne(g bwrap.Guarantee, results []probe.Result) verdict {
	v := verdict{Kind: "check", Guarantee: g.Name, State: holds, Text: g.Text, Why: g.Why, Fix: g.Fix}
	for _, r := range results {
		if r.Guarantee == g.Name {
			v.Attacks = append(v.Attacks, r)
		}
	}
	switch {
	case g.Off:
		v.State = off
	case !g.Holds:
		v.State = fails
	case v.succeeded() != nil:
		v.State, v.Why, v.Fix = fails, "it was promised, and an attack got through", "do not rely on it; report it as a bug, with what --check --json says"
	case slices.ContainsFunc(v.Attacks, func(r probe.Result) bool { return r.Outcome == probe.Untried }):
		v.State, v.Why, v.Fix = fails, "the probe ended before it was attacked", "try again"
	}
	return v
}

// succeeded lists the attacks that got through.
func (v verdict) succeeded() []probe.Result {
	var in []probe.Result
	for _, r := range v.Attacks {
		if r.Outcome == probe.In {
			in = append(in, r)
		}
	}
	return in
}

func (r report) count(s state) int {
	n := 0
	for _, v := range r.verdicts {
		if v.State == s {
			n++
		}
	}
	return n
}

// status is 1 if a guarantee fails.
func (r report) status() int {
	if r.count(fails) > 0 {
		return cli.StatusRefused
	}
	return cli.StatusOK
}

func describeMachine(o opening) machine {
	m := machine{Kind: "machine", Bwrap: o.Bwrap, UID: os.Geteuid(), RunAs: o.RunAs}
	if o.Bwrap != "" {
		out, _ := exec.Command(o.Bwrap, "--version").Output()
		version := regexp.MustCompile(`^bubblewrap ([0-9][0-9A-Za-z.+~-]*)`)
		if found := version.FindSubmatch(out); found != nil {
			m.Version = string(found[1])
		}
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	m.User = passwd.Find(passwd.Users, m.UID).Name
	return m
}

func (r report) writeJSON(ctx *cli.Context) error {
	if err := writeJSON(ctx, r.machine); err != nil {
		return err
	}
	for _, v := range r.verdicts {
		if err := writeJSON(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// write prints a table that can be read at a glance. Commands to type are never
// broken into lines; everything else keeps to 80 columns.
func (r report) write(ctx *cli.Context, palette cli.Palette) error {
	lines := r.machine.lines()
	for _, v := range r.verdicts {
		lines = append(lines, v.lines(palette)...)
	}
	lines = append(lines, "", r.summary())
	return writeLines(ctx, lines)
}

func (m machine) lines() []string {
	program := "none"
	if m.Bwrap != "" {
		program = m.Bwrap
	}
	if m.Version != "" {
		program += ", " + m.Version
	}
	user := fmt.Sprintf("uid %d", m.UID)
	if m.User != "" {
		user = m.User + ", " + user
	}
	if m.RunAs != 0 {
		user += fmt.Sprintf(", who becomes uid %d", m.RunAs)
	}
	return []string{"bwrap   " + program, "kernel  " + m.Kernel, "user    " + user, ""}
}

// nameWidth is that of the longest name, and margin the column in which its text
// begins.
const (
	nameWidth = len("abstract-sockets")
	margin    = 4 + nameWidth + 2
	columns   = 80
)

func (v verdict) lines(palette cli.Palette) []string {
	colour := map[state]cli.Colour{holds: cli.Good, fails: cli.Bad, off: cli.Open}[v.State]
	mark := palette.Paint(colour, fmt.Sprintf("%-3s", v.State))
	lines := []string{fmt.Sprintf("%s %-*s  %s", mark, nameWidth, v.Guarantee, v.Text)}
	switch v.State {
	case off:
		lines = append(lines, wrap(v.Why+"; otherwise: "+v.Fix)...)
	case fails:
		for _, a := range v.succeeded() {
			lines = append(lines, wrap("got through: "+a.Name)...)
		}
		lines = append(lines, wrap(v.Why)...)
		if v.Fix != "" {
			lines = append(lines, strings.Repeat(" ", 4)+"fix: "+v.Fix)
		}
	}
	return lines
}

// wrap breaks text between words and puts it beneath the description.
func wrap(text string) []string {
	var lines []string
	indent := strings.Repeat(" ", margin)
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > columns && line != indent {
			lines, line = append(lines, line), indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func (r report) summary() string {
	tried := 0
	for _, v := range r.verdicts {
		for _, a := range v.Attacks {
			if a.Outcome == probe.In || a.Outcome == probe.Refused {
				tried++
			}
		}
	}
	return fmt.Sprintf("%d ok, %d no, %d off; %d attacks tried", r.count(holds), r.count(fails), r.count(off), tried)
}
