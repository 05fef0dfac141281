package man

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// before makes the files and sessions that the examples of a page assume.
var before = map[string]func(*testing.T, *scene){
	"man/pk-git.7": func(t *testing.T, s *scene) {
		script := `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
git init -q . && git commit -q --allow-empty -m main && git checkout -q -b topic && git commit -q --allow-empty -m topic && git branch feature && git checkout -q -
pk-bwrap -- sh -c 'git branch -D topic; git init -q vendor/lib' && git rev-parse -q --verify refs/pk/trash/heads/topic`
		got := s.run(t, "bash", "-ec", script)
		require.Equal(t, 0, got.Status, got.Stderr)
	},
	"man/pk-diff.1": func(t *testing.T, s *scene) {
		script := "git init -q . && git add . && git -c user.name=a -c user.email=a commit -q -m main"
		require.Equal(t, clitest.Outcome{}, s.run(t, "bash", "-ec", script))
	},
	"man/pk-fs.1": func(t *testing.T, s *scene) {
		s.Write(t, s.Project+"/app.conf", "host = \"localhost\"\nretries = 3\n")
	},
	"man/pk-sweep.1": func(t *testing.T, s *scene) {
		s.session(t, "docs", 3*time.Hour)
		s.session(t, "spike", 12*24*time.Hour)
		s.use(t, "review")
	},
	"man/pk-toolchains.1": func(t *testing.T, s *scene) {
		s.Write(t, s.Home+"/.npmrc", "registry=https://registry.example.test/\n")
		s.Write(t, s.Home+"/.config/pip/pip.conf", "[global]\nindex-url = https://pypi.example.test/simple\n")
		s.Write(t, s.Project+"/.npmrc", "@app:registry=https://npm.example.test/\n")
	},
	"README.md": func(t *testing.T, s *scene) {
		s.Script(t, s.Home+"/.cargo/bin/claude", "while [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\" </dev/null\n")
		s.Write(t, s.Home+"/.npmrc", "registry=https://registry.example.test/\n")
	},
	"man/pk-net.7": func(t *testing.T, s *scene) {
		for path, text := range map[string]string{
			".npmrc": "registry=https://registry.example.test/\n", ".yarnrc.yml": "npmRegistryServer: https://registry.example.test/\n",
			".config/pip/pip.conf": "[global]\nindex-url = https://pypi.example.test/simple\n", ".gemrc": ":sources:\n- https://gems.example.test/\n",
			".config/go/env": "GOPROXY=https://proxy.example.test\n",
		} {
			s.Write(t, s.Home+"/"+path, text)
		}
		got := s.run(t, "bash", "-ec", "git init -q . && git remote add origin https://git.example.test/app.git")
		require.Equal(t, 0, got.Status, got.Stderr)
		for _, tool := range []string{"npm", "yarn", "pip", "bundle", "git", "cargo", "mvn", "gradle", "composer", "dotnet"} {
			s.Script(t, s.Home+"/.cargo/bin/"+tool, "echo ok\n")
		}
	},
	"man/pk-session.7": func(t *testing.T, s *scene) {
		s.session(t, "spike", 3*24*time.Hour)
		s.use(t, "docs")
	},
}

// special are the examples that are neither a transcript nor a script, by page
// and first line, each with the function that tries it.
var special = map[string]func(*testing.T, *scene, example){
	"man/pk-bash.1: SHELL = pk-bash":                makefile("all:\n\t@test \"$$PK_BASH\" = 1\n"),
	"man/pk-bash.1: $ pk-bash -y --net none --loop": conversation,
	"man/pk-fs.1: report.txt: $(SOURCES)":           makefile("SOURCES = src/main.c counter\n"),
	"man/pk-fs.1: import json, subprocess":          python("path, text = 'notes/made/up', 'hi'\n", "assert names == ['report.py'], names\nassert pk_fs('cat', path) == b'hi'\n"),
	"man/pk-nested.7: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined IMAGE": elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: podman run --security-opt unmask=ALL IMAGE":                                                                                  elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: the container may not make namespaces; start the container with --security-opt ...":                                          elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: parts of /proc are hidden (\"/proc/bus\"), so no other can be mounted; start the container with ...":                         elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: spec:": elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: \"securityOpt\": [\"seccomp=unconfined\", \"apparmor=unconfined\", \"systempaths=unconfined\"]":       elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: pk-bash -y --net none --allow-nested 'python3 -m http.server --bind 127.0.0.1 8000 & server=$!":       elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: import { chromium } from 'playwright-core'":                                                           elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: pk-bash -y --session bazel --allow-nested 'bazel --batch build --spawn_strategy=linux-sandbox //...'": elsewhere("it takes a program that the tests do not have"),
	"man/pk-nested.7: #!/bin/bash":                                                                                     elsewhere("scripts/engines runs one like it"),
	"man/pk-net.7: pk-bwrap --net none --publish 3000 --connect 5432 -- make":                                          elsewhere("cmd/pk-bwrap tries these options in a network of its own: the ports may be in use here"),
	"man/pk-net.7: # set\trule\tprivate":                                                                               file(".config/pikuri/hosts.tsv"),
	"man/pk-policy.5: # /etc/pikuri/policy":                                                                            elsewhere("cmd/pk-bwrap tries the policy of a machine in a mount namespace of its own"),
	"man/pk-policy.5: # What the agent may do to the application.":                                                     file("policies/app"),
	"man/pk-sweep.1: 17 4 * * *  pk-sweep":                                                                             crontab,
	"man/pk-sweep.1: 17 4 * * *  XDG_CACHE_HOME=/var/scratch/me pk-sweep":                                              crontab,
	"man/pk-patterns.7: .B \"pattern         path              matches  covers\"":                                      elsewhere("lib/pattern reads this table from the page"),
	"man/pk-patterns.7: .B \"pattern         what is wrong\"":                                                          elsewhere("lib/pattern reads this table from the page"),
	"README.md: make try     # installs bubblewrap if it is missing, builds, runs a real project's tests in the fence": targets,
	"README.md: go mod init agent":                                                                                     elsewhere("make test builds the program and runs it"),
	"README.md: make build":                                                                                            targets,
}

// TestExamples runs all that the pages show.
func TestExamples(t *testing.T) {
	clitest.TwoRows(t)
	tried := map[string]bool{}
	called := map[string]bool{}
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			s := newScene(t)
			if prepare := before[page]; prepare != nil {
				prepare(t, s)
			}
			for _, e := range examples(t, page) {
				run, ok := special[e.name()]
				switch {
				case ok:
					tried[e.name()] = true
				case strings.HasPrefix(e.lines[0], "$ "):
					run = transcript
				default:
					run = script
				}
				t.Run(e.lines[0], func(t *testing.T) {
					e.need(t)
					run(t, s, e)
				})
			}
			calls, _ := os.ReadFile(s.called)
			for name := range strings.Lines(string(calls)) {
				called[strings.TrimSpace(name)] = true
			}
		})
	}
	// A special example or a stand-in that no page uses any more has to go.
	if os.Getenv("PK_TEST_BWRAP") != "" && !t.Failed() {
		for name := range special {
			assert.True(t, tried[name], "no page has the example %q", name)
		}
		for name, program := range standIns {
			assert.True(t, called[name], "no example calls %s, which %s", name, program.why)
		}
	}
}

// transcript runs the commands after each $ in one shell, and compares their
// output with the lines of the page.
func transcript(t *testing.T, s *scene, e example) {
	sh := s.shell(t)
	for rest := e.lines; len(rest) > 0; {
		command, ok := strings.CutPrefix(rest[0], "$ ")
		require.True(t, ok, "it did not print %q", rest[0])
		output, status := sh.do(command)
		got := strings.Split(strings.TrimSuffix(s.shown(output), "\n"), "\n")
		if output == "" {
			got = nil
		}
		// shown may join lines: count the lines of the page after the same change.
		rest = rest[1:]
		shown := s.lines(rest)
		require.Equal(t, strings.Join(got, "\n"), strings.Join(shown[:min(len(got), len(shown))], "\n"), command)
		rest = strings.Split(strings.Join(shown[len(got):], "\n"), "\n")
		if len(shown) == len(got) {
			rest = nil
		}
		if len(got) == 0 {
			require.Equal(t, 0, status, command)
		}
	}
}

// conversation runs a loop. After the command, requests and answers alternate. An answer
// that ends in "..." is only the beginning.
func conversation(t *testing.T, s *scene, e example) {
	clitest.Need(t, "python3")
	command, _ := strings.CutPrefix(e.lines[0], "$ ")
	cmd := exec.Command("env", "bash", "-c", command)
	cmd.Dir, cmd.Env = s.Project, s.environ()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		in.Close()
		assert.NoError(t, cmd.Wait())
	}()
	for answers, lines := bufio.NewReader(out), e.lines[1:]; len(lines) > 1; lines = lines[2:] {
		_, err := io.WriteString(in, lines[0]+"\n")
		require.NoError(t, err)
		got, err := answers.ReadString('\n')
		require.NoError(t, err)
		want, _ := strings.CutSuffix(lines[1], "...")
		require.Equal(t, strings.TrimSpace(want), got[:min(len(strings.TrimSpace(want)), len(got))], lines[0])
	}
}

// lines are the lines of a page, with marks in place of the varying text.
func (s *scene) lines(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return strings.Split(s.shown(strings.Join(lines, "\n")), "\n")
}

// script runs an example that shows no output, as one script. Status 1 of pk-diff is no
// failure.
func script(t *testing.T, s *scene, e example) {
	const differs = `pk-diff() { command pk-diff "$@" || test $? = 1; }` + "\n"
	got := s.run(t, "bash", "-eo", "pipefail", "-c", differs+e.text())
	require.Equal(t, 0, got.Status, "%s%s%s", e.text(), got.Stdout, got.Stderr)
}

// makefile makes the first target of an example that is part of a makefile.
func makefile(rest string) func(*testing.T, *scene, example) {
	return func(t *testing.T, s *scene, e example) {
		old, err := os.ReadFile(s.Project + "/Makefile")
		require.NoError(t, err)
		s.Write(t, s.Project+"/Makefile", e.text()+rest)
		if strings.HasPrefix(rest, "SOURCES") {
			s.Write(t, s.Project+"/Makefile", rest+e.text())
		}
		got := s.run(t, "make")
		require.Equal(t, 0, got.Status, got.Stdout+got.Stderr)
		s.Write(t, s.Project+"/Makefile", string(old))
	}
}

// python runs an example between two pieces of program.
func python(before, after string) func(*testing.T, *scene, example) {
	return func(t *testing.T, s *scene, e example) {
		clitest.Need(t, "python3")
		got := s.run(t, "python3", "-c", before+e.text()+after)
		require.Equal(t, 0, got.Status, got.Stdout+got.Stderr)
	}
}

// file makes an example the content of a file, for the next one.
func file(path string) func(*testing.T, *scene, example) {
	return func(t *testing.T, s *scene, e example) { s.Write(t, filepath.Join(s.Home, path), e.text()) }
}

// crontab runs the command of a line as cron does.
func crontab(t *testing.T, s *scene, e example) {
	require.Len(t, e.lines, 1)
	fields := strings.Fields(e.lines[0])
	for _, field := range fields[:5] {
		require.Regexp(t, `^[0-9*/,-]+$`, field)
	}
	got := s.run(t, "sh", "-c", strings.Join(fields[5:], " "))
	assert.Equal(t, clitest.Outcome{}, got)
}

// targets has make print its commands (-n): other tests run the targets.
func targets(t *testing.T, s *scene, e example) {
	got := s.run(t, "bash", "-ec", "cd '"+clitest.Root(t)+"'; export MAKEFLAGS=n\n"+e.text())
	require.Equal(t, 0, got.Status, got.Stdout+got.Stderr)
	require.NotEmpty(t, got.Stdout)
}

// elsewhere is an example that another test reads.
func elsewhere(string) func(*testing.T, *scene, example) {
	return func(*testing.T, *scene, example) {}
}

// TestHelpExamples runs the examples of each command's --help.
func TestHelpExamples(t *testing.T) {
	clitest.OneRow(t)
	s := newScene(t)
	s.session(t, "review", 0)
	require.Equal(t, clitest.Outcome{}, s.run(t, "git", "init", "-q"))
	commands, err := os.ReadDir(s.Bin)
	require.NoError(t, err)
	for _, c := range commands {
		t.Run(c.Name(), func(t *testing.T) {
			require.Equal(t, clitest.Outcome{}, s.run(t, "git", "add", "src"))
			require.Equal(t, 0, s.run(t, "pk-bash", "--trial", "--session", "try", "echo >>counter; echo >>src/main.c").Status)
			help := s.run(t, c.Name(), "--help").Stdout
			_, list, found := strings.Cut(help, "\nExamples:\n")
			require.True(t, found, help)
			for line := range strings.Lines(list) {
				e := example{page: c.Name(), lines: []string{strings.TrimSpace(line)}}
				run := script
				if strings.HasPrefix(e.lines[0], "17 4 ") {
					run = crontab
				}
				t.Run(e.lines[0], func(t *testing.T) {
					e.need(t)
					run(t, s, e)
				})
			}
		})
	}
}

// TestPagesPointToEachOther: each page is in the map, and has the map in its own
// list.
func TestPagesPointToEachOther(t *testing.T) {
	root := clitest.Root(t)
	all, err := os.ReadFile(root + "/man/pk.7")
	require.NoError(t, err)
	for _, page := range slices.DeleteFunc(pages(t), func(p string) bool { return p == "man/pk.7" || p == "README.md" }) {
		text, err := os.ReadFile(root + "/" + page)
		require.NoError(t, err)
		_, list, _ := strings.Cut(string(text), "SEE ALSO")
		assert.Contains(t, list, ".BR pk (7)", page)
		name, section, _ := strings.Cut(filepath.Base(page), ".")
		_, list, _ = strings.Cut(string(all), "\n.SH SEE ALSO")
		assert.Contains(t, list, ".BR "+strings.ReplaceAll(name, "-", `\-`)+" ("+section+")", page)
	}
}
