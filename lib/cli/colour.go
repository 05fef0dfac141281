package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Palette paints words for a terminal, or leaves them as they are: its zero
// value does. What is painted has to mean the same without.
type Palette bool

// Colours is the palette for out: one with colours if out is a terminal whose
// user has nothing against them (https://no-color.org).
func Colours(out io.Writer, getenv func(string) string) Palette {
	f, ok := out.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// A Colour is one of the terminal's own, so that it fits the user's background.
type Colour string

// The colours that are used, and what for.
const (
	Good  Colour = "\x1b[32m"   // green: closed, as it should be
	Bad   Colour = "\x1b[1;31m" // bold red: open, and should not be
	Open  Colour = "\x1b[33m"   // yellow: open, as was asked for
	Apart Colour = "\x1b[36m"   // cyan: open, and not the host's
	Title Colour = "\x1b[1m"    // bold
)

// Paint returns text in a colour. Text that is to be aligned has its width
// before it is painted.
func (p Palette) Paint(c Colour, text string) string {
	if !p || c == "" {
		return text
	}
	return string(c) + text + "\x1b[m"
}
