package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli"
	"pikuri/lib/cli/clitest"
	"pikuri/lib/session"
)

func TestScripts(t *testing.T) { clitest.Scripts(t) }

func TestTextsAgree(t *testing.T) { clitest.Consistent(t, command()) }

func TestParseAge(t *testing.T) {
	for typed, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "30m": 30 * time.Minute, "12h": 12 * time.Hour,
		"7d": 7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour, "0s": 0, "36500d": maxAge,
	} {
		got, err := parseAge(typed)
		require.NoError(t, err, typed)
		assert.Equal(t, want, got, typed)
	}
	for _, typed := range []string{"", "7", "d", "-1d", "+1d", "1.5d", "1d12h", "7 d", "7D", " 7d", "7d ", "1_0d", "0x7d", "36501d", "99999999999999999999s"} {
		_, err := parseAge(typed)
		assert.Error(t, err, "%q", typed)
	}
}

func FuzzParseAge(f *testing.F) {
	f.Add("7d")
	f.Fuzz(func(t *testing.T, typed string) {
		age, err := parseAge(typed)
		assert.True(t, err != nil || age >= 0 && age <= maxAge, "%q: %v", typed, age)
	})
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		assert.Equal(t, want, cli.Age(d))
	}
	for usage, want := range map[session.Usage]string{
		{}:                                 "0 B in 0 entries",
		{Bytes: 1023, Entries: 1}:          "1023 B in 1 entry",
		{Bytes: 1536, Entries: 2}:          "1.5 KiB in 2 entries",
		{Bytes: 5 << 30, AtLeast: true}:    "at least 5.0 GiB in 0 entries",
		{Bytes: 3000 << 40, Entries: 1000}: "3000.0 TiB in 1000 entries",
	} {
		assert.Equal(t, want, size(usage))
	}
}
