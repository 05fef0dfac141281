package blocked

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/bwrap"
	"pikuri/lib/mountinfo"
	"pikuri/lib/trace"
)

func TestWords(t *testing.T) {
	for _, test := range []struct{ line, want string }{ // the words that may be paths
		{"cat: /a/b: No such file or directory", "/a/b"},
		{"cat: .env: Permission denied", ".env"},
		{"ls: cannot access '/a b/c': x", "/a b/c /a b/c"},
		{"can't open 'x'", "x"},
		{"bash: line 1: new: y", "new"},
		{"main.c:3:10: fatal error: lib/x.h: y", "error lib/x.h"},
		{"open ~/x.", "~/x"},
		{"-I/opt/include (see ‘../y’)", "../y /opt/include ../y"},
		{"[Errno 2] x: '/a'", "/a x /a"},
		{`cat: "/a/it's/f": No such file or directory`, "/a/it /a/it's/f /a/it s/f"},
		{`cat: '/a/it'\''s "x"/f': No such file or directory`, `/a/it x /a/it's "x"/f /a/it /f`},
		{"bash: line 1: /a/it's/f: No such file or directory", "/a/it's/f /a/it s/f"},
		{"", ""},
	} {
		var got []string
		for word, named := range words(test.line) {
			if named {
				got = append(got, word)
			}
		}
		assert.Equal(t, test.want, strings.Join(got, " "), test.line)
	}
}

func TestLine(t *testing.T) {
	for _, test := range []struct {
		fact Fact
		want string
	}{
		{Fact{Path: "/h/a", Access: NotShown, Rule: "default: empty home", Option: "--readable /h/a"}, "~/a is not shown (empty home); --readable ~/a shows it"},
		{Fact{Path: "/h/a b", Access: NotShown}, `"/h/a b" is not shown`},
		{Fact{Path: "/x", Access: ReadOnly, Rule: "option --readable", Option: "--writable /x"}, "/x is read-only (option --readable); --writable /x allows it"},
		{Fact{Path: "/h/a\x1b\n", Access: Masked, Rule: "r"}, `"/h/a\x1b\n" is masked (r)`},
		{Fact{Path: "/hh/a", Access: Lost, Rule: "default: empty home"}, "wrote /hh/a, which is lost with the command (empty home)"},
		{Fact{Host: "a.example", Access: NoNetwork, Rule: "r", Option: "--allow-host a.example"}, "no network: a.example (r); --allow-host a.example allows it"},
		{Fact{Access: NoNetwork, Rule: "r"}, "no network (r)"},
	} {
		assert.Equal(t, test.want, test.fact.Line("/h"))
	}
	assert.Equal(t, "/a is not shown", Fact{Path: "/a", Access: NotShown}.Line("/"))
}

// scene makes a home with some files, and a plan that shows a project in it.
func scene(t *testing.T) (c Command, home string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, dir := range []string{"project/deep", "data", "tools", "prefix/bin", "prefix/lib", ".ssh", ".cache/pikuri/workspace-x", "closed", "it's"} {
		require.NoError(t, os.MkdirAll(filepath.Join(home, dir), 0o755))
	}
	for _, file := range []string{"data/set.csv", "data/with space", "it's/f", "project/secret", ".cache/pikuri/workspace-x/f", ".ssh/config"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, file), nil, 0o644))
	}
	require.NoError(t, os.WriteFile(home+"/tools/mytool", nil, 0o755))
	require.NoError(t, os.WriteFile(home+"/.ssh/id", nil, 0o600))
	require.NoError(t, os.WriteFile(home+"/private", nil, 0o600))
	require.NoError(t, os.Symlink("nowhere", home+"/dangling"))
	require.NoError(t, os.WriteFile(home+"/prefix/lib/program", nil, 0o755))
	require.NoError(t, os.Symlink("../lib/program", home+"/prefix/bin/installed"))
	require.NoError(t, os.Symlink("../prefix/lib/program", home+"/tools/linked"))
	project := home + "/project"
	plan := &bwrap.Plan{Chdir: project, Mounts: []bwrap.Mount{
		{Op: bwrap.OpReadOnly, Source: "/usr", Dest: "/usr", Rule: "system"},
		{Op: bwrap.OpEmpty, Dest: home, Rule: "default: empty home"},
		{Op: bwrap.OpReadOnly, Source: project, Dest: project, Rule: "project root", Root: true},
		{Op: bwrap.OpMask, Dest: project + "/secret", Rule: "--deny secret"},
	}}
	env := map[string]string{"HOME": home, "PATH": home + "/tools:" + home + "/prefix/bin:/usr/bin"}
	return Command{Plan: plan, Dir: project, Getenv: func(name string) string { return env[name] }}, home
}

func TestFind(t *testing.T) {
	c, home := scene(t)
	for _, test := range []struct{ name, output, want string }{
		{"an absolute path", "cat: HOME/data/set.csv: No such file or directory", "~/data/set.csv is not shown (empty home); --readable ~/data/set.csv shows it"},
		{"with a tilde", "cannot open ~/data", "~/data is not shown (empty home); --readable ~/data shows it"},
		{"relative", "cannot open ../data", "~/data is not shown (empty home); --readable ~/data shows it"},
		{"a space in quotes", "cannot open 'HOME/data/with space'", "\"HOME/data/with space\" is not shown (empty home); --readable 'HOME/data/with space' shows it"},
		{"not on the host either", "cat: HOME/none: No such file or directory", ""},
		{"not on the host either, in a directory that is not shown", "cat: HOME/data/none: No such file or directory", "~/data is not shown (empty home); --readable ~/data shows it"},
		{"not on the host either, among settings", "cat: HOME/.ssh/none: No such file or directory", ""},
		{"a cause that a missing name cannot have", "open HOME/data/set.csv: permission denied", ""},
		{"a link that leads nowhere, outside", "cat: HOME/dangling: No such file or directory", ""},
		{"below another", "cannot open HOME/data\ncannot open HOME/data/set.csv", "~/data is not shown (empty home); --readable ~/data shows it"},
		{"another .env, in a directory that is not known", "cat: secret: No such file or directory", ""},
		{"an error's name that ends as another's", "FileNotFoundError: [Errno 2] No such file or directory: 'HOME/data/set.csv'", "~/data/set.csv is not shown (empty home); --readable ~/data/set.csv shows it"},
		{"an address of a web server", "Error: GET /opt 404 Not Found", ""},
		{"no network, and no such host", "lookup nonesuch.invalid: no such host", "no network: nonesuch.invalid (option --net none)"},
		{"no complaint", "read HOME/data/set.csv", ""},
		{"shown", "cat: HOME/project/deep: failed", ""},
		{"masked", "cat: secret: Permission denied", "~/project/secret is masked (--deny secret)"},
		{"behind a mask", "cat: secret/x: Not a directory error", "~/project/secret is masked (--deny secret)"},
		{"credentials", "cat: HOME/.ssh/id: No such file or directory", "~/.ssh/id is not shown (empty home)"},
		{"credentials that all may read", "cat HOME/.ssh/config: No such file or directory\ncannot open HOME/.ssh/config", "~/.ssh/config is not shown (empty home)"},
		{"a private file", "cat: HOME/private: No such file or directory", "~/private is not shown (empty home)"},
		{"session directories", "cat: HOME/.cache/pikuri/workspace-x/f: No such file or directory", ""},
		{"read-only by the plan", "touch: HOME/project/new: Read-only file system", "~/project/new is read-only (project root); --writable ~/project allows it"},
		{"a program", "bash: line 1: mytool: command not found", "~/tools/mytool is not shown (empty home); --readable ~/tools shows it"},
		{"a program, as node says", "Error: spawn mytool ENOENT", "~/tools/mytool is not shown (empty home); --readable ~/tools shows it"},
		{"a program that is a link", "bash: line 1: linked: command not found", "~/tools/linked is not shown (empty home)"},
		{"a program in a prefix", "bash: line 1: installed: command not found", "~/prefix/bin/installed is not shown (empty home); --readable ~/prefix shows it"},
		{"a word that is also a program", "error: package foo not found by mytool", ""},
		{"a program that nobody has", "bash: line 1: nonesuch: command not found", ""},
		{"makes a file in a missing directory", "cp: cannot create regular file 'HOME/data/new': No such file or directory", "~/data is not shown (empty home); --writable ~/data shows it"},
		{"no network", "curl: (6) Could not resolve host: a.example.com", "no network: a.example.com (option --net none); --net allow --allow-host a.example.com allows it"},
		{"no network, as libgit2 says", "failed to resolve address for a.example.com: Temporary failure in name resolution", "no network: a.example.com (option --net none); --net allow --allow-host a.example.com allows it"},
		{"tee", "tee: HOME/data/new: No such file or directory", "~/data is not shown (empty home); --writable ~/data shows it"},
		{"an apostrophe, as GNU programs quote it", `cat: "HOME/it's/f": No such file or directory`, "~/it's/f is not shown (empty home)"},
		{"an apostrophe, without quotes", "bash: line 1: HOME/it's/f: No such file or directory", "~/it's/f is not shown (empty home)"},
		{"twice", "cannot open HOME/data\ncannot open HOME/data/", "~/data is not shown (empty home); --readable ~/data shows it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var lines []string
			for _, f := range c.Find(strings.ReplaceAll(test.output, "HOME", home)) {
				lines = append(lines, f.Line(home))
			}
			assert.Equal(t, strings.ReplaceAll(test.want, "HOME", home), strings.Join(lines, "\n"))
		})
	}
}

// Bash says of a redirection to a file only that it is missing.
func TestRedirection(t *testing.T) {
	c, home := scene(t)
	for _, test := range []struct{ text, path, want string }{
		{"echo w >HOME/data/new", "HOME/data/new", "~/data is not shown (empty home); --writable ~/data shows it"},
		{"echo w >> 'HOME/data/set.csv'", "HOME/data/set.csv", "~/data is not shown (empty home); --writable ~/data shows it"},
		{"echo w >~/data/new", "HOME/data/new", "~/data is not shown (empty home); --writable ~/data shows it"},
		{"echo w 2>../data/new", "../data/new", "~/data is not shown (empty home); --writable ~/data shows it"},
		{"cat <HOME/data/set.csv >out", "HOME/data/set.csv", "~/data/set.csv is not shown (empty home); --readable ~/data/set.csv shows it"},
		{"cat <HOME/data/new", "HOME/data/new", "~/data is not shown (empty home); --readable ~/data shows it"},
	} {
		at := strings.NewReplacer("HOME", home)
		c.Text = at.Replace(test.text)
		facts := c.Find("bash: line 1: " + at.Replace(test.path) + ": No such file or directory")
		require.Len(t, facts, 1, test.text)
		assert.Equal(t, test.want, facts[0].Line(home), test.text)
	}
}

// A relative path counts where the working directory is known.
func TestWhere(t *testing.T) {
	c, home := scene(t)
	require.NoError(t, os.MkdirAll(home+"/project/deep/keys", 0o755))
	require.NoError(t, os.WriteFile(home+"/project/deep/keys/k", nil, 0o644))
	c.Plan.Mounts = append(c.Plan.Mounts, bwrap.Mount{Op: bwrap.OpMask, Dir: true, Dest: home + "/project/deep/keys", Rule: "--deny keys"})
	const secret, keys, data = "/project/secret", "/project/deep/keys", "/data"
	const denied, missing = "cat: secret: Permission denied", "ls: cannot access '../data': No such file or directory"
	for _, test := range []struct{ text, output, want string }{
		{"cat secret", denied, secret},
		{"cd /tmp; cat secret", denied, ""},
		{"mkdir k; cd k && cat secret", denied, ""},
		{"cat secret; (cd /tmp; true)", denied, ""},
		{"sh -c 'cd /tmp; cat secret'", denied, ""},
		{"make -C sub", denied, ""},
		{"make --directory=sub", denied, ""},
		{`python3 -c 'import os; os.chdir("/tmp"); open("secret")'`, denied, ""},
		{`node -e 'spawn("cat", ["secret"], {cwd: "/tmp"})'`, denied, ""},
		{"find . -execdir cat secret ;", denied, ""},
		{"npm --prefix sub test", denied, ""},
		{"./configure --prefix=/usr && cat secret", denied, secret},
		{"cat cd/x a.cd secret", denied, secret},
		{"grep -C 3 x secret", denied, secret},
		{"grep -C3 x secret", denied, secret},
		{"sh script", "make[1]: Entering directory '/tmp'\n" + denied, ""},
		{"cd " + home + "/project && cat secret", denied, secret},
		{"cd '" + home + "/project'\ncat secret", denied, secret},
		{"cd ~/project; cat secret", denied, secret},
		{"cd deep && cat ../secret", "cat: ../secret: Permission denied", secret},
		{"cd deep; cat keys/k", "cat: keys/k: Permission denied", keys},
		{"cd deep; cd keys; cat k", "cat: k: Permission denied", ""},
		{"cd $X; cat secret", denied, ""},
		{"cd; cat secret", denied, ""},
		{"cd ~ && cat secret", denied, ""},
		{"cd ~root; cat secret", denied, ""},
		{"cd /tmp || exit; cat secret", denied, ""},
		{"cd deep/.. && cat secret", denied, secret},
		{"cd -; cat secret", denied, ""},
		{"cd none; cat secret", "bash: line 1: cd: none: No such file or directory\n" + denied, ""},
		{"cd ../data && ls", "bash: line 1: cd: ../data: No such file or directory", data},
		{"cd '../data'", "bash: line 1: cd: ../data: No such file or directory", data},
		{"make -C ../data", "make: *** ../data: No such file or directory.  Stop.", data},
		{"cd deep && make -C ../../data", "make: *** ../../data: No such file or directory.  Stop.", data},
		{"ls ../data", missing, data},
		{"cd deep; ls ../data", missing, ""},
		{"cd deep; ls ../../data", "ls: cannot access '../../data': No such file or directory", data},
		{"cd /tmp; ls " + home + "/data", "cannot open HOME/data", data},
	} {
		t.Run(test.text, func(t *testing.T) {
			c := c
			c.Text = test.text
			var paths []string
			for _, f := range c.Find(strings.ReplaceAll(test.output, "HOME", home)) {
				paths = append(paths, strings.TrimPrefix(f.Path, home))
			}
			assert.Equal(t, test.want, strings.Join(paths, " "))
		})
	}
	c.Dir = ""
	assert.Empty(t, c.Find(denied))
}

// With a trace, the output alone is no proof.
func TestTraced(t *testing.T) {
	c, home := scene(t)
	const output = "cat: secret: Permission denied\nsee ~/data/set.csv: No such file or directory"
	assert.Len(t, c.Find(output), 2)
	c.Traced = true
	assert.Empty(t, c.Find(output))
	c.Failed = []trace.Failure{{Errno: unix.EACCES, Path: []byte(home + "/project/secret")}}
	assert.Len(t, c.Find(output), 1)
}

func TestCopiedDevice(t *testing.T) {
	c, home := scene(t)
	const says = "cp: cannot create special file '%s': Operation not permitted"
	assert.Len(t, c.Find(fmt.Sprintf(says, "/tmp/x/secret")), 1)
	assert.Empty(t, c.Find(fmt.Sprintf(says, "/tmp/x/other")))
	call := trace.Failure{Errno: unix.EPERM, Path: []byte("/tmp/x/secret"), Creates: true}
	c.Failed = []trace.Failure{call}
	assert.Empty(t, c.Find(""))
	call.Device = true
	c.Failed = []trace.Failure{call}
	assert.Len(t, c.Find(""), 1)
	c.Plan.Mounts = append(c.Plan.Mounts, bwrap.Mount{Op: bwrap.OpMask, Dest: home + "/project/deep/secret", Rule: "--deny secret"})
	assert.Empty(t, c.Find(fmt.Sprintf(says, "/tmp/x/secret")))
	assert.Equal(t, home+"/project/deep/secret", c.Find(fmt.Sprintf(says, "/tmp/x/deep/secret"))[0].Path)
}

// sed -i names the file that it could not rename.
func TestRenamedOver(t *testing.T) {
	c, home := scene(t)
	const says = "sed: cannot rename deep/sedAbCdEf: Device or resource busy"
	for _, name := range []string{"one", "two"} {
		c.Plan.Mounts = append(c.Plan.Mounts, bwrap.Mount{Op: bwrap.OpProtect, Dest: home + "/project/deep/" + name, Rule: "r"})
	}
	for text, want := range map[string]int{"sed -i s/a/b/ deep/one": 1, "sed -i s/a/b/ deep/*; echo done": 0, "sed -i s/a/b/ deep/one deep/two": 0} {
		c.Text = text
		assert.Len(t, c.Find(says), want, text)
	}
	c.Text = "sed -i s/a/b/ one"
	assert.Empty(t, c.Find("sed: cannot rename sedAbCdEf: Device or resource busy"))
}

func TestConnectionsOfCurl(t *testing.T) {
	c, _ := scene(t)
	const says = "curl: (7) Failed to connect to %s port 80 after 0 ms: Couldn't connect to server"
	for host, want := range map[string]int{"192.0.2.1": 1, "2001:db8::1": 1, "127.0.0.1": 0, "::1": 0, "localhost": 0, "0.0.0.0": 0} {
		assert.Len(t, c.Find(fmt.Sprintf(says, host)), want, host)
	}
	c.Plan.Net = true
	assert.Empty(t, c.Find(fmt.Sprintf(says, "192.0.2.1")))
}

// A refusal that the command would have got on the host too is not the fence's.
func TestReadOnlyOnTheHost(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write every file")
	}
	c, home := scene(t)
	require.NoError(t, os.WriteFile(home+"/project/kept", nil, 0o444))
	assert.Empty(t, c.Find("touch: kept: Read-only file system"))
	assert.Empty(t, c.Find("touch: /proc/version: Read-only file system"))
	require.NoError(t, os.Chmod(home+"/private", 0))
	assert.Empty(t, c.Find("cat: "+home+"/private: No such file or directory"))
}

// Root could look into the directories of all users.
func TestClosedDirectories(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes directories of another user")
	}
	c, home := scene(t)
	for _, test := range []struct {
		mode os.FileMode
		want int
	}{{0o700, 0}, {0o711, 0}, {0o755, 1}} {
		require.NoError(t, os.WriteFile(home+"/closed/f", nil, 0o644))
		require.NoError(t, os.Chown(home+"/closed", 54322, 54322))
		require.NoError(t, os.Chmod(home+"/closed", test.mode))
		assert.Len(t, c.Find("cannot open "+home+"/closed/f"), test.want, test.mode)
	}
}

func TestBounds(t *testing.T) {
	c, home := scene(t)
	var long strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), nil, 0o644))
		long.WriteString("cannot open " + home + "/" + name + "\n")
	}
	assert.Len(t, c.Find(long.String()), Most)
	assert.Len(t, c.Find(strings.Repeat("error /none\n", maxWords)+long.String()), Most)
	assert.Empty(t, c.Find(long.String()+strings.Repeat("error /none\n", maxWords)))
}

// A name that the command has chosen stands in an option that the user may type.
func TestOptionsForTheShell(t *testing.T) {
	for operand, want := range map[string]string{
		"/a/b-c_d.e":    "--x /a/b-c_d.e",
		"/a b":          "--x '/a b'",
		"/a$(id)`id`;&": "--x '/a$(id)`id`;&'",
		"*":             "--x '*'",
		"~root":         "--x '~root'",
		"/ä":            "--x '/ä'",
		"it's":          "",
		"-x":            "",
		"a\nb":          "",
		"a\u202eb":      "",
		"a\xff":         "",
	} {
		assert.Equal(t, want, option("--x", operand), operand)
	}
}

func TestAllowWrite(t *testing.T) {
	c, home := scene(t)
	c.Plan.Mounts[2].Rule = "project root; writable where --allow-write says"
	require.NoError(t, os.WriteFile(home+"/project/*", nil, 0o644))
	require.NoError(t, os.WriteFile(home+"/project/kept", nil, 0o644))
	for output, want := range map[string]string{
		"cannot write './kept': Read-only file system": "--allow-write kept",
		"cannot write './*': Read-only file system":    `--allow-write '\*'`,
		"cannot write './new': Read-only file system":  "",
		"cannot write './.': Read-only file system":    "",
	} {
		facts := c.Find(output)
		require.Len(t, facts, 1, output)
		assert.Equal(t, want, facts[0].Option, output)
	}
}

func TestLinksToWhatIsHidden(t *testing.T) {
	c, home := scene(t)
	require.NoError(t, os.MkdirAll(home+"/project/keys", 0o755))
	require.NoError(t, os.WriteFile(home+"/project/keys/name", nil, 0o644))
	c.Plan.Mounts = append(c.Plan.Mounts, bwrap.Mount{Op: bwrap.OpMask, Dir: true, Dest: home + "/project/keys", Rule: "--deny keys"})
	require.NoError(t, os.Symlink("project", home+"/link"))
	require.NoError(t, os.Symlink(".cache/pikuri", home+"/sessions"))
	for _, path := range []string{"link/keys/name", "link/secret", "sessions/workspace-x", "sessions/workspace-x/f"} {
		assert.Empty(t, c.Find("cannot open "+home+"/"+path), path)
	}
	assert.Len(t, c.Find("cannot open "+home+"/link/deep"), 1)
}

func TestNoOptionForSettings(t *testing.T) {
	c, home := scene(t)
	for _, dir := range []string{".wallet/data", "closed/in", "src/.keys"} {
		require.NoError(t, os.MkdirAll(filepath.Join(home, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(home, dir, "f"), nil, 0o644))
	}
	require.NoError(t, os.WriteFile(home+"/src/.env", nil, 0o644))
	require.NoError(t, os.WriteFile(home+"/src/open", nil, 0o644))
	require.NoError(t, os.Symlink(".keys/f", home+"/src/link"))
	require.NoError(t, os.Chmod(home+"/closed", 0o750))
	for _, path := range []string{".wallet", ".wallet/data", ".wallet/data/f", "closed", "closed/in", "closed/in/f", "src/.keys/f", "src/.env", "src/link"} {
		facts := c.Find("cannot open " + home + "/" + path)
		require.Len(t, facts, 1, path)
		assert.Empty(t, facts[0].Option, path)
		require.NotEmpty(t, c.Find("cannot create '"+home+"/"+path+"'"))
		assert.NotContains(t, c.Find("cannot create '" + home + "/" + path + "'")[0].Option, "closed", path)
	}
	assert.NotEmpty(t, c.Find("cannot open " + home + "/src/open")[0].Option)
	require.NoError(t, os.Chmod(home, 0o700))
	assert.NotEmpty(t, c.Find("cannot open " + home + "/src/open")[0].Option)
	facts := c.Find("cannot open /etc/ssl")
	require.Len(t, facts, 1)
	assert.Empty(t, facts[0].Option)

	require.NoError(t, os.Rename(home+"/tools", home+"/.tools")) // a directory of PATH
	inner := c.Getenv
	c.Getenv = func(name string) string { return strings.ReplaceAll(inner(name), home+"/tools", home+"/.tools") }
	assert.Equal(t, "--readable "+home+"/.tools", c.Find("bash: line 1: mytool: command not found")[0].Option)
}

func TestOptionThatPkRefuses(t *testing.T) {
	c, home := scene(t)
	for _, host := range []string{"10.0.0.1", "1.2", "a.-b", "a.example-"} {
		assert.Empty(t, c.Find("Could not resolve host: " + host)[0].Option, host)
	}
	c.Closed = func(name string) bool { return name == "readable" || name == "allow-host" }
	assert.Empty(t, c.Find("cannot open " + home + "/data")[0].Option)
	assert.Empty(t, c.Find("Could not resolve host: a.example.com")[0].Option)
	assert.NotEmpty(t, c.Find("cp: cannot create regular file '" + home + "/data/new'")[0].Option)
}

func TestProgramIsAFile(t *testing.T) {
	c, home := scene(t)
	require.NoError(t, os.MkdirAll(home+"/tools/lib", 0o755))
	assert.Empty(t, c.Find("bash: ..: command not found\nbash: lib: command not found"))
}

func TestDeepNamesAreBounded(t *testing.T) {
	c, home := scene(t)
	deep := "error " + strings.Repeat("a/", maxWord/2) + "\n"
	assert.Empty(t, c.Find("cannot open "+home+"/data\n"+strings.Repeat(deep, maxSteps/(maxWord/2)+1)))
}

func TestMountsByName(t *testing.T) {
	table := []mountinfo.Mount{{Point: "/", Type: "ext4"}, {Point: "/net", Type: "autofs"}, {Point: "/home", Type: "autofs"}, {Point: "/home/me", Type: "nfs"}, {Point: "/afs", Type: "afs"}}
	for path, want := range map[string]bool{"/": false, "/net": false, "/network": false, "/net/host/x": true, "/home/me/x": false, "/home/you": true, "/afs/cell": true} {
		assert.Equal(t, want, mountsByName(table, path), path)
	}
}
