package main

import (
	"errors"
	"unicode/utf8"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
)

// record is one line of --json. The manual page describes it field by field.
type record struct {
	Path     *string `json:"path,omitempty"`
	PathRaw  []byte  `json:"path_base64,omitempty"`
	Mode     string  `json:"mode"`
	Allowed  bool    `json:"allowed"`
	Where    *string `json:"resolved,omitempty"`
	WhereRaw []byte  `json:"resolved_base64,omitempty"`
	Root     *string `json:"root,omitempty"`
	RootRaw  []byte  `json:"root_base64,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Rule     string  `json:"rule,omitempty"`
	Error    string  `json:"error,omitempty"`
	Hint     string  `json:"hint,omitempty"`
	Leads    *string `json:"leads_to,omitempty"`
	LeadsRaw []byte  `json:"leads_to_base64,omitempty"`
}

// text is a path as JSON can hold it: as a string, or as its bytes when they
// are not UTF-8.
func text(path string) (*string, []byte) {
	if utf8.ValidString(path) {
		return &path, nil
	}
	return nil, []byte(path)
}

func (a *answerer) writeJSON(o outcome) error {
	r := record{Mode: a.mode().String(), Allowed: o.refusal == nil}
	if o.refusal == nil {
		r.Where, r.WhereRaw = text(o.where)
		if root := a.workspace.RootOf(o.where, a.mode()); root != nil {
			r.Root, r.RootRaw = text(root.Path)
		}
	} else {
		a.refuseIn(&r, o.refusal)
	}
	if r.Reason != longRecord {
		r.Path, r.PathRaw = text(o.path)
	}
	if err := cli.JSON(a.out).Encode(r); err != nil {
		return failedWrite(err)
	}
	return nil
}

// longRecord is the reason for a record that is too long for a path.
const longRecord = "long-record"

// refuseIn fills in the reason of a refusal.
func (a *answerer) refuseIn(r *record, refusal error) {
	r.Reason, r.Error, r.Hint = longRecord, refusal.Error(), cli.HintOf(refusal)
	known, ok := errors.AsType[*confine.Refusal](refusal)
	if !ok {
		return
	}
	r.Reason, r.Rule = known.Reason(), known.Rule()
	if a.verbose && known.Where() != "" {
		r.Leads, r.LeadsRaw = text(known.Where())
	}
}
