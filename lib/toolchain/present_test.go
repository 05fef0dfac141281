package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// home is a made-up home directory and environment.
type home struct {
	dir string
	env map[string]string
}

// newHome builds a home from lines: "d/" a directory, "f" a file, "a => b" a
// link. {h} in a line stands for the home.
func newHome(t *testing.T, lines ...string) home {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	h := home{filepath.Join(dir, "h"), map[string]string{}}
	require.NoError(t, os.Mkdir(h.dir, 0o755))
	for _, line := range lines {
		h.add(t, strings.ReplaceAll(line, "{h}", h.dir))
	}
	return h
}

func (h home) add(t *testing.T, line string) {
	t.Helper()
	name, target, isLink := strings.Cut(line, " => ")
	path := filepath.Join(h.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	switch {
	case isLink:
		require.NoError(t, os.Symlink(target, path))
	case strings.HasSuffix(name, "/"):
		require.NoError(t, os.MkdirAll(path, 0o755))
	default:
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
}

func (h home) host() Host {
	return Host{Home: h.dir, Getenv: func(name string) string { return strings.ReplaceAll(h.env[name], "{h}", h.dir) }}
}

// present lists "kind path" of each present row in the home.
func (h home) present(table Table) []string {
	list := []string{}
	for _, e := range table.Present(h.host()) {
		if rel, ok := strings.CutPrefix(e.Path, h.dir+"/"); ok {
			list = append(list, string(e.Kind)+" "+rel)
		}
	}
	return list
}

func TestPresent(t *testing.T) {
	for _, test := range []struct {
		name string
		tree []string
		env  map[string]string
		want []string
	}{
		{"an empty home", nil, nil, []string{}},
		{"the order of the table", []string{".npm/_npx/", ".rustup/", ".cargo/registry/", ".nvm/"}, nil,
			[]string{"readable .nvm", "readable .rustup", "overlay .cargo/registry", "overlay .npm/_npx"}},
		{"a file, and not what lies beside it", []string{".config/mise/config.toml", ".config/mise/github_tokens.toml"}, nil,
			[]string{"readable .config/mise/config.toml"}},
		{"npm without its logs", []string{".npm/_logs/", ".npm/_cacache/"}, nil, []string{"overlay .npm/_cacache"}},
		{"a link is named as a link", []string{"big/rustup/", ".rustup => big/rustup"}, nil, []string{"readable .rustup"}},
		{"a dangling link is not there", []string{".rustup => nowhere"}, nil, []string{}},
		{"a file where a directory should be", []string{".rustup", ".tool-versions"}, nil, []string{"readable .tool-versions"}},
		{"a directory where a file should be", []string{".tool-versions/", ".asdfrc"}, nil, []string{"readable .asdfrc"}},
		{"a link to a file", []string{"f", ".rustup => f", ".asdfrc => f"}, nil, []string{"readable .asdfrc"}},
		{"a file where an overlay should be", []string{".cache/pip"}, nil, []string{}},
		{"a variable moves a row", []string{"c/registry/", ".cargo/registry/"}, map[string]string{"CARGO_HOME": "{h}/c"},
			[]string{"overlay c/registry"}},
		{"a variable moves it to nowhere", []string{".cargo/registry/"}, map[string]string{"CARGO_HOME": "{h}/c"}, []string{}},
		{"an empty variable counts as unset", []string{".rustup/"}, map[string]string{"RUSTUP_HOME": ""}, []string{"readable .rustup"}},
		{"a relative variable counts as unset", []string{".rustup/"}, map[string]string{"RUSTUP_HOME": "r"}, []string{"readable .rustup"}},
		{"the first of several", []string{"a/", "b/nvm/", ".nvm/"}, map[string]string{"NVM_DIR": "{h}/a", "XDG_CONFIG_HOME": "{h}/b"},
			[]string{"readable a"}},
		{"the second of several", []string{"a/", "b/nvm/", ".nvm/"}, map[string]string{"XDG_CONFIG_HOME": "{h}/b"},
			[]string{"readable b/nvm"}},
		{"the first element of a list", []string{"g1/bin/", "g2/bin/"}, map[string]string{"GOPATH": "{h}/g1:{h}/g2"},
			[]string{"readable g1/bin"}},
		{"a value with pattern characters", []string{"[a]*/", "a/"}, map[string]string{"RUSTUP_HOME": "{h}/[a]*"},
			[]string{"readable [a]*"}},
		{"one path for two rows", []string{"x/"}, map[string]string{"RUSTUP_HOME": "{h}/x", "PYENV_ROOT": "{h}/x//"},
			[]string{"readable x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t, test.tree...)
			h.env = test.env
			assert.Equal(t, test.want, h.present(builtinTable(t)))
		})
	}
}

// TestDangerousPlaces points variables at places that must never be shown. The
// row must vanish, and not fall back to a default that is not in use.
func TestDangerousPlaces(t *testing.T) {
	tree := []string{".ssh/sub/", ".rustup/", ".cache/pikuri/", ".config/gh/", "moved/gh/", "safe/", "tossh => .ssh", "tohome => .", "safe/ssh => ../.ssh", ".netrc"}
	for _, test := range []struct {
		name, value string
		shown       bool
	}{
		{"somewhere harmless", "{h}/safe", true},
		{"the home", "{h}", false},
		{"the home, with a slash and a dot", "{h}/./", false},
		{"the home, by way of a subdirectory", "{h}/safe/..", false},
		{"above the home", "{h}/..", false},
		{"the root", "/", false},
		{"the root, many times", "///", false},
		{"a system directory", "/etc", false},
		{"where homes are", "/home", false},
		{"temporary files of all", "/tmp", false},
		{"keys", "{h}/.ssh", false},
		{"something among keys", "{h}/.ssh/sub", false},
		{"a link to keys", "{h}/tossh", false},
		{"a link in a harmless place", "{h}/safe/ssh", false},
		{"a link to the home", "{h}/tohome", false},
		{"the configuration of everything", "{h}/.config", false},
		{"configuration that another variable moves", "{h}/moved/gh", false},
		{"above that", "{h}/moved", false},
		{"one login", "{h}/.netrc", false},
		{"all caches, and with them all sessions", "{h}/.cache", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t, tree...)
			h.env = map[string]string{"RUSTUP_HOME": test.value, "XDG_CONFIG_HOME": "{h}/moved"}
			paths := []string{}
			for _, e := range builtinTable(t).Present(h.host()) {
				if e.Tool == "rustup" {
					paths = append(paths, e.Path)
				}
			}
			if test.shown {
				assert.Equal(t, []string{h.dir + "/safe"}, paths)
			} else {
				assert.Empty(t, paths)
			}
		})
	}
}

func TestDefaultPathThatLeadsAway(t *testing.T) {
	h := newHome(t, ".ssh/", ".rustup => .ssh", ".nvm => ../h", ".pyenv => safe", "safe/")
	assert.Equal(t, []string{"readable .pyenv"}, h.present(builtinTable(t)))
}

func TestHomeBehindALink(t *testing.T) {
	h := newHome(t, ".rustup/", ".ssh/", "alias => .")
	link := filepath.Join(filepath.Dir(h.dir), "link")
	require.NoError(t, os.Symlink(h.dir, link))
	linked := home{link, map[string]string{}}
	assert.Equal(t, []string{"readable .rustup"}, linked.present(builtinTable(t)))
	linked.env["RUSTUP_HOME"] = h.dir + "/.ssh"
	assert.Empty(t, linked.present(builtinTable(t)))
}

func TestUnknownHome(t *testing.T) {
	for _, unknown := range []string{"", "relative"} {
		for _, e := range builtinTable(t).Present(Host{Home: unknown, Getenv: func(string) string { return "" }}) {
			assert.True(t, strings.HasPrefix(e.Row.Path, "/"), e.Path)
		}
	}
}

func TestSocketsAreNotThere(t *testing.T) {
	h := newHome(t)
	require.NoError(t, unix.Mkfifo(filepath.Join(h.dir, ".rustup"), 0o600))
	assert.Empty(t, h.present(builtinTable(t)))
}

func TestPatternsInTheTable(t *testing.T) {
	table, err := Parse("own.tsv", "readable\tjava\t~/java-*\t$J/java-*\tin:~/java-*/conf/secret\t-\t-\n"+
		"overlay\tbazel\t~/.cache/_bazel_$USER/cache\t-\t-\t-\t-\n")
	require.NoError(t, err)
	h := newHome(t, "java-17/conf/secret", "java-21/conf/other", "j*/java-8/conf/secret", "jj/java-9/", ".cache/_bazel_u/cache/")
	h.env["USER"] = "u"
	entries := table.Present(h.host())
	assert.Equal(t, []string{"readable java-17", "readable java-21", "overlay .cache/_bazel_u/cache"}, h.present(table))
	assert.Equal(t, []string{h.dir + "/java-17/conf/secret"}, Masks(entries))

	h.env = map[string]string{"J": "{h}/j*", "USER": "../u"}
	assert.Equal(t, []string{"readable j*/java-8"}, h.present(table))
	assert.Equal(t, []string{h.dir + "/j*/java-8/conf/secret"}, Masks(table.Present(h.host())), "a mask moves with its row")
}

func TestMasks(t *testing.T) {
	h := newHome(t, ".nvm/versions/node/v20/etc/npmrc", ".nvm/versions/node/v22/etc/npmrc", ".nvm/versions/node/v24/bin/",
		".asdf/installs/rust/1.9/credentials.toml", ".gradle/caches/8.1/cc-keystore", ".cargo/registry/", ".npmrc")
	var masks []string
	for _, m := range Masks(builtinTable(t).Present(h.host())) {
		if rel, ok := strings.CutPrefix(m, h.dir+"/"); ok {
			masks = append(masks, rel)
		}
	}
	assert.Equal(t, []string{
		".asdf/installs/rust/1.9/credentials.toml",
		".nvm/versions/node/v20/etc/npmrc", ".nvm/versions/node/v22/etc/npmrc",
		".gradle/caches/8.1/cc-keystore",
	}, masks)
}

func BenchmarkPresent(b *testing.B) {
	host := Host{Home: b.TempDir(), Getenv: os.Getenv}
	for b.Loop() {
		table, err := Load()
		require.NoError(b, err)
		Masks(table.Present(host))
	}
}
