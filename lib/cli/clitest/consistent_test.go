package clitest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryCommandIsHeldToItsTexts(t *testing.T) { Everywhere(t) }

// A command of four options and two operands, and its texts.
var (
	sample = told{
		options: map[string]bool{"-h": false, "--help": false, "--dir": true, "-z": false, "--zero": false, "--net": true},
		words:   []string{"get", "put"},
	}
	sampleTexts = texts{
		help: `Usage: pk-sample [OPTION]... get|put

  get PATH    fetch
  put PATH    bring

Options:
      --dir DIR              where
      --net host|none        which
  -z, --zero                 ends in NUL
  -h, --help                 this text
`,
		man: `.SH OPERANDS
.TP
.BI get\  PATH
fetch
.TP
.BI put\  PATH
bring
.SH OPTIONS
.TP
.BI \-\-dir " DIR"
where
.TP
.BI \-\-net " NETWORK"
which
.TP
.BR \-z ", " \-\-zero
NUL
.TP
.BR \-h ", " \-\-help
this
.SH SEE ALSO
.TP
.B ls \-\-all
`,
		bash: `
	case $prev in
	--dir) return ;;
	--net) mapfile -t COMPREPLY < <(compgen -W 'host none' -- "$cur") ;;
	esac
	compgen -W '--dir --net -z --zero -h --help' -- "$cur"
	compgen -W 'get put' -- "$cur"
`,
		zsh: `#compdef pk-sample
_arguments \
	'(--net)--dir[where]:directory:_files -/' \
	'*--net[which]:network:(host none)' \
	'(-z --zero)'{-z,--zero}'[ends in NUL]' \
	'(-h --help)'{-h,--help}'[this text]' \
	'1:verb:((get\:"fetch" put\:"bring"))'
`,
		fish: `complete -c pk-sample -f
complete -c pk-sample -n __fish_is_first_arg -a get -d 'fetch'
complete -c pk-sample -n __fish_is_first_arg -a put -d 'bring'
complete -c pk-sample -l dir -r -F -d 'where'
complete -c pk-sample -l net -x -a 'host none' -d 'which'
complete -c pk-sample -s z -l zero -d 'ends in NUL'
complete -c pk-sample -s h -l help -d 'this text'
`,
	}
)

func TestTextsThatAgree(t *testing.T) { assert.Empty(t, disagreements(sample, sampleTexts)) }

// One change to one text, and the resulting disagreements.
func TestTextsThatDisagree(t *testing.T) {
	help, man := func(x *texts) *string { return &x.help }, func(x *texts) *string { return &x.man }
	bash, zsh := func(x *texts) *string { return &x.bash }, func(x *texts) *string { return &x.zsh }
	fish := func(x *texts) *string { return &x.fish }
	for _, test := range []struct {
		name     string
		text     func(*texts) *string
		old, new string
		want     string
	}{
		{"help without an option", help, "  -z, --zero  ", "  -z, --nul   ", `--help: option "--zero" is missing`},
		{"help with one too many", help, "-z, --zero", "-z, --zero, --nul", `--help: "--nul" is not a registered option`},
		{"help without a short one", help, "-z, --zero", "    --zero", `--help: option "-z" is missing`},
		{"help without a value", help, "--dir DIR", "--dir    ", `--help: option "--dir": takes a value is false here, and registered as true`},
		{"help with a value", help, "--zero    ", "--zero END", `--help: option "--zero": takes a value is true here, and registered as false`},
		{"help without an operand", help, "  get PATH    fetch\n", "", `--help: operand "get" is missing`},
		{"help with an operand", help, "  get PATH", "  cut PATH    x\n  get PATH", `--help: "cut" is not an operand of this command`},
		{"page without an option", man, `\-\-zero`, `\-\-nul`, `man page: option "--zero" is missing`},
		{"page with one too many", man, `.BR \-z `, `.BR \-q ", " \-z `, `man page: "-q" is not a registered option`},
		{"page without a value", man, `dir " DIR"`, `dir`, `man page: option "--dir": takes a value is false here, and registered as true`},
		{"page without an operand", man, `.BI put\  PATH`, `.I PATH`, `man page: operand "put" is missing`},
		{"page with an operand", man, "bring\n", "bring\n.TP\n.B cut\n", `man page: "cut" is not an operand of this command`},
		{"bash without an option", bash, "--net -z", "-z", `bash completion: option "--net" is missing`},
		{"bash with a case for a switch", bash, "--dir)", "--dir | --zero)", `bash completion: option "--zero": takes a value is true here, and registered as false`},
		{"bash without a switch", bash, "-z --zero", "-z", `bash completion: option "--zero" is missing`},
		{"bash with one too many", bash, "-z --zero", "-z --zero --nul", `bash completion: "--nul" is not a registered option`},
		{"bash with an unknown case", bash, "--dir)", "--dir | --base)", `bash completion: "--base" is not a registered option`},
		{"bash without the case", bash, "--dir) return ;;", "", `bash completion: option "--dir": takes a value is false here, and registered as true`},
		{"bash with an operand", bash, "'get put'", "'get put cut'", `bash completion: operand "get" is missing`},
		{"zsh without an option", zsh, "{-z,--zero}", "-z", `zsh completion: option "--zero" is missing`},
		{"zsh with one too many", zsh, "{-z,--zero}", "{-z,--nul,--zero}", `zsh completion: "--nul" is not a registered option`},
		{"zsh with an unknown exclusion", zsh, "(--net)", "(--base)", `zsh completion: "--base" is not a registered option`},
		{"zsh without a value", zsh, "[where]:directory:_files -/", "[where]", `zsh completion: option "--dir": takes a value is false here, and registered as true`},
		{"zsh without an operand", zsh, `get\:"fetch" `, "", `zsh completion: operand "get" is missing`},
		{"zsh with an operand", zsh, `get\:"fetch" `, `get\:"fetch" cut\:"x" `, `zsh completion: "cut" is not an operand of this command`},
		{"fish without an option", fish, "-s z -l zero", "-s z", `fish completion: option "--zero" is missing`},
		{"fish with one too many", fish, "-s z -l zero", "-s z -l zero -l nul", `fish completion: "--nul" is not a registered option`},
		{"fish without a value", fish, "-l dir -r", "-l dir", `fish completion: option "--dir": takes a value is false here, and registered as true`},
		{"fish without an operand", fish, "-a put", "-a PATH", `fish completion: operand "put" is missing`},
	} {
		t.Run(test.name, func(t *testing.T) {
			broken := sampleTexts
			text := test.text(&broken)
			require.Contains(t, *text, test.old)
			*text = strings.Replace(*text, test.old, test.new, 1)
			assert.Contains(t, disagreements(sample, broken), test.want)
		})
	}
}
