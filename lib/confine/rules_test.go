package confine

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/pattern"
)

// rules reads "deny P", "deny-read P" and "allow-write P".
func rules(t testing.TB, lines ...string) (r Rules) {
	t.Helper()
	kinds := map[string]*[]Rule{"deny": &r.Deny, "deny-read": &r.DenyRead, "allow-write": &r.AllowWrite}
	for _, line := range lines {
		kind, text, _ := strings.Cut(line, " ")
		p, err := pattern.Compile(text)
		require.NoError(t, err)
		*kinds[kind] = append(*kinds[kind], Rule{Pattern: p})
	}
	return r
}

var ruled = []struct {
	name  string
	rules []string
	input string
	mode  Mode
	want  string // the answer below the base, or the end of the refusal
}{
	{"denied, reading", []string{"deny secret"}, "secret/key", Read, `--deny "secret" covers it`},
	{"denied, writing", []string{"deny secret"}, "secret/key", Write, `--deny "secret" covers it`},
	{"denied directory itself", []string{"deny secret/**"}, "secret", Read, `--deny "secret/**" covers it`},
	{"denied, missing", []string{"deny secret"}, "secret/new/file", Write, `--deny "secret" covers it`},
	{"above what is denied", []string{"deny secret/key"}, "secret", Read, "proj/secret"},
	{"beside what is denied", []string{"deny secret/key"}, "secret/other", Read, "proj/secret/other"},
	{"begins the same", []string{"deny secret"}, "secrets", Write, "proj/secrets"},
	{"dots", []string{"deny secret"}, "pub/.././/secret/key", Read, `--deny "secret" covers it`},
	{"dots, leaving what is denied", []string{"deny secret"}, "secret/../pub/f", Read, "proj/pub/f"},
	{"dots through a link into what is denied", []string{"deny secret"}, "alias/../pub/f", Read, "proj/pub/f"},
	{"dots, the kernel's reading is denied", []string{"deny secret"}, "deep/../key", Read, `--deny "secret" covers the place it leads to`},
	{"absolute", []string{"deny secret"}, "{base}/proj/secret/key", Read, `--deny "secret" covers it`},
	{"through a link", []string{"deny secret"}, "alias/key", Read, `--deny "secret" covers the place it leads to`},
	{"through a chain of links", []string{"deny secret"}, "chain/key", Write, `--deny "secret" covers the place it leads to`},
	{"through a dangling link", []string{"deny secret"}, "dangling", Write, `--deny "secret" covers the place it leads to`},
	{"the link is denied, its target is not", []string{"deny alias"}, "alias/key", Read, `--deny "alias" covers it`},
	{"the target by its own name", []string{"deny alias"}, "secret/key", Read, "proj/secret/key"},
	{"through an absolute link outside", []string{"deny secret"}, "{base}/door/secret/key", Read, `--deny "secret" covers the place it leads to`},
	{"every root", []string{"deny **/key"}, "{base}/ro/key", Read, `--deny "**/key" covers it`},
	{"into another root", []string{"deny key"}, "toro", Read, `--deny "key" covers the place it leads to`},
	{"everything", []string{"deny **"}, ".", Read, `--deny "**" covers it`},
	{"a root that is a file", []string{"deny **/*.pem"}, "{base}/one.pem", Read, `--deny "**/*.pem" covers it`},
	{"outside stays outside", []string{"deny secret"}, "../out/secret", Read, "outside every readable root"},

	{"not to be read, reading", []string{"deny-read secret"}, "alias/key", Read, `--deny-read "secret" covers the place it leads to`},
	{"not to be read, writing", []string{"deny-read secret"}, "alias/key", Write, "proj/secret/key"},
	{"two rules, the mandatory one is named", []string{"deny-read secret", "deny secret/key"}, "secret/key", Read, `--deny "secret/key" covers it`},

	{"not allowed", []string{"allow-write pub/**"}, "secret/key", Write, "no --allow-write pattern matches it"},
	{"not allowed, reading", []string{"allow-write pub/**"}, "secret/key", Read, "proj/secret/key"},
	{"allowed", []string{"allow-write pub/**"}, "pub/new/f", Write, "proj/pub/new/f"},
	{"one of two", []string{"allow-write x", "allow-write pub/**"}, "pub/f", Write, "proj/pub/f"},
	{"a name is not what is below it", []string{"allow-write pub"}, "pub/f", Write, "no --allow-write pattern matches it"},
	{"allowed name, leading elsewhere", []string{"allow-write alias/**"}, "alias/key", Write, "no --allow-write pattern matches it"},
	{"allowed place, by another name", []string{"allow-write secret/**"}, "alias/key", Write, "no --allow-write pattern matches it"},
	{"both allowed", []string{"allow-write {alias,secret}/**"}, "alias/key", Write, "proj/secret/key"},
	{"allowed and denied", []string{"allow-write **", "deny secret"}, "secret/key", Write, `--deny "secret" covers it`},
	{"everything allowed", []string{"allow-write **"}, "a/b/c", Write, "proj/a/b/c"},
	{"allowed, but only readable", []string{"allow-write **"}, "{base}/ro/key", Write, "outside every writable root"},
	{"the scratch directory", []string{"allow-write pub/**"}, "/tmp/x", Write, "play/x"},
	{"the scratch directory, denied", []string{"deny x"}, "/tmp/x", Write, `--deny "x" covers it`},

	{"several names, writing", []string{"deny secret"}, "hard", Write, "it has several hard links, and a rule may bear on another of them"},
	{"several names, reading", []string{"deny secret"}, "hard", Read, "proj/hard"},
	{"several names, no rule about writing", []string{"deny-read secret"}, "hard", Write, "proj/hard"},
}

func TestRules(t *testing.T) {
	everyWay(t, func(t *testing.T, openat2 bool) {
		base := confinetest.Tree(t, "proj/secret/key", "proj/secret/d/", "proj/pub/f", "proj/alias => secret", "proj/chain => pub/../alias",
			"proj/dangling => secret/new", "proj/deep => secret/d", "proj/toro => ../ro/key", "ro/key", "one.pem", "door => proj", "play/")
		require.NoError(t, os.Link(base+"/proj/secret/key", base+"/proj/hard"))
		// Only this case tests several names.
		for _, row := range ruled {
			t.Run(row.name, func(t *testing.T) {
				if !strings.HasPrefix(row.name, "several names") {
					require.NoError(t, os.Remove(base+"/proj/hard"))
					defer func() { require.NoError(t, os.Link(base+"/proj/secret/key", base+"/proj/hard")) }()
				}
				w, err := open(Config{
					ProjectRoot: base + "/proj", Readable: []string{base + "/ro", base + "/one.pem"},
					Temp: base + "/play", AliasTmp: true, Rules: rules(t, row.rules...),
				}, fsat.Opener{Openat2: openat2})
				require.NoError(t, err)
				defer w.Close()
				input := strings.ReplaceAll(row.input, "{base}", base)
				where, err := w.Resolve(input, row.mode)
				again, againErr := w.Batch(Request{Mode: row.mode}).Resolve(input)
				assert.Equal(t, where, again)
				assert.Equal(t, err, againErr)
				if err != nil {
					assert.Contains(t, err.Error(), row.want)
					return
				}
				assert.Equal(t, base+"/"+row.want, where)
			})
		}
	})
}

// A root that was given through a link is known by that name, too.
func TestRulesKnowARootByItsGivenName(t *testing.T) {
	base := confinetest.Tree(t, "real/alias => pub", "real/pub/f", "link => real", "d/")
	for _, given := range []string{"link", "d/../link"} {
		w, err := Open(Config{ProjectRoot: base + "/" + given, Rules: rules(t, "deny alias")})
		require.NoError(t, err)
		_, err = w.Resolve(base+"/link/alias/f", Read)
		assert.Equal(t, given == "link", err != nil, "a name with dots in it is not to be trusted: %v", err)
		w.Close()
	}
}

func TestHintsOfRules(t *testing.T) {
	base := confinetest.Tree(t, "proj/alias => secret", "proj/secret/")
	narrow := rules(t, "deny-read secret", "allow-write alias/**")
	narrow.DenyRead[0].Source = `"/etc/policy", line 3`
	w, err := Open(Config{ProjectRoot: base + "/proj", Rules: narrow})
	require.NoError(t, err)
	defer w.Close()
	for _, row := range []struct {
		input      string
		mode       Mode
		text, hint string
	}{
		{"secret", Read, `cannot read "secret": --deny-read "secret" of "/etc/policy", line 3 covers it`,
			`leave out --deny-read "secret" of "/etc/policy", line 3 to allow it`},
		{"a*b", Write, `cannot write "a*b": no --allow-write pattern matches it`, `--allow-write "a\\*b" would allow it`},
		{"alias/f", Write, `cannot write "alias/f": no --allow-write pattern matches it`, ""},
	} {
		_, err := w.Resolve(row.input, row.mode)
		refusal, ok := errors.AsType[*Refusal](err)
		require.True(t, ok)
		assert.Equal(t, row.text, refusal.Error())
		assert.Equal(t, row.hint, refusal.Hint())
	}
}
