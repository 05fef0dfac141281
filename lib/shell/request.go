package shell

import (
	"encoding/json"
	"errors"

	"pikuri/lib/jsonline"
)

// Request is one line of a conversation.
type Request struct {
	ID          json.RawMessage // as it came; nil for none
	Command     string
	Description string
	Timeout     *int // in seconds
}

// ParseRequest reads one JSON object, as strictly as lib/jsonline does: otherwise
// another command could run than was sent. An id that could be read is returned with
// the error.
func ParseRequest(line []byte) (Request, error) {
	o := jsonline.Parse(line)
	r := Request{ID: o.ID()}
	var given bool
	r.Command, given = o.Text("command")
	r.Description, _ = o.String("description")
	r.Timeout = o.Int("timeout")
	err := o.End()
	if err == nil && !given {
		err = errors.New("there is no command")
	}
	return r, err
}
