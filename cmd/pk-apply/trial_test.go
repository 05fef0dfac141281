package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// A scene is a trial from its beginning to its end.
type scene struct {
	name string
	tree string // of the project, lines separated by "; "
	play func(t *testing.T, g *ground)
}

const (
	userSaved = "it has changed in the project"
)

func conflict(path, reason string) string {
	return fmt.Sprintf("pk-apply: conflict: cannot land %q: %s\n", path, reason)
}

func TestScenes(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	for i, s := range scenes {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			if s.tree != "" {
				lines = strings.Split(s.tree, "; ")
			}
			s.play(t, newGround(t, b, lines...))
		})
	}
}

var scenes = []scene{
	{"changes of every kind land", "a: 1; d/x: 1; d/y: 2; gone/z: 3; l => a; to-dir: 4; to-file/w: 5; mode: 6", func(t *testing.T, g *ground) {
		before := manifest(t, g.Project)
		direct := g.copied(t)
		const script = `echo 2 >>a; rm d/x; rm -r gone; ln -sf d l; rm to-dir; mkdir to-dir; echo n >to-dir/n; rm -r to-file; echo f >to-file; chmod 755 mode; mkdir -p n/m; echo n >n/m/f; chmod 700 d`
		g.trial(t, script)
		assert.Equal(t, before, manifest(t, g.Project), "the project has changed")
		g.in(t, direct, script)
		g.changes(t, "M | a", "P | d/ | 0755 -> 0700", "D | d/x", "D | gone/", "D | gone/z", "M | l", "P | mode | 0644 -> 0755", "A | n/", "A | n/m/", "A | n/m/f",
			"T | to-dir/", "A | to-dir/n", "T | to-file", "D | to-file/w")
		g.lands(t, all, "M | a", "P | d/", "D | d/x", "D | gone/", "D | gone/z", "M | l", "P | mode", "A | n/", "A | n/m/", "A | n/m/f", "T | to-dir/", "A | to-dir/n", "T | to-file", "D | to-file/w")
		sameTree(t, tree(t, direct), tree(t, g.Project))
		g.done(t)
	}},
	{"records of what lands", "a: 1; b: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo 2 >a; echo 2 >b; echo n >c`)
		g.host(t, "echo mine >b")
		name := g.Audit(t)
		g.apply(t, "--audit", name, "--dry-run", "--all")
		assert.NoFileExists(t, name)
		g.apply(t, "--audit", name, "a", "b")
		got := g.apply(t, "--audit", g.Project+"/audit", "c")
		assert.Contains(t, got.Stderr, "cannot use audit file")
		assert.NoFileExists(t, g.Project+"/c", "it landed without a record")
		g.apply(t, "--audit", name, "--discard", "--all")
		var list []string
		for _, r := range clitest.Records(t, name) {
			line := fmt.Sprint(r["event"], " ", r["operation"], " ", r["begin"])
			files, _ := r["files"].([]any)
			for _, f := range files {
				line += fmt.Sprint(" ", f.(map[string]any)["change"], " ", f.(map[string]any)["path"])
			}
			list = append(list, line)
		}
		assert.Equal(t, []string{
			"begin apply <nil> <nil> a <nil> b", "landing apply 1 M a", "refused apply 1 <nil> b", "end apply 1",
			"begin discard <nil>", "landing discard 5 M b", "landing discard 5 A c", "end discard 5",
		}, list)
		g.done(t)
	}},
	{"false deletion", "d/x: 1; d/sub/y: 1; e/z: 1", func(t *testing.T, g *ground) {
		g.trial(t, `rm -r d; mkdir d; echo n >d/n; rm -r e`)
		g.host(t, `echo mine >d/user; echo mine >d/sub/user; mkdir d/own; echo mine >d/own/f; echo mine >e/user`)
		g.changes(t, "A | d/n", "D | d/sub/", "D | d/sub/y", "D | d/x", "D | e/", "D | e/z")
		got := g.apply(t, "--all")
		assert.Equal(t, 1, got.Status)
		for _, name := range []string{"d/user", "d/sub/user", "d/own/f", "e/user"} {
			assert.Equal(t, "mine", g.read(t, name))
		}
		assert.Equal(t, conflict("e", "the project's directory holds files that the trial has not removed")+conflict("d/sub", "the project's directory holds files that the trial has not removed"), got.Stderr)
		assert.NoFileExists(t, g.Project+"/d/x")
		assert.NoFileExists(t, g.Project+"/d/sub/y")
	}},
	{"a file in place of a directory that the user has added to", "d/x: 1; d/e/y: 1; f/z: 1", func(t *testing.T, g *ground) {
		g.trial(t, `rm -r d f; echo n >d; echo n >f`)
		g.host(t, `echo mine >d/e/user`)
		before := manifest(t, g.Project+"/d")
		dry := g.apply(t, "--all", "--dry-run")
		got := g.apply(t, "--all")
		assert.Equal(t, dry, got, "a dry run says something else")
		within := func(path string) string {
			return fmt.Sprintf("pk-apply: cannot land %q: its directory \"d\" has not landed\n", path)
		}
		assert.Equal(t, within("d/x")+within("d/e/y")+within("d/e")+conflict("d", "the project's directory holds files that the trial has not removed"), got.Stderr)
		assert.Equal(t, []string{"D | f/z", "T | f"}, columns(got.Stdout))
		assert.Equal(t, before, manifest(t, g.Project+"/d"), "a part has landed")
		assert.Equal(t, "n", g.read(t, "f"))
	}},
	{"landed, then deleted", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, `mkdir n; echo f >n/f; echo g >n/g`)
		g.lands(t, all, "A | n/", "A | n/f", "A | n/g")
		g.trial(t, `cat n/f; rm n/f; rm -r a`)
		g.changes(t, "D | a", "D | n/f")
		g.lands(t, all, "D | a", "D | n/f")
		assert.NoFileExists(t, g.Project+"/n/f")
		assert.Equal(t, "g", g.read(t, "n/g"))
		g.done(t)
		g.trial(t, `! test -e n/f; ! test -e a`)
	}},
	{"landed in part, then deleted", "a: 1; b: 1", func(t *testing.T, g *ground) {
		g.trial(t, `mkdir n; echo f >n/f; echo 2 >b`)
		g.lands(t, []string{"n"}, "A | n/", "A | n/f")
		g.trial(t, `rm -r n`)
		g.changes(t, "M | b", "D | n/", "D | n/f")
		g.lands(t, all, "M | b", "D | n", "D | n/f")
		g.done(t)
	}},
	{"landed, saved by the user, deleted in the trial", "a: 1; b: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo f >n; echo 2 >b`)
		g.lands(t, []string{"n"}, "A | n")
		g.host(t, `echo mine >n`)
		g.trial(t, `rm n`)
		got := g.apply(t, "n")
		assert.Equal(t, clitest.Outcome{Stderr: conflict("n", "it has come to the project since"), Status: 1}, got)
		assert.Equal(t, "mine", g.read(t, "n"))
	}},
	{"directories that git ignores", "seen/a: 1", func(t *testing.T, g *ground) {
		g.host(t, `git init -q; printf '/build/\nnode_modules\n' >.gitignore; mkdir build; echo 1 >build/old`)
		g.trial(t, `mkdir build/deep seen/node_modules build.d; echo 1 >build/deep/x; echo 1 >build/old2; echo 2 >seen/a; echo 1 >seen/node_modules/y; echo 1 >build.d/z; echo 1 >seen.log`)
		g.changes(t, "A | build/deep/ | ignored by git, 1 entry (--all lists them)", "A | build/old2", "A | build.d/", "A | build.d/z", "M | seen/a", "A | seen/node_modules/ | ignored by git, 1 entry (--all lists them)", "A | seen.log")
		all := g.diff(t, "--all")
		assert.Equal(t, 1, all.Status)
		assert.Contains(t, all.Stdout, "A\tbuild/deep/\nA\tbuild/deep/x\n")
		assert.Contains(t, all.Stdout, "A\tseen/node_modules/\nA\tseen/node_modules/y\n")
		assert.NotContains(t, all.Stdout, "ignored")
		g.trial(t, `echo '!node_modules' >>.gitignore`) // the rules are the host's until it lands
		assert.Contains(t, g.diff(t).Stdout, "A\tseen/node_modules/\tignored by git, 1 entry (--all lists them)\n")
	}},
	{"changes in directories that git ignores", "a: 1", func(t *testing.T, g *ground) {
		const folded = "ignored by git, 1 entry (--all lists them)"
		g.host(t, `git init -q; printf 'vendor/\nbuild/\n' >.gitignore; mkdir vendor; echo 1 >vendor/tracked; git add -f .; git commit -qm 1; echo 1 >vendor/old`)
		g.trial(t, `echo evil >>vendor/tracked; chmod 777 vendor; mkdir -m 777 vendor/w; echo 1 >vendor/w/f; mkdir -m 777 build; echo 1 >build/x; ln -s / build/out`)
		g.changes(t, "A | build/ | 0777; "+folded, `A | build/out | stays: the link is absolute: "/" (--links lands it)`, "P | vendor/ | 0755 -> 0777", "M | vendor/tracked", "A | vendor/w/ | 0777; "+folded)
		g.apply(t, "--discard", "--all")
		g.trial(t, `rm -r vendor`)
		g.changes(t, "D | vendor/ | "+folded, "D | vendor/tracked")
		g.host(t, `rm -r vendor`)
		g.apply(t, "--discard", "--all")
		g.trial(t, `mkdir vendor; echo evil >vendor/tracked; echo 1 >vendor/new`)
		g.changes(t, "A | vendor/ | "+folded, "A | vendor/tracked")
	}},
	{"permissions that a patch does not carry", "secret: 1; script: 1; priv/x: 1; old: 1", func(t *testing.T, g *ground) {
		g.host(t, `chmod 600 secret; chmod 700 priv; chmod 755 script`)
		g.trial(t, `chmod 666 secret; chmod 777 priv; echo 1 >w; chmod 666 w; echo 1 >key; chmod 600 key; mkdir -m 700 d; echo n >d/n; chmod 644 script; rm old; echo 2 >x; chmod 755 x`)
		got := g.diff(t, "--patch")
		var warned []string
		for line := range strings.Lines(got.Stderr) {
			warned = append(warned, strings.TrimPrefix(strings.TrimSpace(line), "pk-diff: warning: the patch leaves the permissions of "))
		}
		assert.Equal(t, []string{`"d" out: 0700`, `"key" out: 0600`, `"priv" out: 0700 -> 0777`, `"secret" out: 0600 -> 0666`, `"w" out: 0666`}, warned)
		assert.Equal(t, "+1\t-0\td/n\n+1\t-0\tkey\n+0\t-1\told\n+0\t-0\tpriv/\t0700 -> 0777\n+0\t-0\tscript\t0755 -> 0644\n+0\t-0\tsecret\t0600 -> 0666\n+1\t-0\tw\t0666\n+1\t-0\tx\n7 files, +4 -1\n", g.diff(t, "--stat").Stdout)
	}},
	{"a patch on a terminal", "a: 1", func(t *testing.T, g *ground) {
		const hidden = "if (admin \u202e \u2066 return \u2069) {}\u200b \u00e9\r"
		g.trial(t, "printf '"+hidden+"\n' >a")
		assert.Contains(t, g.diff(t, "--patch").Stdout, "\n+"+hidden+"\n")
		cmd := g.Command("pk-diff", "--session", sessionName, "--patch")
		cmd.Env = append(cmd.Env, "PAGER=cat")
		assert.Contains(t, clitest.OnTerminal(t, cmd), `+if (admin \u{202E} \u{2066} return \u{2069}) {}\u{200B} `+"\u00e9"+`\x0d`)
	}},
	{"stale copy", "e: old; d/x: old", func(t *testing.T, g *ground) {
		cmd := g.Command("pk-bwrap", "--trial", "--session", sessionName, "--", "sh", "-ec", "cat e d/x; echo ready; cat; chmod 600 e; chmod 600 d/x")
		held := start(t, cmd)
		g.host(t, `echo mine >e.new; mv e.new e; mv d d.old; mkdir d; echo mine >d/x`)
		held.end(t)
		got := g.apply(t, "--all")
		assert.Equal(t, 1, got.Status)
		assert.Contains(t, got.Stderr, conflict("e", userSaved))
		assert.Contains(t, got.Stderr, conflict("d/x", `the project's directory "d" has been replaced`))
		assert.Equal(t, "mine mine", g.read(t, "e")+" "+g.read(t, "d/x"))
	}},
	{"user's edits of every kind", "saved: 1; renamed-over: 1; mode: 1; gone: 1; link => saved; dir/f: 1; unchanged: 1", func(t *testing.T, g *ground) {
		g.trial(t, `for f in saved renamed-over mode gone unchanged new; do echo trial >$f; done; ln -sf mode link; echo trial >dir/f; chmod 700 dir; rm dir/f`)
		g.host(t, `echo mine >saved; echo mine >x; mv x renamed-over; chmod 600 mode; rm gone; ln -sf gone link; chmod 711 dir; echo mine >new`)
		before := manifest(t, g.Project)
		got := g.apply(t, "--dry-run", "--all")
		assert.Equal(t, before, manifest(t, g.Project))
		real := g.apply(t, "--all")
		assert.Equal(t, got, real, "a dry run says something else")
		assert.Equal(t, []string{"M | unchanged", "D | dir/f"}, columns(real.Stdout))
		for _, path := range []string{"saved", "renamed-over", "mode", "link"} {
			assert.Contains(t, real.Stderr, conflict(path, userSaved))
		}
		assert.Contains(t, real.Stderr, conflict("gone", "it has been removed from the project"))
		assert.Contains(t, real.Stderr, conflict("new", "it has come to the project since"))
		assert.Contains(t, real.Stderr, conflict("dir", "its permissions have changed in the project"))
		assert.Equal(t, "mine mine 1 mine", g.read(t, "saved")+" "+g.read(t, "renamed-over")+" "+g.read(t, "mode")+" "+g.read(t, "new"))

		over := g.apply(t, "--overwrite", "--all")
		assert.Zero(t, over.Status, over.Stderr)
		assert.Equal(t, "trial trial trial trial trial", g.read(t, "saved")+" "+g.read(t, "renamed-over")+" "+g.read(t, "mode")+" "+g.read(t, "new")+" "+g.read(t, "gone"))
		g.done(t)
		assert.Zero(t, g.apply(t, "--undo").Status)
		assert.Equal(t, "mine mine 1 mine", g.read(t, "saved")+" "+g.read(t, "renamed-over")+" "+g.read(t, "mode")+" "+g.read(t, "new"))
		assert.NoFileExists(t, g.Project+"/gone")
	}},
	{"directory replaced on the host", "d/x: 1; d/y: 1; e/f/g: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo trial >d/x; rm d/y; echo n >d/n; echo trial >e/f/g`)
		g.host(t, `mv d old; mkdir d; mv e d/e; mkdir -p e/f; touch -d '2 hours ago' e/f/g`)
		before := tree(t, g.Project)
		got := g.apply(t, "--all")
		assert.Equal(t, 1, got.Status)
		assert.Contains(t, got.Stderr, conflict("e/f/g", `the project's directory "e/f" has been replaced`))
		assert.Contains(t, got.Stderr, conflict("d/x", "it has been removed from the project"))
		sameTree(t, append(before, `"/d/n" 100644 2 `+sum("n\n")), tree(t, g.Project))
	}},
	{"one root of two is gone", "a: 1", func(t *testing.T, g *ground) {
		for _, name := range []string{"/empty", "/q"} {
			g.Mkdir(t, g.dir+name)
			g.options = append(g.options, "--writable", g.dir+name)
		}
		g.trial(t, `echo 2 >a`)
		g.in(t, g.dir, `rmdir empty q`)
		g.changes(t, "M | a")
		g.lands(t, all, "M | a")
		g.in(t, g.dir, `mkdir empty q`)
		g.options = g.options[:2]
		assert.Contains(t, clitest.Finish(t, g.command("true")).Stderr, "another directory has its place since the trial began")
	}},
	{"a root with changes is gone", "a: 1", func(t *testing.T, g *ground) {
		q := g.dir + "/q"
		g.in(t, g.dir, `mkdir q; git init -q q; git -C q commit -q --allow-empty -m 1`)
		g.options = append(g.options, "--writable", q)
		g.trial(t, `echo 2 >a; echo n >`+q+`/n; git -C `+q+` commit -q --allow-empty -m 2`)
		g.in(t, g.dir, `mv q was; cp -a was q`)
		before := manifest(t, q)
		for _, reason := range []string{"another directory has its place since the trial began", "its directory is not there any more"} {
			got := g.diff(t)
			assert.Equal(t, clitest.Outcome{
				Stdout: "M\ta\n", Status: 125,
				Stderr: fmt.Sprintf("pk-diff: cannot list the changes of the trial of %q: %s\npk-diff: hint: move the old one back; pk-apply --discard --all drops all changes of the trial\n", q, reason),
			}, got)
			assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n", Status: 1}, g.diff(t, "a"))
			for _, name := range []string{"", "/n", "/.git"} {
				assert.Equal(t, clitest.Outcome{Stderr: fmt.Sprintf("pk-apply: cannot land %q: %s\n", q, reason), Status: 1}, g.apply(t, q+name))
			}
			assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n", Stderr: fmt.Sprintf("pk-apply: cannot land %q: %s\n", q, reason), Status: 1}, g.apply(t, "--all"))
			if _, err := os.Lstat(q); err == nil {
				assert.Equal(t, before, manifest(t, q))
			}
			g.in(t, g.dir, `rm -rf q`)
			g.options = g.options[:0]
			g.trial(t, `echo 3 >a`)
		}
		g.in(t, g.dir, `mv was q`)
		assert.Contains(t, g.diff(t).Stdout, "A\t"+q+"/n\n")
		g.in(t, g.dir, `mv q was`)
		got := g.apply(t, "--discard", "--all")
		assert.Zero(t, got.Status)
		assert.Equal(t, fmt.Sprintf("pk-apply: warning: the changes of the trial of %q are dropped unseen: its directory is not there any more\n", q), got.Stderr)
		g.done(t)
	}},
	{"project replaced on the host", "d/x: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo trial >d/x`)
		g.in(t, g.dir, `mv project was; cp -a was project`)
		before := manifest(t, g.Project)
		for _, got := range []clitest.Outcome{g.apply(t, "--all"), g.diff(t), clitest.Finish(t, g.command("true"))} {
			assert.NotZero(t, got.Status)
			assert.Contains(t, got.Stderr, "another directory has its place since the trial began")
		}
		assert.Equal(t, before, manifest(t, g.Project))
		g.in(t, g.dir, `mv project copy; mv was project`)
		g.lands(t, all, "M | d/x")
	}},
	{"new ones come and go", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, `mkdir -p n/m; echo 1 >n/m/f`)
		g.trial(t, `rm -r n`)
		g.done(t)
		g.trial(t, `mkdir -p n; echo 2 >n/m`)
		g.lands(t, all, "A | n", "A | n/m")
		g.trial(t, `rm -r n; mkdir n; echo 3 >n/k`)
		g.lands(t, all, "A | n/k", "D | n/m")
		g.trial(t, `test "$(cat n/k)" = 3; ! test -e n/m; echo 4 >n/m`)
		g.lands(t, all, "A | n/m")
		g.done(t)
	}},
	{"host's edits between commands", "f: 1; g: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo trial >g`)
		g.host(t, `echo mine >x; mv x f; echo mine >new; rm -f gone`)
		g.trial(t, `grep -q mine f && grep -q mine new && echo both >>f`)
		g.changes(t, "M | f | conflict: "+userSaved, "M | g")
		g.lands(t, []string{"--overwrite", "--all"}, "M | f", "M | g")
		assert.Equal(t, "mine\nboth", g.read(t, "f"))
		g.done(t)
	}},

	{"FIFO, socket, links that lead out", "d/x: 1", func(t *testing.T, g *ground) {
		g.trial(t, `mkfifo p; mkfifo d/p; ln -s /etc/passwd abs; ln -s ../.. up; ln -s d/../../x climbs; ln -s d/x ok; rm d/x; mkfifo d/x
			perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un("sock")) or die'`)
		const special, absolute, out = "it is neither a file, a directory nor a symbolic link", `the link is absolute: "/etc/passwd" (--links lands it)`, `the link may lead out of the project: %q (--links lands it)`
		g.changes(t, "A | abs | stays: "+absolute, "A | climbs | stays: "+fmt.Sprintf(out, "d/../../x"), "A | d/p | stays: "+special, "T | d/x | stays: "+special, "A | ok",
			"A | p | stays: "+special, "A | sock | stays: "+special, "A | up | stays: "+fmt.Sprintf(out, "../.."))
		got := g.apply(t, "--all")
		assert.Equal(t, 1, got.Status)
		assert.Equal(t, []string{"A | ok"}, columns(got.Stdout))
		assert.Equal(t, 7, strings.Count(got.Stderr, "\n"), got.Stderr)
		assert.NotContains(t, got.Stderr, "conflict")
		assert.Equal(t, "1", g.read(t, "d/x"))
		g.host(t, `! test -e p; ! test -L abs; ! test -L up; ! test -e sock; test -L ok`)
		got = g.apply(t, "--links", "abs", "up", "climbs")
		assert.Equal(t, clitest.Outcome{Stdout: "A\tabs\nA\tclimbs\nA\tup\n"}, got)
	}},
	{"named by what runs on the host", "a: 1; d/x: 1; .idea/x: 1; .vscode/settings.json: {}", func(t *testing.T, g *ground) {
		g.host(t, `git init -q; git add .; git commit -qm 1; mkdir -p .git/hooks; touch .git/hooks/mine; mkdir conf; ln -s conf .zed; ln -s conf/mise mise.toml`)
		before := tree(t, g.Project+"/.git/hooks")
		g.trial(t, `echo x >conf/tasks.json; echo x >conf/mise; echo x >.envrc; echo x >.vscode/tasks.json; echo x >.vscode/settings.json; echo x >.mcp.json
			mkdir sub; git init -q sub; mkdir file; echo gitdir: ../sub/.git >file/.git; git init -q --bare bare
			mkdir own; echo 'ref: refs/heads/x' >own/HEAD; mkdir -p own/objects own/refs
			echo x >.git/hooks/post-checkout || :; git config core.fsmonitor evil || :; ln -s .git/hooks hooks; echo good >good; echo y >d/x`)
		got := g.apply(t, "--all")
		assert.Equal(t, 1, got.Status)
		for path, reason := range map[string]string{
			"conf/tasks.json": "protected: Zed", "conf/mise": "protected: mise",
			".envrc": "protected: ", ".vscode/tasks.json": "protected: ", ".mcp.json": "protected: ", "file/.git": "git on the host would use the repository that it names",
			"bare": "git on the host would use it as a repository", "own": "git on the host would use it as a repository",
		} {
			assert.Contains(t, got.Stderr, fmt.Sprintf("cannot land %q: %s", path, reason))
			assert.NoFileExists(t, g.Project+"/"+path)
		}
		assert.Contains(t, columns(got.Stdout), "A | good")
		assert.Contains(t, columns(got.Stdout), "M | d/x")
		assert.Contains(t, columns(got.Stdout), "A | sub/.git | inert: pk-fs git-adopt "+g.Project+"/sub")
		assert.NoDirExists(t, g.Project+"/sub/.git")
		assert.DirExists(t, g.Project+"/sub/.git.fenced")
		assert.Equal(t, before, tree(t, g.Project+"/.git/hooks"))
		assert.NotContains(t, g.host(t, "git config -l"), "evil")
		assert.NoDirExists(t, g.Project+"/bare")
		assert.Equal(t, g.Project+"/.git\n", g.host(t, "git -C sub rev-parse --git-dir"))
	}},
	{"protected by the caller", "a: 1; keys/a: 1; keys/b: 1", func(t *testing.T, g *ground) {
		g.options = []string{"--protect", "keys"}
		g.trial(t, `echo 2 >a; (echo 2 >keys/a) 2>&1 || :; (mv keys k || rm -r keys) 2>/dev/null || :; (ln -sfn /tmp keys) 2>/dev/null || :`)
		_ = g.apply(t, "--links", "--all")
		assert.Equal(t, "2 1 1", g.read(t, "a")+" "+g.read(t, "keys/a")+" "+g.read(t, "keys/b"))
	}},
	{"unreadable files and directories", "f: 1; d/x: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo n >n; chmod 000 n f; mkdir c; echo x >c/x; chmod 000 c; echo 2 >d/x; chmod 555 d`)
		got := g.apply(t, "--all")
		if os.Getuid() == 0 {
			assert.Zero(t, got.Status, got.Stderr)
			g.host(t, `test "$(stat -c %a f n c d | tr '\n' ' ')" = "0 0 0 555 "; test "$(cat c/x)" = x`)
			g.done(t)
			return
		}
		assert.Equal(t, 1, got.Status)
		for _, name := range []string{"f", "n", "c"} {
			assert.Contains(t, got.Stderr, fmt.Sprintf("cannot land %q: it cannot be read: a command has taken the permission", name))
		}
		assert.Equal(t, "1", g.read(t, "f"))
		assert.Equal(t, "2", g.read(t, "d/x"))
		g.host(t, `test "$(stat -c %a d)" = 555`)
		assert.Contains(t, g.diff(t).Stdout, "!\tc/\tstays: it cannot be read")
	}},
	{"a root that a command has closed", "a: 1", func(t *testing.T, g *ground) {
		for _, args := range [][]string{{"a"}, {"--discard", "a"}} {
			g.trial(t, `echo 2 >>a; chmod 0 .`)
			assert.Contains(t, g.Run(t, "pk-diff").Stdout, "\t1 entry, begun ")
			got := g.diff(t)
			assert.Equal(t, "P\t./\tstays: the permissions of a root do not land\nM\ta\n", got.Stdout+got.Stderr)
			g.lands(t, args, "M | a")
		}
	}},
	{"directories that are opened and closed", "d/x: 1; e/y: 1", func(t *testing.T, g *ground) {
		g.host(t, "chmod 500 d")
		g.trial(t, `chmod 700 d; echo 2 >d/x; echo n >d/n; echo 2 >e/y; echo n >e/n; chmod 500 e; mkdir f; echo n >f/n; chmod 500 f`)
		g.lands(t, all, "P | d", "A | f", "M | d/x", "A | d/n", "M | e/y", "A | e/n", "A | f/n", "P | e")
		g.host(t, `test "$(stat -c %a d e f | tr '\n' ' ')" = "700 500 500 "; test "$(cat d/x d/n e/y e/n f/n | tr '\n' ' ')" = "2 n 2 n n "`)
		g.done(t)
		g.trial(t, `rm d/n; chmod 700 e; rm e/n`)
		g.lands(t, all, "D | d/n", "P | e", "D | e/n")
		g.done(t)
		g.host(t, "echo mine >e/y")
		g.trial(t, "grep -qx mine e/y")
	}},
	{"names that are no text", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, `d=$(printf 'd\377'); mkdir "$d"; echo 1 >"$d/$(printf 'new\nline')"; ln -s "$(printf '\376')" l; echo 2 >-rf; echo 3 >' '; rm a`)
		got := g.diff(t)
		assert.Equal(t, 125, got.Status)
		assert.Contains(t, got.Stderr, "holds a newline: with -z records end in NUL")
		stat := g.diff(t, "--stat")
		assert.Equal(t, 125, stat.Status)
		assert.Equal(t, fmt.Sprintf("pk-diff: %q holds a newline: with -z records end in NUL\n", "d\xff/new\nline"), stat.Stderr)
		assert.Equal(t, "+1\t-0\t \n+1\t-0\t-rf\n+0\t-1\ta\n+1\t-0\tl\n5 files, +4 -1\n", stat.Stdout)
		list := g.diff(t, "-z", "--name-only")
		assert.Equal(t, " \x00-rf\x00a\x00d\xff\x00d\xff/new\nline\x00l\x00", list.Stdout)
		objects := g.diff(t, "--json")
		cmd := g.Command("pk-apply", "--session", sessionName, "--json", "--from", "-")
		cmd.Stdin = strings.NewReader(objects.Stdout)
		landed := clitest.Finish(t, cmd)
		assert.Zero(t, landed.Status, "%s%s", landed.Stdout, landed.Stderr)
		assert.Equal(t, 6, strings.Count(landed.Stdout, `"done":true`))
		assert.Equal(t, "1", g.read(t, "d\xff/new\nline"))
		g.done(t)
	}},

	{"a command runs", "a: 1", func(t *testing.T, g *ground) {
		held := start(t, g.Command("pk-bwrap", "--trial", "--session", sessionName, "--", "sh", "-c", "echo 2 >a; echo ready; cat"))
		before := manifest(t, g.Project)
		for _, args := range [][]string{all, {"a"}, {"--discard", "--all"}, {"--undo"}} {
			assert.Equal(t, clitest.Outcome{Stderr: "pk-apply: a command of session \"s\" runs\npk-apply: hint: try again when it has ended\n", Status: 1}, g.apply(t, args...))
		}
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n", Stderr: "pk-diff: warning: a command of session \"s\" runs: the list is of no one moment\n", Status: 1}, g.diff(t))
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n"}, g.apply(t, "--dry-run", "--all"))
		assert.Equal(t, before, manifest(t, g.Project))
		held.end(t)
		g.lands(t, all, "M | a")
	}},
	{"two at once", "", func(t *testing.T, g *ground) {
		g.trial(t, `seq -f %0100g 1500 | xargs touch`)
		for _, first := range [][]string{{"pk-diff"}, {"pk-apply", "--all", "--dry-run"}, {"pk-apply", "--all"}} {
			cmd := g.Command(first[0], append(first[1:], "--session", sessionName)...)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = io.ReadFull(out, make([]byte, 1)) // the pipe does not hold the rest
			require.NoError(t, err)
			by := "a pk-diff or pk-apply --dry-run"
			if len(first) == 2 {
				by = "another pk-apply"
			}
			assert.Equal(t, clitest.Outcome{Stderr: "pk-apply: " + by + " of session \"s\" runs\npk-apply: hint: try again when it has ended\n", Status: 1}, g.apply(t, "--all"))
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait() // pk-diff exits with 1
		}
		g.changes(t)
	}},
	{"a sweep", "a: 1", func(t *testing.T, g *ground) {
		g.host(t, "git init -q; git add a; git commit -qm 1")
		sessions := func() int {
			found, err := filepath.Glob(g.Home + "/.cache/pikuri/*workspace*")
			require.NoError(t, err)
			return len(found)
		}
		for _, script := range []string{`rm a`, `git commit -q --allow-empty -m 2`, `mkdir n`} {
			g.trial(t, script)
			assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--all"))
			require.Equal(t, 1, sessions(), script)
			assert.Equal(t, 1, g.diff(t).Status, script)
			assert.Zero(t, g.apply(t, "--discard", "--all").Status)
			assert.Zero(t, g.diff(t).Status, script)
		}
		assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--all"))
		assert.Zero(t, sessions(), "a trial without changes")
		g.trial(t, `rm a`)
		said := g.Run(t, "pk-sweep", "--all", "--verbose")
		assert.Contains(t, said.Stdout+said.Stderr, "a trial with changes that have not landed")
		assert.Equal(t, clitest.Outcome{}, g.Run(t, "pk-sweep", "--all", "--discard"))
		assert.Zero(t, sessions())
		assert.Equal(t, "1", g.read(t, "a"))
	}},
	{"upper layer on another file system", "a: 1; d/x: 1; gone/y: 1", func(t *testing.T, g *ground) {
		g.Mkdir(t, g.dir+"/cache")
		got := g.namespace(t, `mount -t tmpfs none ../cache`, `
			export XDG_CACHE_HOME=$(readlink -f ../cache)
			trial() { pk-bash --bwrap "$BWRAP" -y --raw --trial --session m -- "$1"; }
			trial 'echo 2 >>a; rm d/x; rm -r gone; mkdir gone; echo 3 >gone/z'
			pk-diff --session m; echo "status $?"
			pk-apply --session m --all; echo "status $?"
			cat a gone/z; ls d gone; pk-diff --session m; pk-apply --session m --all
			trial 'ls gone; test -e d/x || rm gone/z'
			pk-apply --session m --all; echo "status $?"
			ls gone; cd /; pk-sweep --all; ls $XDG_CACHE_HOME/pikuri | grep workspace`)
		assert.Equal(t, []string{
			"M | a", "D | d/x", "D | gone/y", "A | gone/z", "status 1",
			"M | a", "A | gone/z", "D | gone/y", "D | d/x", "status 0",
			"1", "2", "3", "d:", "", "gone:", "z", "z", "D | gone/z", "status 0",
		}, columns(got.Stdout), got.Stderr)
		assert.Empty(t, got.Stderr)
	}},
	{"mode of a file with several hard links", "a: 1", func(t *testing.T, g *ground) {
		g.host(t, `chmod 644 a; ln a ../outside`)
		g.trial(t, `chmod 755 a`)
		g.lands(t, []string{"-n", "a"}, "P | a")
		g.lands(t, all, "P | a")
		assert.Equal(t, "755 1 1\n644 1 1\n", g.host(t, `stat -c "%a %h" a | tr '\n' ' '; cat a; stat -c "%a %h" ../outside | tr '\n' ' '; cat ../outside`))
		g.done(t)
		assert.Equal(t, clitest.Outcome{Stdout: "U\ta\n"}, g.apply(t, "--undo"))
		assert.Equal(t, "644\n", g.host(t, `stat -c %a a`))
	}},
	{"space that runs out half-way", "f1: 1; f2: 1; f3: 1; small: 1", func(t *testing.T, g *ground) {
		g.trial(t, `for n in 1 2 3; do head -c 3000000 /dev/zero | tr '\0' $n >f$n; done; echo 2 >small`)
		limited := clitest.Finish(t, g.shell(g.Project, `trap '' XFSZ; ulimit -f 2000; exec pk-apply --session s --all`))
		assert.Equal(t, 1, limited.Status, limited.Stdout)
		assert.Equal(t, 3, strings.Count(limited.Stderr, "file too large"), limited.Stderr)
		assert.Equal(t, "1 1 1 2", g.read(t, "f1")+" "+g.read(t, "f2")+" "+g.read(t, "f3")+" "+g.read(t, "small"))
		g.host(t, `test -z "$(ls -A | grep pk)"`)
		assert.Equal(t, clitest.Outcome{Stdout: "U\tsmall\n"}, g.apply(t, "--undo"), "what did not land is not undone")
		assert.Equal(t, clitest.Outcome{Stdout: "R\tsmall\n"}, g.apply(t, "--redo"))
		g.lands(t, all, "M | f1", "M | f2", "M | f3")
		assert.Len(t, g.read(t, "f3"), 3000000)
		g.done(t)
	}},
	{"discarded on a full disk", "a: 1; b: 1", func(t *testing.T, g *ground) {
		const full = `trap '' XFSZ; ulimit -f 0; exec pk-apply --session s --discard `
		g.trial(t, `echo 2 >a; echo 2 >b; echo n >n`)
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n"}, clitest.Finish(t, g.shell(g.Project, full+"a")))
		assert.Equal(t, clitest.Outcome{Stdout: "M\tb\nA\tn\n"}, clitest.Finish(t, g.shell(g.Project, full+"--all")))
		g.changes(t)
		g.host(t, `echo 3 >a; echo 3 >n`)
		g.trial(t, `echo 4 >>a; echo 4 >>n`)
		g.lands(t, all, "M | a", "M | n")
		assert.Equal(t, "3\n4 3\n4", g.read(t, "a")+" "+g.read(t, "n"))
	}},
	{"a session that is no trial", "a: 1", func(t *testing.T, g *ground) {
		g.Run(t, "pk-bash", "-y", "--session", sessionName, "--", "true")
		got := clitest.Finish(t, g.command("echo 2 >a"))
		assert.NotZero(t, got.Status)
		assert.Contains(t, got.Stderr, "it was begun without --trial")
		assert.Equal(t, "1", g.read(t, "a"))
		for _, got := range []clitest.Outcome{g.diff(t), g.apply(t, "--all")} {
			assert.Contains(t, got.Stderr, `session "s" is no trial: its commands have changed the project`)
			assert.NotZero(t, got.Status)
		}
		got = g.Run(t, "pk-diff", "--session", "other")
		assert.Equal(t, 125, got.Status)
		assert.Contains(t, got.Stderr, `there is no session "other"`)
	}},
	{"a trial stays one", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo 2 >a`)
		for _, command := range [][]string{{"pk-bash", "-y"}, {"pk-bwrap"}} {
			got := g.Run(t, command[0], append(command[1:], "--session", sessionName, "--", "sh", "-c", "echo 3 >>a")...)
			if command[0] == "pk-bash" {
				got = g.Run(t, "pk-bash", "-y", "--session", sessionName, "--", "echo 3 >>a")
			}
			assert.Zero(t, got.Status, got.Stderr)
		}
		assert.Equal(t, "1", g.read(t, "a"))
		g.changes(t, "M | a")
	}},
	{"a trial without a name", "a: 1", func(t *testing.T, g *ground) {
		got := g.Run(t, "pk-bash", "-y", "--trial", "--", "echo 2 >a")
		assert.Zero(t, got.Status)
		_, rest, _ := strings.Cut(got.Stderr, "trial-")
		name := "trial-" + rest[:10]
		assert.Contains(t, g.Run(t, "pk-diff").Stdout, name+"\t1 entry")
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n", Status: 1}, g.Run(t, "pk-diff", "--session", name))
		g.Env = append(g.Env, "PK_SESSION="+name)
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n", Status: 1}, g.Run(t, "pk-diff"))
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n"}, g.Run(t, "pk-apply", "a"))
	}},
	{"without a sandbox", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, "true")
		for _, options := range [][]string{{"--trial", "--no-sandbox"}, {"--no-sandbox", "--session", sessionName}, {"--wrap", "env", "--session", sessionName}} {
			got := g.Run(t, "pk-bash", append(append([]string{"-y"}, options...), "--", "echo 2 >a")...)
			assert.NotZero(t, got.Status, options)
			assert.Contains(t, got.Stderr, "trial", options)
			assert.Equal(t, "1", g.read(t, "a"), options)
		}
	}},
	{"--allow-write", "a: 1; b: 1", func(t *testing.T, g *ground) {
		got := clitest.Finish(t, g.command("echo 2 >b", "--allow-write", "a"))
		assert.NotZero(t, got.Status)
		assert.Contains(t, got.Stderr, "cannot hold to --allow-write in a trial")
		assert.Equal(t, "1", g.read(t, "b"))
	}},
	{"mount below a root", "", func(t *testing.T, g *ground) {
		g.Mkdir(t, g.Project+"/m")
		got := g.namespace(t, `mount -t tmpfs none m`, `pk-bash --bwrap "$BWRAP" -y --trial --session m -- 'echo 1 >x'`)
		assert.NotZero(t, got.Status)
		assert.Contains(t, got.Stderr, fmt.Sprintf("%q is mounted below it", g.Project+"/m"))
		assert.NoFileExists(t, g.Project+"/x")
	}},
	{"project on a file system that is full", "", func(t *testing.T, g *ground) {
		got := g.namespace(t, `mount -t tmpfs -o size=5m,mode=755 none .`, `
			head -c 2500000 /dev/zero >ballast; echo 1 >f1; echo 1 >f2; echo 1 >f3; echo 1 >d
			pk-bash --bwrap "$BWRAP" -y --raw --trial --session m -- 'for n in 1 2 3; do head -c 1500000 /dev/zero | tr "\0" $n >f$n; done; rm d; mkdir d; echo 2 >d/x'
			pk-apply --session m --all; echo "status $?"
			for n in 1 2 3; do echo $(wc -c <f$n); done
			ls -A
			rm ballast
			pk-apply --session m --all; echo "status $?"
			pk-diff --session m; echo "status $?"
			for n in 1 2 3; do echo $(wc -c <f$n); done; cat d/x
			cd /; pk-sweep --all --discard`)
		assert.Zero(t, got.Status, got.Stderr)
		assert.Equal(t, []string{
			"T | d", "A | d/x", "M | f1", "status 1", "1500000", "2", "2", "ballast", "d", "f1", "f2", "f3",
			"M | f2", "M | f3", "status 0", "status 0", "1500000", "1500000", "1500000", "2",
		}, columns(got.Stdout))
		assert.Equal(t, 2, strings.Count(got.Stderr, "\n"))
		assert.Equal(t, 2, strings.Count(got.Stderr, ": no space left\n"), got.Stderr)
	}},
	{"entries of another group", "a: 1", func(t *testing.T, g *ground) {
		if os.Getuid() != 0 {
			g.trial(t, "true")
			assert.Empty(t, g.said)
			return
		}
		dir, err := os.MkdirTemp("/var/tmp", "pk-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		const own, other = 54321, 54322
		for _, name := range []string{"", "/home", "/project", "/project/shared"} {
			require.NoError(t, os.MkdirAll(dir+name, 0o755))
			require.NoError(t, os.Chown(dir+name, own, own))
		}
		require.NoError(t, os.Chown(dir+"/project/shared", own, other))
		require.NoError(t, os.Chmod(dir, 0o755))
		h := &ground{Box: &clitest.Box{Bin: g.Bin, Bwrap: g.Bwrap, Project: dir + "/project", Home: dir + "/home"}}
		as := func(cmd *exec.Cmd) clitest.Outcome {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: own, Gid: own, Groups: []uint32{other}}}
			return clitest.Finish(t, cmd)
		}
		first, second := as(h.command("true")), as(h.command("true"))
		swept := h.Command("pk-sweep", "--all", "--discard")
		swept.Dir = "/"
		assert.Zero(t, as(swept).Status)
		assert.Zero(t, first.Status, first.Stderr)
		assert.Contains(t, first.Stderr, fmt.Sprintf("files of another group than yours cannot be written in a trial, such as those in %q", dir+"/project/shared"))
		assert.Empty(t, second.Stderr, "it is said once")
	}},

	{"several roots", "a: 1", func(t *testing.T, g *ground) {
		other := g.dir + "/other"
		g.Write(t, other+"/o", "1\n")
		g.options = []string{"--writable", other}
		g.trial(t, `echo 2 >a; echo 2 >../other/o; echo n >../other/n`)
		g.changes(t, "M | a", "A | "+other+"/n", "M | "+other+"/o")
		g.lands(t, []string{other + "/n", "a"}, "M | a", "A | "+other+"/n")
		g.lands(t, all, "M | "+other+"/o")
		assert.Equal(t, "2\n2\nn\n", g.in(t, g.dir, "cat project/a other/o other/n"))
		g.done(t)
		assert.Equal(t, clitest.Outcome{Stdout: "U\t" + other + "/o\n"}, g.apply(t, "--undo"))
	}},
	{"root in a root", "a: 1; in/b: 1; in/deep/c: 1", func(t *testing.T, g *ground) {
		g.options = []string{"--writable", g.Project + "/in"}
		g.trial(t, `echo 2 >a; echo 2 >in/b; rm -r in/deep; echo n >in/n`)
		got := g.apply(t, "--all")
		assert.Zero(t, got.Status, got.Stderr)
		g.host(t, `test "$(cat a in/b in/n | tr '\n' ' ')" = "2 2 n "; ! test -e in/deep`)
		g.done(t)
		g.trial(t, `test "$(cat a in/b in/n | tr '\n' ' ')" = "2 2 n "; ! test -e in/deep`)
	}},

	{"a list of paths", "a: 1; d/b: 1; e/c: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo 2 >a; echo 2 >d/b; mkdir -p n/m; echo n >n/m/x; echo n >n/y; rm e/c`)
		got := clitest.Finish(t, g.shell(g.Project, `pk-diff --session s -z --name-only | grep -z -e '^d/' -e '^n/m/x' | pk-apply --session s -z --from -`))
		assert.Equal(t, []string{"A\tn/", "A\tn/m/", "M\td/b", "A\tn/m/x", ""}, strings.Split(got.Stdout, "\x00"), got.Stderr)
		g.changes(t, "M | a", "D | e/c", "A | n/y")
		g.Write(t, g.dir+"/list", "a\nnone\n")
		got = g.apply(t, "--from", g.dir+"/list")
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\n", Stderr: fmt.Sprintf("pk-apply: cannot land %q: the trial has not changed it\n", g.Project+"/none"), Status: 1}, got)
		g.Write(t, g.dir+"/list", "")
		assert.Equal(t, clitest.Outcome{}, g.apply(t, "--from", g.dir+"/list"))
		g.changes(t, "D | e/c", "A | n/y")
	}},
	{"a list with hashes", "a: 1; b: 1; gone: 1; l => a", func(t *testing.T, g *ground) {
		g.trial(t, `echo 2 >a; echo 2 >b; rm gone; ln -sf b l; echo n >n; mkdir d`)
		list := g.diff(t, "--json").Stdout
		g.trial(t, `echo 3 >b; ln -sf gone l; echo more >later; echo 2 >n`)
		cmd := g.Command("pk-apply", "--session", sessionName, "--json", "--from", "-")
		cmd.Stdin = strings.NewReader(list)
		got := clitest.Finish(t, cmd)
		assert.Equal(t, 1, got.Status)
		done, refused := []string{}, []string{}
		for line := range strings.Lines(got.Stdout) {
			var r result
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			if r.Done {
				done = append(done, r.Change+" "+r.Path)
			} else {
				refused = append(refused, r.Path+": "+r.Reason)
			}
		}
		assert.Equal(t, []string{"A d", "M a", "D gone"}, done)
		assert.ElementsMatch(t, []string{"b: the trial's is not the one that was reviewed", "l: the trial's is not the one that was reviewed", "n: the trial's is not the one that was reviewed"}, refused)
		g.changes(t, "M | b", "M | l", "A | later", "A | n")
		list = g.diff(t, "--json").Stdout
		g.host(t, "echo mine >b")
		cmd = g.Command("pk-apply", "--session", sessionName, "--json", "--overwrite", "--from", "-")
		cmd.Stdin = strings.NewReader(list)
		got = clitest.Finish(t, cmd)
		assert.Contains(t, got.Stdout, `{"path":"b","done":false,"conflict":true,"reason":"the project's is not the one that was reviewed"}`)
		assert.Equal(t, "mine", g.read(t, "b"))
		g.trial(t, `echo 5 >c; echo 5 >e`)
		list = g.diff(t, "--json").Stdout
		g.trial(t, `echo 6 >c; chmod +x b`)
		cmd = g.Command("pk-apply", "--session", sessionName, "--json", "--discard", "--from", "-")
		cmd.Stdin = strings.NewReader(list)
		got = clitest.Finish(t, cmd)
		assert.Equal(t, 2, strings.Count(got.Stdout, "the trial's is not the one that was reviewed"), got.Stdout)
		g.changes(t, "M | b | conflict: it has changed in the project", "A | c")
	}},
	{"dry run", "a: 1; d/b: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo 2 >a; rm -r d; mkdir n; echo n >n/f`)
		before, cache := manifest(t, g.Project), tree(t, g.Home+"/.cache")
		dry := g.apply(t, "-n", "--all")
		assert.Equal(t, []string{"A | n", "M | a", "A | n/f", "D | d/b", "D | d"}, columns(dry.Stdout))
		assert.ElementsMatch(t, columns(dry.Stdout), columns(g.apply(t, "-n", "--discard", "--all").Stdout))
		assert.Equal(t, []string{"M | a"}, columns(g.apply(t, "-n", "--discard", "a").Stdout))
		assert.Equal(t, before, manifest(t, g.Project))
		assert.Equal(t, cache, tree(t, g.Home+"/.cache"))
		assert.Equal(t, dry, g.apply(t, "--all"))
		before = manifest(t, g.Project)
		assert.Equal(t, []string{"U | d/b", "U | d", "U | n/f", "U | a", "U | n"}, sortedAs(columns(g.apply(t, "-n", "--undo").Stdout), "U | d/b", "U | d", "U | n/f", "U | a", "U | n"))
		assert.Equal(t, before, manifest(t, g.Project))
	}},
	{"changes that are dropped", "a: 1; b: 1; d/x: 1; d/y: 1; e/x: 1; mode: 1; gone/x: 1", func(t *testing.T, g *ground) {
		before := manifest(t, g.Project)
		g.trial(t, `echo 2 >a; echo 2 >b; rm d/x; rm -r e; mkdir e; echo n >e/n; chmod 700 mode d; rm -r gone; mkdir -p n/m; echo n >n/m/x; echo n >n/y`)
		g.lands(t, []string{"--discard", "a", "d", "n/m", "mode"}, "M | a", "P | d", "D | d/x", "P | mode", "A | n/m", "A | n/m/x")
		g.changes(t, "M | b", "A | e/n", "D | e/x", "D | gone/", "D | gone/x", "A | n/", "A | n/y")
		const whole = "the trial has removed or replaced %s as a whole: discard that"
		for path, above := range map[string]string{"e/x": "e", "gone/x": "gone"} {
			got := g.apply(t, "--discard", path)
			assert.Equal(t, clitest.Outcome{Stderr: fmt.Sprintf("pk-apply: cannot drop %q: "+whole+"\n", path, above), Status: 1}, got)
		}
		g.trial(t, `test "$(cat a b d/x)" = "$(printf '1\n2\n1')"; ! test -e e/x; test "$(cat e/n)" = n; ! test -e n/m; test "$(stat -c %a mode d | tr '\n' ' ')" = "644 755 "`)
		g.lands(t, []string{"--discard", "gone", "e/n"}, "D | gone", "D | gone/x", "A | e/n")
		assert.Equal(t, "1\n", g.trial(t, `cat gone/x; ! test -e e/n`))
		got := g.apply(t, "--discard", "--all")
		assert.Equal(t, []string{"M | b", "D | e/x", "A | n", "A | n/y"}, columns(got.Stdout))
		assert.Equal(t, before, manifest(t, g.Project))
		g.done(t)
		assert.Equal(t, "1\n1\n", g.trial(t, `cat b e/x; ! test -e n`))
		g.host(t, "echo mine >e/x")
		g.trial(t, `echo both >>e/x`)
		g.lands(t, []string{"--overwrite", "--all"}, "M | e/x")
		assert.Equal(t, "mine\nboth", g.read(t, "e/x"))
	}},
	{"undo and redo", "a: 1; d/x: 1; d/y: 1; l => a; to-dir: 1; to-file/x: 1; mode: 1", func(t *testing.T, g *ground) {
		before := tree(t, g.Project)
		assert.Equal(t, 2, g.Run(t, "pk-apply", "--session", "none", "--undo").Status)
		g.trial(t, `echo 2 >a; rm -r d; ln -sf mode l; rm to-dir; mkdir to-dir; echo n >to-dir/n; rm -r to-file; echo f >to-file; chmod 700 mode; mkdir -p n/m; echo x >n/m/x`)
		got := g.apply(t, "--undo")
		assert.Equal(t, 1, got.Status)
		assert.Contains(t, got.Stderr, "nothing has landed that could be undone")
		require.Zero(t, g.apply(t, "--all").Status)
		after := tree(t, g.Project)
		for range 2 {
			got := g.apply(t, "--undo")
			assert.Zero(t, got.Status, got.Stderr)
			sameTree(t, before, tree(t, g.Project))
			got = g.apply(t, "--redo")
			assert.Zero(t, got.Status, got.Stderr)
			sameTree(t, after, tree(t, g.Project))
		}
		g.host(t, `echo mine >a; echo mine >n/m/mine`)
		got = g.apply(t, "--undo")
		assert.Equal(t, 1, got.Status)
		assert.Contains(t, got.Stderr, "pk-apply: conflict: cannot put back \"a\": it has changed in the project\n")
		assert.Equal(t, "mine mine 1", g.read(t, "a")+" "+g.read(t, "n/m/mine")+" "+g.read(t, "d/x"))
		g.trial(t, `test "$(cat a d/x)" = "$(printf 'mine\n1')"`)
	}},
	{"two landings, both undone", "a: 1; b: 1", func(t *testing.T, g *ground) {
		g.trial(t, `echo 2 >a; echo 2 >b`)
		g.lands(t, []string{"a"}, "M | a")
		g.lands(t, []string{"b"}, "M | b")
		assert.Equal(t, clitest.Outcome{Stdout: "U\tb\n"}, g.apply(t, "--undo"))
		assert.Equal(t, "2 1", g.read(t, "a")+" "+g.read(t, "b"))
		g.trial(t, `echo 3 >>a`)
		g.lands(t, all, "M | a")
		assert.Equal(t, "2\n3", g.read(t, "a"))
	}},
	{"a patch is what lands", "", func(t *testing.T, g *ground) {
		g.host(t, `git init -q; seq 100 >a; seq 50 >b; echo x >"with space"; printf 'no end' >n; mkdir -p d/e; seq 9 >d/e/f; echo '#!/bin/sh' >run; ln -s a l; git add .; git commit -qm 1`)
		g.trial(t, `sed -i 's/^5/five/' a; rm b; seq 20 >d/new; echo y >>"with space"; printf more >>n; git mv d/e/f d/moved; rmdir d/e; chmod +x run; ln -sf d l; printf 'a\0b' >binary; touch empty`)
		direct := g.copied(t)
		patch := g.diff(t, "--patch")
		assert.Equal(t, 1, patch.Status, patch.Stderr)
		g.Write(t, g.dir+"/patch", patch.Stdout)
		g.in(t, direct, "git update-index -q --refresh; git apply --3way ../../patch; ! git ls-files -u | grep .")
		require.Zero(t, g.apply(t, "--all").Status)
		sameTree(t, tree(t, direct), tree(t, g.Project))
	}},
	{"a patch and the user's edits", "", func(t *testing.T, g *ground) {
		g.host(t, `git init -q; seq 100 >a; git add .; git commit -qm 1`)
		g.trial(t, `sed -i 's/^90$/ninety/' a`)
		g.host(t, `sed -i 's/^10$/ten/' a; git add a`)
		assert.Equal(t, clitest.Outcome{Stderr: conflict("a", userSaved), Status: 1}, g.apply(t, "a"))
		got := g.diff(t, "--patch")
		assert.Equal(t, clitest.Outcome{Stderr: "pk-diff: warning: the patch leaves \"a\" out: it has changed in the project\n", Status: 1}, got)
	}},
	{"a patch of what stays", "a: 1", func(t *testing.T, g *ground) {
		g.host(t, `git init -q; git config core.hooksPath .hooks; git add .; git commit -qm 1`)
		g.trial(t, `mkdir .hooks; echo x >.hooks/pre-commit; echo x >.envrc; ln -s /etc/passwd abs; echo n >n`)
		got := g.diff(t, "--patch")
		assert.Equal(t, 3, strings.Count(got.Stderr, "the patch leaves"), got.Stderr)
		assert.Equal(t, 1, strings.Count(got.Stdout, "diff --git"), got.Stdout)
		assert.Contains(t, got.Stdout, "+++ b/n\n")
	}},
	{"a refused type keeps what is below", "dd/1: 1; ff/1: 1", func(t *testing.T, g *ground) {
		g.trial(t, `rm -r dd ff; ln -s /etc dd; mkfifo ff`)
		got := g.apply(t, "--all")
		assert.Equal(t, 1, got.Status)
		assert.Empty(t, got.Stdout)
		assert.Equal(t, "1 1", g.read(t, "dd/1")+" "+g.read(t, "ff/1"))
	}},
	{"a list names each path", "x: precious", func(t *testing.T, g *ground) {
		g.trial(t, `rm x; mkdir x; echo i >x/in; mkdir n; echo a >n/a; echo b >n/b`)
		g.Write(t, g.dir+"/list", "x/in\n")
		assert.Equal(t, 1, g.apply(t, "--from", g.dir+"/list").Status)
		assert.Equal(t, "precious", g.read(t, "x"))
		g.Write(t, g.dir+"/list", "n\n")
		assert.Equal(t, 1, g.apply(t, "--discard", "--from", g.dir+"/list").Status)
		g.changes(t, "A | n/", "A | n/a", "A | n/b", "T | x/", "A | x/in")
	}},
	{"an undo that fails is tried again", "d/f: precious", func(t *testing.T, g *ground) {
		g.trial(t, `echo agent >d/f`)
		require.Zero(t, g.apply(t, "--all").Status)
		g.host(t, "echo mine >d/f")
		assert.Equal(t, 1, g.apply(t, "--undo").Status)
		g.host(t, "echo agent >d/f")
		assert.Equal(t, clitest.Outcome{Stdout: "U\td/f\n"}, g.apply(t, "--undo"))
		assert.Equal(t, "precious", g.read(t, "d/f"))
	}},
	{"links through links of the host", "d/x: 1; ext => /etc; up => ..; g => .git", func(t *testing.T, g *ground) {
		g.host(t, "git init -q")
		g.trial(t, `ln -s ext/passwd a; ln -s up/other b; ln -s g/hooks c; ln -s d/x ok`)
		got := g.apply(t, "--all")
		assert.Equal(t, []string{"A | ok"}, columns(got.Stdout), got.Stderr)
	}},
	{"files that take no space", "a: 1; old: 1; some: 1", func(t *testing.T, g *ground) {
		const stays = "with it, the trial's files have over 16 GiB more than the space that they take"
		g.trial(t, `truncate -s 6T big; truncate -s 6T old; truncate -s 6T .envrc; git init -q r; truncate -s 6T r/.git/f; mkdir sub; truncate -s 6T sub/.git; echo 2 >a; truncate -s 20M some`)
		list := g.diff(t, "--all").Stdout
		for _, line := range []string{"A\tbig\tstays: " + stays, "M\told\tstays: " + stays, "A\tr/.git/\tstays: " + stays, "M\ta", "M\tsome"} {
			assert.Contains(t, "\n"+list, "\n"+line+"\n")
		}
		assert.Regexp(t, `(?m)^A\t.envrc\tstays: protected`, list)
		assert.Regexp(t, `(?m)^A\tsub/.git\tstays: git on the host`, list)
		reviewed := g.diff(t, "--json").Stdout
		assert.Regexp(t, `(?m)^.*"path":"big".*"size":6597069766656.*$`, reviewed)
		assert.NotRegexp(t, `(?m)^.*"path":"big".*"after":.*$`, reviewed)
		assert.Regexp(t, `(?m)^.*"path":"some".*"after":"[0-9a-f]{64}".*$`, reviewed)
		assert.Contains(t, g.diff(t, "--stat").Stdout, "\n2 -> 6597069766656 bytes\t\told\n")
		patch := g.diff(t, "--patch")
		assert.Contains(t, patch.Stdout, "+2\n")
		assert.Contains(t, patch.Stderr, `the patch leaves "big" out: `+stays)
		got := g.apply(t, all...)
		assert.Equal(t, 1, got.Status)
		assert.Contains(t, got.Stderr, `cannot land "big": `+stays)
		assert.Contains(t, got.Stderr, `cannot land "r/.git": `+stays)
		assert.Equal(t, "2", g.read(t, "a"))
		assert.NoFileExists(t, g.Project+"/big")
		g.trial(t, `truncate -s 6T a`) // what has landed is compared with what the trial has now
		assert.Equal(t, 1, g.apply(t, all...).Status)
		cmd := g.Command("pk-apply", "--session", sessionName, "--discard", "--json", "--from", "-")
		cmd.Stdin = strings.NewReader(reviewed)
		assert.Contains(t, clitest.Finish(t, cmd).Stdout, `{"path":"big","change":"A","done":true}`)
	}},
	{"bits of the project's directory", "a: 1", func(t *testing.T, g *ground) {
		for _, mode := range []string{"2775", "1777", "0555", "0755"} {
			g.host(t, "chmod 00"+mode+" .")
			g.trial(t, "true")
			g.done(t)
			g.trial(t, "echo 2 >>a; mkdir n-"+mode+"; chmod 00750 .")
			g.trial(t, `test "$(stat -c %a .)" = 750`)
			if got := g.apply(t, "a", "n-"+mode); mode != "0555" || os.Getuid() == 0 {
				assert.Zero(t, got.Status, got.Stderr)
			}
			g.host(t, `test $(stat -c 0%a . | tail -c5) = `+mode)
			got := g.apply(t, "--all")
			assert.Equal(t, 1, got.Status)
			assert.Contains(t, got.Stderr, "pk-apply: cannot land \".\": the permissions of a root do not land\n")
			assert.NotContains(t, got.Stdout, "P\t.")
			assert.Zero(t, g.apply(t, "--discard", "--all").Status)
			g.done(t)
		}
		g.host(t, "chmod 755 .")
		g.trial(t, "true")
		g.host(t, "chmod 711 .")
		g.done(t)
	}},
	{"lists that are none", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, "echo 2 >a")
		for list, want := range map[string]string{
			"a\x00b\x00":     "record 1 of \"-\" holds a NUL\npk-apply: hint: -z: records end in NUL\n",
			`{"path":5}`:     "its field \"path\" is a JSON number, and no string\n",
			`[]`:             "it is a JSON array, and no object\n",
			`{"path":"a"} x`: "invalid character 'x'",
		} {
			options := []string{"--session", sessionName, "--from", "-"}
			if list[0] != 'a' {
				options = append(options, "--json")
			}
			cmd := g.Command("pk-apply", options...)
			cmd.Stdin = strings.NewReader(list)
			got := clitest.Finish(t, cmd)
			assert.Equal(t, 2, got.Status, list)
			assert.Contains(t, got.Stderr, want)
			assert.NotContains(t, got.Stderr, "Go ")
		}
	}},
	{"exit statuses", "a: 1", func(t *testing.T, g *ground) {
		g.trial(t, "true")
		status := func(name string, args ...string) int { return g.Run(t, name, args...).Status }
		assert.Equal(t, 0, status("pk-diff", "--session", sessionName))
		assert.Equal(t, 0, status("pk-diff"))
		assert.Equal(t, 125, status("pk-diff", "--session", "none"))
		assert.Equal(t, 125, status("pk-diff", "--json", "--patch", "--session", sessionName))
		assert.Equal(t, 125, status("pk-diff", "a"))
		assert.Equal(t, 0, status("pk-diff", "--session", sessionName, "a"))
		for _, args := range [][]string{{}, {"a"}, {"--session", sessionName}, {"--session", sessionName, "a", "--all"}, {"--session", sessionName, "--undo", "--discard"}} {
			assert.Equal(t, 2, status("pk-apply", args...), args)
		}
		g.trial(t, "echo 2 >a")
		assert.Equal(t, 1, status("pk-diff", "--session", sessionName))
		assert.Equal(t, 1, status("pk-diff", "--session", sessionName, "a"))
		assert.Equal(t, 0, status("pk-diff", "--session", sessionName, "b"))
		assert.Equal(t, clitest.Outcome{Stderr: "pk-diff: \"/etc\" lies in no root of the trial\n", Status: 125}, g.diff(t, "/etc"))
		assert.Equal(t, clitest.Outcome{Stderr: "pk-apply: cannot land \"/etc\": it lies in no root of the trial\n", Status: 1}, g.apply(t, "/etc"))
		assert.Equal(t, 125, g.diff(t, g.dir).Status)
		for _, option := range []string{"--json", "--patch", "--stat", "--name-only", "-z"} {
			assert.Equal(t, 1, status("pk-diff", "--session", sessionName, option), option)
		}
	}},
	{"a directory in place of a file that is not in the list", "d: 1", func(t *testing.T, g *ground) {
		g.trial(t, `rm d; mkdir -p d/sub; echo x >d/x; echo y >d/sub/y`)
		for _, option := range []string{"--dry-run", "--zero"} {
			apply := g.Command("pk-apply", "--session", sessionName, option, "-z", "--from", "-")
			apply.Stdin = strings.NewReader("d/x\x00d/sub/y\x00")
			within := `the project's "d" is no directory: name "d" too, which replaces it`
			assert.Equal(t, clitest.Outcome{
				Stderr: "pk-apply: cannot land \"d/sub\": " + within + "\npk-apply: cannot land \"d/sub/y\": its directory \"d/sub\" has not landed\npk-apply: cannot land \"d/x\": " + within + "\n", Status: 1,
			}, clitest.Finish(t, apply))
		}
		assert.Equal(t, "1", g.read(t, "d"))
		assert.Equal(t, []string{"T | d", "A | d/sub", "A | d/sub/y", "A | d/x"}, columns(g.apply(t, "--dry-run", "--all").Stdout))
		g.lands(t, all, "T | d", "A | d/sub", "A | d/sub/y", "A | d/x")
	}},
	{"a directory that nobody has named", "", func(t *testing.T, g *ground) {
		g.trial(t, `mkdir d e e/f; echo x >d/x; echo x >e/f/x`)
		list := ""
		for line := range strings.Lines(g.diff(t, "--json").Stdout) {
			if strings.Contains(line, `/x"`) {
				list += line
			}
		}
		g.trial(t, `chmod 2777 d; chmod 777 e; chmod 500 e/f`)
		apply := g.shell(g.Project, `umask 022; pk-apply --session `+sessionName+` --json --from -`)
		apply.Stdin = strings.NewReader(list)
		got := clitest.Finish(t, apply)
		assert.Zero(t, got.Status, "%s%s", got.Stdout, got.Stderr)
		assert.Equal(t, "755 d\n755 e\n500 e/f\n", g.host(t, "stat -c '%a %n' d e e/f"))
		g.changes(t, "P | d/ | stays: set-user-ID, set-group-ID and sticky bits do not land", "P | e/ | 0755 -> 0777")
		g.lands(t, []string{"e"}, "P | e")
		assert.Equal(t, "777\n", g.host(t, "stat -c %a e"))
	}},
	{"bits of new directories", "s/", func(t *testing.T, g *ground) {
		g.host(t, "chmod 2755 s")
		g.trial(t, `mkdir -p s/a/b; mkdir -m 1777 t; mkdir -m 2755 u; mkdir u/d; echo x >t/f; echo x >u/d/f`)
		stay := "set-user-ID, set-group-ID and sticky bits do not land"
		g.changes(t, "A | s/a/", "A | s/a/b/", "A | t/ | stays: "+stay, "A | t/f", "A | u/ | stays: "+stay, "A | u/d/ | stays: "+stay, "A | u/d/f")
		got := g.apply(t, "--all")
		assert.Equal(t, []string{"A | s/a", "A | s/a/b"}, columns(got.Stdout))
		for _, dir := range []string{"t", "u", "u/d"} {
			assert.Contains(t, got.Stderr, fmt.Sprintf("cannot land %q: %s\n", dir, stay))
		}
		assert.Equal(t, "2755 s/a/b\n", g.host(t, "stat -c '%a %n' s/a/b; test ! -e t; test ! -e u"))
		g.trial(t, `chmod -R g-s,-t t u`)
		g.lands(t, all, "A | t", "A | u", "A | u/d", "A | t/f", "A | u/d/f")
	}},
	{"attributes that hide", "d/a: 1; e/b: 1", func(t *testing.T, g *ground) {
		require.NoError(t, unix.Setxattr(g.Project+"/d", "user.overlay.opaque", []byte("x"), 0))
		got := g.Run(t, "pk-bwrap", "--trial", "--session", sessionName, "--", "true")
		assert.Equal(t, clitest.Outcome{Stderr: fmt.Sprintf("pk-bwrap: warning: the trial may not see all files in %q: it has the attribute user.overlay.opaque\n", g.Project+"/d")}, got)
	}},
	{"operands", "a: 1; d/a: 1; d/e/a: 1; link => d", func(t *testing.T, g *ground) {
		g.trial(t, `for f in a d/a d/e/a; do echo 2 >$f; done; mkdir d/n; echo n >d/n/n`)
		below := g.Command("pk-apply", "--session", sessionName, "-n", "a", "e", "../a")
		below.Dir = g.Project + "/d"
		assert.Equal(t, clitest.Outcome{Stdout: "M\ta\nM\td/a\nM\td/e/a\n"}, clitest.Finish(t, below))
		outside := g.Command("pk-apply", "--session", sessionName, "-n", "d/n/n", g.Project+"/a", "x")
		outside.Dir = g.dir
		assert.Equal(t, clitest.Outcome{Stdout: "A\td/n/\nM\ta\nA\td/n/n\n", Stderr: "pk-apply: cannot land \"x\": the trial has not changed it\n", Status: 1}, clitest.Finish(t, outside))
		g.lands(t, []string{"d/n/n"}, "A | d/n", "A | d/n/n")
		g.changes(t, "M | a", "M | d/a", "M | d/e/a")
	}},
}

// sum is the hash of a text.
func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// sortedAs returns want if the lines are the same in another order.
func sortedAs(lines []string, want ...string) []string {
	if len(without(lines, want))+len(without(want, lines)) == 0 {
		return want
	}
	return lines
}

// held is a command that has printed that it is ready, and ends when its input does.
type held struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func start(t *testing.T, cmd *exec.Cmd) *held {
	t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	h := &held{cmd, in, bufio.NewReader(out)}
	for {
		line, err := h.out.ReadString('\n')
		require.NoError(t, err)
		if line == "ready\n" {
			return h
		}
	}
}

// end lets the command go on to its end.
func (h *held) end(t *testing.T) {
	t.Helper()
	require.NoError(t, h.in.Close())
	_, _ = io.Copy(io.Discard, h.out)
	_ = h.cmd.Wait() // "read" has failed
}

// namespace runs a script in the project, as the same user in namespaces with more
// mounts, and kills the processes that it leaves.
func (g *ground) namespace(t *testing.T, mounts, script string) clitest.Outcome {
	t.Helper()
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", mounts+`
		cd "$PWD"; exec unshare --user --map-user="$1" --map-group="$2" bash -c "$3"`, "sh", strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid()), script)
	cmd.Dir = g.Project
	cmd.Env = []string{"HOME=" + g.Home, "PATH=" + g.Bin + ":" + os.Getenv("PATH"), "BWRAP=" + g.Bwrap}
	return clitest.Finish(t, cmd)
}
