package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// below returns the paths that lie in the home, relative to it. Other paths
// depend on the machine that runs the test.
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
