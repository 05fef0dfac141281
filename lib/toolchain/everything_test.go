package toolchain_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/toolchain"
	"pikuri/lib/toolchain/toolchaintest"
)

// TestCheckOfEverything plants all credentials of the table: Check names none with all
// masks, and exactly the one whose mask is missing.
func TestCheckOfEverything(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	table, err := toolchain.Load()
	require.NoError(t, err)
	require.NotEmpty(t, toolchaintest.Plant(t, home, table, "secret\n"))
	host := toolchain.Host{Home: home, Getenv: func(name string) string {
		if name == "USER" {
			return "u"
		}
		return ""
	}}
	entries := table.Present(host)
	for _, r := range table.Rows() {
		if strings.HasPrefix(r.Path, "~/") {
			assert.True(t, slices.ContainsFunc(entries, func(e toolchain.Entry) bool { return e.Row.Path == r.Path }), "%s is not present", r.Path)
		}
	}
	// Leaks outside the home depend on the machine that runs the test.
	inHome := func(path string) bool { return strings.HasPrefix(path, home+"/") }
	leaks := func(masks []string) []string {
		var list []string
		for _, l := range table.Check(host, entries, masks) {
			if inHome(l.Path) {
				list = append(list, l.Path)
			}
		}
		return list
	}
	masks := toolchain.Masks(entries)
	assert.Empty(t, leaks(masks))
	removed := 0
	for i, m := range masks {
		if !inHome(m) {
			continue
		}
		removed++
		assert.Equal(t, []string{m}, leaks(slices.Delete(slices.Clone(masks), i, i+1)))
	}
	assert.Greater(t, removed, 15)
}
