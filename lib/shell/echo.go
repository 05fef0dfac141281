package shell

import (
	"strings"

	"pikuri/lib/capture"
)

// maxEcho bounds the echo of a command in an observation.
const maxEcho = 30 * 1024

// echo formats a command as a shell shows it: "$ " before its first line and "> " before
// the others. So no line of it can pass for something else. Of a very long command, echo
// shows the beginning and the end.
func echo(command string) string {
	c := capture.New(maxEcho/2, maxEcho/2)
	_, _ = c.Write([]byte(command))
	shown := string(c.Kept().Visible(maxEcho/2, maxEcho/2).Join(""))
	return "$ " + strings.ReplaceAll(shown, "\n", "\n> ")
}
