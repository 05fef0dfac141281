package shell

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Request is one line of a conversation.
type Request struct {
	ID          json.RawMessage // as it came; nil for none
	Command     string
	Description string
	Timeout     *int // in seconds
}

// maxID bounds the id of a request.
const maxID = 1024

// ParseRequest reads one JSON object. It refuses a field that is unknown or given
// twice, and text that is not UTF-8 (command_base64 is for that): otherwise another
// command could run than was sent. An id that could be read is returned with the
// error.
func ParseRequest(line []byte) (Request, error) {
	var r Request
	if !utf8.Valid(line) {
		return r, errors.New("the request is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return r, errors.New("the request is not a JSON object")
	}
	seen := map[string]bool{}
	var first error
	for d.More() {
		name, value, err := field(d)
		if err != nil {
			return r, err
		}
		if seen[name] {
			err = fmt.Errorf("the field %q is there twice", name)
		} else {
			err = r.set(name, value)
		}
		if seen[name] = true; first == nil {
			first = err
		}
	}
	if _, err := d.Token(); err != nil {
		return r, errors.New("the request is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("something follows the request on its line")
	}
	switch {
	case first != nil:
		return r, first
	case seen["command"] && seen["command_base64"]:
		return r, errors.New("there is a command and a command_base64")
	case !seen["command"] && !seen["command_base64"]:
		return r, errors.New("there is no command")
	}
	return r, nil
}

func field(d *json.Decoder) (name string, value json.RawMessage, err error) {
	token, err := d.Token()
	name, ok := token.(string)
	if err == nil && ok {
		err = d.Decode(&value)
	}
	if err != nil || !ok {
		return "", nil, errors.New("the request is not a JSON object")
	}
	return name, value, nil
}

func (r *Request) set(name string, value json.RawMessage) error {
	var err error
	switch name {
	case "id":
		if len(value) > maxID {
			return fmt.Errorf("the id is longer than %d bytes", maxID)
		}
		if value[0] == '{' || value[0] == '[' {
			return errors.New("the id is neither a string nor a number")
		}
		r.ID = bytes.Clone(value)
	case "command":
		r.Command, err = text(name, value)
	case "command_base64":
		var encoded string
		if encoded, err = text(name, value); err == nil {
			var decoded []byte
			decoded, err = base64.StdEncoding.DecodeString(encoded)
			r.Command = string(decoded)
		}
		if err != nil {
			err = errors.New("the command_base64 is not base64")
		}
	case "description":
		r.Description, err = text(name, value)
	case "timeout":
		var seconds int
		if json.Unmarshal(value, &seconds) != nil || bytes.Equal(value, []byte("null")) {
			return errors.New("the timeout is not a whole number")
		}
		r.Timeout = &seconds
	default:
		err = fmt.Errorf("the field %q is unknown", name)
	}
	return err
}

// text reads a string. Half of a surrogate pair, which JSON can spell and UTF-8
// cannot, is refused: encoding/json would put U+FFFD in its place.
func text(name string, value json.RawMessage) (string, error) {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", fmt.Errorf("the %s is not a string", name)
	}
	if !paired(value) {
		return "", fmt.Errorf("the %s holds half of a surrogate pair", name)
	}
	return s, nil
}

// paired reports whether each surrogate in a valid JSON string is one of a pair.
func paired(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++ // to what is escaped
		first, ok := escapedUnit(literal[i:])
		if !ok || !utf16.IsSurrogate(first) {
			continue
		}
		i += len("uXXXX")
		if literal[i] != '\\' {
			return false
		}
		i++
		second, _ := escapedUnit(literal[i:])
		if utf16.DecodeRune(first, second) == utf8.RuneError {
			return false
		}
	}
	return true
}

// escapedUnit reads uXXXX, the UTF-16 code unit of an escape.
func escapedUnit(escape []byte) (unit rune, ok bool) {
	if escape[0] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(escape[1:5]), 16, 16)
	return rune(n), err == nil
}
