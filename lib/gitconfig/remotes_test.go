package gitconfig

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

const origin = "[remote \"origin\"]\n\turl = https://host/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n"

func TestLandRemotes(t *testing.T) {
	for _, test := range []struct {
		name, host, layer string
		want              string // of the host; "=" for no change
		stays             string
	}{
		{"nothing", "[a]\nb=c\n", "[a]\nb=c\n", "=", ""},
		{"a remote", "[core]\n\tbare = false", "[core]\nbare=false\n" + origin, "[core]\n\tbare = false\n" + origin, ""},
		{"a remote and an upstream", "", "[branch \"m\"]\nremote=origin\nmerge=refs/heads/m\nrebase=merges\n" + origin,
			"[branch \"m\"]\n\tremote = origin\n\tmerge = refs/heads/m\n\trebase = merges\n" + origin, ""},
		{"another URL", "# a\n[remote \"origin\"] ; b\n  URL=https://h/x\n# c\n", "[remote \"origin\"]\nurl=ssh://git@h:22/y\n", "# a\n[remote \"origin\"] ; b\n  URL = ssh://git@h:22/y\n# c\n", ""},
		{"more URLs in a section with another key", "[remote \"o\"]\nurl=https://h/x\nx=y\n[a]\nb=c\n", "[remote \"o\"]\nurl=https://h/x\nurl=git@h:z\nx=y\n[a]\nb=c\n", "[remote \"o\"]\nurl=https://h/x\nx=y\n\turl = git@h:z\n[a]\nb=c\n", ""},
		{"the header is there already", "[branch \"m\"]\n[a]\nb=c", "[branch \"m\"]\nremote=.\n[a]\nb=c", "[branch \"m\"]\n\tremote = .\n[a]\nb=c", ""},
		{"the header has a comment", "[branch \"m\"] # c\n[a]\nb=c", "[branch \"m\"]\nremote=.\n[a]\nb=c", "[branch \"m\"]\n\tremote = .\n # c\n[a]\nb=c", ""},
		{"an upstream is removed", "[branch \"m\"]\n\tremote = .\n\tmerge = refs/heads/x # c\n\tdescription = d\n", "[branch \"m\"]\ndescription=d", "[branch \"m\"]\n\tdescription = d\n", ""},
		{"one is removed beside its header", "[branch \"m\"] remote = .\n[a]b=c\n", "[a]b=c\n", "[branch \"m\"]\n[a]b=c\n", ""},
		{"a remote is removed", origin + "[branch \"m\"]\nremote=origin\n", "", origin + "[branch \"m\"]\n", "remote.origin.fetch remote.origin.url"},
		{"a remote without a URL", "", "[remote \"o\"]\nfetch=+refs/heads/*:refs/remotes/o/*\n[branch \"m\"]\nremote=o\n", "=", "branch.m.remote remote.o.fetch"},
		{"a remote with a bad URL", "", "[remote \"o\"]\nurl=ext::sh\npushurl=https://h/x\n[branch \"m\"]\nremote=o\nmerge=refs/heads/m\n", "[branch \"m\"]\n\tmerge = refs/heads/m\n", "branch.m.remote remote.o.pushurl remote.o.url"},
		{"a branch that follows a path", "", "[branch \"m\"]\nremote=evil/repo\n", "=", "branch.m.remote"},
		{"a URL beside a bad one", "", "[remote \"o\"]\nurl=https://h/x\nurl=/evil\n", "=", "remote.o.url"},
		{"other keys", "", "[core]\nfsmonitor=x\nhooksPath=y\n[include]\npath=z\n[remote \"o\"]\nuploadpack=x\nproxy=p\n[branch \"m\"]\npushRemote=x\n[alias]\nst=x\n", "=", "alias.st branch.m.pushremote core.fsmonitor core.hookspath include.path remote.o.proxy remote.o.uploadpack"},
		{"a removed key of others", "[user]\nname=N\n", "", "=", "user.name"},
		{"a key with an escape", "", "[x \"\x1b[31m\"]\ny=z\n", "=", `"x.\x1b[31m.y"`},
		{"a tag option", origin, origin + "tagOpt=--no-tags\n", origin + "\ttagopt = --no-tags\n", ""},
		{"a program as tag option", origin, origin + "tagOpt=--upload-pack=x\n", "=", "remote.origin.tagopt"},
		{"two upstreams", "", "[branch \"m\"]\nremote=.\nremote=.\n", "=", "branch.m.remote"},
		{"an interactive rebase", "", "[branch \"m\"]\nrebase=interactive\n", "=", "branch.m.rebase"},
		{"a value that is none", "", "[branch \"m\"]\nrebase\n", "=", "branch.m.rebase"},
		{"a branch that is an option", "", "[branch \"-x\"]\nremote=.\n[branch \"a..b\"]\nremote=.\n[branch \"HEAD.lock\"]\nremote=.\n", "=", "branch.-x.remote branch.HEAD.lock.remote branch.a..b.remote"},
		{"a merge outside of the branches", "", "[branch \"m\"]\nmerge=refs/tags/x\nmerge=refs/heads/x\n", "=", "branch.m.merge"},
		{"fetch into branches", origin, strings.Replace(origin, "refs/remotes/origin/*", "refs/heads/*", 1), "=", "remote.origin.fetch"},
		{"fetch into another remote", origin, strings.Replace(origin, "refs/remotes/origin/*", "refs/remotes/other/*", 1), "=", "remote.origin.fetch"},
		{"fetch over tags", origin, origin + "fetch=+refs/tags/*:refs/tags/*\n", "=", "remote.origin.fetch"},
		{"fetch of tags", origin, origin + "fetch=refs/tags/*:refs/tags/*\n", origin + "\tfetch = refs/tags/*:refs/tags/*\n", ""},
		{"fetch of one branch", origin, strings.Replace(origin, "*:refs/remotes/origin/*", "m:refs/remotes/origin/m", 1), strings.Replace(origin, "*:refs/remotes/origin/*", "m:refs/remotes/origin/m", 1), ""},
		{"a file that ends in the middle of a value", "[a]\nb=c\\", "[a]\nb=c\n[branch \"m\"]\nremote=.\n", "error", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := t.TempDir() + "/config"
			require.NoError(t, os.WriteFile(file, []byte(test.host), 0o640))
			require.NoError(t, os.Chmod(file, 0o604))
			changed, stays, err := LandRemotes(file, nil, []byte(test.layer))
			got := string(must(os.ReadFile(file)))
			assert.NoFileExists(t, file+".lock")
			if test.want == "error" {
				assert.Error(t, err)
				assert.Equal(t, test.host, got)
				return
			}
			require.NoError(t, err)
			want := test.want
			if want == "=" {
				want = test.host
			}
			assert.Equal(t, want, got)
			assert.Equal(t, want != test.host, len(changed) > 0)
			assert.Equal(t, test.stays, strings.Join(stays, " "))
			assert.Equal(t, os.FileMode(0o604), must(os.Stat(file)).Mode().Perm())
		})
	}
}

// Any two ordinary changes land together, wherever their lines go.
func TestTwoChanges(t *testing.T) {
	changes := []string{
		origin,
		"[remote \"origin\"]\npushurl = git@h:x\n",
		"[remote \"origin\"]\nurl = https://host/two\n",
		"[remote \"origin\"]\ntagOpt = --tags\n",
		"[branch \"m\"]\nrebase = true\n",
		"[branch \"m\"]\nmerge = refs/heads/m\n",
		"[branch \"a\"]\nremote = origin\n",
		"[remote \"two\"]\nurl = https://host/y\n",
	}
	for _, end := range []string{"", "[branch \"m\"]\nremote = origin\n", "[branch \"m\"]\n", "[branch \"m\"]", "[x]\n[y] z", "[branch \"m\"] remote = origin"} {
		host := origin + end
		for _, one := range changes {
			for _, two := range changes {
				layer := host + "\n" + one + two
				l := landing{before: []byte(host)}
				if assert.NoError(t, l.land(l.before, []byte(layer)), "%q", layer) {
					want, got := byKey(must(Parse("", []byte(layer)))), byKey(must(Parse("", l.after)))
					for key := range want {
						assert.True(t, slices.Contains(l.stays, key) || want.same(got, key), "%q of %q is now %q", key, layer, l.after)
					}
				}
			}
		}
	}
}

// TestHostMovedToo: a key that both have changed keeps the host's value.
func TestHostMovedToo(t *testing.T) {
	file := t.TempDir() + "/config"
	base := "[remote \"a\"]\nurl=https://h/a\n[remote \"b\"]\nurl=https://h/b\n"
	host := "[remote \"a\"]\nurl=https://h/host\n[remote \"b\"]\nurl=https://h/b\n[remote \"new\"]\nurl=https://h/new\n"
	require.NoError(t, os.WriteFile(file, []byte(host), 0o644))
	changed, stays, err := LandRemotes(file, []byte(base), []byte(strings.ReplaceAll(base, "https://h/", "https://layer/")))
	require.NoError(t, err)
	assert.Equal(t, []Change{{"remote.b.url", []string{"https://h/b"}, []string{"https://layer/b"}}}, changed)
	assert.Equal(t, []string{"remote.a.url"}, stays)
	assert.Equal(t, strings.Replace(host, "url=https://h/b", "url = https://layer/b", 1), string(must(os.ReadFile(file))))
}

func TestLandingTakesGitsLock(t *testing.T) {
	file := t.TempDir() + "/config"
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.NoError(t, os.WriteFile(file+".lock", nil, 0o644))
	_, _, err := LandRemotes(file, nil, []byte(origin))
	require.ErrorIs(t, err, os.ErrExist)
	assert.FileExists(t, file+".lock")
	assert.Empty(t, must(os.ReadFile(file)))
	_, stays, err := LandRemotes(file, nil, []byte("[user]\nname=x\n"))
	assert.NoError(t, err, "nothing lands, so nothing is locked")
	assert.Equal(t, []string{"user.name"}, stays)
}

// A process has landed all, and was killed before it removed its lock.
func TestLandingRemovesItsOwnLock(t *testing.T) {
	host := t.TempDir() + "/config"
	require.NoError(t, os.WriteFile(host, []byte(origin), 0o644))
	require.NoError(t, os.WriteFile(host+".lock", []byte("locked by pk\n"), 0o644))
	changed, stays, err := LandRemotes(host, nil, []byte(origin))
	require.NoError(t, err)
	assert.Empty(t, changed)
	assert.Empty(t, stays)
	assert.NoFileExists(t, host+".lock")
}

func TestHostileLayers(t *testing.T) {
	file := t.TempDir() + "/config"
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, _, err := LandRemotes(file, nil, []byte("[remote \"x\"]\nurl=\"https://h\n"))
	assert.EqualError(t, err, `cannot change "`+file+`": bad config line 2 in "layer"`)
	_, _, err = LandRemotes(file, nil, make([]byte, maxFile+1))
	assert.ErrorIs(t, err, overlay.ErrTooLarge)
	_, stays, err := LandRemotes(file, nil, []byte("[x]\n"+strings.Repeat("a\n", 9)+strings.Repeat("b", 9)+"\n"+many()))
	assert.NoError(t, err)
	assert.Len(t, stays, maxStays+1)
	assert.Contains(t, stays[maxStays], "more")
}

// many is a section with hundreds of keys.
func many() string {
	var b strings.Builder
	for i := range 300 {
		b.WriteString("k" + strings.Repeat("x", i) + "\n")
	}
	return b.String()
}

func TestURLsThatMayLand(t *testing.T) {
	for url, want := range map[string]bool{
		"https://host/x": true, "http://host:8080/x.git": true, "ssh://git@host/x": true, "git://host/x": true, "git@host:x/y.git": true, "git@host:~/x": true,
		"https://user@host/x": true, "https://[::1]:22/x": true, "https://host/a%20b": true, "https://host/ü": true, "ssh://host/~u/x": true,
		"": false, "x": false, "/srv/x": false, "./x": false, "../x": false, "file:///x": false, "file:/x": false, "ext::sh -c x": false, "ext::sh": false, "host:x": false, "git@host::x": false, "fd::3": false,
		"https://u:p@host/x": false, "ssh://-oProxyCommand=x/y": false, "ssh://-o@host/y": false, "git@-h:x": false, "-u@h:x": false, "git@host:-x": false, "https://host": false, "https://host/": false, "git@host:": false,
		"https:///x": false, "https://ho%0ast/x": false, "https://host/%0a": false, "https://host/%2e%2e/x": false, "https://host/a/../b": false, "https://host/%zz": false, "https://host/%": false, "https://h/a b": false, "https://h/a\nb": false,
		"https://h/a\u202eb": false, "https://h/\u0085": false, "https://h/a\u00a0b": false, "https://h/\xff": false, "https://host:0/x": false, "https://host:x/x": false, "HTTPS://host/x": false, "https::https://h/x": false, "ssh://h\\x/y": false, "https://" + strings.Repeat("x", maxURL): false,
	} {
		assert.Equal(t, want, mayLandURL(url), "%q", url)
	}
}

// TestRefNames asks git for each.
func TestRefNames(t *testing.T) {
	h := newHome(t)
	for _, name := range []string{"a", "a/b", "a.b", "ü", "@", "a@", "a@{b", "a//b", "/a", "a/", ".a", "a/.b", "a.", "a..b", "a.lock", "a.lock/b", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", `a\b`, "a\x7fb", "a\tb", "-a", "HEAD"} {
		err := h.command("", "check-ref-format", "refs/heads/"+name).Run()
		want := err == nil && name[0] != '-'
		if name == "@" { // as a branch
			want = false
		}
		assert.Equal(t, want, gitplace.IsBranch(name), "%q", name)
	}
}

// FuzzLandRemotes: for any two files, git reads the same from the host's as before,
// but for keys that may land.
func FuzzLandRemotes(f *testing.F) {
	for _, text := range corpus {
		f.Add([]byte(text), []byte(origin+text))
		f.Add([]byte(text+"[remote \"origin\"]"), []byte(origin))
	}
	f.Add([]byte(origin), []byte("[remote \"origin\"]\nurl=git@h:x\nurl=https://h/y\n[branch \"x\"]remote=origin\n"))
	f.Add([]byte("[remote.o]url=https://h/x\r\n[branch \"b\"] remote=o;c\r\n"), []byte("[remote \"o\"]\nurl=https://h/y\npushurl=https://h/z\n"))
	f.Add([]byte("[remote \"a.url\x00\"]x=https://h/x"), []byte("[remote \"a\"]url=https://h/y"))
	h := newHome(f)
	f.Fuzz(func(t *testing.T, host, layer []byte) {
		h := &home{t: t, dir: h.dir, env: h.env}
		file := h.path("landed")
		require.NoError(t, os.WriteFile(file, host, 0o644))
		list := func() map[string][]string {
			text, err := h.list("proj", "--no-includes", "--file", file)
			if err != nil {
				return nil
			}
			values := map[string][]string{}
			for _, line := range strings.Split(strings.TrimSuffix(text, "\x00"), "\x00") {
				if line == "" {
					continue
				}
				key, value, _ := strings.Cut(line, "\n")
				values[key] = append(values[key], value)
			}
			return values
		}
		before := list()
		changed, _, err := LandRemotes(file, nil, layer)
		if err != nil || len(changed) == 0 {
			require.Equal(t, host, must(os.ReadFile(file)))
			return
		}
		after := list()
		require.NotNil(t, after)
		for key, values := range after {
			var entries []Entry
			for _, value := range values {
				entries = append(entries, Entry{Value: value})
			}
			if !assert.ObjectsAreEqual(before[key], values) {
				require.True(t, mayLand(key, entries), "%q = %q", key, values)
			}
		}
		for key := range before {
			if after[key] == nil {
				require.True(t, mayLand(key, nil), "%q is gone", key)
			}
		}
		again, _, err := LandRemotes(file, nil, layer)
		require.NoError(t, err)
		require.Empty(t, again)
	})
}
