package confine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestZeroValuesDenyEverything(t *testing.T) {
	for _, path := range []string{"", ".", "x", "/", "/etc/passwd", "/tmp", "/tmp/x", "..", "\x00"} {
		for _, mode := range []Mode{Read, Write} {
			var w Workspace
			where, err := w.Resolve(path, mode)
			assert.Error(t, err, path)
			assert.Empty(t, where, path)
		}
	}
	_, err := Open(Config{})
	assert.EqualError(t, err, `cannot use "" as the project root: it has no name`)
}
