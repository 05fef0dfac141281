package shell

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzState tests the parser of bash's report, and the script of a State, with bash itself.
func FuzzState(f *testing.F) {
	for _, value := range []string{"", "a b", "a\nb", `"$(touch /)` + "`x`\\ é\x01\xff", "it's", `\`, "$'x'", "'\\''", "declare -x A=\"b\"\n", "\u202e\x7f\t\r\x1b"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsRune(value, 0) {
			return
		}
		bash := func(script string, env ...string) string {
			cmd := exec.Command("bash", "--noprofile", "--norc", "-c", script)
			cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
			out, err := cmd.Output()
			require.NoError(t, err, script)
			return string(out)
		}
		const arrays = `declare -ax L=("$X" 'a"b' $'n\nl'); declare -Ax M=(["$X k"]="$X"); `
		told := bash(arrays+strings.TrimPrefix(KeepEnv.tell(), "builtin echo state; "), "X="+value, "Y=1")
		s := KeepEnv.stateIn(told, []string{"PATH=/usr/bin:/bin", "Y=2", "Z=3"})
		require.NotNil(t, s, "%q", told)
		assert.Equal(t, map[string]string{"X": value, "Y": "1"}, s.Changed)
		assert.Equal(t, []string{"Z"}, s.Removed)
		assert.Equal(t, value+"|1|unset", bash(s.script()+`printf '%s|%s|%s' "$X" "$Y" "${Z-unset}"`, "Y=2", "Z=3"))
	})
}

func TestStateThatIsNotBashs(t *testing.T) {
	for _, told := range []string{
		"", "/p", "/p\n\x00", "p\n\x00\x00", "/p\n\x00\x00x", "/p\n\x00rm -rf /\n\x00", "/p\n\x00declare -x A=b\n\x00", "/p\n\x00declare -x A=\"b\x00",
		"/p\n\x00declare -x A=\"b\"; x\n\x00", "/p\n\x00declare -x A=$'\\q'\n\x00", "/p\n\x00declare -\x00",
	} {
		assert.Nil(t, KeepEnv.stateIn(told, nil), "%q", told)
	}
	s := KeepEnv.stateIn("/p\n\x00declare -x BASH_ENV=\"x\"\ndeclare -rx A[$(x)]=\"y\"\ndeclare -x PWD=\"/\"\ndeclare -x N\ndeclare -x PK_BASH=\"\"\ndeclare -x PS4=\"$\"\ndeclare -x TMOUT=\"1\"\ndeclare -x HISTFILE=\"/x\"\n\x00", nil)
	assert.Equal(t, &State{Dir: "/p", Changed: map[string]string{}}, s)
	assert.Equal(t, &State{}, KeepDir.stateIn("\x00\x00", nil))
}
