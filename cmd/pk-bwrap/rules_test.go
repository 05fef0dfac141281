package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
)

// ruled is a box with a project that has something to rule about.
func ruled(t *testing.T) *clitest.Box {
	b := clitest.NewBox(t)
	for name, content := range map[string]string{
		".env": "secret\n", "src/.env": "secret\n", "src/main.c": "main\n", "src/deep/x.key": "secret\n",
		"build/old.o": "old\n", "conf/app.toml": "conf\n", "conf/db.toml": "conf\n", ".git/hooks/pre-commit": "#!/bin/sh\n", ".git/config": "[core]\n",
		".git/HEAD": "ref: refs/heads/main\n", ".git/objects/info/none": "", ".git/refs/heads/none.lock": "",
	} {
		b.Write(t, filepath.Join(b.Project, name), content)
	}
	return b
}

// Where a rule covers a link, its target is hidden, under its own name too.
func TestRulesCoverLinks(t *testing.T) {
	b := ruled(t)
	b.Write(t, b.Home+"/over/k", "secret\n")
	for link, target := range map[string]string{
		"prod.env": "chain", "chain": "conf/app.toml", "secrets": "src/deep", "src/deep/in": "x.key", "up": ".", "out": "/etc/hostname",
		"gone": "build/missing", "over": b.Home + "/over/k", "bin": "/usr/bin", "dangling": "/nonesuch",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(b.Project, link)))
	}
	for _, test := range []struct {
		name    string
		options []string
		script  string
		want    string
	}{
		{"link to a file, by another link", []string{"--deny", "prod.env"}, "cat prod.env || echo no; cat conf/app.toml || echo no; cat conf/db.toml", "no\nno\nconf\n"},
		{"unread", []string{"--deny-read", "prod.env"}, "cat prod.env || echo no; echo x >>conf/app.toml || echo no", "no\nno\n"},
		{"link to a directory", []string{"--deny", "secrets/"}, "cat secrets/x.key || echo no; ls -A src/deep | wc -l; cat src/main.c", "no\n0\nmain\n"},
		{"name behind a link", []string{"--deny", "secrets/x.key"}, "cat secrets/x.key || echo no; cat src/deep/x.key || echo no", "no\nno\n"},
		{"names anywhere", []string{"--deny", "**/secrets"}, "cat src/deep/x.key || echo no", "no\n"},
		{"target that another rule lies in", []string{"--deny", "secrets", "--deny", "src/deep/x.key", "--allow-write", "{src/deep,build}/**"}, "cat src/deep/x.key || echo no; touch src/deep/n || echo no", "no\nno\n"},
		{"target in another root", []string{"--writable", b.Home + "/over", "--deny", "over"}, "cat over || echo no; cat " + b.Home + "/over/k || echo no", "no\nno\n"},
		{"target in an overlay", []string{"--overlay", b.Home + "/over", "--deny", "over"}, "cat over || echo no; cat " + b.Home + "/over/k || echo no", "no\nno\n"},
		{"target cannot be renamed away", []string{"--deny", "secrets/x.key"}, "mv src/deep d || echo no; mv src s || echo no", "no\nno\n"},
		{"dangling", []string{"--deny", "dangling"}, "echo yes", "yes\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := b.Run(t, "pk-bwrap", append(test.options, "--", "sh", "-c", "("+test.script+") 2>/dev/null")...)
			assert.Equal(t, clitest.Outcome{Stdout: test.want}, got)
		})
	}

	// The link is there for the next command too, and nothing appears behind it.
	got := b.Run(t, "pk-bwrap", "--deny", "prod.env", "--deny", "gone", "--", "sh", "-c", "rm chain; ln -s conf/db.toml chain; echo x >gone")
	assert.Contains(t, got.Stderr, b.Project+"/chain")
	target, err := os.Readlink(b.Project + "/chain")
	assert.NoError(t, err)
	assert.Equal(t, "conf/app.toml", target)
	assert.NoFileExists(t, b.Project+"/build/missing")

	got = b.Run(t, "pk-bwrap", "--deny", "up", "--", "true")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, `it covers the link "`+b.Project+`/up", which leads to "`+b.Project+`", a root`)
	for _, rule := range []string{"bin", "secrets/*"} {
		got = b.Run(t, "pk-bwrap", "--deny", rule, "--", "true")
		assert.Equal(t, 0, got.Status)
		assert.Contains(t, got.Stderr, `pk-bwrap: warning: --deny "`+rule+`" does not hide what the link "`)
	}
	assert.Contains(t, b.Run(t, "pk-bash", "--describe", "--deny", "bin", "--deny", "prod.env").Stdout, "Hidden: prod.env.")
	assert.Empty(t, b.Run(t, "pk-bwrap", "--deny", "**/*.pem", "--", "true").Stderr)

	if os.Getuid() != 0 { // a directory that a command has closed, and can open up again
		require.NoError(t, os.Chmod(b.Project+"/conf", 0))
		got = b.Run(t, "pk-bwrap", "--deny", "prod.env", "--", "sh", "-c", "chmod 755 conf; cat conf/app.toml")
		assert.NotContains(t, got.Stdout, "conf")
		require.NoError(t, os.Chmod(b.Project+"/conf", 0o755))
	}
}

func TestRulesAreMasks(t *testing.T) {
	b := ruled(t)
	b.Write(t, b.Home+"/over/deep/.env", "secret\n")
	for _, test := range []struct {
		name    string
		options []string
		script  string
		want    string
	}{
		{"denied file", []string{"--deny", ".env"}, "cat .env || echo no", "no\n"},
		{"denied file, written", []string{"--deny", ".env"}, "echo x > .env || echo no", "no\n"},
		{"denied anywhere", []string{"--deny", "**/.env"}, "cat src/.env .env || echo no", "no\n"},
		{"denied directory", []string{"--deny", "src"}, "ls src | wc -l; cat src/main.c || echo no", "0\nno\n"},
		{"unread", []string{"--deny-read", "**/*.key"}, "cat src/deep/x.key || echo no; cat src/main.c", "no\nmain\n"},
		{"its parent cannot be renamed", []string{"--deny", "src/deep/x.key"}, "mv src s || echo no; mv src/deep d || echo no", "no\nno\n"},
		{"nor in a root within another", []string{"--readable", filepath.Dir(b.Project), "--deny", "src/deep/x.key"}, "mv src s || echo no; mv src/deep d || echo no", "no\nno\n"},
		{"it cannot be removed", []string{"--deny", ".env"}, "rm -f .env || echo no", "no\n"},
		{"two in one directory", []string{"--deny", "conf/*.toml"}, "cat conf/app.toml || echo no; cat conf/db.toml || echo no", "no\nno\n"},
		{"in a readable root", []string{"--readable", "src", "--deny", "**/.env"}, "cat src/.env || echo no", "no\n"},
		{"in an overlay", []string{"--overlay", b.Home + "/over", "--deny", "**/.env"}, "cat ~/over/deep/.env || echo no; touch ~/over/x && echo yes", "no\nyes\n"},
		{"allowed directory", []string{"--allow-write", "build/**"}, "echo new > build/new && cat build/new; echo x > src/main.c || echo no; touch new || echo no", "new\nno\nno\n"},
		{"allowed file", []string{"--allow-write", "conf/app.toml"}, "echo y > conf/app.toml && cat conf/app.toml; echo x > conf/db.toml || echo no; rm -f conf/app.toml || echo no", "y\nno\nno\n"},
		{"allowed and denied", []string{"--allow-write", "src/**", "--deny", "src/.env"}, "touch src/n && echo yes; cat src/.env || echo no", "yes\nno\n"},
		{"allowed everywhere", []string{"--allow-write", "**"}, "touch n && echo yes", "yes\n"},
		{"scratch stays writable", []string{"--allow-write", "build/**", "--session", "rules"}, "touch /tmp/x && echo yes", "yes\n"},
		{"protected file", []string{"--protect", "conf/app.toml"}, "cat conf/app.toml >/dev/null && echo x > conf/app.toml || echo no; mv conf c || echo no; rm -f conf/app.toml || echo no; echo x > conf/db.toml && echo yes", "no\nno\nno\nyes\n"},
		{"protected directory", []string{"--protect", b.Project + "/src"}, "touch src/n || echo no; touch src/deep/n || echo no; mv src s || echo no", "no\nno\nno\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := inside(t, b, "{ "+test.script+"; } 2>/dev/null", test.options...)
			assert.Equal(t, clitest.Outcome{Stdout: test.want}, got)
		})
	}
}

func TestRulesLeaveNothingBehind(t *testing.T) {
	b := ruled(t)
	before := clitest.Listing(t, b.Project)
	got := inside(t, b, "true", "--deny", "**/.env", "--deny", "nonesuch", "--deny-read", "src/deep", "--allow-write", "build/**",
		"--protect", "conf/app.toml", "--protect", "missing/name", "--protect", ".git/nonesuch")
	assert.Equal(t, clitest.Outcome{}, got)
	assert.Equal(t, before, clitest.Listing(t, b.Project))
}

// A command can close a directory, and later ones have to open it again.
func TestRulesInAClosedDirectory(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/shut/deep/.env", "secret")
	b.Mkdir(t, b.Project+"/bare/deep")
	t.Cleanup(func() {
		assert.NoError(t, os.Chmod(b.Project+"/shut", 0o700))
		assert.NoError(t, os.Chmod(b.Project+"/shut/deep", 0o700))
	})
	for _, dir := range []string{"shut/deep", "shut", "bare/deep", "bare"} {
		require.NoError(t, os.Chmod(b.Project+"/"+dir, 0))
	}
	got := inside(t, b, "chmod 700 shut shut/deep 2>/dev/null; cat shut/deep/.env 2>/dev/null; chmod 755 bare bare/deep && touch bare/deep/x", "--deny", "**/.env")
	assert.Equal(t, clitest.Outcome{}, got)
	assert.FileExists(t, b.Project+"/bare/deep/x")
	info, err := os.Stat(b.Project + "/shut")
	require.NoError(t, err)
	assert.Equal(t, map[bool]os.FileMode{true: 0o700, false: 0}[os.Geteuid() == 0], info.Mode().Perm())
}

func TestRulesThatCannotHoldAreRefused(t *testing.T) {
	b := ruled(t)
	require.NoError(t, os.Symlink("conf", filepath.Join(b.Project, "link")))
	for i := range 300 {
		b.Write(t, filepath.Join(b.Project, "many", fmt.Sprint(i)), "")
	}
	for _, test := range []struct {
		name    string
		options []string
		stderr  string
	}{
		{"covers a root", []string{"--deny", "**"}, `pk-bwrap: cannot show the root "` + b.Project + `": --deny "**" covers it
pk-bwrap: hint: leave the root out, or narrow the pattern
`},
		{"too many places", []string{"--deny", "many/*"}, `pk-bwrap: cannot hold to --deny "many/*": it bears on more than 250 places
pk-bwrap: hint: name the directories rather than what is in them
`},
		{"protecting through a link", []string{"--protect", "link/app.toml"}, `pk-bwrap: cannot protect "` + b.Project + `/link/app.toml": "` + b.Project + `/link" is a link, and can be replaced
pk-bwrap: hint: name "` + b.Project + `/conf/app.toml" itself
`},
		{"protecting a root", []string{"--protect", "."}, `pk-bwrap: cannot protect "` + b.Project + `": it is a writable root itself
pk-bwrap: hint: show it with --readable instead
`},
		{"protecting what is not shown", []string{"--protect", "/srv/x"}, `pk-bwrap: cannot protect "/srv/x": no root shows it
pk-bwrap: hint: name something in a writable root
`},
		{"passing what is not open", []string{"--pass-fd", "77"}, `pk-bwrap: option "--pass-fd": descriptor 77 is not open
pk-bwrap: hint: pk-bwrap --help lists the options
`},
		{"passing no number", []string{"--pass-fd", "x"}, `pk-bwrap: option "--pass-fd": "x" is not the number of a descriptor
pk-bwrap: hint: pk-bwrap --help lists the options
`},
		{"passing a standard stream", []string{"--pass-fd", "1"}, `pk-bwrap: option "--pass-fd": 1 is not between 3 and 199
pk-bwrap: hint: pk-bwrap --help lists the options
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, clitest.Outcome{Stderr: test.stderr, Status: 125}, inside(t, b, "true", test.options...))
		})
	}
}

func TestPassedDescriptors(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, filepath.Join(b.Home, "passed"), "passed\n")
	b.Mkdir(t, filepath.Join(b.Home, ".cache", "go-build"))
	for _, name := range []string{"pk-bwrap", "pk-bash"} {
		for _, toolchains := range []bool{true, false} {
			args := []string{"--pass-fd", "7", "--pass-fd", "4", "--", "sh", "-c", "cat <&7; cat <&5 || echo no; ls /proc/self/fd"}
			if name == "pk-bash" {
				args = []string{"--pass-fd", "7", "--pass-fd", "4", "-y", "--raw", args[len(args)-1]}
			}
			if !toolchains {
				args = append([]string{"--no-toolchains"}, args...)
			}
			cmd := b.Command(name, args...)
			f, err := os.Open(filepath.Join(b.Home, "passed"))
			require.NoError(t, err)
			defer f.Close()
			cmd.ExtraFiles = []*os.File{f, f, f, f, f} // 3 to 7
			got := clitest.Finish(t, cmd)
			assert.Equal(t, "passed\nno\n0\n1\n2\n3\n4\n7\n", got.Stdout, got.Stderr)
		}
	}
	dir, err := os.Open(b.Home)
	require.NoError(t, err)
	defer dir.Close()
	cmd := b.Command("pk-bwrap", "--pass-fd", "3", "true")
	cmd.ExtraFiles = []*os.File{dir}
	got := clitest.Finish(t, cmd)
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, `descriptor 3 is a directory, which leads out of every sandbox`)
}

// A command may close a directory, to hide its entries from the next start, and open
// it up again.
func TestAClosedDirectoryHidesNothing(t *testing.T) {
	for _, test := range []struct {
		name, closed, attack string
		options              []string
	}{
		{"from a rule", "src", "chmod 755 src; cat src/.env", []string{"--deny", "**/.env"}},
		{"from a rule without wildcards", "src", "chmod 755 src; cat src/.env", []string{"--deny", "src/.env"}},
		{"a repository", "vendor", "chmod 755 vendor; echo '#' >> vendor/.git/config", nil},
		{"a submodule", ".git/modules", "chmod 755 .git/modules; echo '#' >> .git/modules/m/config", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := ruled(t)
			for _, dir := range []string{".git", ".git/modules/m", "vendor/.git"} {
				for _, name := range []string{"HEAD", "config", "objects/x", "refs/x"} {
					b.Write(t, filepath.Join(b.Project, dir, name), "ref: refs/heads/main\n")
				}
				b.Write(t, filepath.Join(b.Project, dir, "config"), "[core]\n")
			}
			require.Equal(t, clitest.Outcome{}, inside(t, b, "true"))
			closed := filepath.Join(b.Project, test.closed)
			require.NoError(t, os.Chmod(closed, 0o311))
			defer os.Chmod(closed, 0o755)
			got := inside(t, b, "{ "+test.attack+"; } 2>/dev/null", test.options...)
			assert.NotContains(t, got.Stdout, "secret")
			require.NoError(t, os.Chmod(closed, 0o755))
			for _, dir := range []string{".git/modules/m", "vendor/.git"} {
				config, err := os.ReadFile(filepath.Join(b.Project, dir, "config"))
				require.NoError(t, err)
				assert.Equal(t, "[core]\n", string(config))
			}
			if os.Getuid() != 0 && strings.HasPrefix(test.closed, ".git") {
				assert.Equal(t, 125, got.Status)
				assert.Contains(t, got.Stderr, closed)
			}
		})
	}
}

// A directory that the user has closed is opened for the search: the command could open
// it too.
func TestARepositoryInAClosedDirectoryIsCovered(t *testing.T) {
	if os.Getuid() == 0 {
		return // no directory is closed to root
	}
	b := clitest.NewBox(t)
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n", "objects/x": "", "refs/x": ""} {
		b.Write(t, filepath.Join(b.Project, "vendor/.git", name), text)
	}
	require.NoError(t, os.Chmod(b.Project+"/vendor", 0o311))
	got := inside(t, b, "chmod 755 vendor; echo '#' >> vendor/.git/config")
	assert.Equal(t, clitest.Outcome{}, got)
	text, err := os.ReadFile(b.Project + "/vendor/.git/config")
	require.NoError(t, err)
	assert.Equal(t, "[core]\n", string(text))
}

// Roots, overlays among them, are at their own places, with any content.
func TestEachRootIsAtItsOwnPlace(t *testing.T) {
	b := ruled(t)
	base := filepath.Dir(b.Project)
	b.Write(t, b.Project+"/over/f", "over\n")
	b.Write(t, base+"/two/f", "two\n")
	b.Write(t, base+"/three/f", "three\n")
	b.Write(t, base+"/file", "file\n")
	got := inside(t, b, "cat over/f "+base+"/two/f "+base+"/three/f "+base+"/file; echo new > over/new; cat over/new; touch "+base+"/three/made",
		"--overlay", b.Project+"/over", "--writable", base+"/two", "--writable", base+"/three", "--readable", base+"/file", "--deny", "x", "--deny", ".env")
	assert.Equal(t, clitest.Outcome{Stdout: "over\ntwo\nthree\nfile\nnew\n"}, got)
	assert.NoFileExists(t, b.Project+"/over/new")
	assert.FileExists(t, base+"/three/made")
	assert.NoFileExists(t, base+"/two/made")
	got = inside(t, b, "echo x >> .git/config && git --git-dir=.git config core.x y; echo done", "--overlay", b.Project+"/.git")
	assert.Equal(t, "done\n", got.Stdout, got.Stderr)
}

// Another command of the same project swaps a path that pk is about to mount, back and
// forth, for a link to somewhere else. Each sandbox that starts shows the checked
// file.
func TestSwappedPlacesAreNotFollowed(t *testing.T) {
	clitest.TwoRows(t)
	b := ruled(t)
	victim := filepath.Join(filepath.Dir(b.Project), "victim")
	b.Write(t, filepath.Join(victim, "key"), "stolen\n")
	require.NoError(t, os.Symlink("/oldroot"+victim, filepath.Join(b.Project, "old")))
	require.NoError(t, os.Symlink(victim, filepath.Join(b.Project, "plain")))
	before := clitest.Listing(t, victim)

	swap := func(link string) (stop func()) {
		done, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-done:
					return
				default:
					for range 2 { // there and, a moment later, back
						_ = unix.Renameat2(unix.AT_FDCWD, b.Project+"/src", unix.AT_FDCWD, b.Project+"/"+link, unix.RENAME_EXCHANGE)
					}
					time.Sleep(rand.N(4 * time.Millisecond))
				}
			}
		}()
		return func() { close(done); <-stopped }
	}
	racers := [][]string{
		{"--protect", "src/deep", "--deny", "conf", "--temp", "src"},
		{"--allow-write", "src/**"},
		{"--deny", "src/deep"},
	}
	started := 0
	defer func() { assert.NotZero(t, started, "the race was none") }()
	for _, link := range []string{"old", "plain"} {
		stop := swap(link)
		for i := range 28 {
			got := inside(t, b, "cat src/key key src/deep/x.key; touch src/pwned pwned; rm -f src/pwned pwned", racers[i%len(racers)]...)
			assert.NotContains(t, got.Stdout, "stolen")
			if got.Status != 125 {
				started++
			}
		}
		stop()
		// An odd number of exchanges leaves the link at the name.
		if info, err := os.Lstat(b.Project + "/src"); err == nil && info.Mode()&os.ModeSymlink != 0 {
			require.NoError(t, unix.Renameat2(unix.AT_FDCWD, b.Project+"/src", unix.AT_FDCWD, b.Project+"/"+link, unix.RENAME_EXCHANGE))
		}
	}
	assert.Equal(t, before, clitest.Listing(t, victim))
}

// A place that comes and goes while it is being covered leaves nothing behind:
// neither a mount point that was made for it, nor a mount.
func TestHiddenPlacesThatComeAndGoLeaveNothing(t *testing.T) {
	b := clitest.NewBoxInOneRow(t)
	name, away := filepath.Join(b.Project, "secret"), filepath.Join(b.Home, "away")
	b.Write(t, name, "s3cret")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(name, away)
				_ = os.Rename(away, name)
			}
		}
	}()
	for range 20 {
		b.Run(t, "pk-bwrap", "--deny", "secret", "--", "true") // starts, or refuses
	}
	close(stop)
	<-done
	left, err := filepath.Glob(b.Project + "/*")
	require.NoError(t, err)
	if len(left) == 0 { // it came after the plan was made, and counts as planted
		left, err = filepath.Glob(b.Home + "/.cache/pikuri/workspace-*/moved-aside/*-secret")
		require.NoError(t, err)
		require.Len(t, left, 1)
		name = left[0]
	}
	assert.Equal(t, []string{name}, left)
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "s3cret", string(content))
}

// Before 0.12, bwrap follows a link in a writable root when it makes a mount
// point, out of the sandbox that it is making (CVE-2026-87766).
func TestPlantedLinksAreNotMountPoints(t *testing.T) {
	b := clitest.NewBox(t)
	victim := filepath.Join(filepath.Dir(b.Project), "victim")
	b.Mkdir(t, victim)
	require.NoError(t, os.Symlink("/oldroot"+victim, filepath.Join(b.Project, ".git")))
	require.NoError(t, os.Symlink("/oldroot"+victim, filepath.Join(b.Project, "conf")))
	got := inside(t, b, "echo ran", "--deny", "conf/x", "--deny", "conf/**")
	assert.Equal(t, clitest.Outcome{Stdout: "ran\n"}, got)
	got = inside(t, b, "echo ran", "--protect", "conf/x")
	assert.Equal(t, 125, got.Status)
	made, err := os.ReadDir(victim)
	require.NoError(t, err)
	assert.Empty(t, made)
}

func TestExplain(t *testing.T) {
	b := ruled(t)
	b.Write(t, filepath.Join(b.Home, ".ssh", "id"), "secret\n")
	require.NoError(t, os.Symlink("/usr/bin", filepath.Join(b.Project, "programs")))
	policy := filepath.Join(b.Home, "policy")
	b.Write(t, policy, "readable "+filepath.Dir(b.Project)+"/home/.cache\ndeny **/.env\n")
	b.Mkdir(t, filepath.Join(b.Home, ".cache"))

	got := b.Run(t, "pk-bwrap", "--policy", policy, "--protect", "conf", "--explain", ".env", "conf/app.toml", "src/main.c", b.Home+"/.ssh/id", "programs/env", b.Home+"/.cache")
	want := "hidden     .env -> " + b.Project + `/.env
           --deny "**/.env" of policy "` + policy + `", line 2
read-only  conf/app.toml -> ` + b.Project + `/conf/app.toml
           option --protect, at ` + b.Project + `/conf
writable   src/main.c -> ` + b.Project + `/src/main.c
           project root, at ` + b.Project + `
absent     ` + b.Home + `/.ssh/id
           default: empty home, at ` + b.Home + `
read-only  programs/env -> /usr/bin/env
           default: system root, at /usr
read-only  ` + b.Home + `/.cache
           option --readable of policy "` + policy + `", line 1
`
	// Line breaks depend on the length of the paths.
	assert.Equal(t, strings.Fields(want), strings.Fields(strings.ReplaceAll(got.Stdout, "toolchain system", "default: system root")), got.Stderr)

	got = b.Run(t, "pk-bwrap", "--policy", policy, "--explain", "--json", ".env")
	var verdict map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &verdict))
	assert.Equal(t, map[string]any{"kind": "verdict", "path": ".env", "place": b.Project + "/.env", "access": "hidden",
		"rule": `--deny "**/.env" of policy "` + policy + `", line 2`, "mount": b.Project + "/.env"}, verdict)
}

func TestSocketsAreListed(t *testing.T) {
	b := clitest.NewBox(t)
	listener, err := net.Listen("unix", filepath.Join(b.Project, "s"))
	require.NoError(t, err)
	defer listener.Close()
	got := b.Run(t, "pk-bwrap", "--explain")
	assert.Contains(t, got.Stdout, "Sockets it can connect to:\n  "+b.Project+"/s")
	assert.Contains(t, b.Run(t, "pk-bwrap", "--explain", "--json").Stdout, `{"kind":"socket","path":"`+b.Project+`/s","rule":"project root"}`+"\n")
	assert.NotContains(t, b.Run(t, "pk-bwrap", "--explain", "--deny", "s").Stdout, "Sockets it")
}

// The sandbox behaves as --explain says.
func TestExplanationIsTrue(t *testing.T) {
	b := ruled(t)
	options := []string{"--deny", "src/deep", "--protect", "conf/app.toml", "--allow-write", "{build,conf}/**"}
	probes := []string{".env", "src/main.c", "src/deep/x.key", "conf/app.toml", "conf/db.toml", "build/old.o", "/etc/passwd", "/etc/shadow", "/usr/bin/env", "/tmp", b.Home, "/"}
	for _, path := range probes {
		got := b.Run(t, "pk-bwrap", append(options, "--explain", "--json", path)...)
		var verdict struct{ Access string }
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &verdict), got.Stderr)
		script := `p='` + path + `'
			if [ -d "$p" ]; then if t=$(mktemp "$p/XXXXXX" 2>/dev/null); then rm "$t"; echo writable; else echo read-only; fi
			elif [ ! -e "$p" ]; then echo absent
			elif (: >>"$p") 2>/dev/null; then echo writable
			elif cat "$p" >/dev/null 2>&1; then echo read-only; else echo hidden; fi`
		truth := inside(t, b, script, options...)
		want := map[string]string{"scratch": "writable", "overlay": "writable", "synthetic": "read-only"}[verdict.Access]
		if want == "" {
			want = verdict.Access
		}
		if path == "src/deep/x.key" {
			assert.Equal(t, "hidden", verdict.Access)
			want = "absent" // the contents of a hidden directory
		}
		assert.Equal(t, want+"\n", truth.Stdout, "%s: %s", path, truth.Stderr)
	}
}

func TestPlanAsJSON(t *testing.T) {
	b := ruled(t)
	got := b.Run(t, "pk-bwrap", "--print", "--json", "--deny", ".env", "--setenv", "A=b")
	require.Equal(t, 0, got.Status, got.Stderr)
	kinds := map[string]int{}
	for line := range strings.Lines(got.Stdout) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		kinds[r["kind"].(string)]++
		if r["kind"] == "mount" && r["dest"] == b.Project+"/.env" {
			assert.Equal(t, `--deny ".env"`, r["rule"])
			assert.Equal(t, "mask", r["op"])
			assert.Equal(t, true, r["held"])
		}
		if r["kind"] != "warning" {
			assert.NotEmpty(t, r["rule"], line)
		}
	}
	assert.NotZero(t, kinds["mount"])
	assert.NotZero(t, kinds["variable"])
	assert.NotZero(t, kinds["flag"])
	again := b.Run(t, "pk-bwrap", "--print", "--json", "--deny", ".env", "--setenv", "A=b")
	assert.Equal(t, got, again)
}

// Nothing in a git directory is opened past its layer, and nothing lands where the
// options forbid writing.
func TestRulesInAGitDirectory(t *testing.T) {
	const commit = "git -c user.name=a -c user.email=a commit -q --allow-empty -m x"
	for _, test := range []struct {
		name    string
		options []string
		script  string
		status  int
		says    string // on standard error
		landed  bool   // a commit
	}{
		{"a commit lands", nil, commit, 0, "", true},
		{"where everything may be written", []string{"--allow-write", "**"}, "echo '#' >> .git/config; " + commit, 0, "", true},
		{"where the git directory may", []string{"--allow-write", ".git/**"}, "echo '#' >> .git/config; " + commit, 0, "", true},
		{"--allow-write leaves it out", []string{"--allow-write", "src/**"}, commit, 128, "Read-only file system", false},
		{"a pattern that opens its configuration", []string{"--allow-write", "**/config"}, "echo '#' >> .git/config", 1, "does not open", false},
		{"a pattern that opens its branches", []string{"--allow-write", ".git/refs/**"}, "echo evil > .git/refs/heads/main", 1, "does not open", false},
		{"writable hooks", []string{"--writable", ".git/hooks"}, "true", 125, "it lies in a git directory", false},
		{"protected", []string{"--protect", ".git"}, commit, 128, "Read-only file system", false},
		{"protected branches", []string{"--protect", ".git/refs"}, commit, 125, "hint: protect all of it: --protect", false},
		{"protected hooks", []string{"--protect", ".git/hooks"}, commit, 0, "", true},
		{"denied", []string{"--deny", ".git"}, "cat .git/config", 1, "No such file", false},
		{"a denied file", []string{"--deny", ".git/config"}, "cat .git/config", 1, "Permission denied", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := ruled(t)
			got := inside(t, b, test.script, test.options...)
			assert.Equal(t, test.status, got.Status, got.Stderr)
			assert.Contains(t, got.Stderr, test.says)
			config, err := os.ReadFile(b.Project + "/.git/config")
			require.NoError(t, err)
			assert.Equal(t, "[core]\n", string(config))
			assert.Equal(t, test.landed, exists(b.Project+"/.git/refs/heads/main"))
		})
	}
}
