package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInside(t *testing.T) {
	s := newServer(&children{session: "S", roots: []root{{Path: "/src/app"}, {Path: "/home/u/.cache/pikuri/workspace-S/playground"}}}, false, description{})
	for _, row := range []struct{ name, typed, message, want string }{
		{"nothing to hide", "x", `cannot read "x": no such file`, `cannot read "x": no such file`},
		{"roots", "../x", `cannot read "../x": outside every readable root ("/src/app", "/home/u/t")`, `cannot read "../x": outside every readable root`},
		{"file of the project", "x", `it belongs to the root "/src/app"`, `it belongs to the root "/src/app"`},
		{"session tmp", "x", `it lies in "/home/u/.cache/pikuri/workspace-S/playground/a"`, `it lies in "/tmp/a"`},
		{"another file", "x", `cannot use "/home/u/.config/pikuri/confirm": no`, `cannot use a file outside: no`},
		{"neighbour of the project", "x", `"/src/app2"`, `a file outside`},
		{"what was typed", "/etc/shadow", `cannot read "/etc/shadow": outside`, `cannot read "/etc/shadow": outside`},
		{"rule", "x", `cannot read "x": --deny "x" of "/home/u/pol", line 3 covers it`, `cannot read "x": the server's options forbid it`},
		{"list of what may be written", "x", `cannot write "x": no --allow-write pattern matches it`, `cannot write "x": the server's options forbid it`},
		{"answerer", "x", `--yes cannot be used: only the terminal may answer, says "/home/u/c"`, `the server's options forbid it`},
		{"dashes that were typed", "a --b", `cannot read "a --b": no such file`, `cannot read "a --b": no such file`},
	} {
		assert.Equal(t, row.want, s.inside(row.message, row.typed), row.name)
	}
}

// The model gets messages about the call. Messages about the server go to standard error.
func TestForModel(t *testing.T) {
	var stderr bytes.Buffer
	s := newServer(&children{stderr: &stderr, roots: []root{{Path: "/src/app"}}}, false, description{})
	for _, row := range []struct{ name, outcome, message, cwd, want string }{
		{"answerer", "refused", `--yes cannot be used: only the terminal may answer, says "/home/u/.config/pikuri/confirm"`, "", notAllowed},
		{"malformed file", "refused", `cannot use "/home/u/.config/pikuri/confirm": line 1: "s3cret" is neither "require terminal" nor "require command PROGRAM"`, "", notAllowed},
		{"malformed file, named as cwd", "refused", `cannot use "/home/u/.config/pikuri/confirm": line 1: "s3cret" is neither`, "/home/u/.config/pikuri/confirm", notAllowed},
		{"variable", "refused", `variable PK_CONFIRM: "s3cret" is neither "yes" nor "no"`, "", notAllowed},
		{"policy", "refused", `"/home/u/pol", line 3: s3cret`, "", notAllowed},
		{"no sandbox", "sandbox-failed", `bwrap: cannot mount "/home/u/x"`, "", noFence},
		{"after the command", "exited", `cannot move "/home/u/.cache/pikuri/x"`, "", notClean},
		{"nothing", "exited", "", "", ""},
		{"job", "refused", `job "j1" has ended`, "", `job "j1" has ended`},
		{"directory", "refused", `cannot read "../x": outside every readable root ("/src/app")`, "../x", `cannot read "../x": outside every readable root`},
		{"directory that is not there", "refused", `cannot begin in "/tmp/x": no such directory`, "/tmp/x", `cannot begin in "/tmp/x": no such directory`},
		{"removed", "exited", "the working directory was removed: the next command begins in the project root", "", "the working directory was removed: the next command begins in the project root"},
	} {
		stderr.Reset()
		got := s.forModel(&result{Outcome: row.outcome, Error: row.message}, row.cwd, row.cwd)
		assert.Equal(t, row.want, got.Error, row.name)
		if row.want == notAllowed || row.want == noFence || row.want == notClean {
			assert.Contains(t, stderr.String(), row.message, row.name)
		} else {
			assert.Empty(t, stderr.String(), row.name)
		}
	}
	for _, row := range []struct{ line, want string }{
		{`the repository "/src/app/a" works in the sandbox alone until: pk-fs git-adopt /src/app/a`, `the repository "/src/app/a" works in the sandbox alone`},
		{`the repository "/home/u/b", which a killed command has made, works in the sandbox alone until: pk-fs git-adopt '/home/u/b c'`, `the repository a file outside, which a killed command has made, works in the sandbox alone`},
		{`"/src/app/a" has got a .git meanwhile; if you have made it, and have looked at them: mv /src/app/a/.git.fenced /src/app/a/.git`, `"/src/app/a" has got a .git meanwhile; if you have made it, and have looked at them`},
		{`the submodule "m" is populated in the sandbox alone, and so is what commands write there; on the host: git submodule update --init`, `the submodule "m" is populated in the sandbox alone, and so is what commands write there`},
		{`what was written to the submodule "m" is gone, since another command uses it: name a session`, `what was written to the submodule "m" is gone, since another command uses it`},
	} {
		got := s.forModel(&result{Outcome: "exited", Git: []string{row.line}}, "", "")
		assert.Equal(t, []string{row.want}, got.Git)
		assert.Equal(t, "git: "+row.want, got.notes()[0])
	}
}

// A fact has no path of the host, and no option.
func TestFacts(t *testing.T) {
	for _, row := range []struct {
		fact fact
		want string
	}{
		{fact{Path: "/home/u/bin/tool", Word: "tool", Access: "not shown", Option: "--readable /home/u/bin"}, `fence: "tool" is not shown in the sandbox; the user can allow it`},
		{fact{Path: "/src/app/.env", Word: ".env", Access: "masked"}, `fence: ".env" is masked in the sandbox`},
		{fact{Host: "a.example", Access: "no network", Option: "--net allow --allow-host a.example"}, `fence: no network in the sandbox: "a.example"; the user can allow it`},
		{fact{Access: "no network"}, "fence: no network in the sandbox"},
		{fact{Path: "/p/.envrc", Access: "protected"}, `fence: "/p/.envrc" is protected in the sandbox`},
		{fact{Path: "/home/u/.bashrc", Access: "lost"}, `fence: "/home/u/.bashrc" was written in the sandbox, and is lost with the command`},
	} {
		assert.Equal(t, []string{row.want}, (&result{Fence: []fact{row.fact}}).notes())
	}
}

// A name does not look like lines of other files.
func TestNamesInALine(t *testing.T) {
	for name, want := range map[string]string{"a b": "a b", "é\xff": "é\xff", "a\nb.c:2:ok": `"a\nb.c:2:ok"`, "\x1b[2J": `"\x1b[2J"`} {
		assert.Equal(t, want, inALine(name))
	}
}
