package limits

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSize(t *testing.T) {
	for _, test := range []struct {
		name, in string
		want     int64
		err      string
	}{
		{"bytes", "4096", 4096, ""},
		{"one byte", "1", 1, ""},
		{"kibibytes", "3K", 3 << 10, ""},
		{"mebibytes", "512M", 512 << 20, ""},
		{"gibibytes, small letter", "2g", 2 << 30, ""},
		{"tebibytes", "1T", 1 << 40, ""},
		{"leading zeros", "007", 7, ""},
		{"largest in bytes", "9223372036854775807", math.MaxInt64, ""},
		{"largest in T", "8388607T", 8388607 << 40, ""},
		{"just too large", "8388608T", 0, `"8388608T" is too large: sizes end at 8388607T`},
		{"too many digits", "9223372036854775808", math.MaxInt64, ""},
		{"too many digits, with a unit", "9223372036854775808K", 0, `"9223372036854775808K" is too large: sizes end at 8388607T`},
		{"nothing", "", 0, `"" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"unit alone", "M", 0, `"M" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"zero", "0", 0, `"0" is no size to limit to: type at least 1`},
		{"zero with a unit", "0G", 0, `"0G" is no size to limit to: type at least 1`},
		{"negative", "-1", 0, `"-1" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"sign", "+1", 0, `"+1" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"fraction", "1.5G", 0, `"1.5G" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"blank", "1 M", 0, `"1 M" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"unit of two letters", "1MB", 0, `"1MB" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
		{"word", "max", 0, `"max" is not a size: type a whole number of bytes, or one with K, M, G or T, such as 512M`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseSize(test.in)
			if test.err != "" {
				assert.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestParseCount(t *testing.T) {
	n, err := ParseCount("200")
	require.NoError(t, err)
	assert.Equal(t, int64(200), n)
	for in, want := range map[string]string{
		"0":                    `"0" is not between 16, what a sandbox starts with, and 4194304`,
		"4194305":              `"4194305" is not between 16, what a sandbox starts with, and 4194304`,
		"99999999999999999999": `"99999999999999999999" is not between 16, what a sandbox starts with, and 4194304`,
		"-1":                   `"-1" is not a whole number, such as 200`,
		"1K":                   `"1K" is not a whole number, such as 200`,
		"":                     `"" is not a whole number, such as 200`,
	} {
		_, err := ParseCount(in)
		assert.EqualError(t, err, want)
	}
}

func TestParseSeconds(t *testing.T) {
	d, err := ParseSeconds("60")
	require.NoError(t, err)
	assert.Equal(t, time.Minute, d)
	d, err = ParseSeconds("9223372035")
	require.NoError(t, err)
	assert.Positive(t, d)
	for in, want := range map[string]string{
		"0":          `"0" is not between 1 and 9223372035 seconds`,
		"9223372036": `"9223372036" is not between 1 and 9223372035 seconds`,
		"1.5":        `"1.5" is not a whole number of seconds, such as 60`,
		"1m":         `"1m" is not a whole number of seconds, such as 60`,
	} {
		_, err := ParseSeconds(in)
		assert.EqualError(t, err, want)
	}
}

// ParseSize reads a formatted size as the same number.
func FuzzSize(f *testing.F) {
	for _, s := range []string{"1", "512M", "1025K", "8388607T", "0x10", "１"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		assert.Positive(t, n)
		again, err := ParseSize(FormatSize(n))
		require.NoError(t, err)
		assert.Equal(t, n, again)
	})
}

func TestString(t *testing.T) {
	assert.Equal(t, "--memory 512M --pids 64 --cpu-time 90 --file-size 1025K",
		Limits{Memory: 512 << 20, Pids: 64, CPUTime: 90 * time.Second, FileSize: 1025 << 10}.String())
	assert.Empty(t, Limits{}.String())
	assert.True(t, Limits{}.Zero())
	assert.False(t, Limits{FileSize: 1}.Zero())
}

func TestNothingIsLeftOut(t *testing.T) {
	for _, test := range []struct {
		name, want, hint string
		limits           Limits
	}{
		{"negative", "internal error: limits out of range: --memory -1", "", Limits{Memory: -1}},
		{"part of a second", "internal error: limits out of range: --cpu-time 0", "", Limits{CPUTime: time.Millisecond}},
		{"too little memory", "cannot limit the memory to 1M: no sandbox starts in so little", "give the command --memory 16M or more", Limits{Memory: 1 << 20}},
		{"too few processes", "cannot limit the processes to 15: no sandbox starts with so few", "give the command --pids 16 or more", Limits{Pids: 15}},
		{"too small files", "cannot limit files to 1K: no sandbox starts with so little", "give the command --file-size 4K or more", Limits{FileSize: 1 << 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := Prepare(test.limits)
			assert.Nil(t, b)
			require.EqualError(t, err, test.want)
			if no, ok := err.(*Refusal); ok || test.hint != "" {
				assert.Equal(t, test.hint, no.Hint())
			}
		})
	}
}
