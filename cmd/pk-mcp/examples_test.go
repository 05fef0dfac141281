package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// The test cannot run the agents. It checks that the configurations are JSON, and that the
// README names each.
func TestExamples(t *testing.T) {
	dir := filepath.Join(clitest.Root(t), "scripts", "examples", "mcp")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		assert.True(t, f.Name() == "README.md" || strings.Contains(string(readme), "]("+f.Name()+")"), f.Name())
		if strings.HasSuffix(f.Name(), ".json") {
			assert.True(t, json.Valid(text), f.Name())
		}
	}
}
