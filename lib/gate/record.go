package gate

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pikuri/lib/hostrule"
)

// Record describes the connections to one host and port.
type Record struct {
	Time     time.Time `json:"time"` // of the first
	Verdict  Verdict   `json:"verdict"`
	Name     string    `json:"name,omitempty"`     // from the command's query
	Address  string    `json:"address,omitempty"`  // the destination, without a name
	Port     uint16    `json:"port,omitempty"`     // of a connection
	Protocol string    `json:"protocol,omitempty"` // dns, tcp, udp
	Rule     string    `json:"rule,omitempty"`
	Reason   string    `json:"reason,omitempty"` // why it was refused, or failed
	Count    int       `json:"count"`            // of connections, or queries
	Sent     int64     `json:"sent,omitempty"`   // bytes from the command
	Received int64     `json:"received,omitempty"`
}

// Verdict is the result of a connection.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	Refused Verdict = "refused"
	Failed  Verdict = "failed" // allowed, but the host could not be reached
)

// report gathers the records of one user of the gate. The command chooses most of their
// content, and could hide one among many: so records that differ only in time and size are
// merged, others are bounded for each verdict, and omitted ones counted.
type report struct {
	mu     sync.Mutex
	places map[Record]int // by the fields that are compared
	list   []Record
	kinds  map[Verdict]int // in list
	lost   int
}

// Bounds of a report.
const (
	maxKinds  = 1000 // for each verdict
	maxReason = 200  // bytes
)

func newReport() *report {
	return &report{places: map[Record]int{}, kinds: map[Verdict]int{}}
}

func (r *report) add(rec Record) {
	if rec.Time.IsZero() {
		rec.Time = time.Now().UTC()
	}
	rec.Reason = strings.ToValidUTF8(rec.Reason[:min(len(rec.Reason), maxReason)], "")
	kind := rec
	kind.Time, kind.Sent, kind.Received = time.Time{}, 0, 0
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.places[kind]
	switch {
	case known:
	case r.kinds[rec.Verdict] >= maxKinds:
		r.lost++
		return
	default:
		r.kinds[rec.Verdict]++
		at = len(r.list)
		r.places[kind] = at
		r.list = append(r.list, Record{})
	}
	rec.Count = r.list[at].Count + 1
	rec.Sent += r.list[at].Sent
	rec.Received += r.list[at].Received
	if known {
		rec.Time = r.list[at].Time
	}
	r.list[at] = rec
}

// all returns the records, and one that counts the omitted ones.
func (r *report) all() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.list)
	if r.lost > 0 {
		list = append(list, Record{Time: time.Now().UTC(), Verdict: Refused, Reason: "more than a report has a place for", Count: r.lost})
	}
	return list
}

// maxLines bounds the lines for users and models.
const maxLines = 5

// Lines describes refused and failed connections: each host once, and no more than a few.
func Lines(records []Record) []string {
	var lines []string
	more := 0
	seen := map[string]bool{}
	for _, r := range records {
		line := r.line()
		switch {
		case line == "" || seen[line]:
		case len(lines) < maxLines:
			lines = append(lines, line)
		default:
			more++
		}
		seen[line] = true
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// line describes a record in words, unless the connection was allowed.
func (r Record) line() string {
	to := r.Name
	if to == "" {
		to = r.Address
	}
	if r.Port > 0 {
		to = net.JoinHostPort(to, strconv.Itoa(int(r.Port)))
	}
	switch {
	case to == "" && r.Verdict != Allowed:
		return fmt.Sprintf("%s: %d", r.Reason, r.Count)
	case r.Verdict == Failed:
		return fmt.Sprintf("%s could not be reached: %s", to, r.Reason)
	case r.Verdict != Refused:
		return ""
	case r.Reason == noRule && r.Name != "" && r.Protocol == "udp":
		return fmt.Sprintf("%s was refused: it is UDP, and TCP alone is let through", to)
	case r.Reason == noRule && allowable(to):
		return fmt.Sprintf("%s was refused: %s (--allow-host %s would)", to, noRule, to)
	case (r.Reason == isPrivate || r.Reason == isUnknown) && allowable(to):
		return fmt.Sprintf("%s was refused: %s (--allow-host '%s private' would)", to, r.Reason, to)
	case r.Address != "":
		return fmt.Sprintf("%s over %s was refused: %s", to, r.Protocol, r.Reason)
	}
	return fmt.Sprintf("%s was refused: %s", to, r.Reason)
}

// allowable reports whether a name, which the command has chosen, can be in a rule.
func allowable(host string) bool {
	_, err := hostrule.Parse(host)
	return err == nil
}
