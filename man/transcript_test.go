package man

import (
	"encoding/xml"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// record is the flag that scripts/transcript sets.
var record = flag.Bool("record", false, "write transcript.svg instead of comparing")

// recorded are the commands of the README's picture, in a clone of scripts/demo.
var recorded = []string{
	`pk-bash -y 'go test ./...'`,
	`pk-bash -y 'cat ~/.ssh/id_ed25519; echo : >.git/hooks/pre-push'`,
	`pk-bwrap --explain roman.go .git/hooks ~/.ssh/id_ed25519`,
	`pk-resolve ../../etc/passwd`,
}

const prompt = "\x1b[1m~/src/roman$\x1b[m "

var seconds = regexp.MustCompile(`\d+\.\d+s|\(cached\)`)

// TestTranscript: the picture in the README is the present output of its commands
// on a terminal, but for the time they take.
func TestTranscript(t *testing.T) {
	clitest.OneRow(t)
	s := newScene(t)
	s.Project = s.Home + "/src/roman"
	require.NoError(t, os.CopyFS(s.Project, os.DirFS(filepath.Join(clitest.Root(t), "scripts", "demo"))))
	require.Equal(t, clitest.Outcome{}, s.run(t, "git", "init", "-q"))
	require.NoError(t, os.Remove(s.Home+"/.cargo/bin/go")) // a real one, this time
	cache := os.Getenv("GOCACHE")                          // where the home is empty
	if cache == "" {
		dir, err := os.UserCacheDir()
		require.NoError(t, err)
		cache = dir + "/go-build"
	}
	var screen strings.Builder
	for _, command := range recorded {
		cmd := exec.Command("bash", "-c", command)
		cmd.Dir, cmd.Env = s.Project, append(s.environ(), "TERM=xterm", "GOCACHE="+cache)
		screen.WriteString(prompt + command + "\n" + clitest.OnTerminal(t, cmd))
	}
	picture := draw(t, s.shown(screen.String()))
	if *record {
		require.NoError(t, os.WriteFile("transcript.svg", []byte(picture), 0o644))
		return
	}
	old, err := os.ReadFile("transcript.svg")
	require.NoError(t, err)
	assert.Equal(t, seconds.ReplaceAllString(picture, "TIME"), seconds.ReplaceAllString(string(old), "TIME"), "scripts/transcript records it anew")
	assert.NoError(t, xml.Unmarshal(old, new(struct{})))
}

// The size of a column and a line, in the units of the picture.
const (
	columnWidth = 8.43
	lineHeight  = 19
	gap         = 10 // before a command
	margin      = 16
)

const style = `
.back { fill: #ffffff; stroke: #d0d7de }
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #1f2328; white-space: pre }
.bold { font-weight: 600 }
.green { fill: #1a7f37 }
.yellow { fill: #9a6700 }
.cyan { fill: #0a6f80 }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117; stroke: #30363d }
  text { fill: #e6edf3 }
  .green { fill: #3fb950 }
  .yellow { fill: #d29922 }
  .cyan { fill: #39c5cf }
}
`

// classes are the colours that the commands use, by the sequence that begins them.
var classes = map[string]string{"1": "bold", "32": "green", "33": "yellow", "36": "cyan"}

// draw makes a picture of a terminal's output. Text that it cannot draw is a failure.
func draw(t *testing.T, screen string) string {
	t.Helper()
	var body strings.Builder
	most, y := 0, margin
	for line := range strings.Lines(screen) {
		line = tabs(erased.ReplaceAllString(strings.TrimSuffix(line, "\n"), ""))
		if strings.HasPrefix(line, prompt) && y > margin {
			y += gap
		}
		y += lineHeight
		most = max(most, utf8.RuneCountInString(sequence.ReplaceAllString(line, "")))
		fmt.Fprintf(&body, "<text x=\"%d\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", margin, y-5, spans(t, line))
	}
	width, height := float64(most)*columnWidth+2*margin, y+margin
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" viewBox=\"0 0 %.0f %d\">\n<style>%s</style>\n"+
		"<rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"%.0f\" height=\"%d\" rx=\"6\"/>\n%s</svg>\n",
		width, height, width, height, style, width-1, height-1, body.String())
}

// erased is a line that was drawn over: how long a slow command has been running.
var erased = regexp.MustCompile("^.*\r\x1b\\[K")

var sequence = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// spans turns colours into elements.
func spans(t *testing.T, line string) string {
	t.Helper()
	var out strings.Builder
	end := ""
	for line != "" {
		at := sequence.FindStringSubmatchIndex(line)
		if at == nil {
			out.WriteString(html.EscapeString(line))
			break
		}
		out.WriteString(html.EscapeString(line[:at[0]]) + end)
		end = ""
		if code := line[at[2]:at[3]]; code != "" {
			require.Contains(t, classes, code, "%q", line)
			out.WriteString(`<tspan class="` + classes[code] + `">`)
			end = "</tspan>"
		}
		line = line[at[1]:]
	}
	require.Empty(t, end, "a colour that does not end")
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\r")
	return out.String()
}

// tabs are columns of eight; there are none in lines with colours.
func tabs(line string) string {
	for {
		before, after, found := strings.Cut(line, "\t")
		if !found {
			return line
		}
		line = before + strings.Repeat(" ", 8-utf8.RuneCountInString(before)%8) + after
	}
}
