package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"pikuri/lib/internal/shellword"
)

// maxRecord bounds one record of a list. Paths end at 4096 bytes; the rest is
// room for other kinds of lists.
const maxRecord = 1 << 20

// maxText bounds a text that is read whole; no use of it needs more.
const maxText = 16 << 20

// terminator is the byte that ends a record: newline, or NUL with -z.
func terminator(zero bool) byte {
	if zero {
		return 0
	}
	return '\n'
}

// WriteRecord writes one record and its terminator. A record that holds a
// newline is refused unless zero is set: it would read as two. On a terminal, a
// column that could drive it is quoted for the shell, as ls(1) does.
func WriteRecord(w io.Writer, record string, zero, terminal bool) error {
	end := terminator(zero)
	if strings.IndexByte(record, end) >= 0 {
		return fmt.Errorf("%q holds a newline: with -z records end in NUL", record)
	}
	if terminal && !zero {
		columns := strings.Split(record, "\t")
		for i, column := range columns {
			columns[i] = shellQuoted(column)
		}
		record = strings.Join(columns, "\t")
	}
	line := make([]byte, 0, len(record)+1)
	_, err := w.Write(append(append(line, record...), end))
	return err
}

// shellQuoted returns text as it is if all of it can be printed. Otherwise it is in
// single quotes, with the other bytes as octal numbers in $'...'.
func shellQuoted(text string) string {
	plain := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	if plain && utf8.ValidString(text) {
		return text
	}
	return shellword.Quote(text)
}

// ReadRecords reads a list: one record a line, or NUL-terminated with zero.
// The last terminator may be missing. An empty record is an error that names
// its place, for an empty line in a list of paths is a mistake upstream.
func ReadRecords(r io.Reader, name string, zero bool) ([]string, error) {
	records, err := readLines(r, name, zero)
	if i := slices.Index(records, ""); i >= 0 {
		return nil, fmt.Errorf("%s: record %d is empty", name, i+1)
	}
	return records, err
}

// readLines reads a list in which records may be empty.
func readLines(r io.Reader, name string, zero bool) ([]string, error) {
	end := terminator(zero)
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxRecord)
	scanner.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, end); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	var records []string
	for scanner.Scan() {
		records = append(records, scanner.Text())
	}
	err := scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("longer than %d bytes", maxRecord)
	}
	if err != nil {
		return records, fmt.Errorf("%s: record %d: %w", name, len(records)+1, err)
	}
	return records, nil
}

// ReadList reads the list in a file, or on standard input for "-".
func (ctx *Context) ReadList(file string, zero bool) ([]string, error) {
	return ctx.readWith(ReadRecords, file, zero)
}

// ReadLines is ReadList for a list in which records may be empty: those are kept,
// so that the others can be counted.
func (ctx *Context) ReadLines(file string, zero bool) ([]string, error) {
	return ctx.readWith(readLines, file, zero)
}

func (ctx *Context) readWith(read func(io.Reader, string, bool) ([]string, error), file string, zero bool) ([]string, error) {
	if file == "-" {
		if ctx.stdinTaken {
			return nil, errors.New("standard input can be read only once")
		}
		ctx.stdinTaken = true
		return read(ctx.Stdin, "standard input", zero)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read list %q: %w", file, errors.Unwrap(err))
	}
	defer f.Close()
	return read(f, fmt.Sprintf("%q", file), zero)
}

// ReadAll reads standard input to its end, as a text that an option or an
// operand stands for.
func (ctx *Context) ReadAll() (string, error) {
	if ctx.stdinTaken {
		return "", Usage("standard input can be read only once")
	}
	ctx.stdinTaken = true
	text, err := io.ReadAll(io.LimitReader(ctx.Stdin, maxText+1))
	if err != nil {
		return "", fmt.Errorf("cannot read standard input: %w", err)
	}
	if len(text) > maxText { // half a command is another command
		return "", fmt.Errorf("standard input has more than %d bytes, which is the most: put it into a file", maxText)
	}
	return string(text), nil
}

// Count formats a number of things: "1 file", "2 files".
func Count[N ~int | ~int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Age formats a duration for people: "59s", "5m", "47h", "2d".
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
