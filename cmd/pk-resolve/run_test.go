package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/confine/confinetest"
)

func TestConsistent(t *testing.T) { clitest.Consistent(t, command()) }

func TestPolicyPage(t *testing.T) { clitest.PolicyPage(t, new(options).policyOptions()) }

func TestScripts(t *testing.T) { clitest.Scripts(t) }

// run runs the command in process.
func run(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errors bytes.Buffer
	status = Run(args, strings.NewReader(stdin), &out, &errors)
	return status, out.String(), errors.String()
}

func TestManyOperands(t *testing.T) {
	base := confinetest.Tree(t, "proj/d/f", "proj/l => /etc")
	args := []string{"-C", base + "/proj"}
	var want strings.Builder
	for i := range 10_000 {
		if i%10 == 9 {
			args = append(args, "l/passwd")
			continue
		}
		args = append(args, "d/f")
		want.WriteString(base + "/proj/d/f\n")
	}
	status, stdout, stderr := run("", args...)
	assert.Equal(t, 1, status)
	assert.Equal(t, want.String(), stdout)
	assert.Equal(t, 1000, strings.Count(stderr, "\n"))
}

// failing is a standard output that takes so many bytes and no more.
type failing struct{ room int }

func (f *failing) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, assert.AnError
	}
	return len(p), nil
}

func TestFailedWriteIsSaidOnce(t *testing.T) {
	base := confinetest.Tree(t, "proj/f")
	for _, args := range [][]string{{"f"}, {"--stdin"}, {"../out", "f"}} {
		var stderr bytes.Buffer
		args = append([]string{"-q", "-C", base + "/proj"}, args...)
		status := Run(args, strings.NewReader(strings.Repeat("f\n", 200_000)), &failing{}, &stderr)
		assert.Equal(t, 1, status)
		require.Equal(t, "pk-resolve: cannot write to standard output: "+assert.AnError.Error()+"\n", stderr.String())
	}
}

// FuzzStream: for any input there is one answer for each record.
func FuzzStream(f *testing.F) {
	base := confinetest.Tree(f, "proj/d/f", "proj/l => /etc")
	f.Add("f\n\nl/passwd\n../x\nd/f", false)
	f.Add("a\x00b\x00", true)
	f.Fuzz(func(t *testing.T, input string, zero bool) {
		args, end := []string{"-C", base + "/proj", "--stdin"}, "\n"
		if zero {
			args, end = append(args, "-z"), "\x00"
		}
		status, stdout, _ := run(input, args...)
		if !zero && strings.Contains(input, "\x00") {
			assert.Equal(t, 2, status)
			return
		}
		records := strings.Count(input, end)
		if input != "" && !strings.HasSuffix(input, end) {
			records++
		}
		assert.Equal(t, records, strings.Count(stdout, end))
		for answer := range strings.SplitSeq(stdout, end) {
			assert.True(t, answer == "" || strings.HasPrefix(answer+"/", base+"/proj/"), "%q", answer)
		}
	})
}
