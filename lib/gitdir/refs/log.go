package refs

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// LogEntry is a line of a reflog.
type LogEntry struct {
	Old, New string // object IDs; the null ID before the first and after the last value
	Person   string // "Name <mail>"
	Time     int64  // in seconds since 1970
	Zone     string // "+0000"
	Message  string // one line without control characters; may be empty
}

// maxMessage bounds the bytes of a message that come from a layer.
const maxMessage = 1000

// moving is the beginning of the message of a switch.
const moving = "checkout: moving from "

func (e LogEntry) String() string {
	return fmt.Sprintf("%s %s %s %d %s\t%s\n", e.Old, e.New, e.Person, e.Time, e.Zone, e.Message)
}

// parseEntry reads a line, without its newline, as git does. Control characters
// of its message become spaces.
func parseEntry(line string, hexLen int) (LogEntry, error) {
	bad := fmt.Errorf("no line of a reflog: %.80q", line)
	if len(line) < 2*hexLen+2 || line[hexLen] != ' ' || line[2*hexLen+1] != ' ' {
		return LogEntry{}, bad
	}
	old, ok := parseID(line[:hexLen], hexLen)
	id, ok2 := parseID(line[hexLen+1:2*hexLen+1], hexLen)
	committer, message, _ := strings.Cut(line[2*hexLen+2:], "\t")
	e := LogEntry{Old: old, New: id, Message: cleanMessage(message)}
	if !ok || !ok2 || !e.parseCommitter(committer) {
		return LogEntry{}, bad
	}
	return e, nil
}

// parseCommitter reads "Name <mail> SECONDS +0000". The name may be empty.
func (e *LogEntry) parseCommitter(s string) bool {
	person, when, ok := strings.Cut(s, "> ")
	seconds, zone, ok2 := strings.Cut(when, " ")
	e.Person, e.Zone = person+">", zone
	e.Time, _ = strconv.ParseInt(seconds, 10, 64)
	return ok && ok2 && validPerson(e.Person) &&
		digits(seconds) && len(seconds) <= 12 &&
		len(zone) == 5 && (zone[0] == '+' || zone[0] == '-') && digits(zone[1:])
}

// validPerson checks "Name <mail>".
func validPerson(s string) bool {
	name, mail, ok := strings.Cut(s, "<")
	return ok && (name == "" || strings.HasSuffix(name, " ")) && len(s) <= maxMessage &&
		strings.IndexByte(mail, '>') == len(mail)-1 && strings.IndexByte(mail, '<') < 0 &&
		strings.IndexByte(name, '>') < 0 && !strings.ContainsFunc(s, unicode.IsControl)
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// cleanMessage makes one printable line of a text and cuts it at maxMessage.
func cleanMessage(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, s)
	return cut(strings.TrimSpace(s), maxMessage)
}

// cut shortens valid text to a number of bytes, or one rune less.
func cut(s string, n int) string {
	for len(s) > n {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-last]
	}
	return s
}

// prefixed returns the line that lands for a line of a layer.
func (e LogEntry) prefixed(session string) LogEntry {
	e.Message = strings.TrimSuffix("pk: "+session+": "+e.Message, ": ")
	return e
}

// within returns the entry with a time between two others. A line that claims an old time
// is the first that git gc(1) drops.
func (e LogEntry) within(first, last int64) LogEntry {
	e.Time = max(first, min(e.Time, last))
	return e
}

// key is the part of a line that a line of a layer and its line on the host have in
// common.
func key(line, session string, hexLen int) string {
	e, err := parseEntry(line, hexLen)
	if err != nil {
		return line
	}
	prefix := "pk: " + session
	if e.Message == prefix {
		e.Message = ""
	}
	e.Message = cut(strings.TrimPrefix(e.Message, prefix+": "), maxMessage-len(prefix+": "))
	if text, is := strings.CutPrefix(e.Message, moving); is { // another name of the branch may have landed
		_, to, _ := strings.Cut(text, " to ")
		e.Message = moving + to
	}
	e.Time, e.Zone = 0, ""
	return e.String()
}

// newEntries returns the lines of a layer's log that the host's log lacks, with any
// time and with or without pk's prefix. The layer's log began as a copy of the host's, so
// it first drops the common beginning. If a line is not one of a reflog, it drops that and
// all lines before it.
func newEntries(layer, host string, session string, hexLen int) []LogEntry {
	key := func(line string) string { return key(line, session, hexLen) }
	for host != "" && layer != "" {
		line, rest, _ := strings.Cut(host, "\n")
		mine, mineRest, whole := strings.Cut(layer, "\n")
		if !whole || line != mine && key(line) != key(mine) {
			break
		}
		host, layer = rest, mineRest
	}
	if layer == "" {
		return nil
	}
	had := map[string]int{}
	for line := range strings.Lines(host) {
		had[key(strings.TrimSuffix(line, "\n"))]++
	}
	var entries []LogEntry
	for layer != "" {
		line, rest, whole := strings.Cut(layer, "\n")
		layer = rest
		e, err := parseEntry(line, hexLen)
		if err != nil || !whole {
			entries = nil
			continue
		}
		if k := key(line); had[k] > 0 {
			had[k]--
		} else {
			entries = append(entries, e)
		}
	}
	return entries
}

// chain returns the longest end of entries that leads from one value to another
// without a gap. HEAD's log has an entry without an old value for the first commit of
// an orphan branch. nil: there is none.
func chain(entries []LogEntry, from, to string) []LogEntry {
	if len(entries) == 0 || entries[len(entries)-1].New != to {
		return nil
	}
	var found []LogEntry
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Old == from {
			found = entries[i:]
		}
		if i > 0 && entries[i-1].New != entries[i].Old && strings.Trim(entries[i].Old, "0") != "" {
			break
		}
	}
	return found
}
