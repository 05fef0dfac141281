package sandboxflags

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli"
)

// given runs a command with these options, and returns them and its diagnostics.
func given(args ...string) (*Options, string) {
	o := new(Options)
	var stderr strings.Builder
	c := &cli.Command{Name: "pk-sample", Options: o.Options(), Workspace: &o.WorkspaceFlags, Action: func(*cli.Context) error { return nil }}
	c.Run(args, nil, io.Discard, &stderr)
	return o, stderr.String()
}

func TestPoliciesToStartFrom(t *testing.T) {
	files, err := filepath.Glob("../../../scripts/policies/*")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		o, stderr := given("--policy", file)
		assert.Empty(t, stderr, file)
		_, err := o.network(nil)
		assert.NoError(t, err, file)
	}
}

// No --net none is refused because of hosts that a policy allows.
func TestNoNetworkDropsAllowedHosts(t *testing.T) {
	file := t.TempDir() + "/policy"
	require.NoError(t, os.WriteFile(file, []byte("net allow\nallow-host example.test\n"), 0o600))
	o, stderr := given("--policy", file, "--net", "none")
	assert.Empty(t, stderr)
	assert.Empty(t, o.allowHosts)
	o, _ = given("--policy", file)
	assert.Len(t, o.allowHosts, 1)
	o, _ = given("--allow-host", "example.test", "--net", "none")
	assert.Len(t, o.allowHosts, 1, "a contradiction on the command line stays one")
}

// In each row, the second value of the option does not tighten the first.
func TestTighteningValues(t *testing.T) {
	values := map[string][2]string{
		"net": {"none", "host"}, "memory": {"1G", "2G"}, "pids": {"200", "201"}, "cpu-time": {"9", "10"}, "file-size": {"1M", "1025K"},
	}
	for _, option := range new(Options).Lasting() {
		v, ok := values[option.Long]
		if !ok {
			continue
		}
		delete(values, option.Long)
		assert.True(t, option.Narrower(v[0]), "%s %s", option.Long, v[0])
		require.NoError(t, option.Set(v[0]))
		assert.True(t, option.Narrower(v[0]), "%s %s again", option.Long, v[0])
		assert.False(t, option.Narrower(v[1]), "%s %s", option.Long, v[1])
	}
	assert.Empty(t, values, "options that are not there")
}
