// Package blockedtest holds facts of lib/blocked against the machine, without the plan:
// it looks at the paths on the host, in the sandbox, and in one with the option that a
// fact names.
package blockedtest

import (
	"fmt"
	"strings"

	"pikuri/lib/blocked"
	"pikuri/lib/shell"
)

// Shell runs a script, on the host if fenced is false, else in the sandbox of the command
// with further options. It returns the standard output, and false if there is no sandbox.
type Shell func(script string, fenced bool, options ...string) (string, bool)

// view is how one place sees a path.
type view struct {
	There    bool
	Readable bool
	Runs     bool   // a file can be executed, a directory searched
	Writable bool   // it, or the innermost directory that exists
	Mount    bool   // a mount point, or one lies below
	Content  string // a checksum, of a directory that of its names
}

// look prints a view of each path. The test -w of a shell asks access(2), which knows of
// read-only mounts.
const look = `
mounts=$(while read -r _ _ _ _ at _; do printf ' %b/' "$at"; done </proc/self/mountinfo)
look() {
	d=$1 s=
	until [ -e "$d" ] || [ "$d" = / ]; do d=${d%/*}; d=${d:-/}; done
	if [ -e "$1" ] || [ -L "$1" ]; then s=t; fi
	if [ -r "$1" ]; then s=${s}r; fi
	if [ -x "$1" ]; then s=${s}x; fi
	if [ -w "$d" ]; then s=${s}w; fi
	case $mounts in *" $1/"*) s=${s}m ;; esac
	if [ -f "$1" ] && [ -r "$1" ]; then s="$s $(cksum <"$1")"; fi
	if [ -d "$1" ] && [ -r "$1" ]; then s="$s $(ls -A "$1" | cksum)"; fi
	echo "$s"
}
`

func views(run Shell, facts []blocked.Fact, fenced bool, options ...string) ([]view, bool) {
	script := look
	for _, f := range facts {
		script += "look '" + strings.ReplaceAll(f.Path, "'", `'\''`) + "'\n"
	}
	out, ok := run(script, fenced, options...)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if !ok || len(lines) != len(facts) {
		return nil, false
	}
	list := make([]view, len(facts))
	for i, line := range lines {
		flags, content, _ := strings.Cut(line, " ")
		has := func(flag string) bool { return strings.Contains(flags, flag) }
		list[i] = view{has("t"), has("r"), has("x"), has("w"), has("m"), content}
	}
	return list, true
}

// Untrue returns a line for each fact that does not hold, and for each option that does
// not allow what its fact promises.
func Untrue(facts []blocked.Fact, run Shell) (untrue []string) {
	if len(facts) == 0 {
		return nil
	}
	host, ok := views(run, facts, false)
	fence, ok2 := views(run, facts, true)
	if !ok || !ok2 {
		return []string{"no views of the host and the sandbox"}
	}
	with := map[string][]view{}
	for i, f := range facts {
		say := func(text string, seen ...view) {
			untrue = append(untrue, fmt.Sprintf("%s: %s %+v", f.Line(""), text, seen))
		}
		if problem := wrong(f, host[i], fence[i], run); problem != "" {
			say(problem, host[i], fence[i])
		}
		if f.Option == "" {
			continue
		}
		if _, done := with[f.Option]; !done {
			with[f.Option], _ = views(run, facts, true, words(f.Option)...)
		}
		switch allowed := with[f.Option]; {
		case allowed == nil:
			say("the option is refused")
		case !promised(f, host[i], allowed[i], run):
			say("the option does not do it", host[i], allowed[i])
		}
	}
	return untrue
}

func words(option string) []string {
	list, _ := shell.SplitWords(option)
	return list
}

// wrong says what of a fact does not hold, apart from its option.
func wrong(f blocked.Fact, host, fence view, run Shell) string {
	switch f.Access {
	case blocked.NotShown:
		switch {
		case !host.There:
			return "the host does not have it"
		case !host.Readable && !host.Runs && !host.Writable:
			return "the host refuses it as well"
		case fence.There:
			return "it is shown"
		}
	case blocked.ReadOnly:
		switch {
		case !host.Writable:
			return "the host does not let the user write"
		case fence.Writable:
			return "it can be written"
		}
	case blocked.Masked:
		switch {
		case !host.There:
			return "the host does not have it"
		case host.Readable && fence.Readable && host.Content == fence.Content:
			return "it is as on the host"
		}
	case blocked.Protected:
		if fence.Writable && !fence.Mount {
			return "it can be written, and is no mount point"
		}
	case blocked.NoNetwork:
		if network(run) {
			return "there is a network"
		}
	case blocked.Lost:
		if host.There && fence.There {
			return "the sandbox shows the host's"
		}
	default:
		return "no such access"
	}
	return ""
}

// promised reports whether the option of a fact does what its line says, by a view with
// the option.
func promised(f blocked.Fact, host, allowed view, run Shell) bool {
	switch f.Access {
	case blocked.NotShown:
		writes := strings.HasPrefix(f.Option, "--writable ")
		return allowed.There && allowed.Readable == host.Readable && allowed.Content == host.Content && (allowed.Writable || !writes)
	case blocked.ReadOnly, blocked.Lost:
		return allowed.Writable
	case blocked.NoNetwork:
		return network(run, words(f.Option)...)
	}
	return false
}

// network reports whether the sandbox has a route.
func network(run Shell, options ...string) bool {
	out, _ := run("while read -r _ to _; do echo $to; done </proc/net/route; while read -r to _ _ _ _ _ _ _ _ dev; do [ $dev = lo ] || echo $to; done </proc/net/ipv6_route", true, options...)
	return strings.Contains(out, "00000000")
}
