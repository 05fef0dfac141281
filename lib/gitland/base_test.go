package gitland

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Layers have links to the host's index, also those of one command.
func TestIndexLinks(t *testing.T) {
	g := newGround(t)
	g.Sh(`mkdir -p layer/base/worktrees/w layer/once-x other/base; echo x >index
		ln index layer/base/worktrees/w/index; ln index layer/once-x/old-y; ln index layer/record; ln index other/base/index`)
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(g.Path("index"), &st))
	assert.Equal(t, map[[2]uint64]uint64{{st.Dev, st.Ino}: 2}, IndexLinks([]string{g.Path("layer"), g.Path("missing")}))
}
