package gitconfig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/mountinfo"
)

// namings are ways in which the user's configuration, or a variable, names a program of the
// project, each with a command of git's that runs it. {home} is the home, the project is proj.
var namings = []struct {
	name   string
	config string
	env    string
	file   string // below proj
	run    string
}{
	// Keys of git.
	{"core.fsmonitor", "[core]\nfsmonitor=tools/x", "", "tools/x", "git status"},
	{"core.editor", "[core]\neditor=tools/x -w", "", "tools/x", "git commit --allow-empty"},
	{"sequence.editor", "[sequence]\neditor=tools/x", "", "tools/x", "git rebase -i --root"},
	{"core.pager", "[core]\npager=tools/x", "", "tools/x", "script -qc 'git log' /dev/null"},
	{"pager of a command", "[pager]\nlog=tools/x", "", "tools/x", "script -qc 'git log' /dev/null"},
	{"diff.external", "[diff]\nexternal=tools/x", "", "tools/x", "echo y >f; git diff"},
	{"diff.NAME.command", "[diff \"a.b\"]\ncommand=tools/x", "", "tools/x", "echo '* diff=a.b' >.git/info/attributes; echo y >f; git diff"},
	{"diff.NAME.textconv", "[diff \"x\"]\ntextconv=tools/x", "", "tools/x", "echo '* diff=x' >.git/info/attributes; echo y >f; git diff"},
	{"interactive.diffFilter", "[interactive]\ndiffFilter=tools/x", "", "tools/x", "echo y >f; echo q | TERM=xterm script -qc 'git add -p' /dev/null"},
	{"filter.NAME.clean", "[filter \"x\"]\nclean=tools/x", "", "tools/x", "echo '* filter=x' >.git/info/attributes; echo y >f; git add f"},
	{"filter.NAME.smudge", "[filter \"x\"]\nsmudge=tools/x %f", "", "tools/x", "echo '* filter=x' >.git/info/attributes; rm f; git checkout f"},
	{"filter.NAME.process", "[filter \"x\"]\nprocess=tools/x\nrequired", "", "tools/x", "echo '* filter=x' >.git/info/attributes; rm f; git checkout f"},
	{"merge.NAME.driver", "[merge \"x\"]\ndriver=tools/x %O %A %B", "", "tools/x",
		"echo '* merge=x' >.git/info/attributes; git checkout -qb b; echo y >f; git commit -qam y; git checkout -q -; echo z >f; git commit -qam z; git merge b"},
	{"mergetool.NAME.cmd", "[mergetool \"x\"]\ncmd=tools/x\n[merge]\ntool=x", "", "tools/x",
		"git checkout -qb b; echo y >f; git commit -qam y; git checkout -q -; echo z >f; git commit -qam z; git merge b; git mergetool -y"},
	{"difftool.NAME.cmd", "[difftool \"x\"]\ncmd=tools/x \"$LOCAL\"\n[diff]\ntool=x", "", "tools/x", "echo y >f; git difftool -y"},
	{"difftool.NAME.path", "[difftool \"kdiff3\"]\npath={home}/proj/tools/x\n[diff]\ntool=kdiff3", "", "tools/x", "echo y >f; git difftool -y"},
	{"gpg.program", "[gpg]\nprogram={home}/proj/tools/x", "", "tools/x", "git commit -S --allow-empty -m x"},
	{"gpg.ssh.defaultKeyCommand", "[gpg]\nformat=ssh\n[gpg \"ssh\"]\ndefaultKeyCommand=tools/x", "", "tools/x", "git commit -S --allow-empty -m x"},
	{"credential.helper with a mark", "[credential]\nhelper=!tools/x", "", "tools/x", "echo url=https://u@h/ | git credential fill"},
	{"credential.URL.helper", "[credential \"https://h\"]\nhelper={home}/proj/tools/x", "", "tools/x", "echo url=https://u@h/ | git credential fill"},
	{"core.askPass", "[core]\naskPass=tools/x", "", "tools/x", "echo url=https://u@h/ | GIT_TERMINAL_PROMPT=1 setsid git credential fill"},
	{"core.sshCommand", "[core]\nsshCommand=tools/x -o A=b", "", "tools/x", "git ls-remote ssh://h/x"},
	{"core.gitProxy", "[core]\ngitProxy={home}/proj/tools/x", "", "tools/x", "git ls-remote git://h/x"},
	{"core.alternateRefsCommand", "[core]\nalternateRefsCommand=tools/x", "", "tools/x",
		"git clone -q . ../o; echo $PWD/../o/.git/objects >.git/objects/info/alternates; git -C ../o commit -q --allow-empty -m x; git fetch ../o"},
	{"remote.NAME.uploadpack", "[remote \"r\"]\nurl={home}/proj\nuploadpack=tools/x", "", "tools/x", "git fetch r"},
	{"remote.NAME.receivepack", "[remote \"r\"]\nurl={home}/proj\nreceivepack=tools/x", "", "tools/x", "git push r HEAD:x"},
	{"uploadpack.packObjectsHook", "[uploadpack]\npackObjectsHook={home}/proj/tools/x", "", "tools/x", "git clone file://$PWD ../c"},
	{"a remote helper that is a command", "[remote \"r\"]\nurl=ext::tools/x %S\n[protocol \"ext\"]\nallow=always", "", "tools/x", "git fetch r"},
	{"trailer.NAME.command", "[trailer \"x\"]\nkey=X\ncommand=tools/x", "", "tools/x", "echo m | git interpret-trailers --trailer x=1"},
	{"trailer.NAME.cmd", "[trailer \"x\"]\nkey=X\ncmd=tools/x", "", "tools/x", "echo m | git interpret-trailers --trailer x=1"},
	{"web.browser", "[browser \"x\"]\ncmd=tools/x\n[web]\nbrowser=x", "", "tools/x", "git web--browse http://localhost/"},
	{"man viewer", "[man]\nviewer=x\n[man \"x\"]\ncmd=tools/x", "", "tools/x", "git help status"},
	{"guitool", "[guitool \"x\"]\ncmd=tools/x", "", "tools/x", "sh -c \"$(git config guitool.x.cmd)\""}, // by git-gui
	{"tar.FORMAT.command", "[tar \"x\"]\ncommand=tools/x", "", "tools/x", "git archive --format=x HEAD >/dev/null"},
	{"sendemail.toCmd", "[sendemail]\ntoCmd=tools/x", "", "tools/x", "sh -c \"$(git config sendemail.tocmd)\""}, // by git-send-email
	{"submodule.NAME.update", "[submodule \"s\"]\nupdate=!{home}/proj/tools/x", "", "tools/x",
		"git init -q ../s; git -C ../s commit -q --allow-empty -m x; git -c protocol.file.allow=always submodule --quiet add ../s s; git -C s commit -q --allow-empty -m y; git submodule update"},
	{"init.templateDir", "[init]\ntemplateDir={home}/proj/tools", "", "tools", "rm -r tools; mkdir -p tools/hooks; cp {evil} tools/hooks/post-checkout; git init -q ../n; cd ../n; git checkout -q --orphan b; git commit -q --allow-empty -m x; git checkout -q -b c"},

	// Forms of words.
	{"a tilde after a mark", "[alias]\nx=!~/proj/tools/x", "", "tools/x", "git x"},
	{"a tilde in a later word", "[alias]\nx=!sh ~/proj/tools/x", "", "tools/x", "git x"},
	{"a variable", "[core]\nfsmonitor=$HOME/proj/tools/x", "", "tools/x", "git status"},
	{"a variable in braces, with a default", "[core]\nfsmonitor=${NOT_SET:-${HOME}/proj}/tools/x", "", "tools/x", "git status"},
	{"a variable of the line", "[alias]\nx=\"!d=tools; $d/x\"", "", "tools/x", "git x"},
	{"a variable in double quotes", "[alias]\nx=\"!d=tools; \\\"$d\\\"/x\"", "", "tools/x", "git x"},
	{"..", "[core]\nfsmonitor={home}/proj/../proj/tools/x", "", "tools/x", "git status"},
	{"blanks in quotes", "[core]\nfsmonitor='{home}/proj/my tools/x'", "", "my tools/x", "git status"},
	{"a blank behind a backslash", "[core]\nfsmonitor=./my\\\\ tools/x", "", "my tools/x", "git status"},
	{"a pattern", "[alias]\nx=!./tools/x*.sh", "", "tools", "git x"},
	{"a directory of run-parts", "[alias]\nx=!run-parts --regex=. tools", "", "tools", "which run-parts || tools/x1.sh; git x"},
	{"a pattern at the top", "[alias]\nx=!./x*.sh", "", "x1.sh", "git x"},
	{"a shell's script without a slash", "[alias]\nx=!sh x.sh", "", "x.sh", "git x"},
	{"a script after options", "[alias]\nx=!bash -e -u +m x", "", "x", "git x"},
	{"a script of env", "[alias]\nx=!env A=b nice -n 1 sh x", "", "x", "git x"},
	{"source", "[alias]\nx=!. ./tools/x", "", "tools/x", "git x"},
	{"standard input", "[alias]\nx=\"!sh <tools/x\"", "", "tools/x", "git x"},
	{"a shell in a shell", "[alias]\nx=\"!bash -c 'exec sh -c \\\"cd tools; ./x\\\"'\"", "", "tools/x", "git x"},
	{"eval", "[alias]\nx=\"!eval 'tools/x'\"", "", "tools/x", "git x"},
	{"command substitution", "[alias]\nx=\"!echo $(tools/x)\"", "", "tools/x", "git x"},
	{"command substitution of the old form", "[alias]\nx=\"!echo `tools/x`\"", "", "tools/x", "git x"},
	{"a function", "[alias]\nx=\"!f() { tools/x \\\"$@\\\"; }; f\"", "", "tools/x", "git x"},
	{"a subshell", "[alias]\nx=!(cd tools && ./x)", "", "tools/x", "git x"},
	{"a loop", "[alias]\nx=\"!for p in tools/x; do $p; done\"", "", "tools/x", "git x"},
	{"xargs", "[alias]\nx=\"!echo | xargs -n 1 tools/x\"", "", "tools/x", "git x"},
	{"find", "[alias]\nx=\"!find . -name f -exec tools/x {} \\\\;\"", "", "tools/x", "git x"},
	{"make with a file", "[alias]\nx=!make -s -C src -f ../x.mk", "", "x.mk", "mkdir src; git x"},
	{"a comma in the name", "[alias]\nx=!./a,b/x", "", "a,b/x", "git x"},
	{"an alias of git that runs a command", "[alias]\nx=rebase -q --exec tools/x --root", "", "tools/x", "git x"},
	{"an alias with a setting", "[alias]\nx=-c core.fsmonitor=tools/x status", "", "tools/x", "git x"},
	{"an alias to git with a setting", "[alias]\nx=!git -c core.fsmonitor=tools/x status", "", "tools/x", "git x"},
	{"an alias to git with a variable", "[alias]\nx=!GIT_EDITOR=tools/x git commit --allow-empty", "", "tools/x", "git x"},
	{"an alias with a directory of hooks", "[alias]\nx=-c core.hooksPath=tools commit --allow-empty -m x", "", "tools", "cp {evil} tools/pre-commit; git x"},
	{"PATH of env", "[alias]\nx=!env -i PATH=tools:/usr/bin:/bin x", "", "tools/x", "git x"},
	{"PATH of env, -", "[core]\nfsmonitor=env - PATH=tools:/usr/bin:/bin x", "", "tools/x", "git status"},
	{"PATH of env, after an option with a value", "[alias]\nx=!env -u LC_ALL --unset=A PATH=tools:/usr/bin:/bin x", "", "tools/x", "git x"},
	{"PATH of env, in quotes", "[alias]\nx=\"!env \\\"PATH=tools:$PATH\\\" x\"", "", "tools/x", "git x"},
	{"PATH in a string of env", "[alias]\nx=\"!env -iS'PATH=tools:/usr/bin:/bin x'\"", "", "tools/x", "git x"},
	{"PATH of env in another program", "[alias]\nx=!nice -n 1 timeout -k 1 5 env -i PATH=tools:/usr/bin:/bin x", "", "tools/x", "git x"},
	{"env in a variable", "[alias]\nx=\"!e='env -i'; $e PATH=tools:/usr/bin:/bin x\"", "", "tools/x", "git x"},
	{"a longer PATH", "[alias]\nx=\"!bash -c 'PATH+=:tools; x'\"", "", "tools/x", "git x"},
	{"a longer variable", "[alias]\nx=\"!bash -c 'd=too; d+=ls; $d/x'\"", "", "tools/x", "git x"},
	{"a variable of a default", "[alias]\nx=\"!d=; : ${d:=tools}; $d/x\"", "", "tools/x", "git x"},
	{"the parent of the git directory", "[alias]\nx=!$(git rev-parse --git-dir)/../tools/x", "", "tools/x", "git x"},
	{"the parent of the common git directory", "[core]\nfsmonitor=\"$(git rev-parse --git-common-dir 2>/dev/null)/../tools/x\"", "", "tools/x", "git status"},
	{"the git directory's parent, in a variable", "[alias]\nx=!$GIT_DIR/../tools/x", "", "tools/x", "GIT_DIR=$PWD/.git git x"},
	{"a setting in a variable of git's", "[alias]\nx=!GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=tools/x git status", "", "tools/x", "git x"},

	// The environment.
	{"GIT_CONFIG_COUNT", "", "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsMonitor GIT_CONFIG_VALUE_0=tools/x", "tools/x", "git status"},
	{"GIT_CONFIG_PARAMETERS", "", "GIT_CONFIG_PARAMETERS='core.fsmonitor=tools/x'", "tools/x", "git status"},
	{"GIT_CONFIG_PARAMETERS of a new git", "", "GIT_CONFIG_PARAMETERS='core.fsmonitor'='tools/x'", "tools/x", "git status"},
	{"GIT_EDITOR", "", "GIT_EDITOR=tools/x", "tools/x", "git commit --allow-empty"},
	{"EDITOR", "", "EDITOR=~/proj/tools/x", "tools/x", "git commit --allow-empty"},
	{"GIT_EXTERNAL_DIFF", "", "GIT_EXTERNAL_DIFF=tools/x", "tools/x", "echo y >f; git diff"},
	{"GIT_SSH", "", "GIT_SSH=tools/x", "tools/x", "git ls-remote ssh://h/x"},
	{"GIT_SSH_COMMAND", "", "GIT_SSH_COMMAND=tools/x", "tools/x", "git ls-remote ssh://h/x"},
	{"GIT_PROXY_COMMAND", "", "GIT_PROXY_COMMAND=tools/x", "tools/x", "git ls-remote git://h/x"},
}

func TestGitRunsProgramsThatSettingsName(t *testing.T) {
	for _, p := range namings {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.project()
			h.write("evil", "#!/bin/sh\n: >{home}/ran\nexec cat </dev/null\n")
			require.NoError(t, os.Chmod(h.path("evil"), 0o755))
			file := p.file
			if file == "tools" {
				file = "tools/x1.sh"
			}
			h.write("proj/"+file, "")
			h.user(strings.ReplaceAll(p.config, "{home}", h.dir) + "\n")
			for v := range strings.FieldsSeq(strings.ReplaceAll(p.env, "~", h.dir)) {
				h.env = append(h.env, v)
			}
			names, err := h.named()
			require.NoError(t, err)
			assert.Contains(t, h.below(names), p.file)
			evil, err := os.ReadFile(h.path("evil"))
			require.NoError(t, err)
			text := string(evil)
			if filepath.Ext(file) == ".mk" {
				text = "all:\n\t: >" + h.path("ran") + "\n"
			}
			h.write("proj/"+file, text)
			require.NoError(t, os.Chmod(h.path("proj/"+file), 0o755))
			out := h.plantAndRun(nil, strings.ReplaceAll(p.run, "{evil}", h.path("evil")))
			assert.FileExists(t, h.path("ran"), "git said %q", out)
		})
	}
}

// TestNamesOfFilesThatAreMissing shows that a program counts before a command makes it.
func TestNamesOfFilesThatAreMissing(t *testing.T) {
	for _, row := range []struct{ name, config, want string }{
		{"a path", "[core]\nfsmonitor=tools/x", "tools/x"},
		{"a shell's script", "[filter \"x\"]\nclean=sh nbstrip.sh", "nbstrip.sh"},
		{"a file that a variable names", "[filter \"x\"]\nclean=BASH_ENV=tools/env bash -c cat", "tools/env"},
		{"a directory too", "[alias]\nx=\"!cd tools; sh x\"", "x tools/x"},
		{"an option's value", "[core]\nsshCommand=ssh -F tools/conf", "tools/conf"},
		{"an attributes file", "[core]\nattributesFile=a", "a .git/a"},
		{"a template of messages", "[commit]\ntemplate=~/proj/t", "t"},
		{"a signature, which goes into patches", "[format]\nsignatureFile=~/proj/s", "s"},
		{"a mailmap of another name", "[mailmap]\nfile=~/proj/m", "m"},
		{"keys that may sign", "[gpg \"ssh\"]\nallowedSignersFile=~/proj/k\nrevocationFile=~/proj/r", "k r"},
		{"a list of commits of another name", "[blame]\nignoreRevsFile=~/proj/b", "b"},
		{"an order of files", "[diff]\norderFile=~/proj/o", "o"},
		{"lists of faults to pass over", "[fsck]\nskipList=~/proj/s\n[fetch \"fsck\"]\nskipList=~/proj/t", "s t"},
		{"certificates and cookies", "[http]\nsslCAInfo=~/proj/i\n[http \"https://host.example\"]\nsslCert=~/proj/c\ncookieFile=~/proj/k", "i c k"},
		{"a list of ignored files", "[core]\nexcludesFile=~/proj/i", "i"},
		{"a trace", "[trace2]\neventTarget={home}/proj/t", "t"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			h.user(strings.ReplaceAll(row.config, "{home}", h.dir) + "\n")
			names, err := h.named()
			require.NoError(t, err)
			require.Equal(t, strings.Fields(row.want), h.below(names))
			assert.True(t, names.Named[0].File, "a directory may appear there")
			assert.Empty(t, names.Unknown)
		})
	}
}

// TestSettingsWithoutNames shows which settings are reported, since only the shell that runs
// them knows the file.
func TestSettingsWithoutNames(t *testing.T) {
	for _, row := range []struct {
		name, config string
		unknown      bool
	}{
		{"the output of a command", "[alias]\nx=\"!$(cat tools/name)\"", true},
		{"a variable that is not set", "[alias]\nx=!./$NOT_SET", true},
		{"a directory of any name", "[core]\nfsmonitor=~/proj/$NOT_SET/x", true},
		{"a directory that is not known", "[alias]\nx=\"!cd $(cat d) && ./x\"", true},
		{"a pattern at the top", "[alias]\nx=!./*.sh", true},
		{"in a submodule's directory", "[submodule \"s\"]\nupdate=!./x", true},
		{"a module of Python's", "[filter \"x\"]\nclean=python3 -m json.tool", true},
		{"a module of Python's that is not sought here", "[filter \"x\"]\nclean=python3 -I -m json.tool", false},
		{"an argument of the user's", "[alias]\nx=\"!f() { git log \\\"$1\\\" $2; }; f\"", false},
		{"a program of the system", "[core]\neditor=vim -u NONE", false},
		{"a program of git", "[alias]\nx=\"!git branch | xargs git branch -d\"", false},
		{"arithmetic", "[alias]\nx=\"!git log -$((3 + 4))\"", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			h.user(row.config + "\n")
			names, err := h.named()
			require.NoError(t, err)
			assert.Equal(t, row.unknown, len(names.Unknown) > 0, "%q, named %q", names.Unknown, h.below(names))
		})
	}
}

// TestUnknownCommands shows lines that run a file whose name only the running shell knows.
func TestUnknownCommands(t *testing.T) {
	h := newHome(t)
	h.project()
	h.sh("mkdir proj/tools; : >proj/tools/h")
	for _, line := range []string{
		// Parameters, in functions and elsewhere.
		`f() { "$1"/h; }; f tools`, `f() { "$2"/h; }; f a tools`, `f() { "$@"/h; }; f tools`, `f() { d=$1; "$d"/h; }; f tools`, `f() { local d=$1; $d/h; }; f tools`,
		`function f { "$1"; }; f tools/h`, `bash -c 'coproc f { "$1"; }'`, `set -- tools; "$1"/h`, `for d in "$@"; do $d/h; done`, `d=git; for d; do $d; done`,
		`f() { cd "$1" && ./h; }; f`, `cd t*s && ./h`, `cd - && ./h`, `. "$1"`, `case $1 in a|b) "$2" ;; esac`, `f() { git "$1"; }; f "$(cat d)"`,
		`bash -c 'd=xxtools; ${d:2}/h'`, `bash -c $'t\x6fols/h'`, `x=git; read x <tools/h; $x`, `bash -c 'x=git; printf -v x tools/h; $x'`, `alias h="$1"; h`, `trap "$(cat d)" EXIT`,

		// PATH.
		`PATH=$(cat d):$PATH h`, `PATH=$PATH:$NOT_SET h`, `env -i PATH="$1" h`, `export "PATH=$1"; h`, `read PATH <d; h`,

		// Programs that run their arguments.
		`sh -c "\$0/h" tools`, `sh -c '"$@"/h' - tools`, `eval "git log $(cat d)"`,
		`env -C "$1" ./h`, `nice -n 5 "$1"`, `timeout -s KILL 5 "$1"`,
		`sudo -nu me "$1"`, `unshare -r -w / "$1"`, `exec "$@"`, `command -p "$1"`, `flock /tmp/l -c "$1"`,
		`git submodule foreach ./h`, `git bisect run "$(cat d)"`, `git rebase --exec="$(cat d)"`, `git grep -O"$(cat d)" x`,
		`git -c core.editor="$1" commit`, `GIT_SSH_COMMAND=$(cat d) git fetch`, `git $(cat d)`, `git --exec-path="$(cat d)" x`, `setpriv --reuid 1000 "$1"`, `make -f"$(cat d)"`,

		// Programs that run their input, or the files that they find.
		`git ls-files tools | xargs -n1 sh`, `cat d | xargs env`, `cat d | xargs git`, `cat d | xargs -I% %/h`, `cat d | xargs -I% sh -c 'cd % && ./h'`, `cat d | xargs -iX X`,
		`cat d | xargs --replace -- {}`, `cat d | xargs -n1 timeout 5`, `cat d | xargs perl`, `ls tools/* | parallel sh`,
		`find tools -name h -perm -1 -exec {} \;`, `find tools -name h -execdir ./h \;`, `find tools -exec nice sh {} +`, `find . -ok true \; -ok env sh {} \;`, `find . -exec sh -c '{}' \;`,
		`cat d | sh`, `cat d | bash -s x`, `cat d | env python3`, `cat d | perl`, `cat d | sh /dev/stdin`, `cat d | unshare -r`, `cat d | sudo -s`, `python3 -I "$1"`, `bash -c '. <(cat d)'`,
	} {
		names := h.alias(line)
		assert.NotEmpty(t, names.Unknown, "%s\nnamed %q", line, h.below(names))
	}
}

// TestEverydayCommands shows lines that run no file of the project.
func TestEverydayCommands(t *testing.T) {
	h := newHome(t)
	h.project()
	h.sh("mkdir proj/tools; : >proj/tools/h")
	for _, line := range []string{
		`git log --oneline`, `f() { git push origin "$1"; }; f`, `f() { git "$@"; }; f`, `git rev-parse --abbrev-ref HEAD`, `git push -u origin $(git rev-parse --abbrev-ref HEAD)`,
		`code --wait --diff $LOCAL $REMOTE`, `code --wait`, `delta`, `/usr/bin/gh auth git-credential`, `git-lfs filter-process`, `git-lfs clean -- %f`, `pre-commit run --all-files`,
		`git branch --merged | grep -v '\*' | xargs -n 1 git branch -d`, `git ls-files -z | xargs -0 sed -i "$1"`, `git tag | xargs -I{} git push origin :{}`, `git grep -l "$1" | xargs sed -i "s/$1/$2/g"`,
		`find . -name "$1" -exec grep -H x {} +`, `find . -type d -name .git -exec git -C {} log -1 \;`, `git submodule foreach 'git checkout main || :'`, `git rebase -x 'make test' main`,
		`cd "${GIT_PREFIX:-.}" && git log`, `f() { cd "$1" && git status; }; f`, `cd "$(git rev-parse --show-toplevel || pwd)" && git status`,
		`f() { case "$1" in a|*.sh) git log ;; *) git status ;; esac; }; f`, `for b in $(git branch -r); do git branch --track ${b#origin/} $b; done`,
		`sh -c 'git log $1..$2' -`, `bash -c 'git fetch && git rebase main'`, `bash -c 'while read b; do git branch -d "$b"; done < <(git branch --merged)'`,
		`env -u GIT_DIR GIT_PAGER=cat git log`, `timeout 10 git fetch`, `nice -n 19 git gc`, `sudo -u git git gc`, `exec 3>&1; git log 2>/dev/null >&3`, `git log "$1" >"$2" 2>&1`,
		`command -v "$1" >/dev/null && git log`, `git ls-files | wc -l | $(command -v gnumfmt || echo numfmt)`, `$(git var GIT_EDITOR) x`, `"$(git --exec-path)/git-instaweb"`,
		`${NOT_SET:-vim} x`, `. /etc/profile`, `node --version`, `trap 'git stash pop' EXIT; git stash`, `grep -x python`, `script -qc 'git log' /dev/null`, `python3 -I -m json.tool`, `f() { echo username=x; echo "password=$NOT_SET"; }; f`,
	} {
		names := h.alias(line)
		assert.Empty(t, names.Unknown, line)
		assert.Empty(t, h.below(names), line)
	}
}

// alias gathers the names of an alias with a line.
func (h *home) alias(line string) *Names {
	h.write(".gitconfig", "[alias]\nx=\"!"+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(line)+"\"\n")
	names, err := h.named()
	require.NoError(h.t, err)
	return names
}

// TestNamesThroughLinks shows where links and mounts lead, and which of them count.
func TestNamesThroughLinks(t *testing.T) {
	for _, row := range []struct {
		name, script string // in the home; the project is proj
		config       string
		want         string
	}{
		{"a link outside, hooks", "mkdir .config; mkdir -p proj/git/hooks; ln -s ~/proj/git .config/git", "[core]\nhooksPath=~/.config/git/hooks", "git/attributes git/config git/hooks git/ignore"},
		{"a link outside, an include", "ln -s proj/git dots; mkdir proj/git; : >proj/git/i", "[include]\npath=dots/i", "git/i"},
		{"a link outside, a program", "ln -s proj/git dots; mkdir proj/git; : >proj/git/x", "[core]\nfsmonitor=~/dots/x", "git/x"},
		{"a link outside, a missing program", "ln -s proj/git dots", "[core]\nfsmonitor=~/dots/x", "git/x"},
		{"a link to a link outside", "ln -s two one; ln -s proj two; : >proj/x", "[core]\nfsmonitor=~/one/x", "x"},
		{"a link in the project", "mkdir proj/a proj/a/hooks; ln -s a proj/l", "[core]\nhooksPath=l/hooks", "l@ a/hooks"},
		{"a link in the project that leads out", "mkdir out; ln -s ../out proj/l", "[core]\nhooksPath=l", "l@"},
		{"a link before ..", "mkdir -p proj/a/b proj/a/hooks; ln -s a/b proj/l", "[core]\nhooksPath=l/../hooks", "l@ a/b a/hooks"},
		{"a link before .., an include", "mkdir -p proj/a/b; : >proj/a/i; ln -s a/b proj/l", "[include]\npath=proj/l/../i", "l@ a/b a/i"},
		{"a link before .., in a command", "mkdir -p proj/a/b; : >proj/a/x; ln -s a/b proj/l", "[alias]\nx=!sh l/../x", "l@ a/b a/x"},
		{"a link outside before ..", "mkdir -p proj/a/b; ln -s proj/a/b l", "[core]\nhooksPath=~/l/../hooks", "a/b a/hooks"},
		{"a missing name before ..", "true", "[core]\nhooksPath=m/../hooks", "hooks m"},
		{"the user's configuration itself", "mv .gitconfig proj/c; ln -s proj/c .gitconfig", "", "c"},
		{"the user's attributes", "mkdir -p .config/git; : >proj/a; ln -s ~/proj/a .config/git/attributes", "", "a"},
		{"a hook of the user's directory", "mkdir h; ln -s ../proj/f h/pre-commit", "[core]\nhooksPath=~/h", "f"},
		{"a hook of husky's directory, in the project", "mkdir -p proj/.husky/_; ln -s ../../f proj/.husky/_/pre-commit", "[core]\nhooksPath=.husky/_", ".husky .husky/_ .husky/_/pre-commit@ f"},
		{"a hook of a template", "mkdir -p t/hooks; ln -s ~/proj/f t/hooks/pre-commit", "[init]\ntemplateDir=~/t", "f"},
		{"a link of PATH", "mkdir bin; ln -s ~/proj/f bin/x-editor", "[core]\neditor=x-editor", "f"},
		{"a credential helper of PATH", "mkdir bin; ln -s ~/proj/f bin/git-credential-mine", "[credential]\nhelper=mine", "f"},
		{"a link in the git directory", "ln -s ../../f proj/.git/hooks/pre-push", "", ".git/hooks/pre-push@ f"},
		{"info that is a link", "rm -r proj/.git/info; ln -s ../i proj/.git/info", "", ".git/info@ i"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHome(t)
			h.env = append(h.env, "PATH="+h.path("bin")+":"+os.Getenv("PATH"))
			h.project()
			h.user(row.config + "\n")
			h.sh(row.script)
			names, err := h.named()
			require.NoError(t, err)
			want := strings.Fields(row.want)
			var got []string
			for _, path := range h.below(names) {
				if !strings.HasPrefix(path, ".git/") || slices.Contains(want, path) {
					got = append(got, path)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			assert.Equal(t, want, slices.Compact(got))
		})
	}
}

// At names that are missing on git's way, no commit may bring a link; at those of work trees, and of directories, it may bring anything.
func TestWaysThatCommitsMayTake(t *testing.T) {
	h := newHome(t)
	h.project()
	h.sh("cd proj; mkdir there; git config core.hooksPath missing/../there/../hooks; git remote add f t/r; git config branch.main.remote word; git config core.worktree ../w")
	names, err := h.named()
	require.NoError(t, err)
	tracked := map[string]bool{}
	for _, n := range names.Named {
		if n.Way {
			tracked[strings.TrimPrefix(n.Path, h.path("proj")+"/")] = n.Tracked
		}
	}
	assert.Subset(t, tracked, map[string]bool{"missing": true, "there": false, "t/r": true, "t/r.git": true, "word": false, "w": false})
}

// A directory of PATH in the project gets the programs that the configuration names.
func TestProgramsInPath(t *testing.T) {
	for dir, want := range map[string][]string{
		"{proj}/bin":     {"bin/x-pager", "bin/x-tool"},
		"tools/bin":      {"tools/bin/x-pager", "tools/bin/x-tool"},
		".":              {"x-pager", "x-tool"},
		"{proj}/missing": {"missing/x-pager", "missing/x-tool"},
	} {
		h := newHome(t)
		h.project()
		h.env = append(h.env, "PATH="+strings.ReplaceAll(dir, "{proj}", h.path("proj"))+":"+os.Getenv("PATH"))
		h.user("[core]\npager=x-pager -R\n[alias]\nx=!x-tool a\n")
		h.sh("mkdir proj/bin")
		names, err := h.named()
		require.NoError(t, err)
		assert.Subset(t, h.below(names), want, dir)
	}
}

// A directory of PATH in the project also gets the programs whose names git makes of those in the
// configuration, and those that git runs without any.
func TestProgramsOfGitInPath(t *testing.T) {
	const config = `
[credential]
helper=mine --x
[remote "a"]
url=one::x
[remote "b"]
pushurl=two://h/x
[remote "c"]
url=https://h/x
[url "three::"]
insteadOf=x:
[branch "main"]
remote=four::x
[submodule "s"]
url=five::x
[alias]
x=six -v
y=!git seven
z=-C d eight
`
	want := []string{
		"git-credential-mine", "git-remote-one", "git-remote-two", "git-remote-three", "git-remote-four", "git-remote-five",
		"git-six", "git-seven", "git-eight", "git", "less", "pager", "vi", "editor", "ssh", "ssh-keygen", "gpg", "gpgsm", "git-lfs",
		"uname", "sed", "gettext.sh",
	}
	for dir, below := range map[string]string{
		"{proj}/bin": "bin/", "{proj}/missing": "missing/", "rel": "rel/", "{home}/link": "bin/", "{proj}/out": "out@", "{proj}/out/below": "out@",
	} {
		h := newHome(t)
		h.project()
		h.env = append(h.env, "PATH="+strings.NewReplacer("{proj}", h.path("proj"), "{home}", h.path("")).Replace(dir)+":"+os.Getenv("PATH"))
		h.user(config)
		h.sh("mkdir -p proj/bin o/below; ln -s proj/bin link; ln -s ../o proj/out")
		names, err := h.named()
		require.NoError(t, err)
		got := h.below(names)
		if strings.HasSuffix(below, "@") {
			assert.Contains(t, got, below, dir)
			continue
		}
		for _, name := range want {
			assert.Contains(t, got, below+name, dir)
		}
		assert.NotContains(t, got, below+"git-remote-https", dir)
		assert.NotContains(t, got, below+"git-uname", dir)
	}
}

// A directory of PATH in the project gets the interpreters that env(1) runs for scripts of the host's.
func TestInterpretersInPath(t *testing.T) {
	h := newHome(t)
	h.project()
	h.env = append(h.env, "PATH="+h.path("proj/bin")+":"+os.Getenv("PATH"))
	h.user("[core]\nhooksPath=~/hooks\n[filter \"f\"]\nclean=tools/clean\nsmudge=bash tools/smudge\n[diff]\nexternal=~/diff\n")
	h.sh(`mkdir proj/bin proj/tools hooks
		put() { printf "$2\\nx\\n" >"$1"; chmod +x "$1"; }
		put proj/.git/hooks/pre-commit '#!/usr/bin/env one'; put proj/.git/hooks/pre-push.sample '#!/usr/bin/env none'; put proj/.git/hooks/post-merge '#!/bin/none'
		put hooks/pre-push '#! /usr/bin/env -S two -u x'; put proj/tools/clean '#!/usr/bin/env -Sthree x'; put proj/tools/smudge '#!/usr/bin/env -u A B=c four'
		put diff '#!/usr/bin/env -i five'; put proj/other '#!/usr/bin/env none'; rm -f proj/.git/hooks/update; mkfifo proj/.git/hooks/update`)
	names, err := h.named()
	require.NoError(t, err)
	got := h.below(names)
	assert.Subset(t, got, []string{"bin/one", "bin/two", "bin/three", "bin/four", "bin/five"})
	assert.NotContains(t, got, "bin/none")
}

// The directories of hooks are those of each repository, and those of core.hooksPath.
func TestHooks(t *testing.T) {
	h := newHome(t)
	h.project()
	h.user("[core]\nhooksPath=~/hooks\n")
	h.git("proj", "config", "core.hooksPath", ".githooks")
	names, err := h.named()
	require.NoError(t, err)
	proj := h.path("proj")
	for _, dir := range []string{proj + "/.git/hooks", proj + "/.githooks", h.path("hooks")} {
		assert.Contains(t, names.Hooks, Hooks{proj, dir})
	}
}

// sh runs a script in the home.
func (h *home) sh(script string) {
	h.t.Helper()
	cmd := h.command("")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-ec", script}
	out, err := cmd.CombinedOutput()
	require.NoError(h.t, err, "%s", out)
}

// TestNamesByOtherPaths shows that a place counts by each of its paths.
func TestNamesByOtherPaths(t *testing.T) {
	h := newHome(t)
	h.project()
	h.sh(": >x.inc; ln x.inc proj/other; mkdir mounted")
	h.user("[include]\npath=x.inc\n[core]\nfsmonitor=~/mounted/x\n")
	device := mountinfo.Mount{Point: "/", Root: "/", Device: "8:1"}
	mounts := []mountinfo.Mount{device, {Point: h.path("mounted"), Root: h.path("proj/tools"), Device: "8:1"}}
	names, err := NewNames([]string{h.path("proj")}, mounts, h.getenv)
	require.NoError(t, err)
	require.NoError(t, names.Repository(h.path("proj"), h.path("proj/.git"), h.path("proj/.git")))
	assert.Equal(t, []string{"tools/x"}, h.below(names), "through a bind mount")
	assert.Equal(t, []string{h.path("x.inc")}, names.Linked)
}

// TestNamesOfOtherRepositories shows which configuration counts besides the project's own.
func TestNamesOfOtherRepositories(t *testing.T) {
	const hooks = " config core.hooksPath .githooks"
	for _, row := range []struct {
		name, script string
		env          string
		gather       func(n *Names, h *home) error
		want         string
	}{
		{"a git directory outside", "mv proj/.git gd; git --git-dir=gd" + hooks, "", func(n *Names, h *home) error {
			return n.Elsewhere(h.path("proj"), h.path("gd"), h.path("gd"))
		}, ".githooks"},
		{"a bare repository", "git init -q --bare m.git; git -C m.git config core.hooksPath ~/proj/h", "", func(n *Names, h *home) error {
			return n.Repository("", h.path("m.git"), h.path("m.git"))
		}, "h"},
		{"a bare repository in the project, relative", "git init -q --bare proj/m.git; git -C proj/m.git config core.hooksPath ../h", "", func(n *Names, h *home) error {
			return n.Repository("", h.path("proj/m.git"), h.path("proj/m.git"))
		}, "h m.git"},
		{"no repository", "git config --global core.hooksPath .githooks", "", func(n *Names, h *home) error {
			n.Tree(h.path("proj"))
			return nil
		}, ".githooks"},
		{"a repository around", "git init -q; git config core.hooksPath ~/proj/h", "", func(n *Names, h *home) error { return n.Around(h.path("proj")) }, "h"},
		{"a bare repository around", "git init -q --bare; git config core.hooksPath ~/proj/h", "", func(n *Names, h *home) error { return n.Around(h.path("proj")) }, "h"},
		{"a submodule of a repository around", "git init -q; git init -q --bare .git/modules/a/b; git -C .git/modules/a/b config core.hooksPath ~/proj/h", "",
			func(n *Names, h *home) error { return n.Around(h.path("proj")) }, "h"},
		{"core.worktree", "git init -q o; git -C o config core.worktree ~/proj/src; git -C o" + hooks, "", func(n *Names, h *home) error {
			return n.Elsewhere("", h.path("o/.git"), h.path("o/.git"))
		}, "src src/.githooks"},
		{"the configuration of another work tree", "git -C proj config extensions.worktreeConfig true; git -C proj worktree add -q ../w; git -C w config --worktree core.hooksPath ~/proj/h", "",
			func(n *Names, h *home) error {
				return n.Repository(h.path("proj"), h.path("proj/.git"), h.path("proj/.git"))
			}, ".git h"},
		{"a remote on this machine", "git init -q --bare m.git; git -C m.git config core.hooksPath ~/proj/h; git -C proj remote add m file://$HOME/m.git", "", func(n *Names, h *home) error {
			return n.Repository(h.path("proj"), h.path("proj/.git"), h.path("proj/.git"))
		}, "h"},
		{"GIT_DIR", "mv proj/.git gd; git --git-dir=gd" + hooks, "GIT_DIR={home}/gd", nil, ".githooks"},
		{"GIT_DIR and GIT_WORK_TREE", "mv proj/.git gd; git --git-dir=gd" + hooks, "GIT_DIR={home}/gd GIT_WORK_TREE={home}/proj/src", nil, ".githooks src src/.githooks"},
		{"GIT_COMMON_DIR", "mv proj/.git gd; git --git-dir=gd config core.hooksPath ~/proj/h", "GIT_COMMON_DIR={home}/gd", func(n *Names, h *home) error {
			n.Tree(h.path("proj"))
			return nil
		}, "h"},
		{"GIT_CONFIG_GLOBAL in the project", ": >proj/c", "GIT_CONFIG_GLOBAL={home}/proj/c", nil, "c"},
		{"GIT_CONFIG_COUNT with an include", ": >proj/c", "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=include.path GIT_CONFIG_VALUE_0={home}/proj/c", nil, "c"},
		{"XDG_CONFIG_HOME in the project", "true", "XDG_CONFIG_HOME={home}/proj/c", nil, "c/git/attributes c/git/config c/git/ignore"},
		{"GIT_EXEC_PATH in the project", "mkdir proj/e", "GIT_EXEC_PATH={home}/proj/e", func(n *Names, h *home) error {
			n.Tree(h.path("proj"))
			return nil
		}, "e"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHome(t)
			h.project()
			h.sh(row.script)
			for v := range strings.FieldsSeq(strings.ReplaceAll(row.env, "{home}", h.dir)) {
				h.env = append(h.env, v)
			}
			names, err := NewNames([]string{h.path("proj")}, nil, h.getenv)
			require.NoError(t, err)
			if row.gather != nil {
				require.NoError(t, row.gather(names, h))
			}
			got := slices.DeleteFunc(h.below(names), func(path string) bool { return strings.HasPrefix(path, ".git/") })
			slices.Sort(got)
			assert.Equal(t, row.want, strings.Join(got, " "))
		})
	}
}

// TestModule shows the files of a module of Python's, which may import any other.
func TestModule(t *testing.T) {
	for _, command := range []string{
		"python3 -m a.b", "python3 -ma.b", "python3 -B -Es -m a.b", "python3 -W ignore -X utf8 -m a.b", "python3 -Wignore --check-hash-based-pycs never -m a.b",
		`python3 \"-m\" 'a.b' x`, `python3 -c 'import json, a.b'`, `python3 -c 'from a.b import c'`, `\"$(command -v python3)\" -m a.b`,
		"env -S 'python3 -ma.b'", "uv run python -m a.b", "coverage run -m a.b", "ipython -m a.b",
	} {
		h := newHome(t)
		h.project()
		h.user("[filter \"x\"]\nclean=\"" + command + "\"\n")
		names, err := h.named()
		require.NoError(t, err)
		assert.Subset(t, h.below(names), []string{"a.py", "a.so", "a/__init__.py", "a/b.py", "a/b/__main__.py"}, command)
		assert.Equal(t, []string{"filter.x.clean"}, names.Unknown, command)
	}
}

// TestLibraries shows the directories from which interpreters take modules.
func TestLibraries(t *testing.T) {
	for _, command := range []string{
		"PYTHONPATH=/usr/x:lib python3 /usr/x", "PERL5LIB=lib perl -MFoo", "perl -Ilib -MFoo", "ruby -I lib -rfoo", "java -cp lib Main", "CLASSPATH=lib java Main",
	} {
		h := newHome(t)
		h.project()
		require.NoError(t, os.MkdirAll(h.dir+"/proj/lib", 0o755))
		require.NoError(t, os.WriteFile(h.dir+"/proj/lib/x.py", nil, 0o644))
		h.user("[filter \"x\"]\nclean=" + command + "\n")
		names, err := h.named()
		require.NoError(t, err)
		assert.Contains(t, h.below(names), "lib", command)
	}
}
