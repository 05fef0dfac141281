package shellword

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"a/b-c_d.e:1":     `a/b-c_d.e:1`,
		"":                `''`,
		"plain name":      `'plain name'`,
		"$(touch x)`y`":   "'$(touch x)`y`'",
		"~":               `'~'`,
		"ünïcode 漢字":      `'ünïcode 漢字'`,
		"a\x1b[2Jb":       `'a'$'\033''[2Jb'`,
		"\x1b":            `''$'\033'`,
		"it's\a":          `'it'\''s'$'\007'`,
		"\a'\a":           `''$'\007'''\'''$'\007'`,
		"\xff\u009b é":    `''$'\377\302\233'' é'`,
		"right\u202eleft": `'right'$'\342\200\256''left'`,
	} {
		got := Word(text)
		assert.Equal(t, want, got)
		read, err := exec.Command("bash", "-c", "printf %s "+got).Output()
		require.NoError(t, err)
		assert.Equal(t, text, string(read), got)
	}
}
