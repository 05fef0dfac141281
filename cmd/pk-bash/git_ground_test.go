package main

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// gitGround is a place for one test with a repository: a project, a home, and
// beside them a directory that no command may change and one where a program that
// the command made leaves a file when the host runs it.
type gitGround struct {
	*clitest.Box
	dir, out, witness string
}

// newGitBox makes a box and a repository to copy from.
func newGitBox(t *testing.T) (b *clitest.Box, template string) {
	b = clitest.NewBox(t)
	template = filepath.Join(filepath.Dir(b.Project), "template")
	for _, dir := range []string{"home", "project", "out", "witness"} {
		b.Mkdir(t, filepath.Join(template, dir))
	}
	b.Write(t, template+"/home/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n[gc]\n\tauto = 0\n")
	b.Write(t, template+"/home/.bashrc", "# mine\n")
	b.Write(t, template+"/out/canary", "canary\n")
	b.Write(t, template+"/out/identity", "[user]\n\tname = in-secret\n")
	g := &gitGround{Box: b, dir: template}
	g.host(t, template, `
		git init -q --template= library && cd library
		echo lib >lib.c && git add . && git commit -qm library && cd ..
		cd out && git init -q --template= repo && cd repo
		echo in-secret >secret && git add . && git commit -qm secret
		git config remote.origin.url https://in-secret@example.org/
		cd ../../project && git init -q --template=
		mkdir -p sub/dir tools && echo /wt >.gitignore && echo one >a.txt && echo f >sub/dir/f && echo 'echo tool' >tools/hook && chmod +x tools/hook
		git add . && git commit -qm 1
		for n in 2 3 4 5; do echo $n >>a.txt; git commit -qam $n; done
		git tag -a -m v1 v1 HEAD~1
		git branch topic HEAD~2
		git submodule --quiet add ../library mod && git commit -qm submodule
		git worktree add -q -b wtbranch wt
		mkdir -p .git/hooks .git/info && echo '#.gitconfig' >.git/info/exclude`)
	return b, template
}

// newGround copies the template.
func newGround(t *testing.T, b *clitest.Box, template string) *gitGround {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	out, err := exec.Command("cp", "-a", template+"/.", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	g := &gitGround{
		Box: &clitest.Box{Bin: b.Bin, Bwrap: b.Bwrap, Project: dir + "/project", Home: dir + "/home"},
		dir: dir, out: dir + "/out", witness: dir + "/witness",
	}
	g.Write(t, g.Project+"/.git/worktrees/wt/gitdir", g.Project+"/wt/.git\n")
	g.Write(t, g.Project+"/wt/.git", "gitdir: "+g.Project+"/.git/worktrees/wt\n")
	g.Script(t, g.Project+"/tools/evil", evilBody(g))
	for name, index := range evilIndexes(g) {
		require.NoError(t, os.WriteFile(g.Project+"/tools/"+name, index, 0o644))
	}
	t.Cleanup(func() {
		sweep := g.Command("pk-sweep", "--all")
		sweep.Dir = "/"
		got := clitest.Finish(t, sweep)
		assert.Zero(t, got.Status, got.Stderr)
		_ = exec.Command("chmod", "-R", "u+rwx", g.dir).Run()
	})
	return g
}

func evilBody(g *gitGround) string {
	return "echo \"$0 $*\" >>" + g.witness + "/ran\nexit 0\n"
}

// fill puts the ground's names into a script.
func (g *gitGround) fill(script string) string {
	return strings.NewReplacer("PROJECT", g.Project, "WITNESS", g.witness, "OUT", g.out, "HOME", g.Home, "EVIL", g.Project+"/tools/evil").Replace(script)
}

// hostCommand prepares a shell of the user's outside, with the same dates each time.
func (g *gitGround) hostCommand(dir, script string) *exec.Cmd {
	home := g.Home
	if strings.HasSuffix(g.dir, "/template") {
		home = g.dir + "/home"
	}
	cmd := exec.Command("timeout", "-k1", "20", "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TEMPLATE_DIR=", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true",
		"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000",
	}, g.Env...)
	return cmd
}

// host runs a script outside, which has to succeed.
func (g *gitGround) host(t *testing.T, dir, script string) string {
	t.Helper()
	got := clitest.Finish(t, g.hostCommand(dir, "set -e\n"+script))
	require.Zero(t, got.Status, "%s\n%s%s", script, got.Stdout, got.Stderr)
	return got.Stdout
}

// patient runs a script of the host that may fail, and must not hang.
func (g *gitGround) patient(t *testing.T, dir, script string) string {
	t.Helper()
	got := clitest.Finish(t, g.hostCommand(dir, "exec 2>&1\n"+script))
	assert.NotContains(t, []int{124, 137}, got.Status, "the host's git hangs: %s", got.Stdout)
	return got.Stdout
}

// Names in a git directory, or in one of a worktree or submodule, that a command
// may bring about: objects, refs, the index, and the state of work under way.
var landing = regexp.MustCompile(`(?s)^(` + strings.Join([]string{
	`objects(/[0-9a-f]{2}(/[0-9a-f]{38})?|/pack(/pack-[0-9a-f]{40}\.(pack|idx|rev|bitmap|mtimes)|/multi-pack-index)?|/info(/packs|/commit-graph)?)?`,
	`(refs|logs)(/.*)?`,
	`HEAD|index|packed-refs|shallow|[A-Z_]+_HEAD|AUTO_MERGE|(MERGE|SQUASH|COMMIT)_[A-Z]+|BISECT_(LOG|NAMES|START|TERMS|ANCESTORS_OK)`,
	`(rebase-merge|rebase-apply|sequencer)(/.*)?`,
}, "|") + `)$`)

// Names among them whose content can carry a command, or an option of one.
var carrier = regexp.MustCompile(`(^|/)(git-rebase-todo|git-rebase-todo.backup|done|todo|opts|strategy|strategy_opts|gpg_sign_opt|BISECT_RUN)$`)

var execLine = regexp.MustCompile(`(?m)^\s*(x|exec)\b`)

// gitDirOf splits a name below .git into the git directory it lies in and the rest.
var gitDirOf = regexp.MustCompile(`(?s)^((?:modules/[^/]+/|worktrees/[^/]+/)*)(.*)$`)

// lasting lists what a git directory holds apart from what may land in it. Two lists
// are equal if a command changed nothing else. Among what may land it lists what is
// not a plain file or a directory, and what can carry a command.
func lasting(t *testing.T, gitDir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(gitDir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, gitDir+"/")
		if err != nil {
			found[name] = err.Error()
			return fs.SkipDir
		}
		info, err := d.Info()
		require.NoError(t, err)
		short := gitDirOf.FindStringSubmatch(name)[2]
		switch mode := info.Mode(); {
		case path == gitDir:
			found["."] = mode.String()
		case mode.IsDir():
			if !landing.MatchString(short) {
				found[name] = mode.String()
			}
		case !mode.IsRegular():
			target, _ := os.Readlink(path)
			found[name] = mode.String() + " " + target
		case short == "config":
			found[name] = mode.String() + " " + settings(t, path)
		default:
			text := content(path)
			if !landing.MatchString(short) {
				found[name] = mode.String() + " " + string(text)
			} else if carrier.MatchString(short) && (execLine.Match(text) || regexp.MustCompile(`opts?$|strategy$`).MatchString(short)) {
				found[name] = string(text)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return found
}

// differences names what is in one of two lists alone, or not the same in both.
func differences(before, after map[string]string) []string {
	var names []string
	for name, was := range before {
		if is, there := after[name]; !there {
			names = append(names, "gone: "+name)
		} else if is != was {
			names = append(names, fmt.Sprintf("changed: %s: %.200q, was %.200q", name, is, was))
		}
	}
	for name, is := range after {
		if _, there := before[name]; !there {
			names = append(names, fmt.Sprintf("new: %s: %.200q", name, is))
		}
	}
	slices.Sort(names)
	return names
}

// content is the beginning of a file, or the reason why it cannot be read.
func content(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return []byte(err.Error())
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// settings is a configuration without what may land: upstreams and remotes.
func settings(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("git", "config", "--file", path, "--list").CombinedOutput()
	if err != nil {
		return string(out)
	}
	lands := regexp.MustCompile(`^(branch\..*\.(remote|merge|rebase)|remote\..*\.(url|fetch))=(.*)`)
	danger := regexp.MustCompile(`^(ext::|-|file:|/|\.)`)
	var kept []string
	for line := range strings.Lines(string(out)) {
		if m := lands.FindStringSubmatch(line); m == nil || strings.HasSuffix(m[1], ".url") && danger.MatchString(m[4]) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// commits are all that refs and reflogs lead to.
func (g *gitGround) commits(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(g.patient(t, dir, "git rev-list --all --reflog HEAD"))
}

// tree lists everything below dir, links not followed.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		fmt.Fprint(&list, path, " ", info.Mode(), " ")
		switch {
		case info.Mode().IsRegular():
			fmt.Fprintf(&list, "%d %x", info.Size(), sha1.Sum(content(path)))
		case info.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			list.WriteString(target)
		}
		list.WriteString("\n")
		return nil
	})
	require.NoError(t, err)
	return list.String()
}

// An indexEntry is one path of an index that git would not write.
type indexEntry struct {
	path string
	mode uint32
	id   [20]byte
}

// makeIndex writes an index of version 2, with extensions put behind its entries.
func makeIndex(entries []indexEntry, extensions ...byte) []byte {
	slices.SortFunc(entries, func(a, b indexEntry) int { return strings.Compare(a.path, b.path) })
	data := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(len(entries)))
	for _, e := range entries {
		start := len(data)
		data = append(data, make([]byte, 24)...)
		data = binary.BigEndian.AppendUint32(data, e.mode)
		data = append(data, make([]byte, 12)...)
		data = append(data, e.id[:]...)
		data = binary.BigEndian.AppendUint16(data, uint16(min(len(e.path), 0xfff)))
		data = append(data, e.path...)
		data = append(data, make([]byte, 8-(len(data)-start)%8)...)
	}
	data = append(data, extensions...)
	sum := sha1.Sum(data)
	return append(data, sum[:]...)
}

func blobID(text string) [20]byte {
	return sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text))
}

// evilIndexes are by name in tools. Their blobs are tools/evil, and for a link the
// text "../out".
func evilIndexes(g *gitGround) map[string][]byte {
	evil, link := blobID("#!/bin/sh\n"+evilBody(g)), blobID("../out")
	one := func(path string) []byte { return makeIndex([]indexEntry{{path, 0o100755, evil}}) }
	return map[string][]byte{
		"index-hook":   one(".git/hooks/post-checkout"),
		"index-config": one(".git/config"),
		"index-case":   one(".GIT/hooks/post-checkout"),
		"index-deep":   one("sub/.git/hooks/post-checkout"),
		"index-up":     one("../out/x"),
		"index-out":    one("../../out/x"),
		"index-inner":  one("sub/../../out/x"),
		"index-root":   one("/" + g.out + "/x"),
		"index-link":   makeIndex([]indexEntry{{"l", 0o120000, link}, {"l/x", 0o100755, evil}}),
		"index-split":  makeIndex(nil, append([]byte("link\x00\x00\x00\x14"), evil[:]...)...),
	}
}

func hexOf(id [20]byte) string { return hex.EncodeToString(id[:]) }
