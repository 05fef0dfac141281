package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a command with an option of every kind, which prints its arguments.
func sample() (*Command, *string) {
	var got strings.Builder
	out := new(string)
	note := func(name string) func(string) error {
		return func(v string) error {
			if v == "bad" {
				return errors.New("\"bad\" is bad")
			}
			got.WriteString(name + "=" + v + " ")
			return nil
		}
	}
	c := &Command{Name: "pk-sample", Help: "the help\n"}
	c.Options = []Option{
		Func(note("dir"), "dir", "C"),
		Func(note("read"), "readable", ""),
		Func(note("write"), "writable", ""),
		{Long: "quiet", Short: "q", set: func(string) error { got.WriteString("quiet "); return nil }},
		{Long: "zero", Short: "z", set: func(string) error { got.WriteString("zero "); return nil }},
	}
	c.Action = func(ctx *Context) error {
		*out = got.String() + "|" + strings.Join(ctx.Args, "|")
		return nil
	}
	return c, out
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"none", nil, "|"},
		{"operands", []string{"a", "b"}, "|a|b"},
		{"value after a blank", []string{"--dir", "x", "a"}, "dir=x |a"},
		{"value after an equals sign", []string{"--dir=x=y", "a"}, "dir=x=y |a"},
		{"empty value", []string{"--dir=", "--dir", ""}, "dir= dir= |"},
		{"short with a blank", []string{"-C", "x"}, "dir=x |"},
		{"short without", []string{"-Cx"}, "dir=x |"},
		{"short ones together", []string{"-qzCx"}, "quiet zero dir=x |"},
		{"a value that looks like an option", []string{"--dir", "--quiet"}, "dir=--quiet |"},
		{"a value that looks like the end", []string{"--dir", "--", "a"}, "dir=-- |a"},
		{"commas and blanks belong to the value", []string{"--readable", " a,b "}, "read= a,b  |"},
		{"order between options", []string{"--readable", "1", "--writable", "2", "--readable", "3"}, "read=1 write=2 read=3 |"},
		{"the end of options", []string{"-q", "--", "-z"}, "quiet |-z"},
		{"a second end is an operand", []string{"--", "--", "a"}, "|--|a"},
		{"options end at the first operand", []string{"a", "-q", "--", "-z"}, "|a|-q|--|-z"},
		{"a dash is an operand", []string{"-q", "-", "-z"}, "quiet |-|-z"},
		{"an operand named as an option", []string{"dir", "-q"}, "|dir|-q"},
		{"an operand called help", []string{"help"}, "|help"},
		{"an empty operand", []string{"", "-q"}, "||-q"},
		{"bytes that are not UTF-8", []string{"-C\xff"}, "dir=\xff |"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, got := sample()
			var stdout, stderr bytes.Buffer
			status := c.Run(test.args, nil, &stdout, &stderr)
			assert.Equal(t, test.want, *got)
			assert.Equal(t, 0, status)
			assert.Empty(t, stdout.String()+stderr.String())
		})
	}
}

func TestInterspersedOptions(t *testing.T) {
	c, got := sample()
	c.Interspersed = true
	require.Equal(t, 0, c.Run([]string{"verb", "-q", "-", "--", "-z"}, nil, io.Discard, io.Discard))
	assert.Equal(t, "quiet |verb|-|-z", *got)
}

func TestUsageErrors(t *testing.T) {
	const help = "pk-sample: hint: pk-sample --help lists the options\n"
	for _, test := range []struct {
		name   string
		args   []string
		stderr string
	}{
		{"unknown long option", []string{"--nope"}, "pk-sample: unknown option \"--nope\"\n" + help},
		{"unknown with a value", []string{"--nope=x"}, "pk-sample: unknown option \"--nope\"\n" + help},
		{"nearly right", []string{"--readabl"}, "pk-sample: unknown option \"--readabl\"\npk-sample: hint: did you mean --readable?\n"},
		{"a letter missing", []string{"--reable"}, "pk-sample: unknown option \"--reable\"\npk-sample: hint: did you mean --readable?\n"},
		{"a wrong letter", []string{"--writeble=x"}, "pk-sample: unknown option \"--writeble\"\npk-sample: hint: did you mean --writable?\n"},
		{"two letters swapped", []string{"--qiuet"}, "pk-sample: unknown option \"--qiuet\"\npk-sample: hint: did you mean --quiet?\n"},
		{"a word too many", []string{"--quiet-please"}, "pk-sample: unknown option \"--quiet-please\"\npk-sample: hint: did you mean --quiet?\n"},
		{"another word", []string{"--verbose"}, "pk-sample: unknown option \"--verbose\"\n" + help},
		{"the beginning of an option", []string{"--wr"}, "pk-sample: unknown option \"--wr\"\npk-sample: hint: did you mean --writable?\n"},
		{"far longer than any option", []string{"--d" + strings.Repeat("r", 1<<20)}, "pk-sample: unknown option \"--d" + strings.Repeat("r", 1<<20) + "\"\n" + help},
		{"a short option with two dashes", []string{"--q"}, "pk-sample: unknown option \"--q\"\n" + help},
		{"true for a switch", []string{"--quiet=true"}, "pk-sample: option \"--quiet\" takes no value\n" + help},
		{"one dash", []string{"-readable", "x"}, "pk-sample: unknown option \"-readable\"\npk-sample: hint: did you mean --readable?\n"},
		{"unknown short option", []string{"-x"}, "pk-sample: unknown option \"-x\"\n" + help},
		{"unknown among short ones", []string{"-qx"}, "pk-sample: unknown option \"-qx\"\n" + help},
		{"no value", []string{"--dir"}, "pk-sample: option \"--dir\" needs a value\n" + help},
		{"no value, short", []string{"-qC"}, "pk-sample: option \"-C\" needs a value\n" + help},
		{"a value too many", []string{"--quiet=yes"}, "pk-sample: option \"--quiet\" takes no value\n" + help},
		{"a bad value", []string{"--dir", "bad"}, "pk-sample: option \"--dir\": \"bad\" is bad\n" + help},
		{"json of nothing", []string{"--json"}, "pk-sample: --json goes with --version only\n" + help},
		{"an option that drives the terminal", []string{"--\x1b[2K\n"}, "pk-sample: unknown option \"--\\x1b[2K\\n\"\n" + help},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, wraps := range []bool{false, true} {
				c, got := sample()
				c.Wraps = wraps
				var stdout, stderr bytes.Buffer
				status := c.Run(test.args, nil, &stdout, &stderr)
				assert.Equal(t, map[bool]int{false: 2, true: 125}[wraps], status)
				assert.Equal(t, test.stderr, stderr.String())
				assert.Empty(t, stdout.String())
				assert.Empty(t, *got, "nothing is done")
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"long", []string{"--help"}, "the help\n"},
		{"short", []string{"-h"}, "the help\n"},
		{"before operands", []string{"--help", "--", "ls"}, "the help\n"},
		{"version", []string{"--version"}, "pk-sample 1.2.3 "},
		{"version as JSON", []string{"--version", "--json"}, `{"name":"pk-sample","version":"1.2.3",`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, got := sample()
			c.Version = "1.2.3"
			var stdout, stderr bytes.Buffer
			assert.Equal(t, 0, c.Run(test.args, nil, &stdout, &stderr))
			assert.True(t, strings.HasPrefix(stdout.String(), test.want), stdout.String())
			assert.Empty(t, stderr.String())
			assert.Empty(t, *got)
		})
	}
}

func TestStatuses(t *testing.T) {
	plain := errors.New("it failed")
	for _, test := range []struct {
		name         string
		err          error
		plain, wraps int
		stderr       string
	}{
		{"done", nil, 0, 0, ""},
		{"a failure", plain, 1, 125, "pk-sample: it failed\n"},
		{"a failure with a hint", WithHint(plain, "try %q", "x"), 1, 125, "pk-sample: it failed\npk-sample: hint: try \"x\"\n"},
		{"the caller's mistake", Invalid(plain), 2, 125, "pk-sample: it failed\npk-sample: hint: pk-sample --help lists the options\n"},
		{"the caller's mistake, with a hint", Invalid(WithHint(plain, "try y")), 2, 125, "pk-sample: it failed\npk-sample: hint: try y\n"},
		{"a status of its own", WithStatus(127, plain), 127, 127, "pk-sample: it failed\n"},
		{"a status and nothing to say", Exit(7), 7, 7, ""},
		{"no status", Exit(0), 0, 0, ""},
		{"wrapped", errors.Join(WithStatus(126, plain)), 126, 126, "pk-sample: it failed\n"},
		{"several", fmt.Errorf("all of: %w", errors.Join(plain, errors.Join(errors.New("more"), errors.New("c\rd")))), 1, 125, "pk-sample: all of: it failed; more; c\ufffdd\n"},
		{"several, quoted as text", fmt.Errorf("all of: %s", fmt.Sprint(errors.Join(plain, plain))), 1, 125, "pk-sample: all of: it failed; it failed\n"},
		{"a message of several lines", errors.New("a\nb\x1b"), 1, 125, "pk-sample: a; b�\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for wraps, want := range map[bool]int{false: test.plain, true: test.wraps} {
				var stderr bytes.Buffer
				c := &Command{Name: "pk-sample", Wraps: wraps, Action: func(*Context) error { return test.err }}
				assert.Equal(t, want, c.Run(nil, nil, io.Discard, &stderr))
				assert.Equal(t, test.stderr, stderr.String())
			}
		})
	}
}

func TestRecords(t *testing.T) {
	for _, test := range []struct {
		name, in string
		zero     bool
		want     []string
		err      string
	}{
		{"lines", "a\nb c\n", false, []string{"a", "b c"}, ""},
		{"the last without an end", "a\nb", false, []string{"a", "b"}, ""},
		{"none", "", false, nil, ""},
		{"NUL", "a\nb\x00c\x00", true, []string{"a\nb", "c"}, ""},
		{"carriage returns stay", "a\r\n", false, []string{"a\r"}, ""},
		{"an empty one", "a\n\nb\n", false, nil, "list: record 2 is empty"},
		{"one that is too long", strings.Repeat("x", maxRecord+1), false, nil, "list: record 1: longer than 1048576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ReadRecords(strings.NewReader(test.in), "list", test.zero)
			if test.err != "" {
				assert.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestWriteRecord(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteRecord(&out, "a b\x1b", false, false))
	require.NoError(t, WriteRecord(&out, "a\nb", true, false))
	require.NoError(t, WriteRecord(&out, "a\t\x1b\x7f\u009b\u202e\xff", false, true))
	require.NoError(t, WriteRecord(&out, "\x1b", true, true))
	for _, terminal := range []bool{false, true} {
		assert.EqualError(t, WriteRecord(&out, "a\nb", false, terminal), `"a\nb" holds a newline: with -z records end in NUL`)
	}
	assert.Equal(t, "a b\x1b\na\nb\x00a\t''$'\\033\\177\\302\\233\\342\\200\\256\\377'\n\x1b\x00", out.String())
}

func TestStandardInputIsReadOnce(t *testing.T) {
	ctx := &Context{Stdin: strings.NewReader("a\n")}
	got, err := ctx.ReadList("-", false)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, got)
	_, err = ctx.ReadList("-", false)
	assert.EqualError(t, err, "standard input can be read only once")
	_, err = ctx.ReadAll()
	assert.EqualError(t, err, "standard input can be read only once")
}

func TestStandardInputThatIsTooLong(t *testing.T) {
	text := strings.Repeat("a", maxText)
	got, err := (&Context{Stdin: strings.NewReader(text)}).ReadAll()
	require.NoError(t, err)
	assert.Len(t, got, maxText)
	_, err = (&Context{Stdin: strings.NewReader(text + "a")}).ReadAll()
	assert.EqualError(t, err, "standard input has more than 16777216 bytes, which is the most: put it into a file")
}

func TestInt(t *testing.T) {
	n := 5
	o := Int(&n, 1, 10, "n", "")
	require.NoError(t, o.set("7"))
	assert.Equal(t, 7, n)
	for _, bad := range []string{"0", "11", "x", "", "1.5", "99999999999999999999"} {
		assert.Error(t, o.set(bad), bad)
	}
	assert.Equal(t, 7, n)
}

func TestVerbs(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"before and behind the verb", []string{"-q", "do", "-z", "a", "b"}, "quiet zero |do|a|b"},
		{"no further than its operand", []string{"do", "a", "-z"}, "|do|a|-z"},
		{"not behind the end of options", []string{"do", "--", "-z"}, "|do|-z"},
		{"nor when that comes before the verb", []string{"--", "do", "-z"}, "|do|-z"},
		{"a dash is an operand", []string{"do", "-", "-z"}, "|do|-|-z"},
	} {
		c, got := sample()
		c.Verb = true
		require.Equal(t, 0, c.Run(test.args, strings.NewReader(""), io.Discard, io.Discard), test.name)
		assert.Equal(t, test.want, *got, test.name)
	}
}

func TestNoted(t *testing.T) {
	given := 0
	value := ""
	o := Text(&value, "x", "").Noted(func() { given++ })
	require.NoError(t, o.set("a"))
	assert.Equal(t, "a", value)
	assert.Equal(t, 1, given)
	n := 0
	o = Int(&n, 1, 2, "n", "").Noted(func() { given++ })
	assert.Error(t, o.set("3"))
	assert.Equal(t, 1, given)
}

// TestReadLines: a list in which records may be empty keeps them, with their places.
func TestReadLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(file, []byte("# c\n\na\n"), 0o644))
	ctx := &Context{Stdin: strings.NewReader("\x00a\nb\x00")}
	lines, err := ctx.ReadLines(file, false)
	require.NoError(t, err)
	assert.Equal(t, []string{"# c", "", "a"}, lines)
	_, err = ctx.ReadList(file, false)
	assert.EqualError(t, err, fmt.Sprintf("%q: record 2 is empty", file))
	lines, err = ctx.ReadLines("-", true)
	require.NoError(t, err)
	assert.Equal(t, []string{"", "a\nb"}, lines)
	_, err = ctx.ReadLines("-", true)
	assert.EqualError(t, err, "standard input can be read only once")
}
