// Package roman converts between whole numbers and Roman numerals.
package roman

import (
	"fmt"
	"strings"
)

// Least and Most are the smallest and the largest number that can be written.
// The Romans had no zero, and no letter beyond M.
const (
	Least = 1
	Most  = 3999
)

// symbols holds the letters and the six pairs that stand for a subtraction,
// largest first.
var symbols = []struct {
	text  string
	value int
}{
	{"M", 1000}, {"CM", 900}, {"D", 500}, {"CD", 400},
	{"C", 100}, {"XC", 90}, {"L", 50}, {"XL", 40},
	{"X", 10}, {"IX", 9}, {"V", 5}, {"IV", 4}, {"I", 1},
}

// Format writes n as a Roman numeral. It fails unless Least <= n <= Most.
func Format(n int) (string, error) {
	if n < Least || n > Most {
		return "", fmt.Errorf("cannot write %d: not between %d and %d", n, Least, Most)
	}
	var b strings.Builder
	for _, s := range symbols {
		for ; n >= s.value; n -= s.value {
			b.WriteString(s.text)
		}
	}
	return b.String(), nil
}

// Parse reads a Roman numeral, in capitals, as Format writes it. There is one
// way to write each number: "IIII" and "IM" are refused.
func Parse(numeral string) (int, error) {
	n, rest := 0, numeral
	for _, s := range symbols {
		for strings.HasPrefix(rest, s.text) {
			n += s.value
			rest = rest[len(s.text):]
		}
	}
	// A numeral that is written back differently was not a proper one.
	if again, err := Format(n); err != nil || rest != "" || again != numeral {
		return 0, fmt.Errorf("cannot read %q: not a Roman numeral", numeral)
	}
	return n, nil
}
