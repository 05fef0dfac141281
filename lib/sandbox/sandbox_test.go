package sandbox_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pikuri/lib/sandbox"
	"pikuri/lib/sandbox/sandboxtest"
)

func TestLocalRunner(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T, root string) sandbox.Runner {
		r, err := sandbox.NewLocalRunner(root)
		require.NoError(t, err)
		t.Cleanup(func() { r.Close() })
		return r
	})
}

// testBwrap is the bwrap to test with. Without one the test is not meant to run
// in this pass: scripts/test has a row for each that matters.
func testBwrap(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PK_TEST_BWRAP")
	if path == "" {
		t.Skip("PK_TEST_BWRAP is not set: sandbox tests run in the matrix of scripts/test")
	}
	return path
}

func TestBwrapRunner(t *testing.T) {
	path := testBwrap(t)
	sandboxtest.Run(t, func(t *testing.T, root string) sandbox.Runner {
		r, err := sandbox.NewBwrapRunner(sandbox.BwrapConfig{Root: root, Bwrap: path})
		require.NoError(t, err)
		t.Cleanup(func() { r.Close() })
		return r
	})
}
