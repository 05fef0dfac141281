package cli

import (
	"syscall"

	"github.com/mattn/go-isatty"
)

// Terminal reports whether stream is a terminal. It leaves the stream as it is:
// os.File.Fd would make a stream blocking for all that share it.
func Terminal(stream any) bool {
	file, ok := stream.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	yes := false
	return err == nil && raw.Control(func(fd uintptr) { yes = isatty.IsTerminal(fd) }) == nil && yes
}

// Palette paints words for a terminal, or leaves them as they are: its zero
// value does. Painted text means the same without its colours.
type Palette bool

// Colours is the palette for out. It has colours if out is a terminal whose user
// has nothing against them (https://no-color.org).
func Colours(out any, getenv func(string) string) Palette {
	return Palette(getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && Terminal(out))
}

// A Colour is one of the terminal's own, so that it fits the user's background.
type Colour string

// The colours, and their meanings.
const (
	Good  Colour = "\x1b[32m"   // green: closed, as it should be
	Bad   Colour = "\x1b[1;31m" // bold red: open, and should not be
	Open  Colour = "\x1b[33m"   // yellow: open, as was asked for
	Apart Colour = "\x1b[36m"   // cyan: open, and not the host's
	Title Colour = "\x1b[1m"    // bold
)

// Paint returns text in a colour. Align a text before it is painted.
func (p Palette) Paint(c Colour, text string) string {
	if !p || c == "" {
		return text
	}
	return string(c) + text + "\x1b[m"
}
