package hostrule

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	web := []uint16{80, 443}
	for _, test := range []struct {
		name, text string
		want       Rule
	}{
		{"name", "example.test", Rule{Name: "example.test", Ports: web}},
		{"port", "example.test:8443", Rule{Name: "example.test", Ports: []uint16{8443}}},
		{"ports, sorted and each once", "example.test:443,22,443", Rule{Name: "example.test", Ports: []uint16{22, 443}}},
		{"last port", "example.test:65535", Rule{Name: "example.test", Ports: []uint16{65535}}},
		{"upper case, trailing dot", "Git.Example.TEST.", Rule{Name: "git.example.test", Ports: web}},
		{"trailing dot, port", "example.test.:22", Rule{Name: "example.test", Ports: []uint16{22}}},
		{"wildcard", "*.example.test", Rule{Name: "example.test", Wildcard: true, Ports: web}},
		{"wildcard, port", "*.a.example.test:443", Rule{Name: "a.example.test", Wildcard: true, Ports: []uint16{443}}},
		{"private", "git.example.test:22 private", Rule{Name: "git.example.test", Ports: []uint16{22}, Private: true}},
		{"private, blanks around", "\tgit.example.test \t private ", Rule{Name: "git.example.test", Ports: web, Private: true}},
		{"one label", "git", Rule{Name: "git", Ports: web}},
		{"underscore, xn--, digits", "_x.xn--bcher-kva.0-1.test", Rule{Name: "_x.xn--bcher-kva.0-1.test", Ports: web}},
		{"digits in a label that is not the last", "4.example.test", Rule{Name: "4.example.test", Ports: web}},
		{"0 and x apart", "0.x", Rule{Name: "0.x", Ports: web}},
		{"longest label", strings.Repeat("a", 63) + ".test", Rule{Name: strings.Repeat("a", 63) + ".test", Ports: web}},
		{"longest name", long(253), Rule{Name: long(253), Ports: web}},
		{"longest name, trailing dot", long(253) + ".", Rule{Name: long(253), Ports: web}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(test.text)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
			again, err := Parse(got.String())
			require.NoError(t, err)
			assert.Equal(t, got, again)
		})
	}
}

// long is a name of n bytes.
func long(n int) string {
	name := strings.Repeat("abcdefg.", n/8+1)
	return name[:n-1] + "z"
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", `cannot allow "": it has no name: type NAME or NAME:PORT`},
		{"blanks", " \t", `it has no name`},
		{"port alone", ":443", `it has no name`},
		{"dot", ".", `empty label`},
		{"two dots", "a..test", `empty label: type one dot between labels`},
		{"dot in front", ".example.test", `empty label`},
		{"two trailing dots", "example.test..", `empty label`},

		{"IPv4", "192.0.2.1", `it is an address: type the host's name; a port of this machine takes --connect`},
		{"IPv4, port", "192.0.2.1:443", `it is an address`},
		{"IPv4, trailing dot", "192.0.2.1.", `it is an address`},
		{"IPv4 of three numbers", "127.0.1", `it is an address`},
		{"IPv4 as one number", "2130706433", `it is an address`},
		{"IPv4 in hexadecimal", "0x7f.1", `it is an address`},
		{"IPv4 in hexadecimal at the end", "127.0x1", `it is an address`},
		{"IPv4 as one hexadecimal number", "0X7F000001:80", `it is an address`},
		{"IPv4 in octal", "0177.0.0.01", `it is an address`},
		{"below an address", "*.2.1", `it is an address`},
		{"name that ends in a number", "example.5", `it is an address`},
		{"IPv6", "2001:db8::1", `it is an address`},
		{"IPv6, loopback", "::1", `it is an address`},
		{"IPv6, any", "::", `it is an address`},
		{"IPv6, zone", "fe80::1%eth0", `it is an address`},
		{"IPv6, mapped", "::ffff:192.0.2.1", `it is an address`},
		{"IPv6, brackets", "[::1]:443", `it is an address`},
		{"IPv6, open bracket", "[::1", `it is an address`},

		{"star", "*", `it would allow every host`},
		{"star, port", "*:443", `it would allow every host`},
		{"star and dot", "*.", `it would allow every host`},
		{"top-level domain", "*.test", `it would allow a whole top-level domain: type "*." and at least two labels`},
		{"top-level domain, trailing dot", "*.test.", `a whole top-level domain`},
		{"star in the middle", "a.*.example.test", `"*" can only be the whole first label`},
		{"star at the end", "example.*", `"*" can only be`},
		{"star in a label", "a*.example.test", `"*" can only be`},
		{"two stars", "*.*.example.test", `"*" can only be`},
		{"star and no dot", "*example.test", `"*" can only be`},

		{"scheme", "https://example.test", `cannot allow "https://example.test": it has a scheme: leave out "https://"`},
		{"path", "example.test/a/b", `it has a path: leave out "/a/b", a rule is for all of a host`},
		{"path behind a port", "example.test:443/a", `leave out "/a"`},
		{"query", "example.test?a", `leave out "?a"`},
		{"user", "git@example.test", `it has a user: leave out everything up to the "@"`},
		{"scp", "git@example.test:a/b", `it has a user`},
		{"not ASCII", "bücher.test", `it is not ASCII: type the form that begins with "xn--"`},
		{"not UTF-8", "a\xff.test", `it is not ASCII`},
		{"full-width dot", "example。test", `it is not ASCII`},
		{"Kelvin sign, a letter that folds to ASCII", "\u212aa.test", `it is not ASCII`},

		{"long label", strings.Repeat("a", 64) + ".test", `is longer than 63 bytes`},
		{"long name", long(254), `its name is longer than 253 bytes`},
		{"long text", "example.test:" + strings.Repeat("1,", 2000) + "1", `it is longer than 2048 bytes`},
		{"hyphen in front", "-a.test", `begins or ends with "-"`},
		{"hyphen behind", "a-.test", `begins or ends with "-"`},
		{"option", "--help", `begins or ends with "-"`},
		{"NUL", "a\x00.test", `its name holds '\x00'`},
		{"carriage return", "example.test\r", `its name holds '\r'`},
		{"newline", "example.test\nb.test", `its name holds '\n'`},
		{"percent", "a%2e.test", `its name holds '%'`},
		{"two names", "a.test,b.test", `its name holds ','`},
		{"set", "@npm", `it has a user`},

		{"localhost", "localhost", `it is this machine: --connect opens one of its ports`},
		{"localhost, port, upper case", "LocalHost.:3000", `it is this machine`},
		{"below localhost", "app.localhost", `it is this machine`},
		{"all below localhost", "*.localhost", `it is this machine`},

		{"port 0", "example.test:0", `"0" is no port: type a number from 1 to 65535`},
		{"port 65536", "example.test:65536", `"65536" is no port`},
		{"port with a leading zero", "example.test:0443", `"0443" is no port`},
		{"port with a sign", "example.test:+443", `"+443" is no port`},
		{"name of a port", "example.test:https", `"https" is no port`},
		{"colon and no port", "example.test:", `"" is no port`},
		{"comma and no port", "example.test:443,", `"" is no port`},
		{"range of ports", "example.test:1-9", `"1-9" is no port`},
		{"two colons", "example.test:80:443", `it has two colons: type NAME:PORT,PORT`},
		{"201 ports", "example.test:" + many(201), `it has 201 different ports: 200 is the most`},

		{"private wildcard", "*.example.test private", `a wildcard cannot be private`},
		{"another word", "example.test public", `behind the name stands "public": type "private" there, or nothing`},
		{"a word too many", "example.test private private", `behind the name stands`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := Parse(test.text)
			require.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, "cannot allow ")
			assert.NotContains(t, err.Error(), "\n")
			assert.Equal(t, Rule{}, r)
		})
	}
}

// many lists n ports from 1.
func many(n int) string {
	var ports []string
	for i := range n {
		ports = append(ports, fmt.Sprint(i+1))
	}
	return strings.Join(ports, ",")
}

func TestPasswordsAreNotRepeated(t *testing.T) {
	for _, text := range []string{"https://me:secret@example.test/", "me:secret@example.test", "example.test me:secret@example.test", "a@secret@example.test"} {
		_, err := Parse(text)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "secret", text)
		assert.Contains(t, err.Error(), "@example.test", text)
	}
}

func TestZeroValueAllowsNothing(t *testing.T) {
	for _, rules := range []Rules{nil, {}, {Rule{}}, {Rule{Ports: []uint16{443}}}, {Rule{Wildcard: true, Ports: []uint16{443}}}, {Rule{Name: "a.test"}}} {
		for _, name := range []string{"", ".", "a.test", "a", "*.", "localhost"} {
			ports, private, _, _ := rules.Find(name)
			assert.Empty(t, ports)
			assert.False(t, private)
			for _, port := range []uint16{0, 80, 443} {
				_, ok := rules.Allows(name, port)
				assert.False(t, ok, "%q:%d", name, port)
			}
		}
		assert.Empty(t, rules.Ports())
		assert.Equal(t, "no host", rules.String())
		assert.NoError(t, rules.Check())
	}
}

func set(t *testing.T, texts ...string) Rules {
	t.Helper()
	var rules Rules
	for _, text := range texts {
		r, err := Parse(text)
		require.NoError(t, err)
		r.Origin = text
		rules = append(rules, r)
	}
	return rules
}

func TestFind(t *testing.T) {
	rules := set(t, "*.example.test:443", "git.example.test:22 private", "git.example.test:80", "*.a.example.test:8443", "example.test")
	for _, test := range []struct {
		name, host     string
		ports          []uint16
		private, exact bool
	}{
		{"exact", "example.test", []uint16{80, 443}, false, true},
		{"upper case, trailing dot", "EXAMPLE.Test.", []uint16{80, 443}, false, true},
		{"wildcard, one label", "x.example.test", []uint16{443}, false, false},
		{"wildcard, several labels", "x.y.example.test", []uint16{443}, false, false},
		{"exact and wildcard", "git.example.test", []uint16{22, 80, 443}, true, true},
		{"below an exact name", "x.git.example.test", []uint16{443}, false, false},
		{"two wildcards", "x.a.example.test", []uint16{443, 8443}, false, false},
		{"apex of one of two wildcards", "a.example.test", []uint16{443}, false, false},
		{"underscore", "_tcp.example.test", []uint16{443}, false, false},
		{"end of another name", "badexample.test", nil, false, false},
		{"name in front of another", "example.test.other.test", nil, false, false},
		{"above", "test", nil, false, false},
		{"nothing", "", nil, false, false},
		{"dot", ".", nil, false, false},
		{"dot in front", ".example.test", nil, false, false},
		{"two trailing dots", "example.test..", nil, false, false},
		{"empty label", "x..example.test", nil, false, false},
		{"star", "*.example.test", nil, false, false},
		{"NUL", "x\x00.example.test", nil, false, false},
		{"blank", "x y.example.test", nil, false, false},
		{"not ASCII", "ü.example.test", nil, false, false},
		{"long label", strings.Repeat("x", 64) + ".example.test", nil, false, false},
		{"long name", strings.Repeat("x.", 130) + "example.test", nil, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ports, private, exact, ok := rules.Find(test.host)
			assert.Equal(t, test.ports, ports)
			assert.Equal(t, test.private, private)
			assert.Equal(t, test.exact, exact)
			assert.Equal(t, test.ports != nil, ok)
			for _, port := range []uint16{22, 80, 443, 8443, 1} {
				_, allowed := rules.Allows(test.host, port)
				assert.Equal(t, strings.Contains(fmt.Sprintf(" %v ", strings.Trim(fmt.Sprint(ports), "[]")), fmt.Sprintf(" %d ", port)), allowed, port)
			}
		})
	}
}

func TestAllowsNamesTheRule(t *testing.T) {
	rules := set(t, "*.example.test", "git.example.test:443", "git.example.test:22,443")
	for host, want := range map[string]string{
		"git.example.test:443": "git.example.test:443",
		"git.example.test:22":  "git.example.test:22,443",
		"git.example.test:80":  "*.example.test",
		"x.example.test:443":   "*.example.test",
	} {
		name, port, _ := strings.Cut(host, ":")
		var number uint16
		_, err := fmt.Sscan(port, &number)
		require.NoError(t, err)
		rule, ok := rules.Allows(name, number)
		assert.True(t, ok, host)
		assert.Equal(t, want, rule.Origin, host)
	}
}

func TestFindLeavesTheRulesAsTheyAre(t *testing.T) {
	rules := set(t, "example.test:443", "*.example.test:80")
	ports, _, _, _ := rules.Find("example.test")
	ports[0] = 1
	rules.Ports()[0] = 1
	assert.Equal(t, "example.test:443; *.example.test:80", rules.String())
}

func TestString(t *testing.T) {
	for _, test := range []struct {
		name, want string
		rules      []string
	}{
		{"sorted, exact before wildcard", "a.test:80,443; example.test:22 private; *.example.test:443; git.example.test:443",
			[]string{"*.example.test:443", "git.example.test:443", "example.test:22 private", "a.test"}},
		{"joined", "a.test:22,80,443 private", []string{"a.test:443", "a.test:22 private", "A.test.", "a.test:443"}},
		{"below a wildcard, but exact", "a.example.test:443; *.example.test:443", []string{"a.example.test:443", "*.example.test:443"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, set(t, test.rules...).String())
			var again []string
			for i := range test.rules {
				again = append(again, test.rules[len(test.rules)-1-i])
			}
			assert.Equal(t, test.want, set(t, again...).String())
			assert.Equal(t, test.want, set(t, strings.Split(test.want, "; ")...).String())
		})
	}
}

func TestCheck(t *testing.T) {
	rules := set(t, "a.test:"+many(150), "b.test:"+many(200))
	assert.Len(t, rules.Ports(), 200)
	assert.NoError(t, rules.Check())
	rules = append(rules, set(t, "c.test:8443")...)
	assert.EqualError(t, rules.Check(), "cannot allow 201 different ports: 200 is the most; name fewer")

	rules = make(Rules, MaxRules)
	assert.NoError(t, rules.Check())
	assert.ErrorContains(t, append(rules, Rule{}).Check(), "cannot allow 4097 hosts: 4096 is the most")
}

func noSets(string) (Rules, error) { panic("nobody asked for a set") }

func TestFromList(t *testing.T) {
	lines := []string{"# hosts", "", "  ", "a.test:443  # npm /home/me/.npmrc", "\t@mine # and more", "#@none", "b.test\t#"}
	mine := func(name string) (Rules, error) {
		assert.Equal(t, "mine", name)
		return Rules{{Name: "c.test", Ports: []uint16{1}, Origin: "set @mine of F"}}, nil
	}
	rules, err := FromList("/l", lines, mine)
	require.NoError(t, err)
	assert.Equal(t, Rules{
		{Name: "a.test", Ports: []uint16{443}, Origin: "list /l line 4"},
		{Name: "c.test", Ports: []uint16{1}, Origin: "set @mine of F"},
		{Name: "b.test", Ports: []uint16{80, 443}, Origin: "list /l line 7"},
	}, rules)

	rules, err = FromList("-", []string{"a.test"}, noSets)
	require.NoError(t, err)
	assert.Equal(t, "standard input line 1", rules[0].Origin)
	rules, err = From("a.test", "option --allow-host", noSets)
	require.NoError(t, err)
	assert.Equal(t, "option --allow-host", rules[0].Origin)
	rules, err = FromList("-", nil, noSets)
	assert.NoError(t, err)
	assert.Empty(t, rules)
}

func TestFromListRefuses(t *testing.T) {
	_, err := FromList("/l", []string{"", "a.test", "a.test#b"}, noSets)
	assert.EqualError(t, err, `"/l": line 3: cannot allow "a.test#b": its name holds '#': type letters, digits, "-", "_" and dots`)
	_, err = FromList("-", []string{"1.2.3.4"}, noSets)
	assert.ErrorContains(t, err, `standard input: line 1: cannot allow "1.2.3.4"`)
	_, err = FromList("/l", []string{"@x"}, Sets{file: "/s"}.Rules)
	assert.EqualError(t, err, `"/l": line 1: there is no set "@x": "/s" has no sets; add a row: set, tab, NAME:PORT`)
	_, err = FromList("/l", strings.Split(strings.Repeat("a.test\n", MaxRules+1), "\n"), noSets)
	assert.ErrorContains(t, err, `"/l": line 4097: cannot allow 4097 hosts`)
}

func TestNoLookup(t *testing.T) {
	_, err := From("@npm", "option --allow-host", nil)
	assert.EqualError(t, err, `sets such as "@npm" cannot be used here: type their rules`)
}

func table(t *testing.T, rows ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hosts.tsv")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(rows, "\n")+"\n"), 0o644))
	return file
}

func TestSets(t *testing.T) {
	file := table(t, "# mine", "", "npm\tregistry.example.test:443", "work\tgit.example.test:22\tprivate", "npm\t*.cdn.example.test\t-")
	sets, err := LoadSets(file)
	require.NoError(t, err)
	npm, err := sets.Rules("npm")
	require.NoError(t, err)
	assert.Equal(t, "*.cdn.example.test:80,443; registry.example.test:443", npm.String())
	assert.Equal(t, "set @npm of "+file, npm[0].Origin)
	work, err := From(" @work", "option --allow-host", sets.Rules)
	require.NoError(t, err)
	assert.Equal(t, "git.example.test:22 private", work.String())
	_, err = sets.Rules("pip")
	assert.EqualError(t, err, fmt.Sprintf(`there is no set "@pip" in %q: it has @npm, @work`, file))
	_, err = sets.Rules("")
	assert.ErrorContains(t, err, `there is no set "@"`)
}

func TestSetsThatAreNotThere(t *testing.T) {
	sets, err := LoadSets("/nonexistent/hosts.tsv")
	require.NoError(t, err)
	_, err = sets.Rules("npm")
	assert.ErrorContains(t, err, `there is no set "@npm": "/nonexistent/hosts.tsv" has no sets`)
	sets, err = LoadSets("")
	require.NoError(t, err)
	_, err = sets.Rules("npm")
	assert.ErrorContains(t, err, "HOME")
	_, err = Sets{}.Rules("npm")
	assert.Error(t, err)
}

func TestSetsThatAreRefused(t *testing.T) {
	for _, test := range []struct{ name, row, want string }{
		{"one column", "npm", "line 2: 1 columns, want 2 or 3"},
		{"blanks in place of tabs", "npm a.test", "line 2: 1 columns"},
		{"a column too many", "npm\ta.test\tprivate\t-", "line 2: 4 columns"},
		{"no name", "\ta.test", `line 2: "" is no name of a set`},
		{"name with the mark", "@npm\ta.test", `line 2: "@npm" is no name of a set`},
		{"bad rule", "npm\t127.0.0.1", `line 2: cannot allow "127.0.0.1"`},
		{"set in a set", "npm\t@other", `line 2: cannot allow "@other"`},
		{"another word", "npm\ta.test\tpublic", `behind the name stands "public"`},
		{"private wildcard", "npm\t*.a.test\tprivate", "a wildcard cannot be private"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := table(t, "# mine", test.row)
			_, err := LoadSets(file)
			require.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, file)
		})
	}
	file := table(t, "npm\ta.test")
	require.NoError(t, os.Chmod(file, 0o666))
	_, err := LoadSets(file)
	assert.ErrorContains(t, err, "others may write")
}

func TestSetsFile(t *testing.T) {
	env := func(dir string) func(string) string { return func(string) string { return dir } }
	assert.Equal(t, "/h/.config/pikuri/hosts.tsv", SetsFile("/h", env("")))
	assert.Equal(t, "/c/pikuri/hosts.tsv", SetsFile("/h", env("/c")))
	assert.Equal(t, "", SetsFile("", env("")))
}

// FuzzParse: an accepted rule survives printing and parsing; its own name finds it,
// and no other name outside its wildcard does.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"example.test", "*.example.test:443,22", "a.test private", "A.TEST.:1", "0x7f.1", "::1", "https://a@b/c:1", "*.a..b", "a:b:c", "a \tprivate", "@npm # x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			require.Equal(t, Rule{}, r)
			require.NotEmpty(t, err.Error())
			return
		}
		again, err := Parse(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
		require.NotEmpty(t, r.Ports)
		require.False(t, r.Wildcard && r.Private)
		rules := Rules{r}
		require.Equal(t, r.String(), rules.String())
		_, _, exact, ok := rules.Find(r.Name)
		require.Equal(t, !r.Wildcard, ok)
		require.Equal(t, !r.Wildcard, exact)
		_, ok = rules.Allows("x."+strings.ToUpper(r.Name), r.Ports[0])
		require.Equal(t, r.Wildcard && len(r.Name) <= maxName-2, ok)
		_, _, _, ok = rules.Find("x" + r.Name)
		require.False(t, ok)
	})
}
