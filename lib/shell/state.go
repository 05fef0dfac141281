package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Keep selects the state that a command passes to the next one.
type Keep string

// The values of Keep.
const (
	KeepNothing Keep = "none"
	KeepDir     Keep = "cwd" // the working directory
	KeepEnv     Keep = "env" // and exported variables
)

// State is the state that a command passes to the next one: data that bash assigns, never
// code that it runs. The zero value is the state of the first command.
type State struct {
	Dir     string            // working directory, as seen inside; "": the project root
	Changed map[string]string // exported variables that are not as in the environment
	Removed []string          // variables of the environment that are not there any more
}

// maxState bounds the state of a command. A larger one is not kept.
const maxState = 1 << 20

// script sets the variables, and prints nothing. Variables that bash sets itself are left
// alone: an assignment to RANDOM, which has the integer attribute, would evaluate the
// value as an expression, and run a command substitution in its subscript.
func (s State) script() string {
	var b strings.Builder
	for _, name := range s.Removed {
		fmt.Fprintf(&b, "builtin unset -v %s 2>/dev/null\n", name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Changed)) {
		fmt.Fprintf(&b, "case ${%[1]s@a} in '') [[ -v %[1]s ]] ;; x) false ;; *) true ;; esac || { builtin export %[1]s=%[2]s; } 2>/dev/null\n",
			name, Quote(s.Changed[name]))
	}
	return b.String()
}

// Names lists the variables that are not as in the environment.
func (s State) Names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(s.Changed)), s.Removed...)))
}

// tell returns the code with which bash reports its state when it ends.
func (k Keep) tell() string {
	switch k {
	case KeepDir:
		return `builtin echo state; builtin pwd -P; builtin printf '\0\0'; `
	case KeepEnv:
		return `builtin echo state; builtin pwd -P; builtin printf '\0'; builtin declare -px; builtin printf '\0'; `
	}
	return ""
}

// stateIn parses the report of bash. env is the environment in which bash was started. An
// empty Dir means that the working directory has been removed.
func (k Keep) stateIn(told string, env []string) *State {
	dir, rest, ok := strings.Cut(told, "\x00")
	declared, end, ended := strings.Cut(rest, "\x00")
	if dir = strings.TrimSuffix(dir, "\n"); !ok || !ended || end != "" || dir != "" && dir[0] != '/' {
		return nil
	}
	s := &State{Dir: dir}
	if k != KeepEnv {
		return s
	}
	now, ok := declarations(declared)
	if !ok {
		return nil
	}
	before := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		before[name] = value
		if _, there := now[name]; !there && carried(name) {
			s.Removed = append(s.Removed, name)
		}
	}
	s.Changed = now
	maps.DeleteFunc(s.Changed, func(name, value string) bool {
		old, there := before[name]
		return there && old == value || !carried(name)
	})
	return s
}

// carried reports whether a variable passes from command to command. Bash's own variables
// do not, nor do variables that make bash run code before the command.
func carried(name string) bool {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !slices.Contains(startup, name) && !slices.Contains(bashs, name) &&
		!strings.HasPrefix(name, "BASH") && !strings.HasPrefix(name, "HIST") && !strings.HasPrefix(name, "PK_")
}

// bashs are variables of bash itself, as startup are.
var bashs = []string{"PWD", "OLDPWD", "SHLVL", "_", "IFS", "FUNCNEST", "POSIXLY_CORRECT", "POSIX_PEDANTIC", "EXECIGNORE", "TMOUT", "TIMEFORMAT", "histchars", "PS0", "PS1", "PS2", "PS3"}

// declarations parses the output of declare -px: declare -FLAGS NAME="VALUE", or $'VALUE'
// if a character is not printable. It omits arrays and variables without a value.
func declarations(text string) (found map[string]string, ok bool) {
	found = map[string]string{}
	for text != "" {
		var flags, name, value string
		if text, ok = strings.CutPrefix(text, "declare -"); !ok {
			return nil, false
		}
		if flags, text, ok = strings.Cut(text, " "); !ok {
			return nil, false
		}
		at := strings.IndexAny(text, "=\n")
		if at < 0 {
			return nil, false
		}
		name = text[:at]
		if text[at] == '\n' {
			text = text[at+1:]
			continue
		}
		if strings.ContainsAny(flags, "aA") { // no program gets an array, but bash lists them
			if text, ok = afterArray(text); !ok {
				return nil, false
			}
			continue
		}
		if value, text, ok = declared(text[at+1:]); !ok {
			return nil, false
		}
		found[name] = value
	}
	return found, true
}

// afterArray is the text after the line of an array: NAME=([KEY]="VALUE" [KEY]=$'VALUE').
func afterArray(text string) (rest string, ok bool) {
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != 0:
			i++
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '\n':
			return text[i+1:], true
		}
	}
	return "", false
}

// declared reads one value and the end of its line.
func declared(text string) (value, rest string, ok bool) {
	var b strings.Builder
	quote := byte('"')
	if rest, ok = strings.CutPrefix(text, "$'"); ok {
		quote = '\''
	} else if rest, ok = strings.CutPrefix(text, `"`); !ok {
		return "", "", false
	}
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == quote:
			rest, ok = strings.CutPrefix(rest[i+1:], "\n")
			return b.String(), rest, ok
		case c != '\\':
			b.WriteByte(c)
		case i+1 == len(rest):
			return "", "", false
		case quote == '"':
			i++
			b.WriteByte(rest[i])
		default:
			n := 0
			if c, n = ansiEscape(rest[i+1:]); n == 0 {
				return "", "", false
			}
			b.WriteByte(c)
			i += n
		}
	}
	return "", "", false
}

// ansiEscape reads the rest of an escape in $'…' after the backslash, as bash itself writes
// it.
func ansiEscape(text string) (c byte, n int) {
	const letters, meant = `abeEfnrtv\'"?`, "\a\b\x1b\x1b\f\n\r\t\v\\'\"?"
	if at := strings.IndexByte(letters, text[0]); at >= 0 {
		return meant[at], 1
	}
	for n < 3 && n < len(text) && text[n] >= '0' && text[n] <= '7' {
		c = c<<3 | (text[n] - '0')
		n++
	}
	return c, n
}
