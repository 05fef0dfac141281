package refs

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/internal/gitplace"
)

// git judges all names in one run: update-ref stops at the first bad one, and
// check-ref-format accepts one name only, so a shell calls it in a loop.
func gitNames(t testing.TB, names []string) []bool {
	script := `while [ $# -gt 0 ]; do git check-ref-format "$1" && echo y || echo n; shift; done`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, names...)...)
	cmd.Env = environment("/none")
	out, err := cmd.Output()
	require.NoError(t, err)
	var good []bool
	for line := range strings.Lines(string(out)) {
		good = append(good, line == "y\n")
	}
	require.Len(t, good, len(names))
	return good
}

func TestNamesAsGit(t *testing.T) {
	t.Parallel()
	names := []string{"refs/heads/a", "refs/heads/@", "refs/heads/a@{b", "refs/heads/a@", "refs/heads/{", "refs//a", "refs/a/", "refs/",
		"refs/a", "refs/a.lock", "refs/a.lock/b", "refs/a.lockb", "refs/.lock", "refs/a.", "refs/a./b", "refs/a..b", "refs/.a", "refs/a\x7f",
		"refs/a\x1f", "refs/\xff", "refs/ä", "refs/a*", "refs/*", "refs/a b", "refs/a\\b", "refs/a[b", "refs/a]b", "refs/a~", "refs/a^", "refs/a:", "refs/a?"}
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "/", ".", "..", "@", "{", "@{", ".lock", "*", " ", "~", "\n", "\t", "é", "-", "lock", "\x01"}
	for range 150 {
		name := "refs/"
		for range 1 + random.IntN(6) {
			name += parts[random.IntN(len(parts))]
		}
		names = append(names, name)
	}
	for i, good := range gitNames(t, names) {
		assert.Equalf(t, good, gitplace.CheckRef(names[i]) == nil, "%q", names[i])
	}
	assert.Error(t, gitplace.CheckRef("heads/a"))
	assert.Error(t, gitplace.CheckRef(""))
	assert.Error(t, gitplace.CheckRef("refs/a\x00"))
}

// Git prints the names of branches as they are.
func TestNamesThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\u202eb", "a\u009b31m", "a\u200b", "\ufeff", "a\u2028b", "a\u2060",
		"main\u00ad", "v\u115f", "v\u3164", "v\u2800", "v\u00a0x", "v\U000e0041", "v\ufe0f", "v\u180e", "v\u034f", "v\u206a", "v\ufff9", "a\x9b31m"} {
		assert.ErrorContains(t, CheckName("refs/heads/"+name), "cannot be seen", "%q", name)
	}
	for _, name := range []string{"é", "日本", "\xff", "क\u200dष", "a-b_c.d@e"} {
		assert.NoError(t, CheckName("refs/heads/"+name), "%q", name)
	}
}

func FuzzName(f *testing.F) {
	f.Add("heads/a")
	f.Fuzz(func(t *testing.T, name string) {
		if strings.Contains(name, "\x00") || len(name) > 4000 {
			t.Skip()
		}
		name = "refs/" + name
		if good := gitNames(t, []string{name})[0]; good != (gitplace.CheckRef(name) == nil) {
			t.Fatalf("git says %v of %q", good, name)
		}
	})
}

func id(n int) string { return fmt.Sprintf("%040x", n+1) }

func TestPacked(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		text := packedHeader + " peeled fully-peeled sorted \n"
		for i := range n {
			text += fmt.Sprintf("%s refs/heads/%c\n", id(i), 'b'+2*i)
			if i%3 == 1 {
				text += "^" + id(i) + "\n"
			}
		}
		p, err := parsePacked(text, 40)
		require.NoError(t, err)
		for i := range n {
			assert.Equal(t, id(i), p.get(fmt.Sprintf("refs/heads/%c", 'b'+2*i)))
			assert.Empty(t, p.get(fmt.Sprintf("refs/heads/%c", 'a'+2*i)))
		}
		assert.Empty(t, p.get("refs/heads/zz"))
		assert.Empty(t, p.get(""))
		assert.Equal(t, text, p.without(nil))
		if n > 1 {
			assert.Equal(t, "refs/heads/b", slices.Collect(p.below("refs/heads"))[0])
			without, err := parsePacked(p.without(map[string]bool{"refs/heads/d": true}), 40)
			require.NoError(t, err)
			var different []string
			differences(p, without, func(name string) { different = append(different, name) })
			differences(without, p, func(name string) { different = append(different, name) })
			assert.Equal(t, []string{"refs/heads/d", "refs/heads/d"}, different)
		}
	}
}

// Git reads each accepted file in the same way.
func FuzzPacked(f *testing.F) {
	f.Add(packedHeader + " peeled fully-peeled sorted \n" + id(1) + " refs/heads/b\n^" + id(2) + "\n" + id(3) + " refs/heads/a\n")
	f.Add(id(1) + " refs/tags/x\n")
	f.Add("#\n" + id(1) + " refs/tags/x")
	f.Fuzz(func(t *testing.T, data string) {
		p, err := parsePacked(data, 40)
		q, err2 := openPacked(data, 40)
		if err2 == nil {
			q.get("refs/heads/a")
			for range q.below("refs/heads") {
			}
			q.without(map[string]bool{"refs/heads/a": true})
		}
		if err != nil {
			return
		}
		last := ""
		p.each(func(name, id string) bool {
			if name <= last || p.get(name) != id {
				t.Errorf("%q after %q: %q", name, last, p.get(name))
			}
			last = name
			return true
		})
		if again, err := parsePacked(p.header+p.refs, 40); err != nil || again != p {
			t.Errorf("parsed again it is %v, %v", again, err)
		}
	})
}

// An accepted line is written back so that git reads one entry.
func FuzzEntry(f *testing.F) {
	f.Add(id(1) + " " + id(2) + " A <a@b> 1700000000 +0100\tcommit: x")
	f.Add(id(1) + " " + id(2) + "  <> 0 -0000")
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		e, err := parseEntry(line, 40)
		if err != nil {
			return
		}
		text := e.String()
		if strings.Count(text, "\n") != 1 || strings.ContainsAny(text, "\x00\x1b\r") {
			t.Errorf("%q", text)
		}
		if again, err := parseEntry(strings.TrimSuffix(text, "\n"), 40); err != nil || again != e {
			t.Errorf("parsed again it is %v, %v", again, err)
		}
	})
}

func TestEntries(t *testing.T) {
	t.Parallel()
	ids := id(1) + " " + id(2) + " "
	for line, good := range map[string]bool{
		ids + "A <a@b> 1 +0000\tx":                 true,
		ids + "A <a@b> 1 +0000":                    true,
		ids + "<a@b> 1 +0000\tx":                   true,
		ids + "A B C <> 1 -1200\t":                 true,
		ids + "A <a@b> 1 +000\tx":                  false,
		ids + "A <a@b> -1 +0000\tx":                false,
		ids + "A <a@b> 1 0000\tx":                  false,
		ids + "A <a@b>1 +0000\tx":                  false,
		ids + "A <a<b> 1 +0000\tx":                 false,
		ids + "A> <a> 1 +0000\tx":                  false,
		ids + "A a@b 1 +0000\tx":                   false,
		ids + "A\x1b <a@b> 1 +0000\tx":             false,
		ids + "A <a@b> 1111111111111 +0000\tx":     false,
		id(1) + "  " + id(2) + " A <a> 1 +0000\tx": false,
		"": false,
	} {
		_, err := parseEntry(line, 40)
		assert.Equalf(t, good, err == nil, "%q", line)
	}
}

func TestNewEntries(t *testing.T) {
	t.Parallel()
	line := func(from, to int, message string) string {
		return LogEntry{id(from), id(to), "A <a>", 1, "+0000", message}.String()
	}
	a, b, c := line(0, 1, "a"), line(1, 2, "b"), line(2, 3, "c")
	for _, row := range []struct {
		name, layer, host string
		want              string
	}{
		{"no log on the host", a + b, "", a + b},
		{"one new line", a + b, a, b},
		{"none", a + b, a + b, ""},
		{"landed before", a + b + c, a + line(1, 2, "pk: s: b"), c},
		{"the host went on", a + b, a + line(1, 9, "host"), b},
		{"the beginning expired", b + c, a + b, c},
		{"the same once more", a + a, a, a},
		{"nonsense first", "x\n" + b, "", b},
		{"nonsense between", a + "x\n" + b, "", b},
		{"a line without its end", a + strings.TrimSuffix(b, "\n"), "", ""},
	} {
		assert.Equal(t, row.want, logText(newEntries(row.layer, row.host, "s", 40)), row.name)
	}
	entries := newEntries(a+b+c, "", "s", 40)
	assert.Equal(t, b+c, logText(chain(entries, id(1), id(3))))
	assert.Empty(t, chain(entries, id(4), id(3)))
	assert.Empty(t, chain(entries, id(1), id(2)))
	assert.Empty(t, chain(append(entries[:1:1], entries[2]), id(0), id(3)))
}
