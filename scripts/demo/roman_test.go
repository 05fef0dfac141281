package roman

import (
	"strings"
	"testing"
)

func TestFormat(t *testing.T) {
	for n, want := range map[int]string{
		1: "I", 4: "IV", 9: "IX", 14: "XIV", 40: "XL", 90: "XC",
		400: "CD", 1987: "MCMLXXXVII", 2026: "MMXXVI", 3999: "MMMCMXCIX",
	} {
		if got, err := Format(n); err != nil || got != want {
			t.Errorf("Format(%d) = %q, %v; want %q", n, got, err, want)
		}
	}
}

func TestFormatOutOfRange(t *testing.T) {
	for _, n := range []int{-1, 0, 4000} {
		if got, err := Format(n); err == nil {
			t.Errorf("Format(%d) = %q; want an error", n, got)
		}
	}
}

func TestParse(t *testing.T) {
	if n, err := Parse("MDCLXVI"); err != nil || n != 1666 {
		t.Errorf("Parse(MDCLXVI) = %d, %v; want 1666", n, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, numeral := range []string{
		"", "IIII", "IM", "VX", "XIVI", "iv", " I", "I ", "MMMM", "ABC",
	} {
		if n, err := Parse(numeral); err == nil {
			t.Errorf("Parse(%q) = %d; want an error", numeral, n)
		}
	}
}

func TestParseNamesTheNumeral(t *testing.T) {
	if _, err := Parse("IIX"); err == nil || !strings.Contains(err.Error(), `"IIX"`) {
		t.Errorf("Parse(IIX): the error does not name the numeral: %v", err)
	}
}

func TestEveryNumberComesBack(t *testing.T) {
	seen := map[string]int{}
	for n := Least; n <= Most; n++ {
		numeral, err := Format(n)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[numeral]; ok {
			t.Fatalf("%d and %d are both %q", before, n, numeral)
		}
		seen[numeral] = n
		if back, err := Parse(numeral); err != nil || back != n {
			t.Fatalf("Parse(%q) = %d, %v; want %d", numeral, back, err, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("MMXXVI")
	f.Add("IIII")
	f.Fuzz(func(t *testing.T, numeral string) {
		n, err := Parse(numeral)
		if err != nil {
			return
		}
		if again, err := Format(n); err != nil || again != numeral {
			t.Errorf("Parse(%q) = %d, written back as %q, %v", numeral, n, again, err)
		}
	})
}
