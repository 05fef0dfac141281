package gitconfig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// home is a HOME of its own with a project in it; git and this package see the
// same environment.
type home struct {
	t   testing.TB
	dir string
	env []string
}

// load reads all that `git config --list` does in dir.
func load(dir string, getenv Getenv) ([]Entry, error) {
	l := &loader{getenv: getenv, at: discover(dir)}
	err := l.all()
	if err == nil {
		err = l.environment()
	}
	return l.entries, err
}

func newHome(t testing.TB) *home {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	h := &home{t: t, dir: dir, env: []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}}
	h.mkdir("proj")
	return h
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }
func (h *home) mkdir(name string)       { require.NoError(h.t, os.MkdirAll(h.path(name), 0o755)) }

func (h *home) write(name, text string) {
	h.t.Helper()
	require.NoError(h.t, os.MkdirAll(filepath.Dir(h.path(name)), 0o755))
	require.NoError(h.t, os.WriteFile(h.path(name), []byte(strings.ReplaceAll(text, "{home}", h.dir)), 0o644))
}

func (h *home) getenv(name string) (string, bool) {
	for i := len(h.env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(h.env[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (h *home) command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = h.path(dir), h.env
	return cmd
}

// git runs git, which has to succeed.
func (h *home) git(dir string, args ...string) string {
	h.t.Helper()
	out, err := h.command(dir, args...).CombinedOutput()
	require.NoError(h.t, err, "git %q: %s", args, out)
	return strings.TrimSpace(string(out))
}

// list is the configuration that git reads in a directory.
func (h *home) list(dir string, args ...string) (string, error) {
	cmd := h.command(dir, append([]string{"config", "-z", "--list"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s", stderr.Bytes())
	}
	return blank(string(out)), err
}

// blank changes white space inside values as git before 2.45 does.
func blank(s string) string { return strings.NewReplacer("\t", " ", "\r", " ").Replace(s) }

func render(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Key)
		if !e.NoValue {
			b.WriteString("\n" + e.Value)
		}
		b.WriteByte(0)
	}
	return blank(b.String())
}

// sameAsGit loads a directory and asks git to do so.
func (h *home) sameAsGit(dir string) []Entry {
	h.t.Helper()
	want, gitErr := h.list(dir)
	got, err := load(h.path(dir), h.getenv)
	if gitErr != nil {
		require.Error(h.t, err, "git says %v", gitErr)
		return nil
	}
	require.NoError(h.t, err)
	require.Equal(h.t, want, render(got))
	return got
}

// corpus holds texts of configuration files, valid and malformed.
var corpus = []string{
	"", "\n", "[a]", "[a]b", "[a]b=c", "[a] b = c # d", "[a]\nb = \"c # d\" ; e\n", "[A]\nB = C\n", "[a \"B c\"]\nD = e\n", "[a.B.c]\nD = e\n",
	"[a \"b\\\"c\\\\d\\e\"]\nx=1\n", "[a]\nb = c\\\n d \\\n  e\n", "[a]\nb = \" c \"d\" \"\n", "[a]\nb = c\\td\\n\\b\\\\\\\"\n", "[a]\r\nb = c\r\nd\r\n",
	"\ufeff[a]\nb=c\n", "\xef\xbb[a]\nb=c\n", "[a]\nb\n[a]\nb=\n", "x=1\n", "[a]x=1\ny=2 [b]\n", "[a]\nb = c\td  e\t\n", "[a]\nb=c \\\n", "[a]\nb=\\", "[a]b=\"\\\n\"",
	"# only\n; comments", "[a-b]\nc-d-1=2", "[a]\nb = a\\\r\nb\n", "[a] [b] c=1 \n [ d]", "[a \"\"]\nb=c", "[a  \t \"b\"]\nc=d\n", "[a]\n\tb\t=\tc\n", "[1]\na=b", "[.]\na=b", "[a.]\nb=c",
	"[a]\nb=\x00c\nd=e\n", "[a \"b\x00c\"]\nd=e\n", "[core \"hookspath\x00\"]\nx=y\n", "[a]\nb=c\rd\n", "[a]\nb = \"c\n", "[a]\nb = \"c", "[a]\nb = \\q\n", "[a]\n!b\n", "[a]\nb c\n",
	"[a \"b]\nc=d\n", "[a \"b\"\n]\nc=d\n", "[a\n]\nb=c", "[]\na=b", "[a", "[a \"b", "[a \"b\\", "[a b]\nc=d\n", "[a]\n1b=c\n", "[a]\nb\rc=d\n", "[a_b]\nc=d\n", "[a]\nb_c=d\n", "[a]b\x00=c",
	"[a]\nb = \"x\"y\"z\" w  # c", "[a]\nb = x ; \\\nc = y\n", "[a]\nb = \\\n\\\n\\\nx\n", "[user]\nname = Jürgen \xff\n", "[a]\nb \\\n = c\n", "[include]\npath = nowhere\n",
}

func TestParseAsGitDoes(t *testing.T) {
	h := newHome(t)
	for _, text := range corpus {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) { compareParse(t, h, []byte(text)) })
	}
}

// compareParse parses one file with git and with Parse. Where git stops in the middle, so
// does Parse, at the same line.
func compareParse(t *testing.T, h *home, text []byte) {
	file := h.path("file")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	want, gitErr := h.list("proj", "--no-includes", "--file", file)
	entries, err := Parse(file, text)
	if gitErr == nil {
		require.NoError(t, err)
		require.Equal(t, want, render(entries))
		return
	}
	require.Error(t, err)
	if text[0] != 0xef { // half a mark at the beginning: git counts one byte more
		line := err.(*SyntaxError).Line
		assert.Contains(t, gitErr.Error(), fmt.Sprintf("bad config line %d in file", line))
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range corpus {
		f.Add([]byte(text))
	}
	h := newHome(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 0 {
			compareParse(t, &home{t: t, dir: h.dir, env: h.env}, text)
		}
	})
}

func TestBooleans(t *testing.T) {
	h := newHome(t)
	for _, value := range []string{"true", "TRUE", "yes", "on", "1", "2k", "-1", "+3", "false", "No", "off", "0", "00", "0k", "", "maybe", "k", "1kk", "-", " 1"} {
		t.Run(value, func(t *testing.T) {
			out, err := h.command("proj", "-c", "a.b="+value, "config", "--bool", "--get", "a.b").Output()
			got, known := Entry{Value: value}.Bool()
			assert.Equal(t, err == nil, known)
			assert.Equal(t, string(out) == "true\n", got)
		})
	}
	got, known := Entry{NoValue: true}.Bool()
	assert.True(t, got && known)
}

// scenes are homes, file by file, and the value of user.name in proj. Git has to
// agree in each.
var scenes = []struct {
	name  string
	files []string // name, content
	env   []string
	want  string
}{
	{"nothing", nil, nil, ""},
	{"the user's file", []string{".gitconfig", "[user]\nname=user"}, nil, "user"},
	{"the other of the user's", []string{".config/git/config", "[user]\nname=xdg"}, nil, "xdg"},
	{"both of the user's", []string{".gitconfig", "[user]\nname=user", ".config/git/config", "[user]\nname=xdg"}, nil, "user"},
	{"XDG_CONFIG_HOME", []string{"x/git/config", "[user]\nname=xdg", ".config/git/config", "[user]\nname=no"}, []string{"XDG_CONFIG_HOME={home}/x"}, "xdg"},
	{"GIT_CONFIG_GLOBAL", []string{"g", "[user]\nname=g", ".gitconfig", "[user]\nname=no"}, []string{"GIT_CONFIG_GLOBAL={home}/g"}, "g"},
	{"GIT_CONFIG_GLOBAL is /dev/null", []string{".gitconfig", "[user]\nname=no"}, []string{"GIT_CONFIG_GLOBAL=/dev/null"}, ""},
	{"GIT_CONFIG_GLOBAL is empty", []string{".gitconfig", "[user]\nname=no"}, []string{"GIT_CONFIG_GLOBAL="}, ""},
	{"GIT_CONFIG_SYSTEM", []string{"s", "[user]\nname=s"}, []string{"GIT_CONFIG_NOSYSTEM=0", "GIT_CONFIG_SYSTEM={home}/s"}, "s"},
	{"GIT_CONFIG_NOSYSTEM", []string{"s", "[user]\nname=s"}, []string{"GIT_CONFIG_NOSYSTEM=yes", "GIT_CONFIG_SYSTEM={home}/s"}, ""},
	{"GIT_CONFIG_COUNT", []string{"proj/.git/config", "[user]\nname=repo"}, []string{"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=no", "GIT_CONFIG_KEY_1=User.NAME", "GIT_CONFIG_VALUE_1=env"}, "env"},
	{"GIT_CONFIG_COUNT is 0", []string{".gitconfig", "[user]\nname=user"}, []string{"GIT_CONFIG_COUNT=0", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=env"}, "user"},
	{"GIT_CONFIG_COUNT is empty", []string{".gitconfig", "[user]\nname=user"}, []string{"GIT_CONFIG_COUNT="}, "user"},
	{"GIT_CONFIG_COUNT with a subsection", []string{".gitconfig", "[user]\nname=user"}, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=Branch.A.B.Remote", "GIT_CONFIG_VALUE_0="}, "user"},
	{"GIT_CONFIG_COUNT is no number", nil, []string{"GIT_CONFIG_COUNT=1x"}, "error"},
	{"GIT_CONFIG_COUNT without a key", nil, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_VALUE_0=x"}, "error"},
	{"GIT_CONFIG_COUNT without a value", nil, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=user.name"}, "error"},
	{"GIT_CONFIG_COUNT without a section", nil, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=name", "GIT_CONFIG_VALUE_0=x"}, "error"},
	{"GIT_CONFIG_COUNT with an empty section", nil, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=.name", "GIT_CONFIG_VALUE_0=x"}, "error"},
	{"the repository's", []string{".gitconfig", "[user]\nname=user", "proj/.git/config", "[user]\nname=repo"}, nil, "repo"},
	{"the worktree's, not asked for", []string{"proj/.git/config", "[user]\nname=repo", "proj/.git/config.worktree", "[user]\nname=tree"}, nil, "repo"},
	{"the worktree's", []string{"proj/.git/config", "[core]\nrepositoryformatversion=0\n[extensions]\nworktreeConfig\n[user]\nname=repo", "proj/.git/config.worktree", "[user]\nname=tree"}, nil, "tree"},
	{"the worktree's, format without a version", []string{"proj/.git/config", "[extensions]\nworktreeConfig\n[user]\nname=repo", "proj/.git/config.worktree", "[user]\nname=tree"}, nil, "repo"},
	{"the worktree's, asked for in an include", []string{"proj/.git/config", "[core]\nrepositoryformatversion=0\n[include]\npath=x", "proj/.git/x", "[extensions]\nworktreeConfig=true", "proj/.git/config.worktree", "[user]\nname=tree"}, nil, ""},
	{"an include", []string{".gitconfig", "[user]\nname=user\n[include]\npath=sub/other\n", "sub/other", "[user]\nname=other\n[include]\npath=third", "sub/third", "[user]\nname=third"}, nil, "third"},
	{"an include, then a name", []string{".gitconfig", "[include]\npath=o\n[user]\nname=user\n", "o", "[user]\nname=other"}, nil, "user"},
	{"an include below home", []string{".gitconfig", "[include]\npath=~/o", "o", "[user]\nname=other"}, nil, "other"},
	{"an include that is missing", []string{".gitconfig", "[include]\npath=~/o\n[user]\nname=user"}, nil, "user"},
	{"an include of a user who is not there", []string{".gitconfig", "[include]\npath=~nobodybythisname/o\n[user]\nname=user"}, nil, "error"},
	{"an include without a value", []string{".gitconfig", "[include]\npath\n"}, nil, "error"},
	{"an include below the prefix", []string{".gitconfig", "[include]\npath=%(prefix)/x/y/z\n[user]\nname=user"}, nil, "user"},
	{"an include that includes itself", []string{".gitconfig", "[include]\npath=.gitconfig"}, nil, "error"},
	{"an include of a directory", []string{".gitconfig", "[include]\npath=proj"}, nil, "error"},
	{"an include of /dev/null", []string{".gitconfig", "[include]\npath=/dev/null\n[user]\nname=user"}, nil, "user"},
	{"a bad line in an include", []string{".gitconfig", "[include]\npath=o", "o", "!"}, nil, "error"},
	{"gitdir, exact", conditional("gitdir:{home}/proj/.git"), nil, "if"},
	{"gitdir, directory", conditional("gitdir:{home}/"), nil, "if"},
	{"gitdir, another directory", conditional("gitdir:{home}/work/"), nil, ""},
	{"gitdir, home", conditional("gitdir:~/"), nil, "if"},
	{"gitdir, home's project", conditional("gitdir:~/proj/"), nil, "if"},
	{"gitdir, home without slash", conditional("gitdir:~"), nil, ""},
	{"gitdir, no such user", conditional("gitdir:~nobodybythisname/"), nil, ""},
	{"gitdir, a name anywhere", conditional("gitdir:proj/"), nil, "if"},
	{"gitdir, a name in another case", conditional("gitdir:PROJ/"), nil, ""},
	{"gitdir/i", conditional("gitdir/i:PROJ/"), nil, "if"},
	{"gitdir, relative", conditional("gitdir:./proj/"), nil, "if"},
	{"gitdir/i, relative", conditional("gitdir/i:./PROJ/"), nil, "if"},
	{"gitdir, star", conditional("gitdir:{home}/*/.git"), nil, "if"},
	{"gitdir, star over slashes", conditional("gitdir:/*/.git"), nil, ""},
	{"gitdir, stars", conditional("gitdir:/**/.git"), nil, "if"},
	{"gitdir, prefix", conditional("gitdir:%(prefix)/"), nil, ""},
	{"gitdir, empty", conditional("gitdir:"), nil, "if"},
	{"onbranch", conditional("onbranch:main"), nil, "if"},
	{"onbranch, directory", conditional("onbranch:main/"), nil, ""},
	{"onbranch, stars", conditional("onbranch:m**"), nil, "if"},
	{"onbranch, another", conditional("onbranch:x"), nil, ""},
	{"an empty condition", conditional(""), nil, ""},
	{"an unknown condition", conditional("moon:full"), nil, ""},
	{"hasconfig", append(conditional("hasconfig:remote.*.url:https://host/**"), "proj/.git/config", "[remote \"o\"]\nurl=https://host/a/b"), nil, "if"},
	{"hasconfig, star", append(conditional("hasconfig:remote.*.url:https://host/*"), "proj/.git/config", "[remote \"o\"]\nurl=https://host/a/b"), nil, ""},
	{"hasconfig, no remote", conditional("hasconfig:remote.*.url:**"), nil, ""},
	{"hasconfig, another key", conditional("hasconfig:branch.*.url:**"), nil, ""},
	{"hasconfig, url in an include", append(conditional("hasconfig:remote.*.url:ssh:*"), "proj/.git/config", "[include]\npath=x", "proj/.git/x", "[remote \"o\"]\nurl=ssh:h"), nil, "if"},
}

func conditional(condition string) []string {
	return []string{".gitconfig", "[includeIf \"" + condition + "\"]\npath=cond\n", "cond", "[user]\nname=if\n"}
}

// repo makes proj a repository, with nothing in its configuration.
func (h *home) repo() {
	for _, dir := range []string{"objects", "refs"} {
		h.mkdir("proj/.git/" + dir)
	}
	h.write("proj/.git/HEAD", "ref: refs/heads/main\n")
	h.write("proj/.git/config", "")
}

func TestLoadAsGitDoes(t *testing.T) {
	for _, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) {
			h := newHome(t)
			h.repo()
			for _, v := range scene.env {
				h.env = append(h.env, strings.ReplaceAll(v, "{home}", h.dir))
			}
			for i := 0; i < len(scene.files); i += 2 {
				h.write(scene.files[i], scene.files[i+1])
			}
			h.sameAsGit("proj")
			config, err := load(h.path("proj"), h.getenv)
			assert.Equal(t, scene.want == "error", err != nil, "%v", err)
			if err == nil {
				name, _ := last(config, "user.name")
				assert.Equal(t, scene.want, name.Value)
			}
		})
	}
}

func TestLoadFindsTheRepository(t *testing.T) {
	h := newHome(t)
	h.repo()
	h.write("proj/.git/config", "[core]\nrepositoryformatversion=0\n[extensions]\nworktreeConfig=true\n[user]\nname=main\nemail=m@x\n")
	h.git("proj", "commit", "-q", "--allow-empty", "-m", "x")
	h.git("proj", "worktree", "add", "-q", "../tree", "-b", "tree")
	h.write("proj/.git/worktrees/tree/config.worktree", "[user]\nname=tree\n")
	h.git("", "init", "-q", "--bare", "bare.git")
	h.write("bare.git/config", "[user]\nname=bare\n")
	h.mkdir("proj/a/b")
	h.mkdir("tree/c")
	require.NoError(t, os.Symlink("proj", h.path("link")))
	h.write("cond", "[user]\nname=link\n")
	for dir, want := range map[string]string{
		"": "", "proj": "main", "proj/a/b": "main", "tree": "tree", "tree/c": "tree", "bare.git": "bare", "bare.git/refs": "bare", "proj/.git": "main", "link/a": "main",
	} {
		t.Run(dir, func(t *testing.T) {
			h := &home{t: t, dir: h.dir, env: h.env}
			h.sameAsGit(dir)
			config, err := load(h.path(dir), h.getenv)
			require.NoError(t, err)
			name, _ := last(config, "user.name")
			assert.Equal(t, want, name.Value)
		})
	}
	h.write(".gitconfig", "[includeIf \"onbranch:tree\"]\npath=cond\n[includeIf \"gitdir:tree\"]\npath=cond\n")
	assert.Len(t, h.sameAsGit("tree"), 8+1)
	assert.Len(t, h.sameAsGit("proj"), 2+4)
}

func TestHostileConfigurations(t *testing.T) {
	for _, test := range []struct {
		name  string
		plant func(h *home)
		err   string
	}{
		{"a FIFO", func(h *home) { require.NoError(h.t, unix.Mkfifo(h.path("proj/.git/config"), 0o644)) }, "not a regular file"},
		{"a FIFO that is included", func(h *home) {
			require.NoError(h.t, unix.Mkfifo(h.path("fifo"), 0o644))
			h.write("proj/.git/config", "[include]\npath=../../fifo")
		}, "not a regular file"},
		{"a device", func(h *home) { h.write("proj/.git/config", "[include]\npath=/dev/zero") }, "not a regular file"},
		{"a terminal", func(h *home) { h.write("proj/.git/config", "[include]\npath=/dev/tty") }, "not a regular file"},
		{"a file of the kernel's that ends never", func(h *home) { h.write("proj/.git/config", "[include]\npath=/proc/kmsg") }, ""},
		{"a link to itself", func(h *home) { require.NoError(h.t, os.Symlink("config", h.path("proj/.git/config"))) }, "too many levels"},
		{"1 MiB and a byte", func(h *home) { h.write("proj/.git/config", strings.Repeat("\n", maxFile+1)) }, "too large"},
		{"1 MiB", func(h *home) { h.write("proj/.git/config", strings.Repeat("\n", maxFile)) }, ""},
		{"five times 1 MiB", func(h *home) {
			h.write("proj/.git/big", strings.Repeat("\n", maxFile))
			h.write("proj/.git/config", strings.Repeat("[include]\npath=big\n", 5))
		}, "too large"},
		{"1000 includes", func(h *home) {
			h.write("proj/.git/x", "[user]\n")
			h.write("proj/.git/config", strings.Repeat("[include]\npath=x\n", 1000))
		}, "more files are included"},
		{"includes that fan out", func(h *home) { h.write("proj/.git/config", strings.Repeat("[include]\npath=config\n", 20)) }, "more files are included"},
		{"a pattern that backtracks", func(h *home) {
			h.write("proj/.git/config", "[includeIf \"gitdir:/"+strings.Repeat("**/*a*", 300)+"b\"]\npath=x")
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.repo()
			require.NoError(t, os.Remove(h.path("proj/.git/config")))
			test.plant(h)
			_, err := load(h.path("proj"), h.getenv)
			if test.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.err)
			}
		})
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	h := newHome(t)
	h.write(".gitconfig", "[user]\n\nname = \"x\n")
	_, err := load(h.path("proj"), h.getenv)
	assert.EqualError(t, err, fmt.Sprintf("bad config line 3 in %q", h.path(".gitconfig")))
}

// TestMatch compares the matcher with git's, by way of onbranch.
func TestMatch(t *testing.T) {
	h := newHome(t)
	h.repo()
	branches := []string{"main", "a/b", "a/b/c", "a-b", "a]b", "Ab", "x/main"}
	patterns := []string{"*", "**", "**/b", "a/**", "a/**/c", "a/**/b", "a**c", "a*", "a/*", "?/b", "a?b", "[am]*", "[!a]*", "[^a]*", "[a-m]/b", "[b-a]/b", "[[:alpha:]]/b", "[[:digit:]]*",
		"[[:upper:]]b", "[[:lower:]]/b", "[[:nope:]]*", "[]a]/b", "a[]]b", "a[/]b", "a[!x]b", "\\a/b", "[\\a]/b", "[", "[a", "\\[x", "[[]x", "a\\", "**/main", "***", "*/**", "**/**/b", "a/***", "m*n", "m*i*n", "*/*/*", "**b", "a/**b",
		"[a-]-b", "a[--.]b", "[[:alnum:]-]*", "", "/", "a/", "**/", "a\\/b", "**\\/b"}
	var names []string
	for i, p := range patterns {
		h.write(".gitconfig", fmt.Sprintf("[includeIf \"onbranch:%s\"]\npath=c%d\n", strings.ReplaceAll(p, `\`, `\\`), i))
		names = append(names, string(must(os.ReadFile(h.path(".gitconfig")))))
		h.write(fmt.Sprintf("c%d", i), fmt.Sprintf("[p]\nx%d\n", i))
	}
	h.write(".gitconfig", strings.Join(names, ""))
	matched := 0
	for _, branch := range branches {
		h.write("proj/.git/HEAD", "ref: refs/heads/"+branch+"\n")
		matched += len(h.sameAsGit("proj")) - len(patterns)
	}
	assert.Greater(t, matched, 50)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
