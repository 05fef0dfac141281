// Package wire carries a value to a helper process, which is the same program: both
// know its type. It is for what a start waits for: encoding/json takes longer to look at
// a type than to encode one value of it, and each process does that anew.
//
// A message is its length in four bytes, and a value: of booleans, integers, strings,
// slices, arrays, pointers, and structures of these whose fields are all exported.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
)

const header = 4

// Message encodes what v points to.
func Message(v any) ([]byte, error) {
	text, err := appendValue(make([]byte, header, 16<<10), reflect.ValueOf(v).Elem())
	binary.BigEndian.PutUint32(text, uint32(len(text)-header))
	return text, err
}

// Rest is how many bytes have to be read next of a message of which text has been read. It
// is 0 at the end. Not one byte more may be read: it would be of the next message.
func Rest(text []byte) int {
	if len(text) < header {
		return header - len(text)
	}
	return max(0, header+int(binary.BigEndian.Uint32(text))-len(text))
}

// Read reads a message from a connection into what v points to.
func Read(r io.Reader, v any) error {
	var text bytes.Buffer
	for rest := Rest(nil); rest > 0; rest = Rest(text.Bytes()) {
		if _, err := io.CopyN(&text, r, int64(rest)); err != nil {
			return err
		}
	}
	return Decode(text.Bytes(), v)
}

// Decode decodes a message into what v points to. An empty slice becomes nil.
func Decode(text []byte, v any) error {
	if Rest(text) > 0 {
		return errCut
	}
	d := decoder{text: text[header:]}
	d.value(reflect.ValueOf(v).Elem())
	if d.err == nil && len(d.text) > 0 {
		d.err = errors.New("the message is of another type")
	}
	return d.err
}

var errCut = errors.New("the message is cut off")

func appendValue(b []byte, v reflect.Value) (_ []byte, err error) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1), nil
		}
		return append(b, 0), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint()), nil
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...), nil
	case reflect.Slice:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...), nil
		}
		for i := 0; i < v.Len() && err == nil; i++ {
			b, err = appendValue(b, v.Index(i))
		}
		return b, err
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0), nil
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.Struct:
		for i := 0; i < v.NumField() && err == nil; i++ {
			b, err = appendValue(b, v.Field(i))
		}
		return b, err
	case reflect.Array:
		for i := 0; i < v.Len() && err == nil; i++ {
			b, err = appendValue(b, v.Index(i))
		}
		return b, err
	}
	return b, fmt.Errorf("internal error: a message cannot hold %s", v.Type())
}

type decoder struct {
	text []byte
	err  error
}

func (d *decoder) fail() { d.text, d.err = nil, errCut }

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.text)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.text = d.text[size:]
	return n
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.text)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.text = d.text[size:]
	return n
}

// count is a number of bytes or elements. Each takes a byte or more.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.text)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.count()
	taken := d.text[:n:n]
	d.text = d.text[n:]
	return taken
}

func (d *decoder) value(v reflect.Value) {
	if d.err != nil {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.uvarint() != 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(d.varint())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(d.uvarint())
	case reflect.String:
		v.SetString(string(d.bytes()))
	case reflect.Slice:
		d.slice(v)
	case reflect.Pointer:
		if d.uvarint() != 0 {
			v.Set(reflect.New(v.Type().Elem()))
			d.value(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			d.value(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	default:
		d.err = fmt.Errorf("internal error: a message cannot hold %s", v.Type())
	}
}

func (d *decoder) slice(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if taken := d.bytes(); len(taken) > 0 {
			v.SetBytes(taken)
		}
		return
	}
	n := d.count()
	if n == 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		d.value(v.Index(i))
	}
}
