package gitsync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"pikuri/lib/sandbox"
	"pikuri/lib/workspace"
)

const (
	defaultTimeout   = 10 * time.Minute
	defaultFileBytes = 4 << 30

	// maxOutput bounds the output of git that is kept. The longest is the list of
	// paths that have changed.
	maxOutput = 64 << 20

	// searchPath holds the directories in which git is looked for: no agent can
	// write there.
	searchPath = "/usr/local/bin:/usr/bin:/bin"
)

// settings keep git from running programs of others, asking for passwords, working
// on in the background, and trusting fetched objects.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.askPass=/bin/false", "core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null", "core.pager=cat", "core.protectHFS=true", "core.protectNTFS=true",
	"credential.helper=", "protocol.allow=never", "submodule.recurse=false", "fetch.recurseSubmodules=false",
	"gc.auto=0", "maintenance.auto=false", "advice.detachedHead=false", "init.templateDir=",
	"transfer.fsckObjects=true",
	// Old histories have these faults, which mislead no git.
	"fetch.fsck.zeroPaddedFilemode=ignore", "fetch.fsck.badTimezone=ignore", "fetch.fsck.missingSpaceBeforeDate=ignore",
}

// scratch is the directory in which git works for one operation.
type scratch struct {
	*sandbox.LocalRunner
	conf Config
	dir  string
}

// newScratch makes a directory that no other user can enter. root is that of the
// workspace.
func newScratch(conf Config, root string) (*scratch, error) {
	if conf.Protocols == nil {
		conf.Protocols = []string{"https"}
	}
	if conf.Timeout <= 0 {
		conf.Timeout = defaultTimeout
	}
	if conf.MaxFileBytes <= 0 {
		conf.MaxFileBytes = defaultFileBytes
	}
	dir, err := os.MkdirTemp(conf.Scratch, "pk-git-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, &workspace.Error{Err: ErrGit, Detail: "there is no directory to work in", Cause: err}
	}
	s := &scratch{conf: conf, dir: dir}
	if dir == root || strings.HasPrefix(dir, root+"/") {
		s.close()
		return nil, gitError("the directory to work in lies in the workspace")
	}
	s.LocalRunner, err = sandbox.NewLocalRunner(dir, sandbox.WithMaxOutputBytes(maxOutput))
	if err != nil {
		s.close()
		detail := "the directory to work in cannot be used"
		if errors.Is(err, sandbox.ErrNotAvailable) {
			detail = err.Error()
		}
		return nil, &workspace.Error{Err: ErrGit, Detail: detail, Cause: err}
	}
	return s, nil
}

func (s *scratch) close() {
	if s.LocalRunner != nil {
		s.LocalRunner.Close()
	}
	_ = os.RemoveAll(s.dir) // leftovers in a temporary directory are no failure
}

// path is a path in the scratch directory.
func (s *scratch) path(name string) string { return filepath.Join(s.dir, name) }

// call is one call of git.
type call struct {
	args  []string
	stdin []byte
	env   map[string]string
}

// run runs git in the scratch directory and returns its output.
func (s *scratch) run(ctx context.Context, c call) (string, error) {
	var args []string
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	for _, protocol := range s.conf.Protocols {
		args = append(args, "-c", "protocol."+protocol+".allow=always")
	}
	env := map[string]string{
		"PATH": searchPath, "HOME": s.dir, "LC_ALL": "C",
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.DevNull, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_ATTR_NOSYSTEM": "1",
		"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false", "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never",
		"GIT_ALLOW_PROTOCOL":      strings.Join(s.conf.Protocols, ":"),
		"GIT_CEILING_DIRECTORIES": filepath.Dir(s.dir), "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1",
		"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oStrictHostKeyChecking=yes -oPermitLocalCommand=no -oForwardAgent=no",
	}
	for name, value := range c.env {
		env[name] = value
	}
	result, err := s.Exec(ctx, "git", append(args, c.args...), sandbox.ExecOptions{
		Stdin: c.stdin, Timeout: s.conf.Timeout,
		Env:       sandbox.EnvPolicy{Allow: append([]string{}, s.conf.Env...), Inject: env},
		Resources: sandbox.Resources{MaxFileBytes: s.conf.MaxFileBytes},
	})
	switch {
	case errors.Is(err, sandbox.ErrTimeout) && ctx.Err() == nil:
		return "", &workspace.Error{Err: context.DeadlineExceeded, Detail: fmt.Sprintf("git took more than %v", s.conf.Timeout)}
	case err != nil && ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", &workspace.Error{Err: ErrGit, Detail: err.Error(), Cause: err}
	case result.ExitCode != 0:
		return "", gitError(s.complaint(result))
	case result.StdoutTruncated():
		return "", workspace.ErrTooLarge
	}
	return result.Stdout, nil
}

// maxComplaint bounds the part of git's message that goes into an error.
const maxComplaint = 300

// complaint is git's reason for its failure: the last line of its own that holds
// one, without control characters and without the directory in which it works.
// Lines that the other side sent begin with "remote:".
func (s *scratch) complaint(r *sandbox.ExecResult) string {
	said := fmt.Sprintf("git ended with status %d", r.ExitCode)
	if r.Signal != "" {
		said = "git died of " + r.Signal
	}
	for line := range strings.Lines(r.Stderr) {
		line = strings.TrimSpace(strings.ReplaceAll(line, s.dir+"/", ""))
		if reason, ok := strings.CutPrefix(line, "fatal: "); ok {
			said = reason
		} else if reason, ok := strings.CutPrefix(line, "error: "); ok {
			said = reason
		}
	}
	said = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, urls().ReplaceAllStringFunc(said, RedactURL))
	return said[:min(len(said), maxComplaint)]
}
