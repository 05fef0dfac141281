package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/monitor"
	"pikuri/lib/probe"
	"pikuri/lib/session"
)

// --check takes three processes, all of this program:
//
//	the check    makes what is to be attacked, starts the next, and judges
//	the sandbox  an ordinary pk-bwrap with the options of the check, which runs the third
//	the probe    attacks from inside
//
// The sandbox inherits descriptors, a key, a terminal and variables from the check, as
// from any careless caller.

// sandboxOption is the mode of the second process. TARGETS and the options follow.
const sandboxOption = "--pk-check"

// probePath is where the probe is in its sandbox, and in no other.
const probePath = "/.pk-probe"

// self is this program, even if its file is replaced.
const self = "/proc/self/exe"

// checkTime bounds the whole: the attacks take some ten milliseconds.
const checkTime = 60 * time.Second

// checkModes are the modes of the other processes of a check.
func checkModes(stdin io.Reader, stdout, stderr io.Writer) []cli.Mode {
	return append(probe.Modes(stdin, stdout), cli.Mode{Name: sandboxOption, Run: func(args []string) error {
		return runSandbox(args, stdin, stdout, stderr)
	}})
}

// opening is the sandbox's report before it starts, or instead.
type opening struct {
	Bwrap      string
	RunAs      int // the project's owner, whom root became
	Guarantees []bwrap.Guarantee
	Refused    string // why there is no sandbox
	Advice     string
}

// runSandbox is the second process.
func runSandbox(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	t := &probe.Targets{}
	if len(args) == 0 || json.Unmarshal([]byte(args[0]), t) != nil || t.Dir == "" {
		return cli.ErrOwnUse
	}
	o := &options{}
	c := o.command()
	c.Action = func(ctx *cli.Context) error { return o.startProbe(ctx, t) }
	return cli.Exit(c.Run(args[1:], stdin, stdout, stderr))
}

func (o *options) startProbe(ctx *cli.Context, t *probe.Targets) error {
	o.Stage(t.Project(), t.Second())
	f, err := o.Open(ctx)
	if err != nil {
		return tellRefusal(ctx, err)
	}
	if err = o.runProbe(ctx, f, t); err != nil {
		err = writeJSON(ctx, opening{Bwrap: f.Fence.Bwrap.Path, Refused: err.Error(), Advice: cli.HintOf(err)})
	}
	return errors.Join(err, f.Close())
}

// runProbe prints the promised guarantees, and runs the probe in the sandbox.
func (o *options) runProbe(ctx *cli.Context, f *sandboxflags.Fence, t *probe.Targets) error {
	t.Home, t.Passed = os.Getenv("HOME"), f.Plan.PassFDs
	if slices.ContainsFunc(f.Plan.Vars, func(v bwrap.Var) bool { return v.Name == t.Variable && strings.HasPrefix(v.Rule, "option ") }) {
		t.Variable = "" // as the caller asked for
	}
	if err := writeJSON(ctx, opening{Bwrap: f.Fence.Bwrap.Path, RunAs: f.Plan.RunAs, Guarantees: f.Plan.Guarantees()}); err != nil {
		return err
	}
	f.Plan.Mounts = append(f.Plan.Mounts, bwrap.Mount{Op: bwrap.OpCopy, Source: self, Dest: probePath, Perms: "0555", Rule: "check"})
	streams := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	err := errors.Join(f.CheckHost(), monitor.CheckStreams(streams))
	if err == nil {
		err = f.OpenLayers() // the scene judges what lands
	}
	if err == nil {
		_, _, err = attend(f, []string{probePath, probe.Option, t.Argument()}, streams)
	}
	if errors.Is(err, errNotMade) {
		return nil // read finds bwrap's message
	}
	return err
}

// tellRefusal prints that a sandbox is refused or cannot be made, which is a finding.
// Other errors are the caller's mistakes.
func tellRefusal(ctx *cli.Context, err error) error {
	_, refused := errors.AsType[*bwrap.Refusal](err)
	_, unavailable := errors.AsType[*bwrap.Unavailable](err)
	if !refused && !unavailable {
		return err
	}
	return writeJSON(ctx, opening{Refused: err.Error(), Advice: cli.HintOf(err)})
}

func writeJSON(ctx *cli.Context, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return writeLines(ctx, []string{string(line)})
}

// runCheck is the first process.
func (o *options) runCheck(ctx *cli.Context) error {
	for _, check := range []func() error{bwrap.CheckSystem, bwrap.CheckUmask, bwrap.CheckFiles, bwrap.CheckProcesses} {
		if err := check(); err != nil {
			return err
		}
	}
	interrupted, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	limited, cancel := context.WithTimeout(interrupted, checkTime)
	defer cancel()

	runtime.LockOSThread() // keys belong to threads
	defer runtime.UnlockOSThread()
	uid, gid := o.Owner()
	scene, err := probe.New(o.sceneParent(), self, uid, gid)
	if err != nil {
		return err
	}
	found, err := o.attack(limited, ctx, scene)
	if err = errors.Join(err, scene.Remove()); err != nil {
		return err
	}
	report := judge(found)
	if o.json {
		err = report.writeJSON(ctx)
	} else {
		err = report.write(ctx, cli.Colours(ctx.Stdout, os.Getenv))
	}
	if err != nil {
		return err
	}
	return cli.Exit(report.status())
}

// sceneParent: with --temp, that directory is /tmp, and nothing below the
// host's can be shown.
func (o *options) sceneParent() string {
	if o.Temp != "" {
		return "/var/tmp"
	}
	return os.TempDir()
}

// found is the result of the attacks.
type found struct {
	opening
	results []probe.Result
}

// attack runs the sandbox and its probe to their end.
func (o *options) attack(limit context.Context, ctx *cli.Context, scene *probe.Scene) (found, error) {
	var stdout, stderr bytes.Buffer
	if base, err := session.Base(os.Getenv); !o.NoProtect { // the scene has a home of its own
		if err == nil {
			err = session.CanMakeBase(base)
		}
		if err != nil {
			return found{opening: opening{Refused: err.Error(), Advice: cli.HintOf(err)}}, nil
		}
	}
	cmd := exec.CommandContext(limit, self, append([]string{sandboxOption, scene.Argument()}, o.args...)...)
	cmd.Env = scene.Environ(os.Environ())
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	switch terminal := scene.Terminal(); {
	case o.ListsFromStdin():
		cmd.Stdin = ctx.Stdin
	case terminal != nil:
		cmd.Stdin, cmd.SysProcAttr.Setctty = terminal, true
	}
	err := cmd.Run()
	if limit.Err() != nil {
		return found{}, fmt.Errorf("the check was ended: %w", context.Cause(limit))
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return found{}, fmt.Errorf("cannot start the sandbox: %w", err)
	}
	return o.read(ctx, scene, stdout.Bytes(), stderr.String())
}

// read parses the output of the sandbox: its opening, or its refusal, even at the last
// moment; and after that, the results of the probe.
func (o *options) read(ctx *cli.Context, scene *probe.Scene, stdout []byte, stderr string) (found, error) {
	f, opened := found{}, false
	for line := range bytes.Lines(stdout) {
		next := f.opening
		if json.Unmarshal(line, &next) == nil {
			f.opening, opened = next, true
		}
	}
	f.results = scene.Judge(bytes.NewReader(stdout))
	started := slices.ContainsFunc(f.results, func(r probe.Result) bool { return r.Outcome != probe.Untried })
	if f.Refused == "" && opened && !started {
		no := bwrap.Diagnose(lastLine(stderr))
		f.Refused, f.Advice = no.Error(), cli.HintOf(no)
		return f, nil
	}
	_, err := io.WriteString(ctx.Stderr, stderr) // warnings, or a usage error
	if !opened {
		err = errors.Join(err, cli.Exit(cli.StatusFailed))
	}
	return f, err
}

// lastLine is the error that ended a program; the lines before are warnings.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
