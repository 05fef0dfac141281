package recipes

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/blocked"
	"pikuri/lib/blocked/blockedtest"
	"pikuri/lib/shell"
)

// outside is what a user has beside projects, and what their commands ask for.
const outside = `mkdir -p ~/include ~/lib ~/data ~/.local/bin ~/.config/app ~/.m2 ~/.cargo ~/.ssh ~/opt ~/.cache/app ~/other
	printf 'int outside;\n' >~/include/outside.h
	printf 'a,b\n' >~/data/set.csv
	printf 'color = true\n' >~/.config/app/rc
	printf '#!/bin/sh\necho generated\n' >~/.local/bin/generate && chmod +x ~/.local/bin/generate
	printf '{"name":"other","version":"1.0.0"}\n' >~/other/package.json
	printf '[package]\nname = "other"\nversion = "0.1.0"\nedition = "2021"\n' >~/other/Cargo.toml && mkdir ~/other/src && touch ~/other/src/lib.rs
	printf 'module example.com/other\n' >~/other/go.mod && printf 'package other\n' >~/other/other.go
	printf 'Host *\n' >~/.ssh/config
	printf 'x\n' >~/.bashrc
`

// attempts are commands in the projects: what their authors type, and what goes wrong
// when something is missing, closed, or a mistake. All run on the host too.
var attempts = []struct {
	project  string
	commands []string
}{
	{"bc", []string{
		`./configure -q && make -s && echo '2^10' | bc/bc -q`,
		`CPPFLAGS=-I$HOME/include ./configure -q && sed -i '1i #include <outside.h>' bc/main.c && make`,
		`sed -i '1i #include "'$HOME'/include/outside.h"' bc/main.c && ./configure -q && make -s`,
		`./configure -q --prefix=$HOME/opt && make -s install >/dev/null`,
		`./configure --with-readline=$HOME/lib`,
	}},
	{"cjson", []string{
		`make -s test`,
		`make -s install`,
		`make -s install DESTDIR=/opt/cjson`,
		`sed -i 's/cJSON_Parse(/cJSON_Pars(/' test.c && make -s`,
		`make -s CFLAGS="-Werror -I$HOME/include -L$HOME/lib -include outside.h" && false`,
		`cmake -B build`,
	}},
	{"docopt", []string{
		`python3 -c 'import docopt; print(docopt.docopt("usage: x [--y]", ["--y"]))'`,
		`python3 -m pytest`,
		`pytest`,
		`python3 -m unittest test_docopt`,
		`python3 -m venv v && v/bin/pip install --retries 0 pytest`,
		`python3 -m venv v && v/bin/pip install --no-index --find-links ~/data pytest`,
		`echo "open('$HOME/data/set.csv').read()" >>docopt.py && python3 docopt.py`,
		`echo "import pathlib; print(pathlib.Path('~/.config/app/rc').expanduser().read_text())" >>docopt.py && python3 docopt.py`,
		`echo "open('/etc/shadow').read()" >>docopt.py && python3 docopt.py`,
		`echo "open('/usr/share/x', 'w')" >>docopt.py && python3 docopt.py`,
		`echo "import sqlite3; sqlite3.connect('$HOME/data/x.db').execute('create table x (y)')" >>docopt.py && python3 docopt.py`,
		`echo "import shutil; shutil.copy('docopt.py', '$HOME/data/copy.py')" >>docopt.py && python3 docopt.py`,
		`echo "assert open('docopt.py').name == '$HOME/data/set.csv', 'expected $HOME/data/set.csv: not found'" >>docopt.py && python3 docopt.py`,
		`python3 setup.py install --user`,
	}},
	{"hello", []string{
		`./configure -q && make -s && ./hello && make -s check >log 2>&1 && tail -n 3 log`,
		`./configure -q && make -s install`,
		`./configure --prefix=$HOME/opt CC=$HOME/.local/bin/generate`,
		`./configure -q && rm src/hello.c && make -s`,
		`./configure --build=nonesuch --cache-file=$HOME/.cache/app/config`,
	}},
	{"jq", []string{
		`./configure --with-oniguruma=$HOME/lib`,
		`autoreconf -i`,
		`git submodule update --init`,
	}},
	{"libtry-tiny-perl", []string{
		`prove -l t`,
		`echo 'require "'$HOME'/lib/Helper.pm";' >>t/basic.t && prove -l t/basic.t`,
		`echo 'open my $f, "<", "'$HOME'/data/set.csv" or die "cannot open: $!";' >t/a.t && prove t/a.t`,
		`echo 'open my $f, "<", "'$HOME'/data/set.csv" or die "'$HOME'/data/set.csv: $!";' >t/a.t && prove t/a.t`,
		`perl Makefile.PL INSTALL_BASE=$HOME/opt && make -s install`,
		`perl -MDateTime::Nonesuch -e 1`,
	}},
	{"lua5.4", []string{
		`make -s posix && src/lua -e 'print(1 + 1)'`,
		`make -s linux-readline`,
		`make -s posix && src/lua -e 'dofile(os.getenv("HOME") .. "/data/set.csv")'`,
		`make -s posix && src/lua -e 'assert(io.open(os.getenv("HOME") .. "/.config/app/rc"))'`,
		`make -s posix && src/lua -e 'require "nonesuch"'`,
		`make -s posix install`,
	}},
	{"lz4", []string{
		`make -s -C lib && make -s -C programs lz4 && programs/lz4 --version`,
		`make -s -C programs lz4 && programs/lz4 ~/data/set.csv`,
		`make -s -C programs lz4 && programs/lz4 README.md ~/data/README.lz4`,
		`make -s -C programs lz4 && programs/lz4 README.md ../README.lz4`,
	}},
	{"node-ms", []string{
		`node -e 'console.log(require("./")("2 days"))'`,
		`npm test`,
		`npm install`,
		`npm install ~/other && node -e 'require("other/package.json")'`,
		`npm install -g --prefix ~/opt .`,
		`npx --yes eslint .`,
		`node -e 'require("fs").readFileSync(require("os").homedir() + "/.config/app/rc")'`,
		`node -e 'require("child_process").execFileSync("generate")'`,
		`node -e 'require("child_process").spawn("nonesuch")'`,
		`node -e 'fetch("https://registry.corp.test/x").catch(e => { console.error(e); process.exit(1) })'`,
		`node -e 'throw new Error("GET /home 404 Not Found")'`,
		`node -e 'require("fs").writeFileSync("/usr/lib/x", "")'`,
		`node -e 'require("fs").mkdirSync("/srv/data")'`,
	}},
	{"php-psr-log", []string{
		`php -l Psr/Log/LogLevel.php`,
		`composer install --no-interaction`,
		`composer require --no-interaction phpunit/phpunit`,
		`php -r 'require getenv("HOME") . "/data/set.csv.php";'`,
		`php -r 'file_get_contents(getenv("HOME") . "/data/set.csv") or exit(1);'`,
	}},
	{"rust-fnv", []string{
		`cargo test -q --offline`,
		`printf '\n[dependencies]\nserde = "1"\n' >>Cargo.toml && cargo build`,
		`printf '\n[dependencies]\nserde = "1"\n' >>Cargo.toml && cargo build --offline`,
		`printf '\n[dependencies]\nother = { path = "../other" }\n' >>Cargo.toml && cargo build --offline`,
		`cargo install --offline --path . --root ~/opt`,
		`echo 'const X: &str = include_str!("'$HOME'/data/set.csv");' >>lib.rs && cargo build --offline`,
		`echo 'fn broken() -> u8 { "" }' >>lib.rs && cargo build -q --offline`,
	}},
	{"tinyxml2", []string{
		`make -s`,
		`cc -c tinyxml2.cpp`,
		`make -f ~/data/Makefile`,
	}},
	{"xxhash", []string{
		`make -s xxhsum && ./xxhsum README.md`,
		`make -s xxhsum && ./xxhsum ~/data/set.csv`,
		`make -s xxhsum && ./xxhsum --check ~/data/sums`,
		`make -s install`,
		`chmod a-w . && make -s xxhsum`,
	}},
	{"golang-github-google-uuid", []string{
		`go test ./...`,
		`go vet ./... && go build ./...`,
		`go get github.com/rivo/uniseg@v0.4.7`,
		`go mod edit -require example.com/other@v0.0.0 -replace example.com/other=../other && echo 'package uuid; import _ "example.com/other"' >x.go && go build`,
		`echo 'package uuid; import _ "example.com/nonesuch"' >x.go && go build`,
		`printf 'package uuid\nimport ("os"; "testing")\nfunc TestX(t *testing.T) { if _, err := os.ReadFile(os.Getenv("HOME") + "/data/set.csv"); err != nil { t.Fatal(err) } }\n' >x_test.go && go test -run TestX`,
		`printf 'package uuid\nimport "testing"\nfunc TestX(t *testing.T) { t.Error("open /home/x: permission denied, got /etc/shadow: no such file or directory") }\n' >x_test.go && go test -run TestX`,
		`printf 'package uuid\nimport ("net"; "testing")\nfunc TestX(t *testing.T) { if _, err := net.LookupHost("nonesuch.invalid"); err != nil { t.Fatal(err) } }\n' >x_test.go && go test -run TestX`,
		`go build -o ~/opt/uuid && go install ./...`,
		`go generate -run x && printf 'package uuid\n//go:generate generate\n' >x.go && go generate`,
		`golangci-lint run`,
	}},
	{"golang-github-google-go-cmp", []string{
		`go test ./...`,
		`go test -coverprofile ~/data/cover ./cmp`,
		`go test -o ~/data/test -c ./cmp`,
	}},
	{"golang-github-spf13-pflag", []string{
		`go test ./...`,
		`go run ~/other`,
		`go work init . ../other && go build ./...`,
	}},
}

// result is what pk-bash says of a command.
type result struct {
	Status int            `json:"exit_status"`
	Output string         `json:"output"`
	Fence  []blocked.Fact `json:"fence"`
	Error  string         `json:"error"`
}

// bash runs a command with pk-bash.
func (m *machine) bash(t *testing.T, command string, options ...string) (r result) {
	t.Helper()
	cmd := m.command(slices.Concat([]string{pkDir + "/pk-bash", "-y", "--json", "--bwrap", m.innerBwrap()}, options, []string{command})...)
	cmd.Stdin = strings.NewReader("")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	require.NoError(t, json.Unmarshal(out, &r), "%s\n%s%s", command, out, &stderr)
	return r
}

// shell runs scripts for the judge.
func (m *machine) shell(options []string) blockedtest.Shell {
	return func(script string, fenced bool, more ...string) (string, bool) {
		argv := []string{"bash", "-c", script}
		if fenced {
			argv = slices.Concat([]string{pkDir + "/pk-bash", "-y", "--raw", "--bwrap", m.innerBwrap()}, options, more, []string{script})
		}
		out, err := m.command(argv...).Output()
		return string(out), err == nil
	}
}

// judge holds what the fence says of a command against the machine. Then it runs the
// command with all options that the fence names, until none is new: the same cannot be
// refused again. start restores the project.
func (m *machine) judge(t *testing.T, start func(), command string, options ...string) (r result) {
	t.Helper()
	for range blocked.Most {
		start()
		got := m.bash(t, command, options...)
		start()
		untrue := blockedtest.Untrue(got.Fence, m.shell(options))
		assert.Empty(t, strings.Join(untrue, "\n"), "%s\n%s\n%s", options, command, got.Output)
		if r.Output == "" {
			r = got
		}
		var more []string
		for _, f := range got.Fence {
			t.Logf("%s %q: fence: %s", options, command, f.Line(m.userHome()))
			words, err := shell.SplitWords(f.Option)
			require.NoError(t, err)
			if len(words) > 0 && !strings.HasPrefix(f.Option, "--net ") {
				assert.False(t, slices.Contains(options, words[len(words)-1]) && slices.Contains(options, words[0]), "%s allows nothing: %s", f.Option, got.Output)
				more = append(more, words...)
			}
		}
		if len(more) == 0 {
			return r
		}
		options = append(options, more...)
	}
	return r
}

// TestFenceOnProjects builds projects and breaks them. The fence has to tell no untruth,
// and where it ends a command otherwise than the host, it has to say why.
func TestFenceOnProjects(t *testing.T) {
	for _, a := range attempts {
		t.Run(a.project, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if strings.HasPrefix(a.project, "golang") {
				m.warmGo(t)
			}
			m.host(t, outside)
			fresh := filepath.Join(filepath.Dir(m.home), "fresh")
			copyTree(t, m.home, fresh)
			copyTree(t, filepath.Join(m.registry, "projects", a.project), fresh+"/project")
			require.NoError(t, os.WriteFile(fresh+"/project/.npmrc", []byte("fetch-retries=0\n"), 0o644)) // it waits minutes
			start := func() {
				writable(m.home)
				require.NoError(t, os.RemoveAll(m.home))
				copyTree(t, fresh, m.home)
			}
			for _, command := range a.commands {
				start()
				host := m.command("bash", "-c", command)
				said, _ := host.CombinedOutput()
				got := m.judge(t, start, command)
				status := host.ProcessState.ExitCode()
				if status != got.Status && len(got.Fence) == 0 && !strings.Contains(command, "sqlite3") { // it names no path
					t.Errorf("%s\nhost: %d %s\nfence: %d %s %s", command, status, said, got.Status, got.Output, got.Error)
				}
				if got.Status != 0 {
					m.judge(t, start, command, "--net", "none")
				}
			}
		})
	}
}

// TestUsersSettings runs commands in projects as users have them, with settings of their own:
// the fence ends them as the host does, with the same output, or it says why.
func TestUsersSettings(t *testing.T) {
	const (
		user  = `git config --global user.name Ada && git config --global user.email ada@build.example && git init -q -b main && git commit -q --allow-empty -m first; `
		wheel = `python3 -c '
import zipfile
with zipfile.ZipFile("hello-1.0-py3-none-any.whl", "w") as w:
    w.writestr("hello.py", "print(\"hello\")\n")
    w.writestr("hello-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    w.writestr("hello-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    w.writestr("hello-1.0.dist-info/RECORD", "")'
		`
		install = `python3 -m venv v && v/bin/pip -q --disable-pip-version-check install hello && v/bin/python -m hello`
	)
	for _, test := range []struct {
		name, host, dir, command string
		says                     string // the fence, where it ends otherwise
	}{
		{"npmrc", `printf 'registry=` + npmRegistry + `\n//127.0.0.1:4873/npm/:_authToken=` + secret + `\nfund=false\naudit=false\nsave-exact=true\n' >~/.npmrc; echo '{}' >package.json`, "",
			`npm install --silent ms && node -p 'require("ms")("1m")' && cat package.json`, ""},
		{"pip.conf, wheels in the project", wheel + `mkdir -p ~/.config/pip && printf "[global]\nno-index = true\nfind-links = $PWD\n" >~/.config/pip/pip.conf`, "", install, ""},
		{"pip.conf, wheels in the home", `mkdir -p ~/wheels && cd ~/wheels; ` + wheel + `mkdir -p ~/.config/pip && printf "[global]\nno-index = true\nfind-links = $HOME/wheels\n" >~/.config/pip/pip.conf`, "", install,
			"~/wheels is not shown (empty home); --readable ~/wheels shows it"},
		{"global ignore and attributes", user + `printf '.env.local\n' >~/.ignored; git config --global core.excludesFile '~/.ignored'; git config --global core.autocrlf input
			printf 'a\r\n' >a; echo x >.env.local`, "", `git add -A 2>/dev/null && git commit -qm second && git ls-tree -r HEAD && git status --short`, ""},
		{"LFS", user + `git lfs install >/dev/null; git lfs track '*.bin' >/dev/null; git add .gitattributes; git commit -qm track; echo large >a.bin`, "",
			`git add a.bin && git commit -qm second && git cat-file -p HEAD:a.bin && rm a.bin && git checkout -q a.bin && cat a.bin && git lfs ls-files && git status --short`, ""},
		{"a linked worktree", user + `git worktree add -q ~/tree -b topic`, "tree",
			`echo x >x && git add x && git commit -qm second && git log --format=%s topic && git -C . status --short && git rev-parse --git-common-dir`, ""},
		{"a project behind a link", `mkdir -p ~/disk/real && ln -s disk ~/work && cd ~/work/real && printf 'all:\n\t@echo $(CURDIR); cat %s/work/real/f\n' ~ >Makefile && echo x >f`, "work/real",
			`make -s && pwd -P && cat ~/disk/real/f`, ""},
		{"husky", user + `mkdir -p .husky/_ && git config core.hooksPath .husky/_ && printf '#!/bin/sh\necho checked\n' >.husky/_/pre-commit && chmod +x .husky/_/pre-commit && git add . && git commit -qm husky >/dev/null`, "",
			`git commit --allow-empty -qm second && git log --format=%s`, ""},
		{"a devcontainer, read", `mkdir .devcontainer && echo '{"image": "x"}' >.devcontainer/devcontainer.json`, "", `cat .devcontainer/devcontainer.json`, ""},
		{"a devcontainer, changed", `mkdir .devcontainer && echo '{"image": "x"}' >.devcontainer/devcontainer.json`, "", `echo '{}' >.devcontainer/devcontainer.json`,
			"~/project/.devcontainer/devcontainer.json is protected (VS Code: initializeCommand, and mounts of the host)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.serving = test.name == "npmrc"
			m.host(t, test.host)
			fresh := filepath.Join(filepath.Dir(m.home), "fresh")
			copyTree(t, m.home, fresh)
			start := func() {
				writable(m.home)
				require.NoError(t, os.RemoveAll(m.home))
				copyTree(t, fresh, m.home)
			}
			dir := m.userHome() + "/" + test.dir
			if test.dir == "" {
				dir = m.project()
			}
			host := m.command("bash", "-c", "cd "+dir+"\n"+test.command)
			host.Env = append(host.Env, "GIT_AUTHOR_DATE=@0 +0000", "GIT_COMMITTER_DATE=@0 +0000")
			said, _ := host.CombinedOutput()
			got := m.judge(t, start, test.command, "-C", dir)
			if test.says == "" {
				assert.Equal(t, string(said), got.Output)
				assert.Equal(t, host.ProcessState.ExitCode(), got.Status)
				assert.Empty(t, got.Fence)
				return
			}
			assert.NotEqual(t, host.ProcessState.ExitCode(), got.Status)
			require.NotEmpty(t, got.Fence, got.Output)
			assert.Equal(t, test.says, got.Fence[0].Line(m.userHome()))
		})
	}
}

// copyTree copies what is in a directory into another, which it may have to make.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestFenceOnRecipes runs the recipes where they cannot succeed: without their network,
// without what the first command left in caches, and without tool chains.
func TestFenceOnRecipes(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.serving = true
			if r.name == "go, a module" {
				m.warmGo(t)
			}
			m.host(t, outside+r.host+"\nprintf 'fetch-retries=0\\n' >>.npmrc") // npm waits minutes
			m.serving = false
			fresh := filepath.Join(filepath.Dir(m.home), "fresh")
			copyTree(t, m.home, fresh)
			start := func() {
				writable(m.home)
				require.NoError(t, os.RemoveAll(m.home))
				copyTree(t, fresh, m.home)
			}
			for _, command := range []string{r.first, r.again} {
				for _, options := range [][]string{{"--net", "none"}, {"--no-toolchains"}} {
					m.judge(t, start, command+"\nfalse", options...) // some print their log and go on
				}
			}
		})
	}
}
