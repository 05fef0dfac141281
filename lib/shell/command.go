// Package shell runs one shell command for an agent: it asks, supervises,
// captures the output and tells how the command ended.
package shell

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Limits of a command.
const (
	DefaultTimeout   = 120 * time.Second
	MaxTimeout       = 600 * time.Second
	DefaultKillAfter = 5 * time.Second

	// MaxCommand is the most bytes that one command may have.
	MaxCommand = 16 << 20

	// maxArgument is the longest argument that the kernel takes, less its NUL.
	maxArgument = 128<<10 - 1
)

// Check returns why a command cannot be run at all, or "". The words are those
// that agents know.
func Check(command string, timeout int) string {
	switch {
	case strings.TrimSpace(command) == "":
		return "empty bash command."
	case timeout < 1:
		return fmt.Sprintf("timeout must be >= 1, got %d", timeout)
	case timeout > int(MaxTimeout.Seconds()):
		return fmt.Sprintf("timeout must be <= %d, got %d", int(MaxTimeout.Seconds()), timeout)
	case strings.ContainsRune(command, 0):
		return fmt.Sprintf("the command holds a NUL byte, at byte %d.", strings.IndexByte(command, 0))
	case len(command) > MaxCommand:
		return tooLong(command, MaxCommand)
	}
	return ""
}

func tooLong(command string, most int) string {
	return fmt.Sprintf("the command is %d bytes long, and %d is the most; put it into a file and run that.", len(command), most)
}

// Argv is the command line of bash. Bash reads no start-up files, and a command may begin
// with a dash.
func Argv(command string) []string {
	if len(command) > maxArgument {
		command = readsLong
	}
	return []string{"bash", "--noprofile", "--norc", "-c", "--", command}
}

// readsLong is the command in the place of one that is too long for an argument. It is one line, so that
// the lines of the other have their numbers, and leaves the state of bash -c: the variable with the command,
// $_ and no descriptor. A file that bash sources could return, and would be named in messages.
var readsLong = fmt.Sprintf(`IFS= builtin read -r -d "" BASH_EXECUTION_STRING </dev/fd/%[1]d; exec %[1]d<&-; builtin : "$0"; builtin eval "$BASH_EXECUTION_STRING"`, longFD)

// Quiet are variables under which programs neither ask nor page nor keep their
// output in a buffer that dies with them. They yield to the caller's own.
var Quiet = []string{
	"DEBIAN_FRONTEND=noninteractive", "GIT_EDITOR=true", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0",
	"MANPAGER=cat", "NO_COLOR=1", "PAGER=cat", "PIP_NO_INPUT=1", "PYTHONUNBUFFERED=1",
	"SSH_ASKPASS_REQUIRE=never", "SYSTEMD_PAGER=", "TERM=dumb", "npm_config_yes=false",
}

// startup are variables that make bash run or change something before the
// command does.
var startup = []string{"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE"}

// Environ is the caller's environment for a command without a sandbox, without
// variables whose code bash would run before the command.
func Environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(startup, name) || strings.HasPrefix(name, "BASH_FUNC_")
	})
	return WithQuiet(env)
}

// Gated returns the environment of a gated Job: bash reads the script of the gate. In POSIX mode it
// would not, so the script sets the variable that turns this on. ok is false if the Job needs no
// gate: there is nothing to learn from bash, and nothing to tell it.
func Gated(env []string, command string, needed bool) (gated []string, ok bool) {
	if !needed && !tellsPipeline(command) {
		return env, false
	}
	for _, kv := range env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "BASH_ENV", "SHELLOPTS", "POSIX_PEDANTIC":
		case "POSIXLY_CORRECT":
			gated = append(gated, posixLater+"="+value)
		default:
			gated = append(gated, kv)
		}
	}
	return append(gated, readsScript()), true
}

const posixLater = "PK_POSIXLY_CORRECT"

// Unfenced prepares bash without a sandbox. gated means that the Job is Gated even without
// a pipeline.
func Unfenced(command, dir string, gated bool) (*exec.Cmd, error) {
	path, err := exec.LookPath("bash")
	if err != nil {
		return nil, errors.New("cannot find bash in PATH")
	}
	env, _ := Gated(Environ(), command, gated)
	return &exec.Cmd{Path: path, Args: Argv(command), Dir: dir, Env: env}, nil
}

// WithQuiet adds those of Quiet that env does not set, and PK_BASH=1, by which
// a program can tell that an agent runs it.
func WithQuiet(env []string) []string {
	env = slices.Clone(env)
	for _, kv := range Quiet {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") }) {
			env = append(env, kv)
		}
	}
	return append(env, "PK_BASH=1")
}
