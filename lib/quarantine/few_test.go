package quarantine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFew(t *testing.T) {
	var lines, want []string
	for i := range maxAlike + 2 {
		line := fmt.Sprintf(`"refs/heads/b %d" was 10c574d%03d, which is now "refs/pk/trash/heads/\"b%[1]d"`, i, i)
		made := fmt.Sprintf(`the repository "/p/%d" works in the sandbox alone until: pk-fs git-adopt /p/%[1]d`, i)
		if lines = append(lines, line, made); i < maxAlike {
			want = append(want, line, made)
		}
	}
	other := `"refs/heads/x": its object is missing; it is dropped`
	assert.Equal(t, append(want, other,
		"2 more of these: ... was ..., which is now ...", "2 more of these: the repository ... works in the sandbox alone"), Few(append(lines, other)))
	assert.Equal(t, lines[:maxAlike], Few(lines[:maxAlike]))
}
