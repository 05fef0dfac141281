package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInside(t *testing.T) {
	s := newServer(&children{session: "S", roots: []root{{Path: "/src/app"}, {Path: "/home/u/.cache/pikuri/workspace-S/playground"}}}, false, description{})
	for _, row := range []struct{ name, typed, message, want string }{
		{"nothing to hide", "x", `cannot read "x": no such file`, `cannot read "x": no such file`},
		{"roots", "../x", `cannot read "../x": outside every readable root ("/src/app", "/home/u/t")`, `cannot read "../x": outside every readable root`},
		{"file of the project", "x", `it is to be found in the root "/src/app"`, `it is to be found in the root "/src/app"`},
		{"session tmp", "x", `it lies in "/home/u/.cache/pikuri/workspace-S/playground/a"`, `it lies in "/tmp/a"`},
		{"another file", "x", `cannot use "/home/u/.config/pikuri/confirm": no`, `cannot use a file outside: no`},
		{"neighbour of the project", "x", `"/src/app2"`, `a file outside`},
		{"what was typed", "/etc/shadow", `cannot read "/etc/shadow": outside`, `cannot read "/etc/shadow": outside`},
		{"rule", "x", `cannot read "x": --deny "x" of "/home/u/pol", line 3 covers it`, `cannot read "x": the server's options forbid it`},
		{"list of what may be written", "x", `cannot write "x": no --allow-write pattern matches it`, `cannot write "x": the server's options forbid it`},
		{"answerer", "x", `--yes cannot be used: only the terminal may answer, says "/home/u/c"`, `the server's options forbid it`},
		{"dashes that were typed", "a --b", `cannot read "a --b": no such file`, `cannot read "a --b": no such file`},
		{"git", "x", `git: the repository "/src/app/a" works in the sandbox alone until: pk-fs git-adopt "/src/app/a"`, `git: the repository "/src/app/a" works in the sandbox alone until: pk-fs git-adopt "/src/app/a"`},
	} {
		assert.Equal(t, row.want, s.inside(row.message, row.typed), row.name)
	}
}
