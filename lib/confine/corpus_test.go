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
		for _, c := range confinetest.Load(t, "testdata/path-corpus.json") {
			if c.RunAs != "" {
				continue // the test of cmd/pk-resolve runs it, as another user
			}
			t.Run(name+"/"+c.Name, func(t *testing.T) { replay(t, c, openat2) })
		}
	}
}

func replay(t *testing.T, c confinetest.Case, openat2 bool) {
	base := c.Build(t)
	t.Chdir(c.Dir(base))
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
