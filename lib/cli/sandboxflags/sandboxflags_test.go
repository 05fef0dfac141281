package sandboxflags

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli"
)

// cli.SandboxOnly lists exactly the sandbox options of this package, except protect and audit.
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
	for name := range options(append(append(o.WorkspaceFlags.Options(), o.RuleOptions()...), o.AuditOption())) {
		delete(want, name)
	}
	delete(want, "protect")
	assert.Equal(t, want, options(cli.SandboxOnly()))
}
