package confine

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

// resolvers are the ways to find a canonical path; all have to pass all tests.
var resolvers = map[string]bool{"openat2": true, "walk": false}

func TestCorpus(t *testing.T) {
	for name, openat2 := range resolvers {
		shown := 0
		for _, c := range confinetest.Load(t, "testdata/path-corpus.json") {
			if c.RunAs != "" {
				continue // the test of cmd/pk-resolve runs it, as another user
			}
			t.Run(name+"/"+c.Name, func(t *testing.T) { replay(t, c, openat2) })
			for _, host := range []string{"empty", "hostile"} {
				t.Run(name+"/host "+host+"/"+c.Name, func(t *testing.T) { shown += replayShown(t, c, openat2, host == "hostile") })
			}
		}
		t.Logf("%s: %d cases in a shown tree", name, shown)
		assert.Greater(t, shown, 300)
	}
}

func replay(t *testing.T, c confinetest.Case, openat2 bool) {
	base := c.Build(t)
	t.Chdir(c.Dir(base))
	judge(t, c, base, config(c, base), openat2)
}

// replayShown replays a case whose writable roots have their files elsewhere, and
// returns the number of cases in which that can be done.
func replayShown(t *testing.T, c confinetest.Case, openat2, hostile bool) int {
	base := c.Build(t)
	t.Chdir(c.Dir(base))
	cfg := config(c, base)
	showElsewhere(t, &cfg, hostile, c.Dir(base))
	t.Chdir("/")
	t.Chdir(c.Dir(base)) // the one on the host
	judge(t, c, base, cfg, openat2)
	return min(len(cfg.Shown), 1)
}

func config(c confinetest.Case, base string) Config {
	cfg := Config{
		ProjectRoot: confinetest.Root(base, c.Project),
		Readable:    confinetest.Roots(base, c.Readable),
		Writable:    confinetest.Roots(base, c.Writable),
		Temp:        c.Temp(base),
		AliasTmp:    true,
		Home:        os.Getenv("HOME"),
	}
	if home, ok := c.Env["HOME"]; ok {
		cfg.Home = strings.ReplaceAll(home, "{base}", base)
	}
	return cfg
}

func judge(t *testing.T, c confinetest.Case, base string, cfg Config, openat2 bool) {
	mode := Read
	if c.Mode == "write" {
		mode = Write
	}
	w, err := open(cfg, fsat.Opener{Openat2: openat2})
	where := ""
	if err == nil {
		defer w.Close()
		where, err = w.Resolve(c.Path(base), mode)
	}
	printable := c.Zero() || !strings.Contains(where, "\n") // the command sees to it
	assert.NoError(t, c.Judge(base, where, err == nil && printable), "error was %v", err)
}
