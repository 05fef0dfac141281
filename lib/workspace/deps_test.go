package workspace_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// Programs import this package for files: it must not import packages that run commands
// or make sandboxes.
func TestDependencies(t *testing.T) {
	clitest.NeedModules(t)
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	var own []string
	for line := range strings.Lines(string(out)) {
		if path := strings.TrimSuffix(line, "\n"); strings.HasPrefix(path, "pikuri/") {
			own = append(own, path)
		}
	}
	assert.Equal(t, []string{"pikuri/lib/internal/fsat", "pikuri/lib/internal/gitplace", "pikuri/lib/pattern", "pikuri/lib/workspace"}, own)
}
