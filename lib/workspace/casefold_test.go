package workspace

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// FuzzFold: two names become the same if the standard library considers them equal, and
// only then; bytes that are not UTF-8 may be the same too often.
func FuzzFold(f *testing.F) {
	for _, pair := range [][2]string{{"README", "readme"}, {"\u212a", "k"}, {"Σς", "σΣ"}, {"ß", "SS"}, {"İ", "i"}, {"\xff", "\xfe"}, {"a", "b"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		assert.Equal(t, caseFold(a), caseFold(caseFold(a)), "%q", a)
		if utf8.ValidString(a) && utf8.ValidString(b) {
			assert.Equal(t, strings.EqualFold(a, b), caseFold(a) == caseFold(b), "%q, %q", a, b)
		} else if strings.EqualFold(a, b) {
			assert.Equal(t, caseFold(a), caseFold(b), "%q, %q", a, b)
		}
		assert.Equal(t, caseFold(strings.ToUpper(a)) == caseFold(a), strings.EqualFold(strings.ToUpper(a), a), "%q", a)
	})
}
