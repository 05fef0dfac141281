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
	Old, New  string // object IDs; the null ID before the first and after the last value
	Committer string // "Name <mail> SECONDS +0000"
	Message   string // one line without control characters; may be empty
}

// maxMessage bounds the bytes of a message that come from a layer.
const maxMessage = 1000

func (e LogEntry) String() string {
	return fmt.Sprintf("%s %s %s\t%s\n", e.Old, e.New, e.Committer, e.Message)
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
	if !ok || !ok2 || !validCommitter(committer) {
		return LogEntry{}, bad
	}
	return LogEntry{old, id, committer, cleanMessage(message)}, nil
}

// validCommitter checks "Name <mail> SECONDS +0000". The name may be empty.
func validCommitter(s string) bool {
	person, when, ok := strings.Cut(s, "> ")
	seconds, zone, ok2 := strings.Cut(when, " ")
	return ok && ok2 && validPerson(person+">") &&
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
	s = strings.TrimSpace(s)
	for len(s) > maxMessage {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// prefixed returns the line that lands for a line of a layer.
func (e LogEntry) prefixed(session string) LogEntry {
	e.Message = strings.TrimSuffix("pk: "+session+": "+e.Message, ": ")
	return e
}

// newEntries returns the lines of a layer's log that the host's log lacks, with and
// without pk's prefix. The layer's log began as a copy of the host's, so it first drops
// the common beginning. If a line is not one of a reflog, it drops that and all lines
// before it.
func newEntries(layer, host string, session string, hexLen int) []LogEntry {
	for host != "" && layer != "" {
		line, rest, _ := strings.Cut(host, "\n")
		mine, mineRest, whole := strings.Cut(layer, "\n")
		if !whole || line != mine && !samePrefixed(mine, line, session, hexLen) {
			break
		}
		host, layer = rest, mineRest
	}
	if layer == "" {
		return nil
	}
	had := map[string]int{}
	for line := range strings.Lines(host) {
		had[strings.TrimSuffix(line, "\n")]++
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
		if landed := strings.TrimSuffix(e.prefixed(session).String(), "\n"); had[landed] > 0 {
			had[landed]--
		} else if had[line] > 0 {
			had[line]--
		} else {
			entries = append(entries, e)
		}
	}
	return entries
}

// samePrefixed reports whether a line of the host's log is one of the layer's
// log that has landed.
func samePrefixed(layer, host, session string, hexLen int) bool {
	e, err := parseEntry(layer, hexLen)
	return err == nil && e.prefixed(session).String() == host+"\n"
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

// seconds returns the time of an entry that was parsed.
func (e LogEntry) seconds() int64 {
	_, when, _ := strings.Cut(e.Committer, "> ")
	when, _, _ = strings.Cut(when, " ")
	n, _ := strconv.ParseInt(when, 10, 64)
	return n
}
