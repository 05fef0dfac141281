package bwrap

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
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

// mayHaveIdentity saves the start of git, a tenth of the whole, where no
// configuration could name anybody: where none has a section [user] and none
// includes another.
func mayHaveIdentity(dir string) bool {
	home, xdg := os.Getenv("HOME"), os.Getenv("XDG_CONFIG_HOME")
	if xdg == "" {
		xdg = home + "/.config"
	}
	files := []string{"/etc/gitconfig", "/usr/local/etc/gitconfig", home + "/.gitconfig", xdg + "/git/config"}
	for ; ; dir = parent(dir) {
		git := strings.TrimSuffix(dir, "/") + "/.git"
		if info, err := os.Lstat(git); err == nil && !info.IsDir() {
			return true // it leads to a repository elsewhere
		}
		files = append(files, git+"/config", git+"/config.worktree")
		if dir == "/" {
			break
		}
	}
	return slices.ContainsFunc(files, namesSomebody)
}

// namesSomebody looks for the names of two sections, wherever they stand. What
// is no plain file is git's to judge.
func namesSomebody(file string) bool {
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	if !info.Mode().IsRegular() || info.Size() > maxCopy {
		return true
	}
	text, err := os.ReadFile(file)
	lower := bytes.ToLower(text)
	return err != nil || bytes.Contains(lower, []byte("user")) || bytes.Contains(lower, []byte("include"))
}

func parent(dir string) string {
	if i := strings.LastIndexByte(dir, '/'); i > 0 {
		return dir[:i]
	}
	return "/"
}
