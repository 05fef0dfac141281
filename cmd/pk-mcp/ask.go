package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pikuri/lib/audit"
	"pikuri/lib/visible"
)

// askTime bounds the wait for an answer. After that, the answer is a no.
const askTime = 10 * time.Minute

// stateless is the first version of the protocol in which a server asks with the result of
// a call. The client calls again with the answer.
const stateless = "2026-07-28"

// confirm asks the user through the client, if the caller wanted that. It returns the
// result of a call that must not go on: a refusal, or a question. It makes the text of
// the question only when its turn has come, as the facts may have changed until then. It
// records the answer: without the record it is a no.
func (s *server) confirm(ctx context.Context, r *mcp.CallToolRequest, in asking, question func() string) *mcp.CallToolResult {
	if !s.ask {
		return nil
	}
	result := s.put(ctx, r, in, question)
	if result != nil && result.InputRequests != nil {
		return result
	}
	record := audit.Record{Event: audit.Question, Asked: "client", Answer: "yes"}
	if result != nil {
		record.Answer = "no"
	}
	s.mu.Lock()
	record.Session = s.session
	record.SetProject(s.root)
	s.mu.Unlock()
	in.record(&record)
	if _, err := s.log.Append(record); err != nil {
		fmt.Fprintf(s.stderr, "pk-mcp: %v\n", err)
		return failed("declined: the answer cannot be recorded")
	}
	return result
}

// asking is the input of a tool that asks.
type asking interface{ record(r *audit.Record) }

func (in bashIn) record(r *audit.Record) {
	r.SetCommand(in.Command)
	r.Description = in.Description
}

func (in inputIn) record(r *audit.Record) { r.SetCommand(in.Input) }

// put puts the question.
func (s *server) put(ctx context.Context, r *mcp.CallToolRequest, in any, question func() string) *mcp.CallToolResult {
	c := r.ClientCapabilities()
	if c == nil || c.Elicitation == nil || c.Elicitation.Form == nil && c.Elicitation.URL != nil {
		return failed("declined: this client cannot ask its user, and the server may not run anything unasked")
	}
	if r.ProtocolVersion() >= stateless {
		args, err := json.Marshal(in)
		if err != nil {
			return failed("internal error: %v", err)
		}
		text := question()
		call := r.Params.Name + string(args) + text // a yes counts for this question alone
		if s.pending.answered(r.Params.RequestState, call) {
			answer, _ := r.Params.InputResponses["confirm"].(*mcp.ElicitResult)
			return declined(answer)
		}
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{"confirm": form(text)},
			RequestState:  s.pending.add(call),
		}
	}
	select { // one question at a time
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return declined(nil)
	}
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	answer, err := r.Session.Elicit(ctx, form(question()))
	if err != nil {
		return declined(nil)
	}
	return declined(answer)
}

// form is a question that is answered by yes or no. Some clients refuse one without a
// schema, be it an empty one.
func form(text string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: text, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
}

// declined is nil if the answer is a yes.
func declined(answer *mcp.ElicitResult) *mcp.CallToolResult {
	if answer != nil && answer.Action == "accept" {
		return nil
	}
	return failed("declined: the user did not allow this")
}

// pending holds the calls for which the server has sent a question. An answer applies to
// its call only, and once.
type pending struct {
	mu    sync.Mutex
	order []string
	of    map[string]string // calls
}

// maxPending bounds the questions without an answer. The server forgets the oldest question
// and takes it as a no.
const maxPending = 64

func (p *pending) add(call string) (state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]string{}
	}
	if len(p.order) == maxPending {
		delete(p.of, p.order[0])
		p.order = p.order[1:]
	}
	state = rand.Text()
	p.order = append(p.order, state)
	p.of[state] = call
	return state
}

func (p *pending) answered(state, call string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, ok := p.of[state]
	delete(p.of, state)
	return ok && asked == call
}

// question returns the question about a command: its text, its directory and its time
// limit.
func (in bashIn) question(dir string) string {
	var b strings.Builder
	b.WriteString("Run this in the fence?\n\n$ " + shown(in.Command) + "\n\n")
	if in.Description != "" {
		b.WriteString("description: " + oneLine(in.Description) + "\n")
	}
	fmt.Fprintf(&b, "in %s", oneLine(cmp.Or(in.Cwd, dir)))
	if limit := in.limit(); limit > 0 {
		fmt.Fprintf(&b, ", for at most %d s", limit)
	} else {
		b.WriteString(", without a time limit")
	}
	return b.String()
}

func (in inputIn) question() string {
	text := "Type this into " + oneLine(in.ID) + "?\n\n> " + shown(in.Input)
	if in.EOF {
		text += "\n\nand end its input"
	}
	return text
}

// shown formats text as a shell shows it, so that no line can pass for a line of the
// question.
func shown(text string) string { return strings.ReplaceAll(visible.Text(text), "\n", "\n> ") }

func oneLine(text string) string { return strings.ReplaceAll(visible.Text(text), "\n", `\n`) }
