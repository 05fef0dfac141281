package bwrap

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBinariesThatOthersCouldHaveReplaced(t *testing.T) {
	base := tree(t, "good!", "open!", "setuid!", "plain", "link => good", "dir/", "work/bwrap!", "way => work/bwrap")
	require.NoError(t, os.Chmod(base+"/open", 0o777))
	require.NoError(t, os.Chmod(base+"/setuid", 0o755|os.ModeSetuid))
	for _, test := range []struct{ name, path, want string }{
		{"one of the caller's own", base + "/good", ""},
		{"a link to it", base + "/link", ""},
		{"writable for everybody", base + "/open", `cannot use bwrap "` + base + `/open": others may change it`},
		{"setuid", base + "/setuid", `cannot use bwrap "` + base + `/setuid": it is setuid`},
		{"not executable", base + "/plain", `cannot use bwrap "` + base + `/plain": not an executable file`},
		{"a directory", base + "/dir", `cannot use bwrap "` + base + `/dir": not an executable file`},
		{"missing", base + "/nonesuch", `cannot use bwrap "` + base + `/nonesuch": no such file or directory`},
		{"in a writable root", base + "/work/bwrap", `cannot use bwrap "` + base + `/work/bwrap": it lies under the writable root "` + base + `/work"`},
		{"a link into a writable root", base + "/way", `cannot use bwrap "` + base + `/way": it lies under the writable root "` + base + `/work"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := FindBinary(test.path, []string{base + "/work"})
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, test.want)
		})
	}
}

func TestAccountNamesAreChecked(t *testing.T) {
	u := currentUser("/home/x:y", "")
	assert.NotContains(t, u.home, ":")
	u = currentUser("relative", "")
	assert.True(t, u.home[0] == '/')
	assert.NotEqual(t, "/", currentUser("/", "").home)
	for _, m := range accountMounts(user{uid: 1000, gid: 1000, name: "me", group: "us", home: "/home/me"}) {
		switch m.Dest {
		case "/etc/passwd":
			assert.Equal(t, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nme:x:1000:1000:me:/home/me:/bin/bash\n", string(m.Data))
		case "/etc/group":
			assert.Equal(t, "root:x:0:\nnogroup:x:65534:\nus:x:1000:\n", string(m.Data))
		}
	}
}

func TestNoBwrapAtAll(t *testing.T) {
	dirs := trustedDirs
	t.Cleanup(func() { trustedDirs = dirs })
	trustedDirs = []string{t.TempDir()}
	_, err := FindBinary("", nil)
	assert.EqualError(t, err, "cannot find bwrap in /usr/bin, /bin or /usr/local/bin")
	none, ok := err.(*Unavailable)
	require.True(t, ok)
	assert.Contains(t, none.Hint(), "bubblewrap")
}

// A program that another user could have put there is not found.
func TestFoundProgramsBelongToTheSystem(t *testing.T) {
	dirs := trustedDirs
	t.Cleanup(func() { trustedDirs = dirs })
	base := tree(t, "open/bwrap!", "dir/bwrap/", "plain/bwrap")
	require.NoError(t, os.Chmod(base+"/open/bwrap", 0o777))
	trustedDirs = []string{base + "/open", base + "/dir", base + "/plain"}
	assert.Empty(t, FindTrusted("bwrap"))
	if os.Geteuid() != 0 {
		trustedDirs = []string{tree(t, "bwrap!")}
		assert.Empty(t, FindTrusted("bwrap"), "one of the caller's own")
	}
}
