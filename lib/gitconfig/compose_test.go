package gitconfig

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/overlay"
)

// compose composes for proj, where the programs are those of a system without git-lfs.
func (h *home) compose() Composed {
	return Compose(h.path("proj"), h.getenv, func(program string) bool {
		return listed(" tr cat git-x /usr/bin/tr /usr/lib/git-core/git-show ", program)
	})
}

// read is a composed configuration as git reads it.
func (h *home) read(c Composed) string {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(h.path("composed"), c.Config, 0o644))
	alone := &home{t: h.t, dir: h.dir, env: append(h.env[:len(h.env):len(h.env)], "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=0")}
	text, err := alone.list("proj", "--no-includes", "--file", h.path("composed"))
	require.NoError(h.t, err)
	return strings.TrimSuffix(text, "gc.auto\n0\x00maintenance.auto\nfalse\x00")
}

// A file of the home that the repository's configuration includes is there in the sandbox, as data.
func TestIncludedByTheRepository(t *testing.T) {
	h := newHome(t)
	h.project()
	h.write("work/gitconfig", "[user]\nname=Work\n[core]\npager=evil\n[include]\npath=more\n")
	h.write("work/more", "[user]\nemail=e@work\n[http]\nextraHeader=secret\n")
	h.write("no", "[user]\nname=No\n")
	h.git("proj", "config", "include.path", "~/work/gitconfig")
	h.git("proj", "config", "includeIf.onbranch:none.path", "~/no")
	h.git("proj", "config", "--add", "include.path", "~/.gitconfig")
	assert.Equal(t, map[string][]byte{"work/gitconfig": []byte("[user]\n\tname = Work\n\temail = e@work\n")}, h.compose().Included)
}

// Nothing is signed in the sandbox, even if the repository asks for it.
func TestSignaturesOfTheRepository(t *testing.T) {
	h := newHome(t)
	h.project()
	assert.Empty(t, h.compose().Env)
	h.git("proj", "config", "commit.gpgSign", "true")
	h.git("proj", "config", "tag.gpgSign", "false")
	c := h.compose()
	assert.Equal(t, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=commit.gpgsign", "GIT_CONFIG_VALUE_0=false"}, c.Env)
	assert.Contains(t, string(c.Config), "# commit.gpgsign is off")
}

func TestCompose(t *testing.T) {
	for _, test := range []struct {
		name, config string
		want         string // key=value lines
		missing      string
	}{
		{"nothing", "", "", ""},
		{"a name and an address", "[user]\nname=N\nemail=E\nsigningKey=K", "user.name=N user.email=E", ""},
		{"author and committer", "[author]\nname=A\n[committer]\nemail=C", "author.name=A committer.email=C", ""},
		{"a name without a value", "[user]\nname", "user.name", ""},
		{"line ends", "[core]\nautocrlf=input\neol=lf", "core.autocrlf=input core.eol=lf", ""},
		{"programs of core", "[core]\nhooksPath=h\nfsmonitor=f\nsshCommand=s\neditor=e\npager=p\naskPass=a\ngitProxy=g\nworktree=w\nalternateRefsCommand=c", "", ""},
		{"credentials", "[credential]\nhelper=store\n[credential \"https://h\"]\nhelper=x\nusername=u", "", ""},
		{"headers and keys of http", "[http]\nextraHeader=Authorization:x\nsslCert=c\npostBuffer=1\n[http \"https://h\"]\nextraHeader=x", "http.postbuffer=1", ""},
		{"a proxy", "[http]\nproxy=http://proxy:3128", "http.proxy=http://proxy:3128", ""},
		{"a proxy with a password", "[http]\nproxy=http://u:p@proxy:3128", "", ""},
		{"signing", "[commit]\ngpgSign=true\n[gpg]\nprogram=g\n[gpg \"ssh\"]\ndefaultKeyCommand=c", "", ""},
		{"an alias", "[alias]\nst=status -s", "alias.st=status -s", ""},
		{"an alias of the shell", "[alias]\nx=!sh", "", ""},
		{"an alias of the shell after one of git", "[alias]\nx=status\nx=!sh", "", ""},
		{"an alias with a header", "[alias]\nx=-c http.extraHeader=Authorization:x fetch", "", ""},
		{"an alias with a token", "[alias]\nx=push https://token@host/x", "", ""},
		{"a filter", "[filter \"x\"]\nclean=tr a b\nsmudge=\"'tr' b a\"\nrequired=true", "filter.x.clean=tr a b filter.x.smudge='tr' b a filter.x.required=true", ""},
		{"a filter by path", "[filter \"x\"]\nclean=/usr/bin/tr a b\nsmudge=/opt/tr", "filter.x.clean=/usr/bin/tr a b", `git filter "x" is not in the sandbox: "/opt/tr" is missing`},
		{"a filter of the project", "[filter \"x\"]\nclean=./tr a b", "", `git filter "x" is not in the sandbox: "./tr" is missing`},
		{"a filter that is empty", "[filter \"x\"]\nclean=", "filter.x.clean=", ""},
		{"a filter that is a git command", "[filter \"x\"]\nclean=git x\nsmudge=git show", "filter.x.clean=git x filter.x.smudge=git show", ""},
		{"LFS without its program", "[filter \"lfs\"]\nclean=git-lfs clean -- %f\nsmudge=git-lfs smudge -- %f\nprocess=git-lfs filter-process\nrequired=true", "filter.lfs.required=true", `git filter "lfs" is not in the sandbox: "git-lfs" is missing`},
		{"a filter that came after", "[filter \"x\"]\nclean=nope\nclean=cat", "filter.x.clean=cat", ""},
		{"a filter that went after", "[filter \"x\"]\nclean=cat\nclean=nope", "", `git filter "x" is not in the sandbox: "nope" is missing`},
		{"a merge driver", "[merge \"x\"]\nname=n\ndriver=tr %O\nrecursive=text", "merge.x.name=n merge.x.driver=tr %O merge.x.recursive=text", ""},
		{"a merge driver without its program", "[merge \"x\"]\ndriver=nope %O", "", `git merge driver "x" is not in the sandbox: "nope" is missing`},
		{"a diff program", "[diff \"x\"]\ntextconv=cat\nxfuncname=^x\ncommand=nope\n[diff]\nexternal=cat", "diff.x.textconv=cat diff.x.xfuncname=^x", ""},
		{"URLs", "[url \"https://h/\"]\ninsteadOf=x:\ninsteadOf=y:\n[url \"git@h:\"]\npushInsteadOf=https://h/\ninsteadOf=gh:", "url.https://h/.insteadof=x: url.https://h/.insteadof=y: url.git@h:.pushinsteadof=https://h/ url.git@h:.insteadof=gh:", ""},
		{"ssh instead of https", "[url \"git@h:\"]\ninsteadOf=https://h/", "", ""},
		{"a token in a URL", "[url \"https://token@h/\"]\ninsteadOf=x:\n[url \"https://h/\"]\ninsteadOf=https://token@h/\ninsteadOf=y:", "url.https://h/.insteadof=y:", ""},
		{"a password in a URL", "[url \"https://u:p@h/\"]\ninsteadOf=x:\n[url \"ssh://u:p@h/\"]\ninsteadOf=x:\n[url \"u:p@h:x\"]\ninsteadOf=x:", "", ""},
		{"local URLs", "[url \"/srv/\"]\ninsteadOf=x:\n[url \"file:///srv/\"]\ninsteadOf=x:\n[url \"ext::sh \"]\ninsteadOf=y:", "", ""},
		{"LFS data and code", "[lfs]\nurl=https://h/x\nconcurrentTransfers=3\n[lfs \"customtransfer.x\"]\npath=p\n[lfs \"extension.x\"]\nclean=c\n[lfs \"https://h\"]\nlocksverify=true\naccess=basic", "lfs.url=https://h/x lfs.concurrenttransfers=3 lfs.https://h.locksverify=true", ""},
		{"LFS with a password", "[lfs]\nurl=https://u:p@h/x", "", ""},
		{"files that may be missing", "[blame]\nignoreRevsFile=/x\n[commit]\ntemplate=/x\n[diff]\norderFile=/x\n[init]\ntemplateDir=/x\ndefaultBranch=b", "init.defaultbranch=b", ""},
		{"a trailer and its command", "[trailer \"x\"]\nkey=X\ncmd=c\ncommand=c", "trailer.x.key=X", ""},
		{"sections of data", "[color \"diff\"]\nnew=red\n[advice]\nx=false\n[status]\nshort\n[rerere]\nenabled=1", "color.diff.new=red advice.x=false status.short rerere.enabled=1", ""},
		{"an include", "[include]\npath=more", "user.name=included", ""},
		{"an include for another directory", "[includeIf \"gitdir:/elsewhere/\"]\npath=more", "", ""},
		{"an include for the project", "[includeIf \"gitdir:{home}/proj/\"]\npath=more", "user.name=included", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.repo()
			h.write("proj/.git/config", "[user]\nname=repository\n")
			h.write("more", "[user]\nname=included\n")
			h.write(".gitconfig", test.config)
			c := h.compose()
			got := strings.NewReplacer("\n", "=", "\x00", " ").Replace(h.read(c))
			assert.Equal(t, test.want, strings.TrimSuffix(got, " "))
			assert.Equal(t, test.missing, strings.Join(c.Missing, "; "))
			assert.Empty(t, c.Notes)
			assert.Nil(t, c.Env)
			assert.Equal(t, c, h.compose())
		})
	}
}

func TestComposeSaysWhyItIsShort(t *testing.T) {
	h := newHome(t)
	h.repo()
	h.write(".gitconfig", "[user]\nname=N\n[commit]\ngpgSign\n")
	assert.Contains(t, string(h.compose().Config), "\n# commit.gpgsign is off: ")
	h.write(".gitconfig", "[user]\nname=N\n!\n")
	c := h.compose()
	assert.Empty(t, h.read(c))
	assert.Equal(t, []string{fmt.Sprintf("git in the sandbox goes without the user's configuration: bad config line 3 in %q", h.path(".gitconfig"))}, c.Notes)
	h.write(".gitconfig", strings.Repeat("\n", maxFile+1))
	assert.Len(t, h.compose().Notes, 1)
	h.write(".gitconfig", "[core]\nexcludesFile=~/proj\nattributesFile=~/none\n")
	assert.Equal(t, []string{fmt.Sprintf("git in the sandbox goes without %q: %v", h.path("proj"), overlay.ErrNotRegular)}, h.compose().Notes)
}

func TestOddHomes(t *testing.T) {
	h := newHome(t)
	require.NoError(t, os.Symlink("loop", h.path("loop")))
	for _, name := range []string{"loop", "gone", "file", "file/below"} {
		h.write("file", "")
		h.env = append(h.env, "HOME="+h.path(name))
		assert.Empty(t, h.compose().Notes, name)
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	h := newHome(t)
	h.repo()
	h.write("proj/.git/config", "[user]\nname=repository\n")
	h.env = append(h.env, "GIT_CONFIG_COUNT=4", "GIT_CONFIG_KEY_0=core.pager", "GIT_CONFIG_VALUE_0=p", "GIT_CONFIG_KEY_1=User.Name", "GIT_CONFIG_VALUE_1=env",
		"GIT_CONFIG_KEY_2=user.na me", "GIT_CONFIG_VALUE_2=x", "GIT_CONFIG_KEY_3=core.excludesFile", "GIT_CONFIG_VALUE_3=/none")
	c := h.compose()
	assert.Equal(t, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=env"}, c.Env)
	assert.Empty(t, h.read(c))
	h.env = append(h.env, c.Env...)
	assert.Equal(t, "env", h.git("proj", "config", "user.name"))
}

func TestExcludesAndAttributes(t *testing.T) {
	for _, test := range []struct {
		name  string
		files []string
		want  string
	}{
		{"none", nil, ""},
		{"the usual ones", []string{".config/git/ignore", "a\n", ".config/git/attributes", "* text\n"}, "a\n|* text\n"},
		{"named ones", []string{".config/git/ignore", "no\n", "i", "a", "t", "* text", ".gitconfig", "[core]\nexcludesFile=~/i\nattributesFile={home}/t"}, "a|* text"},
		{"named, and missing", []string{".config/git/ignore", "no\n", ".gitconfig", "[core]\nexcludesFile=~/i\n"}, ""},
		{"turned off", []string{".config/git/ignore", "no\n", ".gitconfig", "[core]\nexcludesFile=/dev/null\n"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.env = append(h.env, "GIT_ATTR_NOSYSTEM=1")
			for i := 0; i < len(test.files); i += 2 {
				h.write(test.files[i], test.files[i+1])
			}
			c := h.compose()
			assert.Equal(t, test.want, strings.Trim(string(c.Excludes)+"|"+string(c.Attributes), "|"))
			assert.Equal(t, c.Excludes != nil, strings.Contains(h.read(c), "core.excludesfile\n~/.gitignore_global"))
			assert.Equal(t, c.Attributes != nil, strings.Contains(h.read(c), "core.attributesfile\n~/.gitattributes_global"))
			assert.Empty(t, c.Notes)
		})
	}
}

// TestRepositoryOfAnotherUser compares distrust with git's rule: a condition sees no
// repository that git would refuse. Root alone can give one away.
func TestRepositoryOfAnotherUser(t *testing.T) {
	h := newHome(t)
	h.repo()
	h.write("work", "[user]\nname=work\n")
	const conditional = "[includeIf \"gitdir:~/proj/\"]\npath=work\n"
	h.write(".gitconfig", conditional)
	assert.Contains(t, h.read(h.compose()), "user.name")
	if os.Getuid() != 0 {
		return
	}
	require.NoError(t, os.Chown(h.path("proj"), 54321, 54321))
	for _, test := range []struct {
		safe string
		want bool
	}{
		{"", false}, {"{home}/other", false}, {"{home}/proj", true}, {"*", true}, {"*\n[safe]\ndirectory=", false}, {"~/proj", true},
	} {
		h.write(".gitconfig", conditional+"[safe]\ndirectory="+test.safe)
		err := h.command("proj", "status").Run()
		assert.Equal(t, test.want, err == nil, "git, %q", test.safe)
		assert.Equal(t, test.want, strings.Contains(h.read(h.compose()), "user.name"), test.safe)
	}
	h.write(".gitconfig", conditional)
	h.env = append(h.env, "SUDO_UID=54321")
	assert.Contains(t, h.read(h.compose()), "user.name")
}

// FuzzFormat formats parsed entries, and compares how git and Parse read the result.
func FuzzFormat(f *testing.F) {
	for _, text := range corpus {
		f.Add([]byte(text))
	}
	f.Add([]byte("[alias \"x=!sh\x00\"]\ny=z\n"))
	f.Add([]byte("[a \"b \\\\\\\"]c\"]\nd = \"\t#x \\n\\b\r\\n\\\"\"\n"))
	h := newHome(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		h := &home{t: t, dir: h.dir, env: h.env}
		var entries []Entry
		parsed, _ := Parse("file", text)
		for _, e := range parsed {
			if isVariable(e.Key) {
				entries = append(entries, e)
			}
		}
		out := Format(entries)
		again, err := Parse("file", out)
		require.NoError(t, err)
		require.Equal(t, render(entries), render(again))
		require.NoError(t, os.WriteFile(h.path("composed"), out, 0o644))
		got, err := h.list("proj", "--no-includes", "--file", h.path("composed"))
		require.NoError(t, err)
		require.Equal(t, render(entries), got)
	})
}

func BenchmarkCompose(b *testing.B) {
	h := newHome(b)
	h.git("proj", "init", "-q")
	h.git("proj", "remote", "add", "origin", "https://host.invalid/x")
	h.write(".gitconfig", "[user]\nname=N\nemail=E\n[includeIf \"gitdir:~/work/\"]\npath=x\n[includeIf \"gitdir:~/proj/\"]\npath=x\n[alias]\n"+strings.Repeat("co=checkout\nst=status\n", 20)+
		"[core]\npager=less\nexcludesFile=~/i\n[filter \"lfs\"]\nclean=git-lfs clean -- %f\nsmudge=git-lfs smudge -- %f\nprocess=git-lfs filter-process\nrequired=true\n")
	h.write("x", "[user]\nname=W\n")
	h.write("i", "*.o\n")
	for b.Loop() {
		if c := h.compose(); c.Excludes == nil {
			b.Fatal(c)
		}
	}
}
