package bwrap

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// identityTimeout bounds the one question put to git. A configuration on a
// dead network file system must not keep a command from starting.
const identityTimeout = 2 * time.Second

// Identity is who the host's git says commits in a project. The lookup runs
// while the plan is made.
type Identity struct {
	done chan struct{}
	env  []string
}

// LookUpIdentity asks the host's git for user.name and user.email as they hold
// in dir, so that includeIf rules apply. Without git, without an identity, or
// after two seconds, there is none, and git inside says what it misses.
//
// It is the only program that pk runs in a project. `git config` runs neither
// hooks nor aliases nor a pager there; a project's own configuration can at
// most name somebody else.
func LookUpIdentity(dir string) *Identity {
	id := &Identity{done: make(chan struct{})}
	git := findTrusted("git")
	if git == "" || !mayHaveIdentity(dir) {
		close(id.done)
		return id
	}
	go func() {
		defer close(id.done)
		id.env = askGit(git, dir)
	}()
	return id
}

// Env returns the variables that carry the identity into the sandbox, where no
// file of the host's configuration is seen.
func (id *Identity) Env() []string {
	if id == nil {
		return nil
	}
	<-id.done
	return id.env
}

func askGit(git, dir string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), identityTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, git, "-C", dir, "config", "-z", "--get-regexp", `^user\.(name|email)$`)
	cmd.Env = gitEnv(os.Environ())
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var env []string
	for _, record := range bytes.Split(out, []byte{0}) {
		key, value, ok := strings.Cut(string(record), "\n")
		if !ok {
			continue
		}
		field := strings.ToUpper(strings.TrimPrefix(key, "user.")) // later ones win, as in git
		env = append(env, "GIT_AUTHOR_"+field+"="+value, "GIT_COMMITTER_"+field+"="+value)
	}
	return env
}

// gitEnv is the caller's environment without GIT_: a GIT_DIR would answer for
// another repository.
func gitEnv(environ []string) []string {
	var env []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "GIT_") && !strings.HasPrefix(kv, "LD_") {
			env = append(env, kv)
		}
	}
	return env
}

// mayHaveIdentity saves the start of git, a third of the whole, where there is
// no configuration that could name anybody.
func mayHaveIdentity(dir string) bool {
	home, xdg := os.Getenv("HOME"), os.Getenv("XDG_CONFIG_HOME")
	if xdg == "" {
		xdg = home + "/.config"
	}
	files := []string{"/etc/gitconfig", "/usr/local/etc/gitconfig", home + "/.gitconfig", xdg + "/git/config"}
	for ; ; dir = parent(dir) {
		files = append(files, strings.TrimSuffix(dir, "/")+"/.git")
		if dir == "/" {
			break
		}
	}
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil {
			return true
		}
	}
	return false
}

func parent(dir string) string {
	if i := strings.LastIndexByte(dir, '/'); i > 0 {
		return dir[:i]
	}
	return "/"
}
