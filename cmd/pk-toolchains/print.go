package main

import (
	"fmt"
	"io"
	"strings"

	"pikuri/lib/cli"
	"pikuri/lib/toolchain"
)

// printer writes records and remembers whether one was refused.
type printer struct {
	ctx        *cli.Context
	out        io.Writer
	zero, json bool
	status     int
	hidden     map[string]bool // masks that were printed
}

// record is the content of one line, and with --json an object. A path that is not
// UTF-8 travels as bytes.
type record struct {
	Kind       string   `json:"kind"`
	Tool       string   `json:"tool"`
	Path       string   `json:"path,omitempty"`
	Bytes      []byte   `json:"path_base64,omitempty"`
	Under      string   `json:"under,omitempty"`
	UnderBytes []byte   `json:"under_base64,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Row        string   `json:"row"`
	File       string   `json:"file,omitempty"`
	Line       int      `json:"line"`
	Variable   string   `json:"variable,omitempty"`
	Links      []link   `json:"links,omitempty"`
	Settings   []string `json:"settings,omitempty"`
	Source     string   `json:"source,omitempty"`
	Unchecked  bool     `json:"unchecked,omitempty"`

	text string // the line without --json
}

type link struct {
	Path        string `json:"path,omitempty"`
	Bytes       []byte `json:"path_base64,omitempty"`
	Target      string `json:"target,omitempty"`
	TargetBytes []byte `json:"target_base64,omitempty"`
}

// from fills in the row of a record.
func from(kind, path string, r *toolchain.Row, variable string) record {
	rec := record{Kind: kind, Tool: r.Tool, Row: r.Path, File: r.File, Line: r.Line, Variable: variable, Unchecked: r.Unchecked}
	if r.Source != "-" {
		rec.Source = r.Source
	}
	rec.Path, rec.Bytes = cli.TextOrBytes(path)
	return rec
}

// labelled is the form with kind and tool in front.
func (r record) labelled(path string) record {
	r.text = r.Kind + "\t" + r.Tool + "\t" + path
	return r
}

// entry prints an entry, with kind and tool if labelled.
func (p *printer) entry(e toolchain.Entry, labelled bool) error {
	r := from(string(e.Kind), e.Path, e.Row, e.Variable)
	r.text = e.Path
	if labelled {
		r = r.labelled(e.Path)
	}
	if p.json { // these fields take system calls
		for _, l := range e.Links() {
			var out link
			out.Path, out.Bytes = cli.TextOrBytes(l.Place)
			out.Target, out.TargetBytes = cli.TextOrBytes(l.Target)
			r.Links = append(r.Links, out)
		}
		r.Settings = e.Row.Settings
	}
	return p.print(r)
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
		r := from("mask", path, e.Row, e.Variable)
		r.Under, r.UnderBytes = cli.TextOrBytes(e.Path)
		r.text = path
		if err := p.print(r); err != nil {
			return err
		}
	}
	return nil
}

// absent prints the reason why a row shows nothing.
func (p *printer) absent(a toolchain.Absence) error {
	r := from(string(a.Row.Kind), a.Path, a.Row, a.Variable)
	r.Reason = a.Reason
	path := a.Path
	if path == "" {
		path = a.Row.Path
	}
	r = r.labelled(path + "\t" + a.Reason)
	return p.print(r)
}

// leak prints a credential that would be seen.
func (p *printer) leak(l toolchain.Leak) error {
	p.status = cli.StatusRefused
	r := from("visible", l.Path, l.Entry.Row, l.Entry.Variable)
	r.Under, r.UnderBytes = cli.TextOrBytes(l.Entry.Path)
	return p.print(r.labelled(l.Path))
}

func (p *printer) print(r record) error { return p.emit(r, r.text) }

// emit writes a record as JSON, or its text.
func (p *printer) emit(object any, text string) error {
	if p.json {
		if err := cli.JSON(p.out).Encode(object); err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
		return nil
	}
	err := cli.WriteRecord(p.out, text, p.zero, cli.Terminal(p.ctx.Stdout))
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
