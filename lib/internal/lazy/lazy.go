// Package lazy compiles regular expressions at their first use: of those that a program links, a
// process needs few.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp is regexp.MustCompile for the variable of a package.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
