package bwrap

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/toolchain"
)

// tree builds files from lines: "d/" is a directory, "a => b" a link, "f" a
// file that holds its name, "x!" an executable script.
func tree(t *testing.T, lines ...string) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, line := range lines {
		name, target, isLink := strings.Cut(line, " => ")
		path := filepath.Join(base, strings.TrimRight(name, "/!"))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case isLink:
			require.NoError(t, os.Symlink(strings.ReplaceAll(target, "{base}", base), path))
		case strings.HasSuffix(name, "/"):
			require.NoError(t, os.MkdirAll(path, 0o755))
		case strings.HasSuffix(name, "!"):
			require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
		default:
			require.NoError(t, os.WriteFile(path, []byte(name), 0o644))
		}
	}
	return base
}

// options for a plan over base/project and base/home.
func options(base string) Options {
	return Options{
		Roots: []confine.Root{{Path: base + "/project", Writable: true, Dir: true}},
		Bwrap: Binary{Path: "/usr/bin/bwrap"},
		Env:   EnvPolicy{Caller: []string{"HOME=" + base + "/home", "PATH=/usr/bin:/nonesuch:relative:" + base + "/project"}},
	}
}

func find(p *Plan, dest string) (Mount, bool) {
	for _, m := range p.Mounts {
		if m.Dest == dest {
			return m, true
		}
	}
	return Mount{}, false
}

func TestPlanIsTheSameForTheSameInput(t *testing.T) {
	base := tree(t, "project/", "home/", "cache/")
	o := options(base)
	o.Overlays = []string{base + "/cache"}
	first, err := New(o)
	require.NoError(t, err)
	second, err := New(o)
	require.NoError(t, err)
	assert.Equal(t, first, second)
}

func TestPlanShowsParentsFirst(t *testing.T) {
	base := tree(t, "project/", "home/", "project/in/deep/", "home/.cache/go-build/")
	o := options(base)
	o.Toolchains = []toolchain.Entry{{Kind: toolchain.Overlay, Tool: "go", Path: base + "/home/.cache/go-build"}}
	p, err := New(o)
	require.NoError(t, err)
	at := map[string]int{}
	for i, m := range p.Mounts {
		assert.NotContains(t, at, m.Dest, "shown twice")
		at[m.Dest] = i
	}
	for dest, i := range at {
		for dir := filepath.Dir(dest); dir != "/"; dir = filepath.Dir(dir) {
			if j, ok := at[dir]; ok {
				assert.Less(t, j, i, "%s comes before what lies above it", dest)
			}
		}
	}
}

func TestPlanWithoutAProjectIsRefused(t *testing.T) {
	_, err := New(Options{})
	assert.ErrorContains(t, err, "internal error")
}

func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name string
		in   []Mount
		want []string
	}{
		{"the same below the same", []Mount{{Op: OpReadOnly, Source: "/a", Dest: "/a"}, {Op: OpReadOnly, Source: "/a/b", Dest: "/a/b"}}, []string{"/a"}},
		{"writable below read-only", []Mount{{Op: OpReadOnly, Source: "/a", Dest: "/a"}, {Op: OpWritable, Source: "/a/b", Dest: "/a/b"}}, []string{"/a", "/a/b"}},
		{"read-only below writable: any root allows", []Mount{{Op: OpWritable, Source: "/a", Dest: "/a"}, {Op: OpReadOnly, Source: "/a/b", Dest: "/a/b"}}, []string{"/a"}},
		{"read-only below an overlay", []Mount{{Op: OpOverlay, Source: "/a", Dest: "/a"}, {Op: OpReadOnly, Source: "/a/b", Dest: "/a/b"}}, []string{"/a", "/a/b"}},
		{"another tree at the place", []Mount{{Op: OpReadOnly, Source: "/a", Dest: "/a"}, {Op: OpReadOnly, Source: "/x", Dest: "/a/b"}}, []string{"/a", "/a/b"}},
		{"a name that only begins alike", []Mount{{Op: OpReadOnly, Source: "/a", Dest: "/a"}, {Op: OpReadOnly, Source: "/a-b", Dest: "/a-b"}}, []string{"/a", "/a-b"}},
		{"something in between", []Mount{{Op: OpReadOnly, Source: "/a", Dest: "/a"}, {Op: OpEmpty, Dest: "/a/b"}, {Op: OpReadOnly, Source: "/a/b/c", Dest: "/a/b/c"}}, []string{"/a", "/a/b", "/a/b/c"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, m := range merge(test.in) {
				got = append(got, m.Dest)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestSortPutsParentsFirst(t *testing.T) {
	mounts := []Mount{{Dest: "/a-b"}, {Dest: "/a/b/c"}, {Dest: "/a/b"}, {Dest: "/a"}, {Dest: "/"}}
	sortMounts(mounts)
	var got []string
	for _, m := range mounts {
		got = append(got, m.Dest)
	}
	assert.Equal(t, []string{"/", "/a", "/a/b", "/a/b/c", "/a-b"}, got)
}

func TestToolchains(t *testing.T) {
	base := tree(t, "project/tools/", "home/.cache/go-build/", "home/.nvm => {base}/elsewhere", "elsewhere/etc/npmrc", "home/.asdfrc")
	home := base + "/home"
	o := options(base)
	o.Toolchains = []toolchain.Entry{
		{Kind: toolchain.Overlay, Tool: "go", Path: home + "/.cache/go-build"},
		{Kind: toolchain.Readable, Tool: "nvm", Path: home + "/.nvm"},
		{Kind: toolchain.Readable, Tool: "asdf", Path: home + "/.asdfrc"},
		{Kind: toolchain.Readable, Tool: "gone", Path: home + "/.gone"},
		{Kind: toolchain.Readable, Tool: "mine", Path: base + "/project/tools"},
	}
	o.Masks = []string{home + "/.nvm/etc/npmrc", home + "/.ssh"}
	p, err := New(o)
	require.NoError(t, err)

	cache, _ := find(p, home+"/.cache/go-build")
	assert.Equal(t, OpOverlay, cache.Op)
	nvm, _ := find(p, base+"/elsewhere")
	assert.Equal(t, OpReadOnly, nvm.Op, "where it really is")
	link, _ := find(p, home+"/.nvm")
	assert.Equal(t, Mount{Op: OpLink, Source: base + "/elsewhere", Dest: home + "/.nvm", Rule: "toolchain nvm"}, link)
	mask, _ := find(p, base+"/elsewhere/etc/npmrc")
	assert.Equal(t, OpMask, mask.Op)
	_, ok := find(p, base+"/project/tools")
	assert.False(t, ok, "a toolchain does not make a part of the project read-only")
	_, ok = find(p, home+"/.ssh")
	assert.False(t, ok, "what is not shown needs no mask")
	assert.Empty(t, p.Warnings)
}

func TestACacheThatCannotBeOverlaidIsReadOnly(t *testing.T) {
	base := tree(t, "project/", "home/.cache/pikuri/workspace-x/")
	o := options(base)
	o.SessionBase = base + "/home/.cache/pikuri"
	o.Toolchains = []toolchain.Entry{{Kind: toolchain.Overlay, Tool: "all", Path: base + "/home/.cache"}}
	p, err := New(o)
	require.NoError(t, err)
	cache, _ := find(p, base+"/home/.cache")
	assert.Equal(t, OpReadOnly, cache.Op)
	assert.Equal(t, []string{`read-only inside, as they cannot be overlaid: ["` + base + `/home/.cache"]`}, p.Warnings)

	o.Toolchains, o.Overlays = nil, []string{base + "/home/.cache"}
	_, err = New(o)
	assert.EqualError(t, err, `cannot overlay "`+base+`/home/.cache": it contains the session directories, "`+base+`/home/.cache/pikuri"`)
}

func TestNoMountPointIsMadeOnTheHost(t *testing.T) {
	base := tree(t, "project/", "home/")
	o := options(base)
	o.Env.Caller = []string{"HOME=" + base + "/project/no/such/home"}
	p, err := New(o)
	require.NoError(t, err)
	_, ok := find(p, base+"/project/no/such/home")
	assert.False(t, ok, "a home below the project is the project's")
}

func TestAMountPointOnTheHostIsRefused(t *testing.T) {
	base := tree(t, "project/dir/", "project/link => dir")
	shown := Mount{Op: OpWritable, Source: base + "/project", Dest: base + "/project"}
	for _, test := range []struct {
		name, dest string
		refused    bool
	}{
		{"one that is there", "/dir", false},
		{"one that is missing", "/missing", true},
		{"a link", "/link", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := &builder{plan: &Plan{Mounts: []Mount{shown, {Op: OpEmpty, Dest: base + "/project" + test.dest}}}}
			assert.Equal(t, test.refused, b.mountPoints() != nil)
		})
	}
}

func TestASessionTmpAndAProjectBelowTmp(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "pk-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	for _, dir := range []string{"project", "home", "play"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, dir), 0o755))
	}
	o := options(base)
	o.Tmp = base + "/play"
	_, err = New(o)
	assert.EqualError(t, err, `cannot show "`+base+`/project": it lies below /tmp, which means "`+base+`/play" here`)

	project := o.Roots[0].Path
	o.Roots[0].Path = "/usr/share"
	require.NoError(t, os.MkdirAll(base+"/cache/go-build", 0o755))
	o.Toolchains = []toolchain.Entry{{Kind: toolchain.Overlay, Tool: "go", Path: base + "/cache/go-build"}}
	_, err = New(o)
	assert.EqualError(t, err, `cannot show "`+base+`/cache/go-build" (toolchain go): its mount point would have to be made in "`+base+`/play"`)

	o.OwnTmp, o.Roots[0].Path = true, project
	p, err := New(o)
	require.NoError(t, err)
	tmp, _ := find(p, "/tmp")
	assert.Equal(t, o.Tmp, tmp.Source)
	_, ok := find(p, base+"/project")
	assert.True(t, ok)
}

func TestPathKeepsWhatIsThere(t *testing.T) {
	base := tree(t, "project/", "home/")
	p, err := New(options(base))
	require.NoError(t, err)
	assert.Equal(t, "/usr/bin:"+base+"/project", lookupEnv(p.Env, "PATH"))
}

func TestFindCommand(t *testing.T) {
	base := tree(t, "project/run!", "project/plain", "project/dir/", "project/out => {base}/secret!", "secret!",
		"project/in => run", "project/loop => loop", "project/up => ../project/run", "home/")
	require.NoError(t, os.WriteFile(base+"/project/elf", elfWith("/no/such/ld.so"), 0o755))
	o := options(base)
	o.Env.Caller = []string{"HOME=" + base + "/home", "PATH=" + base + "/project:/bin"}
	p, err := New(o)
	require.NoError(t, err)
	for _, test := range []struct{ name, command, want string }{
		{"in a directory of PATH", "run", ""},
		{"in a directory that is a link", "sh", ""},
		{"a relative path", "./run", ""},
		{"an absolute path", base + "/project/run", ""},
		{"a link inside", "in", ""},
		{"a link inside, by way of the parent", "up", ""},
		{"a link to what is not shown", "./out", `cannot run "./out": not there in the sandbox`},
		{"a link to itself", "./loop", `cannot run "./loop": not there in the sandbox`},
		{"a path that is not shown", base + "/secret", `cannot run "` + base + `/secret": not there in the sandbox`},
		{"nowhere", "nonesuch", `cannot run "nonesuch": not found in the sandbox's PATH`},
		{"not executable", "plain", `cannot run "plain": permission denied`},
		{"a directory", "./dir", `cannot run "./dir": is a directory`},
		{"nothing", "", `cannot run "": not found in the sandbox's PATH`},
		{"a file as a directory", "./run/", `cannot run "./run/": not a directory`},
		{"the root directory", "/", `cannot run "/": is a directory`},
		{"the empty home", base + "/home", `cannot run "` + base + `/home": is a directory`},
		{"a device", "/dev/null", `cannot run "/dev/null": permission denied`},
		{"a file made up", "/etc/passwd", `cannot run "/etc/passwd": permission denied`},
		{"without the interpreter it names", "./elf", `cannot run "./elf": its interpreter "/no/such/ld.so" is not there in the sandbox`},
		{"with the interpreter it names", "/usr/bin/env", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := p.FindCommand(test.command)
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, test.want)
		})
	}
}

func TestControlSocketsAreGuarded(t *testing.T) {
	base := tree(t, "home/.docker/run/", "runtime/", "other/", "alias => runtime")
	listener, err := net.Listen("unix", base+"/runtime/docker.sock")
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, os.Link(base+"/runtime/docker.sock", base+"/other/x"))
	g := newGuard(base+"/home", func(name string) string {
		return map[string]string{"XDG_RUNTIME_DIR": base + "/alias"}[name]
	}, resolver{})
	for _, test := range []struct {
		name, root string
		refused    bool
	}{
		{"the root directory", "/", true},
		{"run", "/run", true},
		{"var, for what may come to be there", "/var/lib", true},
		{"the run-time directory by its real name", base + "/runtime", true},
		{"the run-time directory as named", base + "/alias", true},
		{"the socket", base + "/runtime/docker.sock", true},
		{"a directory with another link to it", base + "/other", true},
		{"another link to it", base + "/other/x", true},
		{"a home with a docker directory", base + "/home", true},
		{"usr", "/usr", false},
		{"a directory of one service", "/run/nonesuch", false},
		{"a name that only begins alike", base + "/runtime-not", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.refused, g.refuse(test.root) != nil)
		})
	}
}

func TestCanonical(t *testing.T) {
	base := tree(t, "real/d/", "link => real", "real/dangling => d/gone", "real/a => b", "real/b => c", "real/c => a")
	assert.Equal(t, base+"/real/d/missing/too", Canonical(base+"/link/d/missing/too"))
	assert.Equal(t, base+"/real/dangling/too", Canonical(base+"/link/dangling/too"))
	assert.Equal(t, base+"/real/a/too", Canonical(base+"/link/a/too"))
	assert.Equal(t, "/", Canonical("/"))
	assert.Equal(t, "/nonesuch", Canonical("/nonesuch"))
}

// elfWith is the beginning of a program for a dynamic linker of that name.
func elfWith(interpreter string) []byte {
	elf := make([]byte, 64+56, 512)
	copy(elf, "\x7fELF\x02\x01\x01")
	elf[32], elf[54], elf[56] = 64, 56, 1 // where the segments are, how long and how many
	elf[64] = 3                           // PT_INTERP
	elf[64+8], elf[64+32] = 64+56, byte(len(interpreter)+1)
	return append(elf, interpreter+"\x00"...)
}

// A hostile file must not make the reader read beyond its end.
func FuzzELFInterpreter(f *testing.F) {
	f.Add(elfWith("/lib64/ld-linux-x86-64.so.2"))
	f.Fuzz(func(_ *testing.T, head []byte) { elfInterpreter(head) })
}

func TestLinksOn(t *testing.T) {
	base := tree(t, "real/home/me/", "home => real/home", "a => {base}/home")
	var got []string
	for _, m := range linksOn(base+"/a/me", "") {
		got = append(got, strings.TrimPrefix(m.Dest, base)+" => "+strings.TrimPrefix(m.Source, base))
	}
	assert.Equal(t, []string{"/a => /home", "/home => real/home"}, got)
	assert.LessOrEqual(t, len(linksOn(tree(t, "loop => loop")+"/loop", "")), maxLinks+1)
}

func TestAHomeThroughALinkKeepsItsName(t *testing.T) {
	base := tree(t, "project/", "real/me/", "home => real")
	o := options(base)
	o.Env.Caller = []string{"HOME=" + base + "/home/me", "PATH=/bin"}
	p, err := New(o)
	require.NoError(t, err)
	link, _ := find(p, base+"/home")
	assert.Equal(t, OpLink, link.Op)
	home, _ := find(p, base+"/real/me")
	assert.Equal(t, OpEmpty, home.Op)
}

func TestParentsOfRootsAreSealed(t *testing.T) {
	for _, test := range []struct{ name, project, tool, want string }{
		{"in the home", "project", "", ""},
		{"deeper", "src/a/project", "", "src/a"},
		{"a hidden directory", ".config/project", "", ""},
		{"beside a tool chain", "go/project", "go/bin", ""},
		{"above a tool chain", "go/src/project", "go/bin", "go/src"},
	} {
		base := tree(t, "home/"+test.project+"/", "home/"+test.tool+"/")
		o := options(base)
		o.Roots[0].Path = base + "/home/" + test.project
		if test.tool != "" {
			o.Toolchains = append(o.Toolchains, toolchain.Entry{Kind: toolchain.Readable, Tool: "x", Path: base + "/home/" + test.tool})
		}
		p, err := New(o)
		require.NoError(t, err)
		var sealed []string
		for _, m := range p.Mounts {
			if m.Sealed {
				sealed = append(sealed, strings.TrimPrefix(m.Dest, base+"/home/"))
				assert.Equal(t, ReadOnly, p.Explain(m.Dest).Access)
			}
		}
		assert.Equal(t, test.want, strings.Join(sealed, " "), test.name)
	}
}

func TestRootMayNotEnterWhatItCouldNotEnterInside(t *testing.T) {
	mine := unix.Stat_t{Uid: uint32(os.Geteuid()), Mode: 0o100700}
	theirs := unix.Stat_t{Uid: 12345, Gid: 12345, Mode: 0o100700}
	assert.True(t, permits(mine, 1))
	assert.False(t, permits(theirs, 1))
	theirs.Mode = 0o100705
	assert.True(t, permits(theirs, 1))
}

func TestAPlantedLinkIsNotAnOverlay(t *testing.T) {
	base := tree(t, "project/data => {base}/secret", "secret/", "home/", "way => secret")
	o := options(base)
	o.Overlays = []string{base + "/project/data"}
	_, err := New(o)
	assert.EqualError(t, err, `cannot overlay "`+base+`/project/data": it leads out of a writable root, through a link in it`)
	o.Overlays = []string{base + "/way"}
	_, err = New(o)
	assert.NoError(t, err)
}
