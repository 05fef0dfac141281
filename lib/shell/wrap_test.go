package shell

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJoinWords(t *testing.T) {
	words := []string{"plain/word-1", "", "a b", "it's", "$HOME", "a\nb", "\\", "\xff", "*", "=x"}
	assert.Equal(t, `plain/word-1 '' 'a b' 'it'\''s' '$HOME' 'a`+"\nb' '\\' '\xff' '*' '=x'", JoinWords(words))
	back, err := SplitWords(JoinWords(words))
	assert.NoError(t, err)
	assert.Equal(t, words, back)
}

func TestSplitWords(t *testing.T) {
	for _, test := range []struct {
		name, in string
		want     []string
		err      string
	}{
		{"words", " docker  exec\tbox\n", []string{"docker", "exec", "box"}, ""},
		{"nothing", " \t", nil, ""},
		{"single quotes", `a 'b  c' d'e'f`, []string{"a", "b  c", "def"}, ""},
		{"double quotes", `"a \"b\" \$c \d" ""`, []string{`a "b" $c \d`, ""}, ""},
		{"backslashes", `a\ b \\ \'`, []string{"a b", `\`, "'"}, ""},
		{"a line that goes on", "a\\\nb \"c\\\nd\"", []string{"ab", "cd"}, ""},
		{"nothing is expanded", `$HOME ~ * {a,b}`, []string{"$HOME", "~", "*", "{a,b}"}, ""},
		{"single quote that is open", `a 'b`, nil, "a quote is not closed"},
		{"double quote that is open", `a "b`, nil, "a quote is not closed"},
		{"backslash at the end", `a \`, nil, "nothing follows the last backslash"},
		{"two commands", `a; b`, nil, "';' has no meaning here: quote it"},
		{"a pipeline", `a | b`, nil, "'|' has no meaning here: quote it"},
		{"an operator in quotes", `a ';' "|"`, []string{"a", ";", "|"}, ""},
		{"a NUL", "a\x00", nil, "it holds a NUL byte"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := SplitWords(test.in)
			if test.err != "" {
				assert.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

// FuzzQuote: the shell itself reads a quoted word unchanged.
func FuzzQuote(f *testing.F) {
	f.Add("it's\n$HOME `x` \\")
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) || len(word) > 10000 {
			return
		}
		out, err := exec.Command("sh", "-c", "printf %s. "+Quote(word)).Output()
		require.NoError(t, err)
		assert.Equal(t, word+".", string(out))
		words, err := SplitWords(Quote(word))
		require.NoError(t, err)
		assert.Equal(t, []string{word}, words)
	})
}

func TestTellsPipeline(t *testing.T) {
	for command, want := range map[string]bool{
		"a | b": true, "a|b": true, "a |& b": true, "|": true, "a || b": false, "a ||": false, "a >| b": false, "a": false, "a || b | c": true,
		"trap -p; a | b": false, "set -v; a | b": false, "set -eo pipefail; a -v | b": true,
	} {
		assert.Equal(t, want, tellsPipeline(command), command)
	}
}

func TestStages(t *testing.T) {
	for text, want := range map[string][]int{
		"stages 1 0\n": {1, 0}, "stages 1 0": nil, "": nil, "stages 300 0\n": nil, "stages -1\n": nil, "x\n": nil, "stages 0\nstages 1\n": nil,
	} {
		assert.Equal(t, want, stagesIn(text), "%q", text)
	}
	assert.Equal(t, []int{1, 0}, failedStages([]int{1, 0}, 0))
	assert.Nil(t, failedStages([]int{1, 1}, 1), "the status says it")
	assert.Nil(t, failedStages([]int{141, 0}, 0), "nobody read its output")
	assert.Nil(t, failedStages([]int{0, 0}, 0))
	assert.Nil(t, failedStages([]int{1}, 0))
}
