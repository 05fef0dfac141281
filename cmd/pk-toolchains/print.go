package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"pikuri/lib/cli"
	"pikuri/lib/toolchain"
)

// printer writes records and remembers whether one was refused.
type printer struct {
	*options
	ctx      *cli.Context
	out      io.Writer
	labelled bool // no operand was given: the kind and the tool go first
	status   int
	hidden   map[string]bool // masks that were printed
}

// record is one line of --json. A path that is not UTF-8 travels as bytes.
type record struct {
	Kind  string `json:"kind"`
	Tool  string `json:"tool"`
	Path  string `json:"path,omitempty"`
	Bytes []byte `json:"path_base64,omitempty"`
}

// entry prints what of one entry was asked for.
func (p *printer) entry(e toolchain.Entry, kind string) error {
	if kind == masks {
		return p.masks(e)
	}
	if kind != "" && kind != string(e.Kind) {
		return nil
	}
	return p.print(string(e.Kind), e.Tool, e.Path)
}

// masks prints the masks of one entry, each once over all entries.
func (p *printer) masks(e toolchain.Entry) error {
	if p.hidden == nil {
		p.hidden = map[string]bool{}
	}
	for _, path := range e.Masks() {
		if p.hidden[path] {
			continue
		}
		p.hidden[path] = true
		if err := p.print("mask", e.Tool, path); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) print(kind, tool, path string) error {
	if p.json {
		return p.printJSON(kind, tool, path)
	}
	text := path
	if p.labelled {
		text = kind + "\t" + tool + "\t" + path
	}
	err := cli.WriteRecord(p.out, text, p.zero)
	if err != nil && !p.zero && strings.Contains(text, "\n") { // the record is at fault, not the output: go on
		p.ctx.Report(err)
		p.status = cli.StatusRefused
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return nil
}

func (p *printer) printJSON(kind, tool, path string) error {
	r := record{Kind: kind, Tool: tool, Path: path}
	if !utf8.ValidString(path) {
		r.Path, r.Bytes = "", []byte(path)
	}
	lines := json.NewEncoder(p.out)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(r); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return nil
}
