package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns an encoder of JSON lines. It escapes each character that cannot be
// printed: encoding/json leaves those beyond U+001F as they are, and U+009B begins
// a control sequence of a terminal.
func JSON(w io.Writer) *json.Encoder {
	lines := json.NewEncoder(jsonEscaper{w})
	lines.SetEscapeHTML(false)
	return lines
}

// jsonEscaper escapes a line, which an encoder writes at once.
type jsonEscaper struct{ io.Writer }

func (e jsonEscaper) Write(line []byte) (int, error) {
	hidden := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	text := string(line)
	if strings.IndexFunc(text, hidden) < 0 {
		return e.Writer.Write(line)
	}
	var escaped strings.Builder
	for _, r := range text {
		if !hidden(r) {
			escaped.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
	}
	if _, err := io.WriteString(e.Writer, escaped.String()); err != nil {
		return 0, err
	}
	return len(line), nil
}

// TextOrBytes returns a text, or its bytes if it is not UTF-8: a field of a record and
// its twin in base64.
func TextOrBytes(text string) (string, []byte) {
	if utf8.ValidString(text) {
		return text, nil
	}
	return "", []byte(text)
}
