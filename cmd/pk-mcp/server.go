package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"pikuri/lib/audit"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pikuri/lib/cli"
	"pikuri/lib/jsonline"
)

// server implements the tools.
type server struct {
	*children
	ask   bool // through the client, before a command runs
	log   *audit.Log
	keeps bool // the working directory lasts from command to command
	fence description

	asking  chan struct{} // held while a question is asked
	filing  chan struct{} // held while pk-fs has a request
	pending pending

	mu    sync.Mutex
	known map[string]bool // shell_ids that the model has been given
	cwd   string          // the working directory that the model has seen
	at    string          // where the next command begins, as far as is known
}

func newServer(c *children, ask bool, fence description) *server {
	return &server{children: c, ask: ask, fence: fence, keeps: true, cwd: c.root, at: c.root, asking: make(chan struct{}, 1), filing: make(chan struct{}, 1), known: map[string]bool{}}
}

// mcp returns the server with its tools. The server never asks the client for its roots:
// only the options decide which files the tools can see and change.
func (s *server) mcp() *mcp.Server {
	m := mcp.NewServer(&mcp.Implementation{Name: "pk", Title: "pk: a fenced shell and files", Version: cli.VersionOf(version)}, &mcp.ServerOptions{
		Instructions:              s.instructions(),
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SupportedProtocolVersions: versions,
	})
	open := s.fence.Network != "none"
	add(m, "bash", s.fence.Text+bashText, hints{open: open}, s.bash)
	add(m, "bash_output", outputText, hints{reads: true}, s.bashOutput)
	add(m, "bash_input", inputText, hints{open: open}, s.bashInput)
	add(m, "bash_kill", killText, hints{idempotent: true}, s.bashKill)
	add(m, "bash_list", listJobsText, hints{reads: true}, s.bashList)
	add(m, "read", readText, hints{reads: true}, s.read)
	add(m, "write", writeText, hints{idempotent: true}, s.write)
	add(m, "edit", editText, hints{}, s.edit)
	add(m, "list", listText, hints{reads: true}, s.list)
	add(m, "glob", globText, hints{reads: true}, s.glob)
	add(m, "grep", grepText, hints{reads: true}, s.grep)
	return m
}

// hints are the annotations of a tool.
type hints struct{ reads, idempotent, open bool }

// add adds a tool. Its result is text: if a result has structured content, some clients
// show the model only that, and escaped JSON hides newlines.
func add[In any](m *mcp.Server, name, text string, h hints, do func(context.Context, *mcp.CallToolRequest, In) (*mcp.CallToolResult, error)) {
	destructive := !h.reads
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	for name, property := range schema.Properties {
		if bound, ok := bounds[name]; ok {
			property.Minimum, property.Maximum = &bound[0], &bound[1]
		}
	}
	mcp.AddTool(m, &mcp.Tool{
		Name: name, Description: text, InputSchema: schema,
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint: h.reads, IdempotentHint: h.idempotent || h.reads, DestructiveHint: &destructive, OpenWorldHint: &h.open,
		},
	}, func(ctx context.Context, r *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		if err := unambiguous(r.Params.Arguments, schema); err != nil {
			return failed("%v", err), nil, nil
		}
		result, err := do(ctx, r, in)
		return result, nil, err
	})
}

// unambiguous refuses arguments that a client could have shown its user with other values
// than this program reads: of two fields with one name encoding/json takes the last, and
// U+FFFD for half of a surrogate pair.
func unambiguous(arguments json.RawMessage, schema *jsonschema.Schema) error {
	if len(arguments) == 0 || string(arguments) == "null" {
		return nil
	}
	o := jsonline.Parse(arguments)
	for name, property := range schema.Properties {
		if property.Type == "string" {
			o.String(name)
		} else {
			o.Raw(name)
		}
	}
	return o.End()
}

// bounds are the bounds of numbers, by the name of the argument. No call could want a value
// below the least, so 0 is an argument that was left out.
var bounds = map[string][2]float64{
	"timeout": {1, 600}, "wait_ms": {1, maxWait}, "offset": {1, 1 << 31}, "limit": {1, 1 << 20},
	"before": {0, 1000}, "after": {0, 1000},
}

// said returns a result with a text, and with fields for programs.
func said(text string, meta fields) *mcp.CallToolResult {
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	if meta != nil {
		r.Meta = mcp.Meta{"pk/result": meta}
	}
	return r
}

// failed returns the result of a tool call that failed.
func failed(format string, args ...any) *mcp.CallToolResult {
	r := said("Error: "+fmt.Sprintf(format, args...), nil)
	r.IsError = true
	return r
}

// request converts the arguments of a tool to a request.
func request(op string, in any) fields {
	f := fields{}
	text, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		panic("internal error: " + err.Error())
	}
	f["op"] = op
	return f
}

var errNoSuchJob = errors.New("there is no such shell_id; bash_list lists them")

// lines ends a text with a newline, unless it is empty.
func lines(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
