package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// Record is one connection, or one that was refused, as a line of JSON.
type Record struct {
	Time     time.Time `json:"time"`
	Verdict  Verdict   `json:"verdict"`
	Name     string    `json:"name,omitempty"`    // that the command asked for
	Address  string    `json:"address,omitempty"` // that it used, without a name
	Port     uint16    `json:"port,omitempty"`
	Protocol string    `json:"protocol"` // dns, tcp, udp
	Rule     string    `json:"rule,omitempty"`
	Reason   string    `json:"reason,omitempty"` // why it was refused, or has failed
	Sent     int64     `json:"sent,omitempty"`   // bytes from the command
	Received int64     `json:"received,omitempty"`
}

// Verdict is what became of a connection.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	Refused Verdict = "refused"
	Failed  Verdict = "failed" // allowed, but the host could not be reached
)

// maxRecords bounds a report: a command may try to connect without end.
const maxRecords = 10000

// report writes records. Each is one write, so that readers see whole lines.
type report struct {
	mu    sync.Mutex
	to    io.Writer // nil: nobody reads
	count int
}

func (r *report) add(rec Record) {
	if rec.Time.IsZero() {
		rec.Time = time.Now().UTC()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count++; r.to == nil || r.count > maxRecords {
		return
	}
	line, err := json.Marshal(rec)
	if err != nil {
		return
	}
	_, _ = r.to.Write(append(line, '\n')) // a full disk costs the report, and not the network
}

// maxLines bounds what people and models are told of.
const maxLines = 5

// Lines tell what was refused, or has failed: each host once, and no more than a few.
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

// line is a record that is not of an allowed connection, in words.
func (r Record) line() string {
	to := r.Name
	if to == "" {
		to = r.Address
	}
	if r.Port > 0 {
		to = net.JoinHostPort(to, strconv.Itoa(int(r.Port)))
	}
	switch {
	case r.Verdict == Failed:
		return fmt.Sprintf("%s could not be reached: %s", to, r.Reason)
	case r.Verdict != Refused:
		return ""
	case r.Reason == noRule && r.Name != "" && r.Protocol == "udp":
		return fmt.Sprintf("%s was refused: it is UDP, and TCP alone is let through", to)
	case r.Reason == noRule && r.Name != "":
		return fmt.Sprintf("%s was refused: %s (--allow-host %s would)", to, noRule, to)
	case r.Reason == isPrivate:
		return fmt.Sprintf("%s was refused: %s (--allow-host '%s private' would)", to, r.Reason, to)
	case r.Address != "":
		return fmt.Sprintf("%s over %s was refused: %s", to, r.Protocol, r.Reason)
	}
	return fmt.Sprintf("%s was refused: %s", to, r.Reason)
}
