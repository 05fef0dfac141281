package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
	"pikuri/lib/internal/usertable"
)

const ownPath = ".config/pikuri/toolchains.tsv"

// own writes the user's table into a home.
func (h home) own(t *testing.T, rows ...string) {
	t.Helper()
	path := filepath.Join(h.dir, ownPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o644))
}

func TestUserRows(t *testing.T) {
	h := newHome(t, "work/tool/bin/", "work/tool/key", ".rustup/", ".nvm/versions/node/v1/etc/npmrc")
	h.own(t, "# mine",
		"readable\tmine\t~/work/tool\t$MINE\tin:~/work/tool/key\tMINE_ROOT={path}; MINE_IN={project}\t-",
		"readable\tnvm\t~/.nvm\t-\t-\tNVM_DIR={path}\t-")
	table, err := LoadFor(h.host())
	require.NoError(t, err)
	assert.Equal(t, []string{"readable .nvm", "readable .rustup", "readable work/tool"}, h.present(table), "a row keeps the place of the one that it replaces")
	entries := table.Present(h.host())
	assert.Equal(t, []string{"work/tool/key"}, h.below(Masks(entries)), "the user's own row for nvm hides nothing")
	last := entries[len(entries)-1]
	assert.Equal(t, []string{"MINE_ROOT=" + h.dir + "/work/tool", "MINE_IN=/project"}, last.Settings("/project"))
	assert.Equal(t, filepath.Join(h.dir, ownPath), last.Row.File)
	assert.Equal(t, 2, last.Row.Line)
}

func TestUserRowsElsewhere(t *testing.T) {
	h := newHome(t, "c/", "d/tool/")
	h.own(t, "readable\tmine\t~/d/tool\t-\t-\t-\t-")
	require.NoError(t, os.Rename(filepath.Join(h.dir, ".config/pikuri"), filepath.Join(h.dir, "c/pikuri")))
	h.env["XDG_CONFIG_HOME"] = "{h}/c"
	table, err := LoadFor(h.host())
	require.NoError(t, err)
	assert.Equal(t, []string{"readable d/tool"}, h.present(table))
}

func TestUserRowsThatAreRefused(t *testing.T) {
	for _, test := range []struct{ name, row, want string }{
		{"a mistake", "readable\tmine\t~/x", `line 2: 3 columns, want 7`},
		{"keys", "readable\tmine\t~/.ssh\t-\t-\t-\t-", `line 2: cannot show "~/.ssh": it would show "{h}/.ssh"`},
		{"all of a tool, and with it its login", "readable\tmine\t~/.m2\t-\t-\t-\t-", `line 2: cannot show "~/.m2": it would show "{h}/.m2/settings`},
		{"what another row keeps out", "readable\tmine\t~/.local/share/uv\t-\t-\t-\t-", `it would show "{h}/.local/share/uv/credentials`},
		{"the home, by another name", "readable\tmine\t{h}\t-\t-\t-\t-", "it is a home"},
		{"a system directory", "readable\tmine\t/etc\t-\t-\t-\t-", "it is a home, a system directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			h.own(t, "# mine", strings.ReplaceAll(test.row, "{h}", h.dir))
			_, err := LoadFor(h.host())
			require.ErrorContains(t, err, strings.ReplaceAll(test.want, "{h}", h.dir))
			assert.ErrorContains(t, err, ownPath)
		})
	}
}

func TestUserFilesThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name, want string
		spoil      func(t *testing.T, file string)
	}{
		{"others may write", "others may write", func(t *testing.T, file string) { require.NoError(t, os.Chmod(file, 0o666)) }},
		{"a group may write", "others may write", func(t *testing.T, file string) { require.NoError(t, os.Chmod(file, 0o664)) }},
		{"a pipe, which is not waited for", "no plain file", func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, unix.Mkfifo(file, 0o600))
		}},
		{"too large", "larger than", func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, usertable.MaxSize+1)) }},
		{"another user's", "belongs to another user", func(t *testing.T, file string) {
			require.NoError(t, os.Chown(file, 54321, 54321))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "another user's" && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			h := newHome(t)
			h.own(t, "readable\tmine\t~/x\t-\t-\t-\t-")
			test.spoil(t, filepath.Join(h.dir, ownPath))
			_, err := LoadFor(h.host())
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// TestMovedOntoSecrets: a variable may point at a directory whose credentials
// another row excludes or masks, or above one.
func TestMovedOntoSecrets(t *testing.T) {
	h := newHome(t, ".local/share/uv/credentials/credentials.toml", "x/versions/node/v1/etc/npmrc", ".nvm/versions/node/v1/etc/npmrc")
	h.env = map[string]string{"PYENV_ROOT": "{h}/.local/share/uv"}
	assert.NotContains(t, h.present(builtinTable(t)), "readable .local/share/uv")

	h.env = map[string]string{"RUSTUP_HOME": "{h}/.nvm", "NVM_DIR": "{h}/.nvm"}
	assert.Equal(t, []string{".nvm/versions/node/v1/etc/npmrc"}, h.below(Masks(builtinTable(t).Present(h.host()))), "two rows name it")
	h.env = map[string]string{"RUSTUP_HOME": "{h}/.nvm/versions", "NVM_DIR": "{h}/x"}
	masks := Masks(builtinTable(t).Present(h.host()))
	assert.Contains(t, masks, h.dir+"/.nvm/versions/node/v1/etc/npmrc", "the row for nvm is elsewhere")
	assert.Contains(t, masks, h.dir+"/x/versions/node/v1/etc/npmrc")
}

func TestSurvey(t *testing.T) {
	h := newHome(t, ".rustup => nowhere", ".cache/pip", ".pyenv/", "x/", ".ssh/", ".nvm => .ssh")
	h.env = map[string]string{"RBENV_ROOT": "{h}/.ssh", "PYENV_ROOT": "{h}/x", "VOLTA_HOME": "{h}/x", "ASDF_DATA_DIR": "{h}"}
	_, absent := builtinTable(t).Survey(h.host())
	got := map[string]string{}
	for _, a := range absent {
		got[a.Row.Path] = strings.ReplaceAll(a.Path+": "+a.Reason, h.dir, "{h}")
	}
	for row, want := range map[string]string{
		"~/.rustup":         "{h}/.rustup: a link that leads nowhere",
		"~/.cache/pip":      "{h}/.cache/pip: not a directory",
		"~/.cargo/registry": "{h}/.cargo/registry: does not exist",
		"~/.rbenv":          `{h}/.ssh: it would show "{h}/.ssh"`,
		"~/.nvm":            `{h}/.nvm: leads to "{h}/.ssh": it would show "{h}/.ssh"`,
		"~/.volta":          "{h}/x: shown already, by a row of pyenv",
		"~/.asdf":           "{h}: it is a home, a system directory, or holds one",
	} {
		assert.Equal(t, want, got[row], row)
	}
	assert.NotContains(t, got, "~/.pyenv")
}

func TestLinks(t *testing.T) {
	h := newHome(t, "store/abc/", "profiles/p-1 => ../store/abc", "profiles/p => p-1", ".nix-profile => {h}/profiles/p")
	for _, e := range builtinTable(t).Present(h.host()) {
		if e.Row.Path == "~/.nix-profile" {
			assert.Equal(t, []confine.Link{
				{Place: h.dir + "/.nix-profile", Target: h.dir + "/profiles/p"},
				{Place: h.dir + "/profiles/p", Target: "p-1"},
				{Place: h.dir + "/profiles/p-1", Target: "../store/abc"},
			}, e.Links())
			return
		}
	}
	t.Fatal("no profile")
}
