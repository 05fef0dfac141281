package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
)

// run starts both programs, which check the options, and then serves.
func (o *options) run(ctx *cli.Context) error {
	switch {
	case len(ctx.Args) > 0:
		return cli.Usage("extra operand %q", ctx.Args[0])
	case o.ask && o.yes:
		return cli.Usage("--ask cannot be used with --yes")
	case o.confirmer != "" && (o.ask || o.yes):
		return cli.Usage("--confirm-command cannot be used with --ask or --yes")
	}
	shell, err := findProgram("pk-bash")
	if err != nil {
		return err
	}
	files, err := findProgram("pk-fs")
	if err != nil {
		return err
	}
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	loop := append([]string{shell, "--loop", "--no-log", "--state=" + o.state, fmt.Sprintf("--timeout=%d", defaultTimeout)}, o.shell...)
	if o.confirmer != "" {
		loop = append(loop, "--confirm-command="+o.confirmer)
	} else {
		loop = append(loop, "--yes")
	}
	if !o.ends {
		loop = append(loop, "--keep-background")
	}
	c := newChildren(loop, append([]string{files, "--loop"}, o.files...), ctx.Stderr)
	defer c.close()
	told := make(chan description, 1)
	go func() { told <- describe(loop) }()
	for _, p := range []*program{c.shell, c.files} {
		if c, err := p.start(); err != nil {
			return cli.Invalid(err)
		} else {
			p.child, p.starts = c, 1
		}
	}
	if err := refuseForeign(c.root); err != nil {
		return cli.Invalid(err)
	}
	s := newServer(c, o.ask, <-told)
	s.keeps = o.state != "none"
	if o.ask { // pk-bash and pk-fs record all else
		if s.log, err = audit.Open("pk-mcp", c.audit, nil); err != nil {
			return cli.Invalid(err)
		}
		defer s.log.Close()
	}
	return s.serve(signals, newStdio(ctx.Stdin, ctx.Stdout))
}

// description is pk-bash's description of its fence.
type description struct {
	Text    string `json:"description"`
	Network string `json:"network"`
}

// describe asks pk-bash for its description. If pk-bash fails here, the loop fails too, and
// reports the cause.
func describe(loop []string) (d description) {
	cmd := exec.Command(loop[0], append(loop[1:len(loop):len(loop)], "--describe", "--json")...)
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return description{Text: "Runs a bash command in the project, in a sandbox.\n", Network: "host"}
	}
	return d
}

// lastAnswers is how long a client may take to read answers after the end of its input.
const lastAnswers = 3 * time.Second

// serve ends when the transport does, or ctx.
func (s *server) serve(ctx context.Context, t *stdio) error {
	session, err := s.mcp().Connect(ctx, t, nil)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
	case <-t.gone: // the calls are cancelled, and their answers may have no reader
		select {
		case err = <-ended:
		case <-ctx.Done():
		case <-time.After(lastAnswers):
		}
	case <-ctx.Done(): // calls are not waited for: closing the children ends them
	}
	if err != nil {
		return fmt.Errorf("cannot go on: %w", err)
	}
	return nil
}

// refuseForeign refuses to serve a project of another user as root. pk-bash would change to
// that user and pk-fs would not, so they could not share a session.
func refuseForeign(project string) error {
	info, err := os.Stat(project)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		return cli.WithHint(fmt.Errorf("cannot serve %q as root: it belongs to uid %d", project, uid), "run pk-mcp as that user")
	}
	return nil
}
