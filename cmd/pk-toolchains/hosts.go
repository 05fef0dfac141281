package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pikuri/lib/cli"
	"pikuri/lib/toolchain/hosts"
)

// hostRecord is the --json record of one port of a host.
type hostRecord struct {
	Kind     string       `json:"kind"`
	Rule     string       `json:"rule"`
	Name     string       `json:"name"`
	Wildcard bool         `json:"wildcard,omitempty"`
	Port     uint16       `json:"port"`
	Sources  []hostSource `json:"sources"`
}

type hostSource struct {
	Tool     string      `json:"tool"`
	Level    hosts.Level `json:"level"`
	Path     string      `json:"path,omitempty"`
	Bytes    []byte      `json:"path_base64,omitempty"`
	Variable string      `json:"variable,omitempty"`
}

// hosts prints the hosts that tools are configured to reach, and warns of
// omissions.
func (o *options) hosts(p *printer, _ string) error {
	known := hosts.Tools()
	if err := o.checkTools(known, fmt.Sprintf("hosts knows %s", strings.Join(known, ", "))); err != nil {
		return err
	}
	project, err := projectDir()
	if err != nil && o.project {
		return cli.Invalid(err)
	}
	machine := hosts.Machine{Home: os.Getenv("HOME"), Environ: os.Environ(), Project: project, WithProject: o.project}
	entries, notes := hosts.Survey(machine, o.wants)
	for _, note := range notes {
		p.ctx.Warn("%s", note)
	}
	return each(entries, func(hosts.Entry) bool { return true }, p.host)
}

// projectDir is the project's resolved path.
func projectDir() (string, error) {
	dir, err := filepath.Abs(cmp.Or(os.Getenv("PK_PROJECT_ROOT"), "."))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the project root: %w", err)
	}
	return dir, nil
}

// host prints a rule in the form of a list of hosts. A comment behind it has the first
// source of each tool and level; --json has all of them.
func (p *printer) host(e hosts.Entry) error {
	r := hostRecord{Kind: "host", Rule: e.Rule.String(), Name: e.Rule.Name, Wildcard: e.Rule.Wildcard, Port: e.Rule.Ports[0]}
	var comments []string
	for i, s := range e.Sources {
		if i == 0 || s.Tool != e.Sources[i-1].Tool || s.Level != e.Sources[i-1].Level {
			comments = append(comments, fmt.Sprintf("%s %s %s", s.Tool, s.Level, s.Place))
		}
		out := hostSource{Tool: s.Tool, Level: s.Level}
		if name, ok := strings.CutPrefix(s.Place, "$"); ok {
			out.Variable = name
		} else {
			out.Path, out.Bytes = cli.TextOrBytes(s.Place)
		}
		r.Sources = append(r.Sources, out)
	}
	return p.emit(r, r.Rule+"\t# "+strings.Join(comments, "; "))
}
