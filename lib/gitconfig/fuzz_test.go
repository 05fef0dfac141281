package gitconfig

import "testing"

// Any command line is read to an end, within the bounds.
func FuzzReadCommand(f *testing.F) {
	for _, n := range namings {
		f.Add(n.config)
	}
	f.Add("if [ -n \"$(x `y \\`z\\``)\" ]; then case $1 in a) ${b:-'c d'};; esac; fi # e")
	f.Add("$'\\n' ${#x%%*} {a,b}.sh <(x) >&2 \\")
	f.Fuzz(func(t *testing.T, line string) {
		r := readCommand(line, func(string) (string, bool) { return "v $x/y", true })
		if len(r.words) > 2*maxMentions {
			t.Errorf("%d words", len(r.words))
		}
	})
}
