package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"pikuri/lib/cli"
)

// Event is the kind of a record.
type Event string

// The events.
const (
	Begin    Event = "begin"      // it begins when this record is written
	End      Event = "end"        // it has ended
	Rest     Event = "background" // the last process that it left running has ended
	Question Event = "question"   // a person or a program has answered
	Input    Event = "input"      // text goes to the standard input or terminal of a job
	Declined Event = "declined"   // it does not begin: the answer was no
	Refused  Event = "refused"    // it does not begin: pk refuses it
	Landing  Event = "landing"    // pk-apply has changed a path of the project
	Torn     Event = "torn"       // the line before is incomplete
	Gap      Event = "gap"        // records before this one are missing
)

// Record is one line of the file, as pk-audit(5) documents it. Fields that do not apply are left
// out. A Log sets the fields up to Pid.
type Record struct {
	Time    string `json:"time"`
	Seq     uint64 `json:"seq"`
	Prev    string `json:"prev"` // SHA-256 of the line before
	Program string `json:"program"`
	Event   Event  `json:"event"`
	UID     int    `json:"uid"`
	User    string `json:"user,omitempty"`
	Pid     int    `json:"pid"`

	Begin        uint64 `json:"begin,omitempty"` // Seq of the Begin that this belongs to
	RunAs        int    `json:"run_as,omitempty"`
	Session      string `json:"session,omitempty"`
	Project      string `json:"project,omitempty"`
	ProjectBytes []byte `json:"project_base64,omitempty"`
	Cwd          string `json:"cwd,omitempty"` // the working directory, by its path in the sandbox

	Command       string   `json:"command,omitempty"`
	CommandBytes  []byte   `json:"command_base64,omitempty"`
	CommandSHA256 string   `json:"command_sha256,omitempty"` // of all of it, if it is cut
	Description   string   `json:"description,omitempty"`
	Operation     string   `json:"operation,omitempty"`
	Files         []File   `json:"files,omitempty"`
	Unfenced      bool     `json:"unfenced,omitempty"` // pk makes no sandbox for it
	Asked         string   `json:"asked,omitempty"`    // the person or program that allowed or declined it
	Answer        string   `json:"answer,omitempty"`
	Reason        string   `json:"reason,omitempty"`
	Guarantees    []string `json:"guarantees,omitempty"`
	Error         string   `json:"error,omitempty"`
	Result        any      `json:"result,omitempty"`
	Truncated     bool     `json:"truncated,omitempty"` // the line would be too long with all of it
}

// File is a path that an operation changes. The hashes are the SHA-256 of its content; ""
// for no file, a directory, and a file that is too long to be read for this.
type File struct {
	Path      string `json:"path,omitempty"`
	PathBytes []byte `json:"path_base64,omitempty"`
	Change    string `json:"change,omitempty"`
	Before    string `json:"before,omitempty"`
	After     string `json:"after,omitempty"`
}

// Bounds of a line. A text can grow sixfold when it is escaped.
const (
	maxCommand = 256 << 10
	maxOther   = 4 << 10
	maxLine    = 2 << 20
)

// SetProject sets the project root.
func (r *Record) SetProject(root string) { r.Project, r.ProjectBytes = cli.TextOrBytes(root) }

// SetCommand sets the text of a command. A long text is cut, and its hash is kept.
func (r *Record) SetCommand(text string) {
	if len(text) > maxCommand {
		r.CommandSHA256 = hash([]byte(text))
		text = text[:maxCommand]
		if cut := strings.ToValidUTF8(text, ""); len(text)-len(cut) < utf8.UTFMax {
			text = cut // only its last character was cut apart
		}
	}
	r.Command, r.CommandBytes = cli.TextOrBytes(text)
}

// encode returns the line of the record, without its newline.
func (r *Record) encode() ([]byte, error) {
	for _, text := range []*string{&r.Cwd, &r.Description, &r.Asked, &r.Reason, &r.Error} {
		*text = strings.ToValidUTF8((*text)[:min(len(*text), maxOther)], string(utf8.RuneError))
	}
	for {
		var line bytes.Buffer
		err := cli.JSON(&line).Encode(r)
		if err != nil || line.Len() <= maxLine || len(r.Files) == 0 && r.Result == nil {
			return bytes.TrimSuffix(line.Bytes(), []byte("\n")), err
		}
		r.Truncated, r.Result, r.Files = true, nil, r.Files[:len(r.Files)/2]
	}
}

func hash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}
