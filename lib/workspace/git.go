package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/sandbox"
)

// Whoever can write to a repository decides what git runs in it: hooks, filters,
// a file system monitor, the program that fetches; and, by links and by a .git
// that is a file, where git writes. There is no list of all that. So git is never
// run in a repository of the workspace. It works in a directory of its own, on
// what it got from the network; what comes out of that is moved or copied into
// the workspace like any other file. What has to be known of the repository (the
// branch, the commit, the address) is read as data.

// ErrGit: git failed, or is missing, or the repository is not one that can be
// worked with.
var ErrGit error = &sentinel{"git failed", nil}

// GitConfig says how the Git operations of a LocalWorkspace reach the outside.
// The zero value reaches it by https alone, and knows no user.
type GitConfig struct {
	// Protocols are those of URLs that may be used: "https", "http", "ssh", "git",
	// "file". Nil is "https". With "file", repositories of the host can be read;
	// with "ssh", keys of the user are used.
	Protocols []string

	// Env names variables of this program that git gets, such as "https_proxy",
	// "SSL_CERT_FILE" or "SSH_AUTH_SOCK". It gets no others.
	Env []string

	// Timeout bounds an operation; 0 is ten minutes.
	Timeout time.Duration

	// MaxFileBytes bounds each file that git writes, the packed history among
	// them; 0 is four GiB.
	MaxFileBytes int64

	// Scratch is a directory outside the workspace in which git works; "" is
	// os.TempDir. On the file system of the workspace, a clone need not be copied.
	Scratch string
}

// WithGit sets how Git operations reach the outside.
func WithGit(c GitConfig) Option { return func(conf *config) { conf.git = c } }

const (
	defaultGitTimeout  = 10 * time.Minute
	defaultGitFileSize = 4 << 30

	// maxGitOutput bounds what is kept of what git prints: paths that have changed
	// are the longest of it.
	maxGitOutput = 64 << 20

	// maxURL is more than any address has, and less than what fills a screen.
	maxURL = 2048

	// gitPath is where git is looked for: never where an agent can write.
	gitPath = "/usr/local/bin:/usr/bin:/bin"
)

// gitSettings are those that matter wherever they could be set: nothing is run
// that is not git's own, nobody is asked, nothing is done later in the background,
// and nothing that is fetched is believed.
var gitSettings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.askPass=/bin/false", "core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null", "core.pager=cat", "core.protectHFS=true", "core.protectNTFS=true",
	"credential.helper=", "protocol.allow=never", "submodule.recurse=false", "fetch.recurseSubmodules=false",
	"gc.auto=0", "maintenance.auto=false", "advice.detachedHead=false", "init.templateDir=",
	"transfer.fsckObjects=true",
	// Old histories have these, and no git is misled by them.
	"fetch.fsck.zeroPaddedFilemode=ignore", "fetch.fsck.badTimezone=ignore", "fetch.fsck.missingSpaceBeforeDate=ignore",
}

// gitScratch is where git works for one operation.
type gitScratch struct {
	*sandbox.LocalRunner
	conf GitConfig
	dir  string
}

// gitScratch makes a directory that nobody else can enter. It is to be closed.
func (w *LocalWorkspace) gitScratch() (*gitScratch, error) {
	conf := w.conf.git
	if conf.Protocols == nil {
		conf.Protocols = []string{"https"}
	}
	if conf.Timeout <= 0 {
		conf.Timeout = defaultGitTimeout
	}
	if conf.MaxFileBytes <= 0 {
		conf.MaxFileBytes = defaultGitFileSize
	}
	dir, err := os.MkdirTemp(conf.Scratch, "pk-git-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, &Error{Err: ErrGit, Detail: "there is no directory to work in", Cause: err}
	}
	s := &gitScratch{conf: conf, dir: dir}
	if dir == w.tree.path || strings.HasPrefix(dir, w.tree.path+"/") {
		s.close()
		return nil, &Error{Err: ErrGit, Detail: "the directory to work in lies in the workspace"}
	}
	s.LocalRunner, err = sandbox.NewLocalRunner(dir, sandbox.WithMaxOutputBytes(maxGitOutput))
	if err != nil {
		s.close()
		return nil, &Error{Err: ErrGit, Detail: "the directory to work in cannot be used", Cause: err}
	}
	return s, nil
}

func (s *gitScratch) close() {
	if s.LocalRunner != nil {
		s.LocalRunner.Close()
	}
	_ = os.RemoveAll(s.dir) // what is left in a temporary directory is no failure
}

// path is a place in the scratch directory.
func (s *gitScratch) path(name string) string { return filepath.Join(s.dir, name) }

// gitCall is one call of git.
type gitCall struct {
	args  []string
	stdin []byte
	env   map[string]string
	also  int // a status that is an answer, beside 0
}

// run runs git in the scratch directory and returns what it printed, and its
// status.
func (s *gitScratch) run(ctx context.Context, call gitCall) (string, int, error) {
	var args []string
	for _, setting := range gitSettings {
		args = append(args, "-c", setting)
	}
	for _, protocol := range s.conf.Protocols {
		args = append(args, "-c", "protocol."+protocol+".allow=always")
	}
	env := map[string]string{
		"PATH": gitPath, "HOME": s.dir, "LC_ALL": "C",
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.DevNull, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_ATTR_NOSYSTEM": "1",
		"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false", "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never",
		"GIT_ALLOW_PROTOCOL":      strings.Join(s.conf.Protocols, ":"),
		"GIT_CEILING_DIRECTORIES": filepath.Dir(s.dir), "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1",
		"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oStrictHostKeyChecking=yes -oPermitLocalCommand=no -oForwardAgent=no",
	}
	for name, value := range call.env {
		env[name] = value
	}
	result, err := s.Exec(ctx, "git", append(args, call.args...), sandbox.ExecOptions{
		Stdin: call.stdin, Timeout: s.conf.Timeout,
		Env:       sandbox.EnvPolicy{Allow: append([]string{}, s.conf.Env...), Inject: env},
		Resources: sandbox.Resources{MaxFileBytes: s.conf.MaxFileBytes},
	})
	switch {
	case errors.Is(err, sandbox.ErrTimeout) && ctx.Err() == nil:
		return "", 0, &Error{Err: context.DeadlineExceeded, Detail: fmt.Sprintf("git took more than %v", s.conf.Timeout)}
	case err != nil && ctx.Err() != nil:
		return "", 0, ctx.Err()
	case err != nil:
		return "", 0, &Error{Err: ErrGit, Detail: err.Error(), Cause: err}
	case result.ExitCode != 0 && (call.also == 0 || result.ExitCode != call.also):
		return "", 0, &Error{Err: ErrGit, Detail: s.complaint(result)}
	case result.StdoutTruncated():
		return "", 0, ErrTooLarge
	}
	return result.Stdout, result.ExitCode, nil
}

// maxComplaint is how much of what git says goes into an error.
const maxComplaint = 300

// complaint is why git failed: the last line that says so, without control
// characters, and without the place where it works. What the other side sends is
// not part of it: those lines are marked as remote.
func (s *gitScratch) complaint(r *sandbox.ExecResult) string {
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

var urls = lazy(`[a-z+.-]+://[^\s'"]+`)

// lazy compiles a pattern when it is first needed: few programs that use this
// package ever come to git.
func lazy(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// scpLike is the short form of an ssh URL.
var scpLike = lazy(`^([A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:[^:/-][^:]*$`)

// checkURL refuses what is not plainly the address of a repository by one of the
// protocols.
func checkURL(address string, protocols []string) error {
	invalid := func(detail string) error { return &Error{Err: ErrInvalid, Detail: detail} }
	switch {
	case strings.TrimSpace(address) == "":
		return invalid("there is no address to clone from")
	case strings.TrimSpace(address) != address || strings.ContainsFunc(address, func(r rune) bool {
		return !unicode.IsPrint(r) || r == utf8.RuneError || r == ' '
	}):
		return invalid("the address holds a blank, or what cannot be shown")
	case strings.HasPrefix(address, "-"):
		return invalid("the address begins with a dash")
	case len(address) > maxURL:
		return invalid("the address is too long")
	}
	protocol := "ssh"
	if !scpLike().MatchString(address) {
		parsed, err := url.Parse(address)
		switch {
		case err != nil || parsed.Scheme == "" || !strings.HasPrefix(address, parsed.Scheme+"://"):
			return invalid("it is not an address with a protocol, such as https://")
		case parsed.Host == "" && parsed.Scheme != "file", strings.HasPrefix(parsed.Host, "-"), strings.HasPrefix(parsed.User.String(), "-"):
			return invalid("the address has no host")
		case parsed.User != nil && parsed.Scheme != "ssh":
			return invalid("the address holds a name or a password")
		}
		if _, hasPassword := parsed.User.Password(); hasPassword {
			return invalid("the address holds a password")
		}
		protocol = parsed.Scheme
	}
	if !slices.Contains(protocols, protocol) {
		return &Error{Err: ErrAccessDenied, Detail: fmt.Sprintf("the protocol %q is not allowed", protocol)}
	}
	return nil
}

// RedactURL returns what of an address may be shown: its protocol and its host.
// It is "" for what has neither.
func RedactURL(address string) string {
	address = strings.TrimSpace(address)
	if !strings.Contains(address, "://") && !scpLike().MatchString(address) {
		host, _, _ := strings.Cut(address, "/")
		return host
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme == "" || parsed.Host == "" {
		return ""
	}
	return parsed.Scheme + "://" + parsed.Host
}

// gitHash is the full name of a commit, in either of git's two hashes.
var gitHash = lazy(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// gitRef is the name of a branch or the like. What git allows beyond it is not
// worth what it could lead to.
var gitRef = lazy(`^refs/([A-Za-z0-9_+@][A-Za-z0-9._+@=,#%-]*/)*[A-Za-z0-9_+@][A-Za-z0-9._+@=,#%-]*$`)

func isRef(name string) bool {
	return gitRef().MatchString(name) && !strings.Contains(name, "..") && !strings.Contains(name, "@{") &&
		!strings.HasSuffix(name, ".lock") && !strings.Contains(name, ".lock/") && !strings.HasSuffix(name, ".")
}

// repository is a repository of the workspace, as data. No link in it is
// followed, and no guard is asked about what is below .git: that is git's, and
// who lets it be pulled lets git's files be changed.
type repository struct {
	files *LocalWorkspace // its top, through no link, without guards
	outer *LocalWorkspace // the same, with guards
}

// repository opens the repository in dir. Only dir itself is looked at, and
// nothing above it. It is to be closed.
func (w *LocalWorkspace) repository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{}
	err := w.do(ctx, dir, func(rel string) error {
		fd, where, err := w.open(rel, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			err = w.ask(Access{Path: where})
		}
		if err != nil {
			if fd >= 0 {
				unix.Close(fd)
			}
			return err
		}
		r.outer = w.below(fd, where)
		return nil
	})
	if err != nil {
		return nil, err
	}
	files := *r.outer
	files.guards, files.conf.noLinks = nil, true
	r.files = &files
	if err := r.check(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *repository) close() { r.outer.Close() }

// check refuses what is not a repository of its own.
func (r *repository) check(ctx context.Context) error {
	info, err := r.files.lstat(ctx, ".git")
	switch {
	case errors.Is(err, ErrNotFound):
		return &Error{Err: ErrNotFound, Detail: "it is not a repository: there is no .git in it"}
	case err != nil:
		return err
	case !info.IsDir():
		return &Error{Err: ErrGit, Detail: "its .git is not a directory, and leads elsewhere"}
	}
	for _, name := range []string{"commondir", "gitdir"} {
		if _, err := r.files.lstat(ctx, ".git/"+name); !errors.Is(err, ErrNotFound) {
			return &Error{Err: ErrGit, Detail: "its .git belongs to another repository"}
		}
	}
	return nil
}

const (
	maxSymref     = 5         // how often a name of a commit may stand for another one, as in git
	maxRefFile    = 4 << 10   // no name of a commit, or of a branch, is longer
	maxPackedRefs = 64 << 20  // a million of them
	maxGitConfig  = 1 << 20   // written by hand, or by git
	maxGitIndex   = 256 << 20 // two million files
)

// read returns a file below .git, up to limit bytes.
func (r *repository) read(ctx context.Context, name string, limit int64) ([]byte, error) {
	view := *r.files
	view.conf.maxRead = limit
	return view.Read(ctx, ".git/"+name)
}

// head returns the commit that is checked out, and the branch it is on, "" for
// none.
func (r *repository) head(ctx context.Context) (commit, branch string, err error) {
	name := "HEAD"
	for range maxSymref {
		content, err := r.read(ctx, name, maxRefFile)
		switch {
		case errors.Is(err, ErrNotFound) && name != "HEAD":
			commit, err := r.packed(ctx, name)
			return commit, name, err
		case err != nil:
			return "", "", err
		}
		text := string(bytes.TrimSpace(content))
		if next, ok := strings.CutPrefix(text, "ref:"); ok {
			name = strings.TrimSpace(next)
			if !isRef(name) {
				return "", "", &Error{Err: ErrGit, Detail: "its HEAD names no branch"}
			}
			continue
		}
		if !gitHash().MatchString(text) {
			return "", "", &Error{Err: ErrGit, Detail: "its HEAD names no commit"}
		}
		if name == "HEAD" {
			return text, "", nil
		}
		return text, name, nil
	}
	return "", "", &Error{Err: ErrGit, Detail: "its HEAD leads in a circle"}
}

// packed looks a branch up among those that have no file of their own.
func (r *repository) packed(ctx context.Context, name string) (string, error) {
	content, err := r.read(ctx, "packed-refs", maxPackedRefs)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		commit, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ref == name && gitHash().MatchString(commit) {
			return commit, nil
		}
	}
	return "", &Error{Err: ErrNotFound, Detail: "its branch has no commit yet"}
}

// GitHead returns the full name of the commit that is checked out in dir. No
// program is run, and no directory above dir is looked at.
func (w *LocalWorkspace) GitHead(ctx context.Context, dir string) (string, error) {
	r, err := w.repository(ctx, dir)
	if err != nil {
		return "", failed("read the commit of", dir, err)
	}
	defer r.close()
	commit, _, err := r.head(ctx)
	return commit, failed("read the commit of", dir, err)
}
