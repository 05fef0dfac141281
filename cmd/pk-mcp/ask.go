package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// askTime bounds the wait for an answer: it is a no then.
const askTime = 10 * time.Minute

// stateless is the first version of the protocol in which a server asks by its result:
// the client calls again, with the answer.
const stateless = "2026-07-28"

// confirm asks the user through the client, if that was wanted. It returns the result of
// a call that is not to go on: one that says no, or one that asks.
func (s *server) confirm(ctx context.Context, r *mcp.CallToolRequest, question string) *mcp.CallToolResult {
	if !s.ask {
		return nil
	}
	c := r.ClientCapabilities()
	if c == nil || c.Elicitation == nil || c.Elicitation.Form == nil && c.Elicitation.URL != nil {
		return failed("declined: this client cannot ask its user, and the server may not run anything unasked")
	}
	// Some clients refuse a question without a schema, be it an empty one.
	form := &mcp.ElicitParams{Mode: "form", Message: question, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
	if r.ProtocolVersion() >= stateless {
		if s.pending.answered(r.Params.RequestState, question) {
			answer, _ := r.Params.InputResponses["confirm"].(*mcp.ElicitResult)
			return declined(answer)
		}
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{"confirm": form},
			RequestState:  s.pending.add(question),
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
	answer, err := r.Session.Elicit(ctx, form)
	if err != nil {
		return declined(nil)
	}
	return declined(answer)
}

// declined is nil if the answer is a yes.
func declined(answer *mcp.ElicitResult) *mcp.CallToolResult {
	if answer != nil && answer.Action == "accept" {
		return nil
	}
	return failed("declined: the user did not allow this")
}

// pending are the questions that a client has been sent to ask. An answer counts for its
// question, and once.
type pending struct {
	mu    sync.Mutex
	order []string
	of    map[string]string // questions
}

// maxPending bounds the questions without an answer; the oldest is forgotten, which
// is a no.
const maxPending = 64

func (p *pending) add(question string) (state string) {
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
	p.of[state] = question
	return state
}

func (p *pending) answered(state, question string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, ok := p.of[state]
	delete(p.of, state)
	return ok && asked == question
}

// question is what the user is asked about a command: all of it that decides what is run.
func (in bashIn) question(root string) string {
	var b strings.Builder
	b.WriteString("Run this command in the fence?\n\n")
	b.WriteString("$ " + strings.ReplaceAll(visible(in.Command), "\n", "\n> ") + "\n")
	return b.String()
}

func (in inputIn) question() string {
	return "Type this into " + in.ID + "?\n\n" + visible(in.Input)
}

func visible(s string) string { return s }
