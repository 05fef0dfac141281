package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"pikuri/lib/cli"
)

const help = `Usage: pk-mcp [OPTION]...

Serves the Model Context Protocol on standard input and output: a shell whose
commands run in the sandbox of pk-bash, jobs in the background, and the files of
the workspace, as pk-fs reads and writes them. It is for agents; configure it as
a server that they start. Ends when its standard input does, and with it all
that runs.

Server:
      --ask                  ask through the client before each command; without
                             it, the client is meant to ask its user
      --confirm-command PROGRAM
                             have PROGRAM answer, as for pk-bash
  -y, --yes                  do not ask, the default
      --no-keep-background   end what a command leaves running with the command
      --state none|cwd|env   what lasts from command to command: nothing, the
                             working directory (default), or also the environment

Workspace, for commands and files alike:
  -C, --project-root DIR     the project root
                             (default $PK_PROJECT_ROOT, else the working directory)
      --readable PATH        a further root, not writable; repeatable
      --writable DIR         a further root, writable; repeatable
      --readable-from FILE   the same from a list, one a line
      --writable-from FILE
      --session NAME         join a session (default $PK_SESSION); without one, a
                             session lasts as long as the server
      --temp DIR             use DIR as the session tmp instead
      --deny PATTERN         matches are neither read nor written; repeatable
      --deny-read PATTERN    matches are not read
      --allow-write PATTERN  only matches are written
      --no-protect           protect nothing by default
      --audit FILE           append a record of each command, and of each operation
                             that changes files, to FILE; or do nothing
      --policy FILE          take options of this kind and the next from a file
  -z, --zero                 lists end their records in NUL

Sandbox, for commands; pk-bash --help explains them:
      --overlay DIR
      --overlay-from FILE
      --trial
      --no-toolchains
      --net host|none|allow
      --allow-host NAME[:PORT,...] [private]
      --allow-host-from FILE
      --publish PORT
      --connect PORT
      --env-inherit
      --pass-env NAME
      --setenv NAME=VALUE
      --require NAME,...
      --allow-nested
      --trace
      --memory SIZE
      --pids N
      --cpu-time SECONDS
      --file-size SIZE
      --bwrap PATH

  -h, --help                 this text
      --version [--json]     the version

Exit status: 0 standard input has ended, or a signal came; 1 something could not
be done; 2 called wrongly, or the workspace is invalid.

Examples:
  pk-mcp -C src --net none </dev/null
`

// options of pk-mcp.
type options struct {
	ask, yes  bool
	confirmer string // --confirm-command
	ends      bool   // --no-keep-background
	state     string
	shell     []string // for pk-bash
	files     []string // for pk-fs
}

func command() *cli.Command { return new(options).command() }

func (o *options) command() *cli.Command {
	o.state = "cwd"
	list := []cli.Option{
		cli.Switch(&o.ask, "ask", ""),
		cli.Switch(&o.yes, "yes", "y"),
		cli.Name(&o.confirmer, "confirm-command", ""),
		cli.Switch(&o.ends, "no-keep-background", ""),
		cli.Func(o.setState, "state", ""),
	}
	w := new(cli.WorkspaceFlags)
	for _, option := range append(w.WithPolicy(append(append(w.Options(), w.RuleOptions()...), w.AuditOption())), cli.Switch(new(bool), "zero", "z")) {
		if option.Long != "no-alias-tmp" { // /tmp is the same for both in any case
			list = append(list, handedOn(option, &o.shell, &o.files))
		}
	}
	for _, option := range cli.SandboxOnly() {
		list = append(list, handedOn(option, &o.shell))
	}
	return &cli.Command{Name: "pk-mcp", Version: version, Help: help, Options: list, Action: o.run}
}

// handedOn is an option for pk-bash, for pk-fs or for both. pk-mcp starts them before the
// first request, and they check the option.
func handedOn(o cli.Option, to ...*[]string) cli.Option {
	hand := func(word string) {
		for _, args := range to {
			*args = append(*args, "--"+o.Long+word)
		}
	}
	if !o.Value {
		return cli.Switch(new(bool), o.Long, o.Short).Noted(func() { hand("") })
	}
	return cli.Func(func(v string) error { hand("=" + v); return nil }, o.Long, o.Short)
}

// Run is the whole command.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command().Run(args, stdin, stdout, stderr)
}

func (o *options) setState(v string) error {
	states := []string{"none", "cwd", "env"}
	if !slices.Contains(states, v) {
		return fmt.Errorf("%q is none of %s", v, strings.Join(states, ", "))
	}
	o.state = v
	return nil
}
