// Package bytejson is JSON for pk's own records and messages, which hold paths, arguments
// and names of references. These are bytes, and encoding/json replaces bytes that are not
// UTF-8.
//
// A string with such bytes is base64 behind a NUL: no path, argument or name of a
// reference begins with a NUL.
package bytejson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

const mark = "\x00"

// Marshal is json.Marshal that keeps every byte of a string, in keys of maps too. v points
// to the value to encode.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil || !bytes.Contains(text, []byte(`\ufffd`)) && !bytes.Contains(text, []byte(`\u0000`)) { // json writes the other bytes so
		return text, err
	}
	return json.Marshal(mapped(reflect.ValueOf(v), func(s string) string {
		if utf8.ValidString(s) && !strings.HasPrefix(s, mark) {
			return s
		}
		return mark + base64.StdEncoding.EncodeToString([]byte(s))
	}).Interface())
}

// Unmarshal is the reverse of Marshal.
func Unmarshal(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil || !bytes.Contains(text, []byte(`\u0000`)) {
		return err
	}
	var failed error
	decoded := mapped(reflect.ValueOf(v), func(s string) string {
		coded, ok := strings.CutPrefix(s, mark)
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
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
			for key, value := range v.Seq2() {
				out.SetMapIndex(mapped(key, replace), mapped(value, replace))
			}
		}
	}
	return out
}
