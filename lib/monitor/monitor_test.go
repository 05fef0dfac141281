package monitor

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The runtime keeps threads, and ends the program if it needs one more than it may have.
func TestSpareThreads(t *testing.T) {
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return len(list)
	}
	before := threads()
	spareThreads()
	after := threads()
	assert.GreaterOrEqual(t, after, 16)
	assert.Greater(t, after, before)
	spareThreads()
	assert.Equal(t, after, threads(), "once")
}
