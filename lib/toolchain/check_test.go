package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const marker = "MARKER-7c1"

// plant puts a marker wherever the table says that credentials are, in a home
// in which every tool is used. It returns the files, without those of the system.
func plant(t *testing.T, h home) []string {
	t.Helper()
	var planted []string
	put := func(pattern string) {
		rel, ok := strings.CutPrefix(pattern, "~/")
		if !ok {
			return
		}
		rel = strings.NewReplacer("/**/", "/a/b/", "*", "x", "$USER", "u").Replace(rel)
		path := filepath.Join(h.dir, rel)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, "planted")
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(marker+"\n"), 0o644))
		planted = append(planted, path)
	}
	rows := builtinTable(t).Rows()
	for _, r := range rows { // first what is exposed, so that files do not take the place of directories
		if rel, ok := strings.CutPrefix(r.Path, "~/"); ok {
			rel = strings.NewReplacer("*", "x", "$USER", "u").Replace(rel)
			if filepath.Ext(rel) == ".toml" || slices.Contains([]string{".asdfrc", ".tool-versions"}, rel) {
				h.add(t, rel)
			} else {
				h.add(t, rel+"/")
			}
		}
	}
	var secrets []string
	for _, r := range rows {
		for _, rel := range r.Inside {
			secrets = append(secrets, r.Path+"/"+rel)
		}
		secrets = slices.Concat(secrets, r.Beside, r.Risks)
	}
	for _, n := range neverList() {
		secrets = append(secrets, n.pattern)
	}
	// The deepest first: what is a directory to one row is a file to none.
	slices.SortStableFunc(secrets, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	for _, p := range secrets {
		put(p)
	}
	return planted
}

// TestCheckOfEverything plants all there is: nothing is seen, unless a mask is
// missing, and then that one is named.
func TestCheckOfEverything(t *testing.T) {
	h := newHome(t)
	h.env["USER"] = "u"
	plant(t, h)
	table := builtinTable(t)
	entries := table.Present(h.host())
	masks := h.below(Masks(entries))
	for _, r := range table.Rows() {
		if strings.HasPrefix(r.Path, "~/") {
			assert.True(t, slices.ContainsFunc(entries, func(e Entry) bool { return e.Row.Path == r.Path }), "%s is not present", r.Path)
		}
	}
	leaks := func(masks []string) []string {
		var hidden []string
		for _, m := range masks {
			hidden = append(hidden, filepath.Join(h.dir, m))
		}
		return h.below(paths(table.Check(h.host(), entries, hidden)))
	}
	assert.Empty(t, leaks(masks))
	for i, m := range masks {
		without := slices.Delete(slices.Clone(masks), i, i+1)
		assert.Equal(t, []string{m}, leaks(without))
	}
	assert.Greater(t, len(masks), 15)
}

// below returns those of the paths that lie in the home, relative to it. What
// the machine that runs the test has is its own business.
func (h home) below(paths []string) []string {
	var list []string
	for _, p := range paths {
		if rel, ok := strings.CutPrefix(p, h.dir+"/"); ok {
			list = append(list, rel)
		}
	}
	return list
}

func paths(leaks []Leak) []string {
	var list []string
	for _, l := range leaks {
		list = append(list, l.Path)
	}
	return list
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name string
		tree []string
		own  string
		env  map[string]string
		text map[string]string
		want []string
	}{
		{"a login in the configuration of a clone", []string{".cargo/git/db/a/config"}, "", nil,
			map[string]string{".cargo/git/db/a/config": "url = https://token@host/x\n"}, []string{".cargo/git/db/a/config"}},
		{"an address without a login", []string{".cargo/git/db/a/config"}, "", nil,
			map[string]string{".cargo/git/db/a/config": "url = ssh://git@host/x\n"}, nil},
		{"at any depth", []string{".gitlibs/_repos/https/host/a/config"}, "", nil,
			map[string]string{".gitlibs/_repos/https/host/a/config": "url = https://u:p@host/x\n"}, []string{".gitlibs/_repos/https/host/a/config"}},
		{"a mask that the user's row took away", []string{".nvm/versions/node/v1/etc/npmrc"}, "readable\tnvm\t~/.nvm\t-\t-\t-\t-", nil, nil,
			[]string{".nvm/versions/node/v1/etc/npmrc"}},
		{"a link out of a path to a credential", []string{".netrc", ".pyenv/versions/a/pip.conf => ../../../.netrc"}, "", nil, nil, nil},
		{"a hidden directory, by another name", []string{"t/keys/", ".gnupg => t/keys"}, "readable\tmine\t~/t\t-\t-\t-\t-", nil, nil,
			[]string{"t/keys"}},
		{"moved, and hidden there", []string{"n/versions/node/v1/etc/npmrc"}, "", map[string]string{"NVM_DIR": "{h}/n"}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t, test.tree...)
			h.env = test.env
			if test.own != "" {
				h.own(t, test.own)
			}
			for name, text := range test.text {
				require.NoError(t, os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644))
			}
			table, err := LoadFor(h.host())
			require.NoError(t, err)
			entries := table.Present(h.host())
			assert.Equal(t, test.want, h.below(paths(table.Check(h.host(), entries, Masks(entries)))))
		})
	}
}

func TestHoldsLogin(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       bool
	}{
		{"nothing", "", false},
		{"a password in an address", "url = https://a:b@host", true},
		{"a token in an address", "url = http://t@host", true},
		{"a name for ssh", "url = ssh://git@host", false},
		{"a mail address", "author = a@host", false},
		{"a password of maven", "<password>x</password>", true},
		{"one in a comment", "<!-- <password>x</password>\n-->", false},
		{"one that comes from a variable", "<password>${env.P}</password>", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f")
			require.NoError(t, os.WriteFile(file, []byte(test.text), 0o644))
			assert.Equal(t, test.want, holdsLogin(file))
		})
	}
}
