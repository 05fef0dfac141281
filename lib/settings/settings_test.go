package settings

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		kept             string
		all              bool
	}{
		{"a certificate", "npmrc", "cafile=/etc/ssl/ca.crt\n", "cafile=/etc/ssl/ca.crt\n", true},
		{"a registry of a scope", ".npmrc", "@corp:registry=https://npm.corp.example/api/npm/\n", "@corp:registry=https://npm.corp.example/api/npm/\n", true},
		{"a list", ".npmrc", "omit[] = dev\n", "omit[] = dev\n", true},
		{"a token beside it", ".npmrc", "registry=https://npm.corp.example/\n//npm.corp.example/:_authToken=s3cret\n_auth = s3cret\n_password=s3cret\nfund=false\n",
			"registry=https://npm.corp.example/\nfund=false\n", false},
		{"a user in a URL", ".npmrc", "registry=https://me:s3cret@npm.corp.example/\nproxy=me:s3cret@proxy:3128\nfund=false\n", "fund=false\n", false},
		{"a token in the path of a URL", "pip.conf", "[global]\nindex-url = https://dl.example/aB3dE6gH9jK2/simple\ntimeout = 5\n", "[global]\ntimeout = 5\n", false},
		{"a token in a query", "pip.conf", "[global]\nindex-url = https://dl.example/simple?token=s3cret\ntimeout = 5\n", "[global]\ntimeout = 5\n", false},
		{"a comment", "npmrc", "fund=false\n# _auth=s3cret\n; _auth=s3cret\n", "fund=false\n", false},
		{"pip, a list", "pip.conf", "[global]\nextra-index-url =\n    https://a.example/simple\n    https://me:s3cret@b.example/simple\n    https://c.example/simple\n",
			"[global]\nextra-index-url =\n    https://a.example/simple\n", false},
		{"pip, the list of a key that goes", "pip.conf", "[global]\ntimeout = 5\nclient_cert =\n    /home/me/s3cret\n", "[global]\ntimeout = 5\n", false},
		{"pip, with an underscore", "pip.conf", "[global]\nindex_url = https://a.example/simple\n", "[global]\nindex_url = https://a.example/simple\n", true},
		{"a key that nobody knows", "npmrc", "fund=false\nnew-key=s3cret\n", "fund=false\n", false},
		{"nothing is left", "npmrc", "_auth=s3cret\n", "", false},
		{"a word alone", "npmrc", "s3cret\nfund=false\n", "fund=false\n", false},
		{"an empty file", "npmrc", "\n", "", true},
		{"not text", "npmrc", "fund=false\n\xff\n", "", false},
		{"npm, indented", ".npmrc", "registry=https://a.example/\n  //a.example/:_authToken=s3cret\n\t_auth=s3cret\n  fund=false\n", "registry=https://a.example/\n  fund=false\n", false},
		{"npm, a carriage return", ".npmrc", "fund=false\r_auth=s3cret\n", "", false},
		{"pip, a carriage return", "pip.conf", "[global]\ntimeout = 5\rpassword = s3cret\n", "", false},
		{"lines of Windows", ".npmrc", "fund=false\r\n_auth=s3cret\r\n", "fund=false\r\n", false},
		{"a vertical tab", "pip.conf", "[global]\ntimeout = 5\v\n", "", false},
		{"a comment behind a value", ".npmrc", "fund=false ; s3cret\nyes=true # s3cret\ncolor=false\n", "color=false\n", false},
		{"a section that is a setting", ".npmrc", "fund=false\n[//a.example/:_auth=s3cret]\n", "", false},
		{"a password that ends in =", "pip.conf", "[global]\nindex-url = https://me:s3cret==@a.example/simple\nproxy = http://me:s3cret'@a.example\ntimeout = 5\n", "[global]\ntimeout = 5\n", false},
		{"pip, a setting that is indented", "pip.conf", "[global]\ntimeout = 5\n  password = s3cret\nno-index = 1\n", "[global]\ntimeout = 5\nno-index = 1\n", false},
		{"a token without digits", "pip.conf", "[global]\nindex-url = https://dl.example/aBcDeFgHiJkLmN/simple\ntimeout = 5\n", "[global]\ntimeout = 5\n", false},
		{"names in a URL", "pip.conf", "[global]\nindex-url = https://a.example/ContosoEngineering/_packaging/feed/pypi/simple/\n",
			"[global]\nindex-url = https://a.example/ContosoEngineering/_packaging/feed/pypi/simple/\n", true},
		{"a token, without a scheme", ".npmrc", "registry=//a.example/aB3dE6gH9jK2/\nproxy=http:\\\\a.example\\aB3dE6gH9jK2\nfund=false\n", "fund=false\n", false},
		{"a certificate in the file", ".npmrc", `ca="-----BEGIN CERTIFICATE-----\nMIIB//aB3dE6gH9jK2/aB3dE6gH9jK2+Q==\n-----END CERTIFICATE-----"`, `ca="-----BEGIN CERTIFICATE-----\nMIIB//aB3dE6gH9jK2/aB3dE6gH9jK2+Q==\n-----END CERTIFICATE-----"`, true},
		{"another file", "settings.xml", "fund=false\n", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), test.file)
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
			kept, all := Read(path)
			assert.Equal(t, test.kept, string(kept))
			assert.Equal(t, test.all, all)
			assert.NotContains(t, string(kept), "s3cret")
		})
	}
}

func TestReadOfNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "npmrc")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, dir + "/pip.conf", dir} {
		kept, all := Read(path)
		assert.Nil(t, kept, path)
		assert.False(t, all, path)
	}
}

func TestPaths(t *testing.T) {
	none := func(string) string { return "" }
	assert.Contains(t, Paths("/home/me", none), "/home/me/.config/pip/pip.conf")
	assert.Contains(t, Paths("/home/me", func(string) string { return "/elsewhere" }), "/elsewhere/pip/pip.conf")
}
