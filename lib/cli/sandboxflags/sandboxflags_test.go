package sandboxflags

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli"
)

// The options that other commands skip in a policy, or hand on, are those that there are.
func TestSandboxOnly(t *testing.T) {
	options := func(list []cli.Option) map[string]bool {
		m := map[string]bool{}
		for _, o := range list {
			m[o.Long] = o.Value
		}
		return m
	}
	o := new(Options)
	want := options(o.Lasting())
	for name := range options(append(o.WorkspaceFlags.Options(), o.RuleOptions()...)) {
		delete(want, name)
	}
	delete(want, "protect")
	assert.Equal(t, want, options(cli.SandboxOnly()))
}
