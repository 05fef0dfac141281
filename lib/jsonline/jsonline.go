// Package jsonline reads requests: JSON objects, one per line. It refuses input that two
// JSON parsers could read differently: an unknown or repeated field, text that is not
// UTF-8, half of a surrogate pair.
package jsonline

import (
	"bufio"
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

// maxID bounds the id of a request.
const maxID = 1024

// TooLongError reports a line that ReadLine has skipped.
type TooLongError struct{ Limit int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the request is longer than %d bytes", e.Limit)
}

// IsTooLong reports whether an error of ReadLine is a line that was skipped: the next one
// can be read.
func IsTooLong(err error) bool {
	_, ok := errors.AsType[*TooLongError](err)
	return ok
}

// ReadLine reads one line of at most limit bytes, without its newline, which the last line
// may lack. It reads a longer line to its end, and returns a *TooLongError.
func ReadLine(input *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := input.ReadSlice('\n')
		if long = long || len(line)+len(part) > limit; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (long || len(line) > 0):
			err = nil
		case err != nil:
			return nil, err
		}
		if long {
			return nil, &TooLongError{limit}
		}
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

// Object is a request. Its methods take fields by name, and End refuses the other fields.
// End returns the first error; an error for a missing field comes last.
type Object struct {
	names  []string // in the order of the line
	fields map[string]json.RawMessage
	taken  map[string]bool
	err    error
	lacks  error // a field that has to be there
}

// Parse reads an object. The methods also return the fields before a mistake, so that the
// refusal can repeat the request's id.
func Parse(line []byte) *Object {
	o := &Object{fields: map[string]json.RawMessage{}, taken: map[string]bool{}}
	if !utf8.Valid(line) {
		o.Fail(errors.New("the request is not UTF-8"))
		return o
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		o.Fail(errNoObject)
		return o
	}
	var twice error
	for d.More() {
		name, value, err := next(d)
		if err != nil {
			o.Fail(err)
			return o
		}
		if _, known := o.fields[name]; !known {
			o.names = append(o.names, name)
			o.fields[name] = value
		} else if twice == nil {
			twice = fmt.Errorf("the field %q is there twice", name)
		}
	}
	if _, err := d.Token(); err != nil {
		o.Fail(errNoObject)
	} else if _, err := d.Token(); !errors.Is(err, io.EOF) {
		o.Fail(errors.New("something follows the request on its line"))
	}
	o.Fail(twice)
	return o
}

var errNoObject = errors.New("the request is not a JSON object")

func next(d *json.Decoder) (name string, value json.RawMessage, err error) {
	token, err := d.Token()
	name, ok := token.(string)
	if err == nil && ok {
		err = d.Decode(&value)
	}
	if err != nil || !ok {
		return "", nil, errNoObject
	}
	return name, value, nil
}

// Fail keeps err, unless it is nil or there is an earlier one.
func (o *Object) Fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// End returns the first error. A field that the caller has not taken is an error.
func (o *Object) End() error {
	for _, name := range o.names {
		if !o.taken[name] {
			o.Fail(fmt.Errorf("the field %q is unknown", name))
			break
		}
	}
	o.Fail(o.lacks)
	return o.err
}

// Missing records that a field is missing.
func (o *Object) Missing(name string) {
	if o.lacks == nil {
		o.lacks = fmt.Errorf("there is no %s", name)
	}
}

// take returns the value of a field, nil if there is none.
func (o *Object) take(name string) json.RawMessage {
	o.taken[name] = true
	return o.fields[name]
}

// ID takes the field "id", a string or a number, as it came; nil if there is none.
func (o *Object) ID() json.RawMessage {
	value := o.take("id")
	switch {
	case len(value) > maxID:
		o.Fail(fmt.Errorf("the id is longer than %d bytes", maxID))
		return nil
	case value != nil && bytes.IndexByte([]byte(`"-0123456789`), value[0]) < 0:
		o.Fail(errors.New("the id is neither a string nor a number"))
		return nil
	case value != nil && value[0] != '"' && !finite(value):
		o.Fail(errors.New("the id is too large for a number"))
		return nil
	}
	return value
}

// finite reports whether a number stays one for a parser that reads a float64: many turn
// others into infinity, which is no JSON.
func finite(number json.RawMessage) bool {
	_, err := strconv.ParseFloat(string(number), 64)
	return err == nil
}

// String takes a string.
func (o *Object) String(name string) (text string, ok bool) {
	value := o.take(name)
	if value == nil {
		return "", false
	}
	text, err := unquote(name, value)
	o.Fail(err)
	return text, true
}

// Text takes a string that can also be given in base64, as the field with "_base64" at
// the end of its name.
func (o *Object) Text(name string) (text string, ok bool) {
	text, ok = o.String(name)
	twin := name + "_base64"
	value := o.take(twin)
	switch {
	case value == nil:
		return text, ok
	case ok:
		o.Fail(fmt.Errorf("the request has both %s and %s", name, twin))
		return text, ok
	}
	encoded, err := unquote(twin, value)
	var decoded []byte
	if err == nil {
		decoded, err = base64.StdEncoding.DecodeString(encoded)
	}
	if err != nil {
		o.Fail(fmt.Errorf("the %s is not base64", twin))
	}
	return string(decoded), true
}

// Int takes a whole number; nil if there is none.
func (o *Object) Int(name string) *int {
	value := o.take(name)
	if value == nil {
		return nil
	}
	n := new(int)
	if json.Unmarshal(value, n) != nil || bytes.Equal(value, []byte("null")) {
		o.Fail(fmt.Errorf("the %s is not a whole number", name))
	}
	return n
}

// Between takes a whole number between least and most; nil if there is none.
func (o *Object) Between(name string, least, most int) *int {
	n := o.Int(name)
	if n != nil && (*n < least || *n > most) {
		o.Fail(fmt.Errorf("the %s is not between %d and %d", name, least, most))
	}
	return n
}

// Need takes a required text.
func (o *Object) Need(name string) string {
	text, ok := o.Text(name)
	if !ok {
		o.Missing(name)
	}
	return text
}

// Raw takes a value as it came; nil if there is none.
func (o *Object) Raw(name string) json.RawMessage { return o.take(name) }

// Bool takes true or false; false if there is none.
func (o *Object) Bool(name string) bool {
	value := o.take(name)
	yes := bytes.Equal(value, []byte("true"))
	if value != nil && !yes && !bytes.Equal(value, []byte("false")) {
		o.Fail(fmt.Errorf("the %s is neither true nor false", name))
	}
	return yes
}

// unquote decodes a string. It refuses half of a surrogate pair, which JSON can express and
// UTF-8 cannot: encoding/json would replace it by U+FFFD.
func unquote(name string, value json.RawMessage) (string, error) {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", fmt.Errorf("the %s is not a string", name)
	}
	if !paired(value) {
		return "", fmt.Errorf("the %s holds half of a surrogate pair", name)
	}
	return s, nil
}

// paired reports whether each surrogate in a valid JSON string belongs to a pair.
func paired(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++ // to the escaped character
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
