package setup

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// JSON replaces bytes that are not UTF-8, and paths and arguments are bytes. A
// string that holds such bytes travels as base64 behind a NUL, which no path and
// no argument can hold.
const base64Mark = "\x00"

// Encode is json.Marshal that keeps every byte of a string. v points to the value to
// encode.
func Encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil || !bytes.Contains(text, []byte(`\ufffd`)) { // json writes the other bytes so
		return text, err
	}
	return json.Marshal(mapped(reflect.ValueOf(v), func(s string) string {
		if utf8.ValidString(s) {
			return s
		}
		return base64Mark + base64.StdEncoding.EncodeToString([]byte(s))
	}).Interface())
}

// Decode is the reverse of Encode.
func Decode(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil || !bytes.Contains(text, []byte(`\u0000`)) {
		return err
	}
	var failed error
	decoded := mapped(reflect.ValueOf(v), func(s string) string {
		coded, ok := strings.CutPrefix(s, base64Mark)
		if !ok {
			return s
		}
		raw, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			failed = err
		}
		return string(raw)
	})
	reflect.ValueOf(v).Elem().Set(decoded.Elem())
	return failed
}

// mapped returns a copy of a value in which every string is replaced.
func mapped(v reflect.Value, replace func(string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(replace(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(mapped(v.Elem(), replace))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !out.Field(i).CanSet() { // json leaves it out too
				continue
			}
			out.Field(i).Set(mapped(v.Field(i), replace))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 && !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(mapped(v.Index(i), replace))
			}
		}
	}
	return out
}
