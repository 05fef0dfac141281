package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noted are options that record how they are set.
func noted(log *[]string) []Option {
	note := func(name string) func(string) error {
		return func(v string) error { *log = append(*log, name+"="+v); return nil }
	}
	on := false
	return []Option{
		Func(note("word"), "word", "w"),
		Func(note("file"), "file", "").Path(),
		Func(note("list"), "list-from", "").PathOrStdin(),
		Switch(&on, "on", ""),
	}
}

func writePolicy(t testing.TB, text string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/p", []byte(text), 0o600))
	return dir + "/p"
}

func TestPolicyLines(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string // "{d}" is the policy's directory
		err        string
	}{
		{"nothing", "", nil, ""},
		{"comments and blanks", "# word x\n\n \t\n  # y\n", nil, ""},
		{"the last line without an end", "word x", []string{"word=x"}, ""},
		{"blanks around", " \tword \t x y \t\n", []string{"word=x y"}, ""},
		{"everything else belongs to the value", "word a,b # \"$x\"'\\\n", []string{`word=a,b # "$x"'\`}, ""},
		{"bytes", "word \xff\x1b\n", []string{"word=\xff\x1b"}, ""},
		{"order", "word 2\nword 1\n", []string{"word=2", "word=1"}, ""},
		{"relative path", "file a/../b\n", []string{"file={d}/a/../b"}, ""},
		{"absolute path", "file /a\n", []string{"file=/a"}, ""},
		{"a dash is a file", "file -\n", []string{"file={d}/-"}, ""},
		{"a dash is standard input", "list-from -\nlist-from l\n", []string{"list=-", "list={d}/l"}, ""},
		{"switch", "on\n", nil, ""},
		{"switch with a value", "\non yes\n", nil, `line 2: option "on" takes no value`},
		{"no value", "word \t\n", nil, `line 1: option "word" needs a value`},
		{"unknown", "word x\nwrod x\n", []string{"word=x"}, `line 2: "wrod" is not an option that a policy can give`},
		{"for sandboxes", "net none\nword x\ntrial\n", []string{"word=x"}, ""},
		{"for sandboxes, no value", "net\n", nil, `line 1: option "net" needs a value`},
		{"for another command", "allow-all\n", nil, ""},
		{"for the machine's policy", "mandatory\n", nil, `line 1: "mandatory" is not an option`},
		{"home", "file ~\nfile ~/a/../b\nfile $HOME\n", []string{"file=/h", "file=/h/a/../b", "file=/h"}, ""},
		{"home, of words", "word ~/a\n", []string{"word=~/a"}, ""},
		{"another's home", "file ~root/x\n", nil, `line 1: option "file": "~root/x": only ~/ and $HOME/`},
		{"another variable", "file $HOMES/x\n", nil, `line 1: option "file": "$HOMES/x": only ~/ and $HOME/`},
		{"a file of that name", "file ./~root\n", []string{"file={d}/./~root"}, ""},
		{"short", "w x\n", nil, `line 1: "w" is not an option`},
		{"equals sign", "word=x\n", nil, `line 1: "word=x" is not an option`},
		{"carriage return", "word x\r\n", nil, `line 1: it holds the byte '\r'`},
		{"NUL", "word x\x00y\n", nil, `line 1: it holds the byte '\x00'`},
		{"too long", strings.Repeat("#", maxPolicy+1), nil, "it is longer than 1048576 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("HOME", "/h")
			var got []string
			w := WorkspaceFlags{lasting: noted(&got)}
			file := writePolicy(t, row.text)
			err := w.readPolicy(file)
			if row.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, row.err)
				assert.ErrorContains(t, err, file)
			}
			for i := range row.want {
				row.want[i] = strings.ReplaceAll(row.want[i], "{d}", filepath.Dir(file))
			}
			assert.Equal(t, row.want, got)
			assert.Empty(t, w.source, "what follows on the command line is not the policy's")
		})
	}
}

func TestManyPolicies(t *testing.T) {
	leaf := writePolicy(t, "")
	var w WorkspaceFlags
	err := w.readPolicy(writePolicy(t, strings.Repeat("include "+leaf+"\n", maxPolicies)))
	assert.ErrorContains(t, err, "there are more than 256 policies")
	assert.NoError(t, new(WorkspaceFlags).readPolicy(writePolicy(t, strings.Repeat("include "+leaf+"\n", maxPolicies-1))))
}

func TestTypoInAPolicy(t *testing.T) {
	var w WorkspaceFlags
	var stderr strings.Builder
	c := &Command{Name: "pk-sample", Options: w.WithPolicy(w.Options())}
	assert.Equal(t, 2, c.Run([]string{"--policy", writePolicy(t, "readbale x\n")}, nil, nil, &stderr))
	assert.Contains(t, stderr.String(), "\"readbale\" is not an option that a policy can give\npk-sample: hint: did you mean readable?\n")
}

// FuzzPolicy: each line sets one option, or is a comment, or ends it all.
func FuzzPolicy(f *testing.F) {
	f.Add("word x\n# y\nfile a\non\n")
	f.Add("list-from -\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		var got []string
		w := WorkspaceFlags{lasting: noted(&got)}
		if w.readPolicy(writePolicy(t, text)) != nil {
			return
		}
		lines := 0
		for line := range strings.SplitSeq(text, "\n") {
			line = strings.Trim(line, " \t")
			name, _, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
			if slices.Contains([]string{"word", "file", "list-from"}, name) {
				lines++
			}
		}
		assert.Len(t, got, lines, "%q", text)
	})
}
