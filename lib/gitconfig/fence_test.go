package gitconfig

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fenceVariable carries what a re-executed test binary mounts, as JSON.
const fenceVariable = "GITREPO_TEST_FENCE"

// fence is what is mounted on itself, pins before what is read-only, and the
// program that runs then.
type fence struct{ Pins, ReadOnly, Args []string }

// insideFence mounts, in namespaces of its own, and becomes the program.
func insideFence() {
	var f fence
	err := json.Unmarshal([]byte(os.Getenv(fenceVariable)), &f)
	check := func(what string) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "fence:", what, err)
			os.Exit(99)
		}
	}
	check("variable")
	err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	check("private")
	for _, pin := range f.Pins {
		err = unix.Mount(pin, pin, "", unix.MS_BIND, "")
		check(pin)
	}
	for _, name := range f.ReadOnly {
		err = unix.Mount(name, name, "", unix.MS_BIND, "")
		check(name)
		var st unix.Statfs_t
		err = unix.Statfs(name, &st)
		check(name)
		keep := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
		err = unix.Mount("", name, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, "")
		check(name)
	}
	os.Unsetenv(fenceVariable)
	program, err := exec.LookPath(f.Args[0])
	check(f.Args[0])
	err = unix.Exec(program, f.Args, os.Environ())
	check(program)
}

// fenced runs a shell with the exec files that Find names as a sandbox would have
// them.
func (h *home) fenced(script string) (string, error) {
	h.t.Helper()
	var f fence
	pinned := map[string]bool{}
	for _, r := range h.find() {
		for _, s := range r.ExecFiles() {
			if !s.Exists || s.Link || s.Watch {
				continue
			}
			for _, p := range s.Pins {
				if !pinned[p.Path] {
					pinned[p.Path] = true
					f.Pins = append(f.Pins, h.path("proj/"+p.Path))
				}
			}
			f.ReadOnly = append(f.ReadOnly, h.path("proj/"+s.Path))
		}
	}
	f.Args = []string{"sh", "-c", script}
	text, err := json.Marshal(f)
	require.NoError(h.t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = h.path("proj")
	cmd.Env = append(h.env, fenceVariable+"="+string(text), "GIT_EDITOR=true", "GIT_SEQUENCE_EDITOR=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// needsNamespaces skips where none can be made; in CI that is a failure.
func needsNamespaces(t *testing.T) {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
	if err := cmd.Run(); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("no user namespaces here: %v", err)
	} else {
		require.NoError(t, err)
	}
}

// everyday is what has to work, or is known not to, while what Find names is
// read-only.
var everyday = []struct {
	script string
	says   string // a complaint
	done   bool   // it exits with 0, complaint or not
}{
	{"git status && git log -1 && git diff && git ls-files && git show", "", true},
	{"echo x >>f && git add f && git commit -q -m x", "", true},
	{"git commit -q --allow-empty --amend -m y", "", true},
	{"git branch b && git branch -f b main && git update-ref -d refs/heads/b", "", true},
	{"git checkout -q -b b && git checkout -q main && git switch -q b && git restore f", "", true},
	{"git branch --no-track t origin/topic && git checkout -q --no-track -b u origin/topic", "", true},
	{"git fetch -q && git fetch -q origin --prune --tags", "", true},
	{"git pull -q --rebase && git pull -q --ff-only", "", true},
	{"git checkout -q --detach origin/topic && git checkout -q -b w && git rebase -q main && git rebase -q -i main", "", true},
	{"git checkout -q -b m && git commit -q --allow-empty -m m && git checkout -q main && git merge -q --no-ff -m x m", "", true},
	{"git cherry-pick origin/topic && git revert --no-edit HEAD", "", true},
	{"echo x >>f && git stash -q && git stash pop -q && git stash list", "", true},
	{"git tag v1 && git tag -a -m x v2 && git tag -d v1", "", true},
	{"git push -q origin main && git push -q origin HEAD:refs/heads/new", "", true},
	{"git gc -q && git repack -q -a -d && git prune && git pack-refs --all && git fsck", "", true},
	{"git reset -q --hard HEAD && git clean -q -fd && git reflog && git bisect start && git bisect reset", "", true},
	{"git worktree list && git worktree prune", "", true},
	{"git worktree add -q ../wt -b wt && git worktree list && git -C ../wt commit -q --allow-empty -m x && git worktree remove ../wt", "", true},
	{"git submodule status && git submodule foreach -q true && git -C sub commit -q --allow-empty -m x", "", true},
	{"git notes add -m x && git notes show && git rm -q f && git mv .gitmodules x && git archive HEAD >/dev/null", "", true},
	{"git maintenance run --task=gc && git update-server-info && git update-index --refresh && git format-patch -1 --stdout >/dev/null", "", true},
	{"echo x >>f && git diff >p && git checkout -q f && git apply p", "", true},

	{"git config user.name x", "could not write config file", false},
	{"git remote add x ../x.git", "could not write config file", false},
	{"git branch b && git branch -m b c", "could not write config file", false},
	{"git submodule update -q", "could not write config file", false},
	{"git submodule add -q ../sub.git sub2", "could not write config file", true},
	{"git sparse-checkout set x", "could not write config file", false},
	{"git maintenance register", "could not write config file", false},
	{"git init -q", "could not write config file", false},
	{"git checkout -q -b t origin/topic", "could not write config file", true},
	{"git checkout -q topic", "could not write config file", true},
	{"git branch -q --set-upstream-to=origin/topic", "could not write config file", true},
	{"git push -q -u origin main:other", "could not write config file", true},
	{"git branch -d tracking", "could not write config file", true},
	{"git submodule deinit -f sub", "could not write config file", true},

	{"echo x >.git/hooks/pre-commit", "Read-only file system", false},
	{"echo x >.git/config", "Read-only file system", false},
	{"mv .git x", "busy", false},
	{"rm -rf .git/hooks", "Read-only file system", false},
	{"mv .git/info x", "busy", false},
}

// TestEverydayWorkGoesOn runs git with all that can be read-only read-only.
func TestEverydayWorkGoesOn(t *testing.T) {
	needsNamespaces(t)
	base := newHome(t)
	base.project()
	base.write("proj/.git/info/attributes", "")
	base.submodule("sub")
	base.git("proj", "push", "-q")
	base.git("proj", "checkout", "-q", "-b", "topic", "HEAD~1")
	base.commit("proj", "g")
	base.git("proj", "push", "-q", "origin", "topic")
	base.git("proj", "checkout", "-q", "main")
	base.git("proj", "branch", "-q", "-D", "topic")
	base.git("proj", "branch", "-q", "tracking", "origin/main")
	base.git("proj", "submodule", "-q", "update")
	for _, test := range everyday {
		t.Run(test.script, func(t *testing.T) {
			h := newHome(t)
			require.NoError(t, os.CopyFS(h.dir, os.DirFS(base.dir)))
			out, err := h.fenced(test.script)
			assert.Equal(t, test.done, err == nil, "%s", out)
			if test.says == "" {
				assert.NotContains(t, out, "error: ")
			} else {
				assert.Contains(t, out, test.says)
			}
		})
	}
}
