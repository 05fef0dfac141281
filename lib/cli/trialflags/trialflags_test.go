package trialflags

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A path takes the answer of the directory above it, and looks no further.
func TestOperandsAbove(t *testing.T) {
	o := operands{map[string]bool{"/a": true, "/a/b/c": true, "/x": true}, map[string][]string{}}
	assert.Equal(t, []string{"/a", "/a/b/c"}, o.above("/a/b/c/d"))
	assert.Equal(t, []string{"/a"}, o.above("/a/b"))
	assert.Equal(t, []string{"/a"}, o.above("/a/bc"))
	assert.Empty(t, o.above("/ab"))
	assert.Empty(t, o.above("/"))

	deep := strings.Repeat("/d", 1000)
	o.known = map[string][]string{deep: {"/d"}}
	assert.Equal(t, []string{"/d"}, o.above(deep+"/e"))
	assert.Len(t, o.known, 2)
}

func TestProtectedNames(t *testing.T) {
	p := protectedPaths{"/root/d/run": {rule: "default: one"}, "/root/file": {"two", true}, "/else": {rule: "three"}}.in("/root")
	for path, want := range map[string]string{
		"d/run": "protected: one", "d/run/x": "protected: one", "d/run" + strings.Repeat("/d", 1000): "protected: one",
		"d": "", "d/runs": "", "file": "protected: two", "file/x": "", "else": "", strings.Repeat("d/", 1000) + "run": "",
	} {
		assert.Equal(t, want, p.rule(path, false), path)
	}
	assert.Empty(t, p.rule("file", true))
	assert.Contains(t, p.below("d"), "one")
	assert.Equal(t, len("d/run"), p.longest)
}
