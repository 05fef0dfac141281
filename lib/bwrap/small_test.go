package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/passwd"
	"pikuri/lib/toolchain"
)

func TestATreeOfAFewSmallFilesIsCopied(t *testing.T) {
	base := tree(t, "few/b", "few/a", "deep/d/e/f", "linked/l => ../few/a", "linked/gone => /nowhere", "empty/", "hollow/f", "hollow/d/")
	require.NoError(t, os.MkdirAll(base+"/large", 0o755))
	require.NoError(t, os.WriteFile(base+"/large/f", make([]byte, maxCopy+1), 0o644))
	require.NoError(t, os.MkdirAll(base+"/closed", 0o755))
	require.NoError(t, os.WriteFile(base+"/closed/f", nil, 0o600))
	require.NoError(t, os.Mkdir(base+"/program", 0o755))
	require.NoError(t, os.WriteFile(base+"/program/f", nil, 0o755))
	require.NoError(t, os.MkdirAll(base+"/pipe", 0o755))
	require.NoError(t, unix.Mkfifo(base+"/pipe/f", 0o644))
	require.NoError(t, os.MkdirAll(base+"/many/d", 0o755))
	require.NoError(t, os.MkdirAll(base+"/names", 0o755))
	for i := range maxSmall {
		require.NoError(t, os.WriteFile(filepath.Join(base, "many", fmt.Sprint(i)), nil, 0o644))
	}
	require.NoError(t, os.WriteFile(base+"/many/d/f", nil, 0o644))
	for i := range maxNamed + 1 {
		require.NoError(t, os.Symlink("x", filepath.Join(base, "names", fmt.Sprint(i))))
	}
	for _, name := range []string{"empty", "hollow", "large", "closed", "pipe", "many", "names", "gone"} {
		dir := Mount{Op: OpReadOnly, Source: base + "/" + name, Dest: "/etc/" + name}
		assert.Equal(t, []Mount{dir}, small(dir), name)
	}
	for name, want := range map[string][]string{
		"few":     {"copy {base}/few/a /etc/x/a 0444", "copy {base}/few/b /etc/x/b 0444"},
		"deep":    {"copy {base}/deep/d/e/f /etc/x/d/e/f 0444"},
		"linked":  {"link /nowhere /etc/x/gone ", "link ../few/a /etc/x/l "},
		"program": {"copy {base}/program/f /etc/x/f 0555"},
	} {
		var got []string
		for _, m := range small(Mount{Op: OpReadOnly, Source: base + "/" + name, Dest: "/etc/x"}) {
			got = append(got, strings.ReplaceAll(fmt.Sprintf("%s %s %s %s", m.Op, m.Source, m.Dest, m.Perms), base, "{base}"))
		}
		assert.Equal(t, want, got, name)
	}
}

// A file of a tool chain in a root is there already. A copy would be written into the
// host's tree, or fail if that is read-only.
func TestNothingIsCopiedIntoARoot(t *testing.T) {
	base := tree(t, "project/", "home/", "config/tool.toml")
	for _, shown := range []struct {
		name string
		show func(o *Options)
		want Op
	}{
		{"nothing around it", func(o *Options) {}, OpCopy},
		{"a readable root", func(o *Options) { o.Roots = append(o.Roots, confine.Root{Path: base + "/config", Dir: true}) }, OpReadOnly},
		{"a writable root", func(o *Options) {
			o.Roots = append(o.Roots, confine.Root{Path: base + "/config", Dir: true, Writable: true})
		}, OpWritable},
		{"an overlay", func(o *Options) { o.Overlays = []string{base + "/config"} }, OpReadOnly},
	} {
		t.Run(shown.name, func(t *testing.T) {
			o := options(base)
			shown.show(&o)
			o.Toolchains = []toolchain.Entry{{Kind: toolchain.Readable, Tool: "t", Path: base + "/config/tool.toml"}}
			p, err := New(o)
			require.NoError(t, err)
			m, _ := cover(p.Mounts, base+"/config/tool.toml")
			assert.Equal(t, shown.want, m.Op)
		})
	}
}

// Each mount makes bwrap read the table of mounts again.
func TestADevelopersPlanIsSmall(t *testing.T) {
	names := []string{"project/.git/hooks/", "project/.git/config", "project/.git/info/attributes", "home/"}
	var tools []toolchain.Entry
	for i := range 10 {
		kind := []toolchain.Kind{toolchain.Overlay, toolchain.Readable}[i%2]
		name := fmt.Sprintf("home/.tool%d", i)
		names = append(names, name+"/")
		tools = append(tools, toolchain.Entry{Kind: kind, Tool: "t", Path: name})
	}
	base := tree(t, names...)
	o := options(base)
	for _, e := range tools {
		e.Path = base + "/" + e.Path
		o.Toolchains = append(o.Toolchains, e)
	}
	for _, name := range []string{"hooks", "config", "info/attributes"} {
		o.Protect = append(o.Protect, Protected{Path: base + "/project/.git/" + name, Default: true})
	}
	p, err := New(o)
	require.NoError(t, err)
	mounts := 1 // of /dev/shm
	for _, m := range p.Mounts {
		if m.Op != OpCopy && m.Op != OpData && m.Op != OpLink {
			mounts++
		}
	}
	assert.LessOrEqual(t, mounts, 40)
}

func TestAccountNames(t *testing.T) {
	for name, want := range map[string]bool{
		"ada": true, "_apt": true, "a-1_b": true, "revB": true, "Ada.L": true, "ada@example.com": true, `DOM\ada`: true, "host$": true, "é": true, "1a": true,
		"": false, "-a": false, "+a": false, "~a": false, "1": false, "..": false, "a:b": false, "a/b": false, "a b": false, "a\n": false, "a\x00": false, "\xff": false, strings.Repeat("a", 257): false,
	} {
		assert.Equal(t, want, isAccountName(name), "%q", name)
	}
}

// $USER names the entry in /etc/passwd, and agrees with it.
func TestVariablesHaveTheAccount(t *testing.T) {
	o := options(tree(t, "project/", "home/"))
	o.Env.Caller = append(o.Env.Caller, "USER=some.Body", "LOGNAME=other")
	p, err := New(o)
	require.NoError(t, err)
	name := currentUser("/home/x", "some.Body").name
	assert.Subset(t, p.Env, []string{"USER=" + name, "LOGNAME=" + name})
	i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Dest == passwd.Users })
	assert.Contains(t, "\n"+string(p.Mounts[i].Data), fmt.Sprintf("\n%s:x:%d:", name, os.Geteuid()))
}

// The resolver's cache changes no answer.
func TestResolverAgreesWithEvalSymlinks(t *testing.T) {
	base := tree(t, "d/sub/", "d/file", "abs => "+"/", "rel => d/sub", "up => d/sub/../file", "chain => rel", "loop => loop",
		"a => b", "b => a", "dangling => nowhere/x", "through => d/file/x", "self => .", "d/sub/back => ../../rel/..")
	links := resolver{}
	for range 2 {
		for _, name := range []string{"d", "d/file", "abs/etc", "rel", "up", "chain", "chain/back", "chain/back/file", "loop", "loop/x", "a", "b",
			"dangling", "through", "self/self/d", "missing", "missing/x", "d/sub/back/sub/back", "rel/.", "."} {
			want, werr := filepath.EvalSymlinks(base + "/" + name)
			got, err := links.real(base + "/" + name)
			if assert.Equal(t, werr == nil, err == nil, "%s: %v, %v", name, werr, err); err == nil {
				assert.Equal(t, want, got, name)
			}
			assert.Equal(t, Canonical(base+"/"+name), links.canonical(base+"/"+name), name)
		}
	}
	assert.NoError(t, os.Symlink("d", base+"/missing"))
	assert.Equal(t, base+"/missing", links.canonical(base+"/missing"), "one plan sees one state")
	assert.Equal(t, base+"/d", Canonical(base+"/missing"))
}

// testdata/etc.tsv has a reason for each entry of /etc that a sandbox shows, or not.
func TestEtcHasReasons(t *testing.T) {
	text, err := os.ReadFile("testdata/etc.tsv")
	require.NoError(t, err)
	decided := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, columns, 4, line)
		require.Contains(t, []string{"shown", "no"}, columns[1], line)
		assert.NotEmpty(t, columns[2], line)
		decided[columns[0]] = columns[1] == "shown"
	}
	allowed := map[string]bool{}
	for _, pattern := range etcAllowed {
		first, _, _ := strings.Cut(pattern, "/")
		for entry := range decided {
			if ok, err := filepath.Match(first, entry); ok {
				allowed[entry] = true
				require.NoError(t, err)
			}
		}
	}
	for entry, shown := range decided {
		assert.Equal(t, shown, allowed[entry], entry)
	}
	assert.Greater(t, len(decided), 200)
}
