package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	handshake = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	modern    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

// raw is a client that writes lines.
type raw struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

func newRaw(t *testing.T, s *server) *raw {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- s.serve(context.Background(), newStdio(toServer, fromServer))
		fromServer.Close()
	}()
	t.Cleanup(func() {
		fromClient.Close()
		_, _ = io.Copy(io.Discard, toClient)
		assert.NoError(t, <-served)
	})
	r := &raw{t, fromClient, bufio.NewScanner(toClient)}
	r.out.Buffer(nil, 1<<24)
	return r
}

func (r *raw) write(line string) {
	_, err := io.WriteString(r.in, line+"\n")
	require.NoError(r.t, err)
}

// answer returns the next line that is not a notification.
func (r *raw) answer() map[string]any {
	for r.out.Scan() {
		var m map[string]any
		require.NoError(r.t, json.Unmarshal(r.out.Bytes(), &m))
		if m["method"] == nil {
			return m
		}
	}
	r.t.Fatal("the server has ended")
	return nil
}

// No line ends the server: it answers the request after each line.
func TestLines(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)
	for _, test := range []struct {
		name, line string
		id         any
		code       float64 // 0: a result; 1: no answer
	}{
		{"no JSON", `ping`, nil, jsonrpc.CodeParseError},
		{"half of an object", `{"jsonrpc":"2.0","id":1,`, nil, jsonrpc.CodeParseError},
		{"two objects", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"a":1}`, nil, jsonrpc.CodeParseError},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", nil, jsonrpc.CodeParseError},
		{"empty line", "", nil, 1},
		{"blanks", " \t\r", nil, 1},
		{"end of line as on Windows", `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\r", 1.0, 0},
		{"number", `1`, nil, jsonrpc.CodeInvalidRequest},
		{"null", `null`, nil, jsonrpc.CodeInvalidRequest},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, nil, jsonrpc.CodeInvalidRequest},
		{"empty batch", `[]`, nil, jsonrpc.CodeInvalidRequest},
		{"empty object", `{}`, nil, jsonrpc.CodeInvalidRequest},
		{"no version of JSON-RPC", `{"id":1,"method":"ping"}`, 1.0, jsonrpc.CodeInvalidRequest},
		{"another version of JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, 1.0, jsonrpc.CodeInvalidRequest},
		{"id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id that is a list", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id that is null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id that is true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id that is a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id that a float64 cannot hold", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"largest id", `{"jsonrpc":"2.0","id":-9007199254740992,"method":"ping"}`, -9007199254740992.0, 0},
		{"long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID) + `","method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id twice", `{"jsonrpc":"2.0","id":1,"id":{},"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"id twice, and the last can be used", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"method twice", `{"jsonrpc":"2.0","id":1,"method":"x/y","method":"ping"}`, nil, jsonrpc.CodeInvalidRequest},
		{"parameters twice", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}`, nil, jsonrpc.CodeInvalidRequest},
		{"arguments twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash_list","arguments":{"x":1},"arguments":{}}}`, 1.0, jsonrpc.CodeInvalidParams},
		{"ID", `{"jsonrpc":"2.0","ID":{},"id":1,"method":"ping"}`, 1.0, 0},
		{"method that is a number", `{"jsonrpc":"2.0","id":1,"method":1}`, 1.0, jsonrpc.CodeInvalidRequest},
		{"no method", `{"jsonrpc":"2.0","id":1}`, 1.0, jsonrpc.CodeInvalidRequest},
		{"method that is not there", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, 1.0, jsonrpc.CodeMethodNotFound},
		{"notification that is not there", `{"jsonrpc":"2.0","method":"notifications/x"}`, nil, 1},
		{"parameters that are a list", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`, 1.0, jsonrpc.CodeInvalidParams},
		{"parameters that are null", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`, 1.0, jsonrpc.CodeInvalidRequest},
		{"tool that is not there", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, 1.0, jsonrpc.CodeInvalidParams},
		{"deep", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + deep + `}`, 1.0, jsonrpc.CodeInvalidRequest},
		{"response to nothing", `{"jsonrpc":"2.0","id":99,"result":{}}`, nil, 1},
		{"error to nothing", `{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}`, nil, 1},
		{"error that is none", `{"jsonrpc":"2.0","id":99,"error":"x"}`, nil, 1},
		{"response without an id", `{"jsonrpc":"2.0","result":{}}`, nil, 1},
		{"response with an id that is none", `{"jsonrpc":"2.0","id":{},"result":{}}`, nil, 1},
		{"second handshake", handshake, "i", jsonrpc.CodeInvalidRequest},
		{"cancelled: nothing", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, nil, 1},
		{"cancelled: no parameters", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, nil, 1},
		{"cursor that is none", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, 1.0, jsonrpc.CodeInvalidParams},
		{"discovery without a version", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}`, 1.0, jsonrpc.CodeMethodNotFound},
		{"version of long ago", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, 1.0, -32022},
		{"version of tomorrow", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2999-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, 1.0, -32022},
		{"version that is a number", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}}`, 1.0, jsonrpc.CodeInvalidParams},
		{"version without capabilities", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, 1.0, jsonrpc.CodeInvalidParams},
		{"both eras in a connection", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 1.0, 0},
		{"ping, which the version has not", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modern + `}}`, 1.0, jsonrpc.CodeMethodNotFound},
		{"too long", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", maxLine) + `"}`, nil, jsonrpc.CodeInvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRaw(t, newServer(&children{}, false, description{}))
			r.write(handshake)
			assert.Equal(t, "i", r.answer()["id"])
			r.write(test.line)
			if test.code != 1 {
				got := r.answer()
				assert.Equal(t, test.id, got["id"])
				assert.Contains(t, got, "id")
				assert.Equal(t, "2.0", got["jsonrpc"])
				if test.code != 0 {
					require.Contains(t, got, "error")
					assert.InDelta(t, test.code, got["error"].(map[string]any)["code"], 0, got)
				} else {
					assert.Contains(t, got, "result")
				}
			}
			r.write(`{"jsonrpc":"2.0","id":"last","method":"ping"}`)
			assert.Equal(t, "last", r.answer()["id"])
		})
	}
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	initialize := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + params + `}`
	}
	for _, test := range []struct{ name, line, want string }{
		{"version", initialize(`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`), `"protocolVersion":"2025-06-18"`},
		{"version with batches", initialize(`{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`), `"protocolVersion":"2024-11-05"`},
		{"version of tomorrow", initialize(`{"protocolVersion":"2999-01-01","capabilities":{}}`), `"protocolVersion":"2025-11-25"`},
		{"no version", initialize(`{"capabilities":{}}`), `"code":-32602`},
		{"version that is a number", initialize(`{"protocolVersion":1}`), `"code":-32602`},
		{"no parameters", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, `"code":-32602`},
		{"request before it", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"code":-32600`},
		{"ping before it", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"result":{}`},
		{"wrong version before it", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`, `"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2024-11-05"],"requested":"1900-01-01"}`},
		{"discovery", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modern + `}}`, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2024-11-05"]`},
		{"no handshake", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, `"resultType":"complete"`},
		{"no lists that change", initialize(`{"protocolVersion":"2025-11-25"}`), `"capabilities":{"tools":{}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRaw(t, newServer(&children{}, false, description{}))
			r.write(test.line)
			got := r.answer()
			text, err := json.Marshal(got)
			require.NoError(t, err)
			wanted, err := json.Marshal(sorted(t, test.want))
			require.NoError(t, err)
			assert.Contains(t, string(text), strings.Trim(string(wanted), "{}"))
		})
	}
}

// sorted decodes a part of an object. Go prints its keys in sorted order.
func sorted(t *testing.T, part string) (m map[string]any) {
	require.NoError(t, json.Unmarshal([]byte("{"+part+"}"), &m))
	return m
}

// The server does not answer a cancelled call. The client can use the id again.
func TestCancelledIsNotAnswered(t *testing.T) {
	t.Parallel()
	r := newRaw(t, fake(t, false))
	r.write(handshake)
	r.answer()
	r.write(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep 1000"}}}`)
	r.write(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	assert.Nil(t, r.answer()["id"]) // it is in use
	r.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	for {
		r.write(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"bash_list","arguments":{}}}`)
		got := r.answer()
		require.InDelta(t, 8, got["id"], 0)
		text, _ := json.Marshal(got)
		if strings.Contains(string(text), "no jobs") {
			break
		}
	}
	for { // the job has ended before its call has
		r.write(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		got := r.answer()
		if got["id"] == nil {
			continue
		}
		assert.InDelta(t, 7, got["id"], 0)
		assert.Empty(t, got["result"]) // of the ping, and not of the call
		break
	}
}

// Arguments that two programs could read in two ways are refused: a client may show its
// user the one, and the other would run.
func TestArguments(t *testing.T) {
	t.Parallel()
	r := newRaw(t, fake(t, false))
	r.write(handshake)
	r.answer()
	for _, test := range []struct{ name, arguments, want string }{
		{"twice", `{"command":"echo hi","command":"echo ho"}`, `the field \"command\" is there twice`},
		{"twice, one escaped", `{"command":"echo hi","\u0063ommand":"echo ho"}`, `the field \"command\" is there twice`},
		{"number twice", `{"command":"echo hi","timeout":1,"timeout":2}`, `the field \"timeout\" is there twice`},
		{"half of a surrogate pair", `{"command":"echo \ud800"}`, "the command holds half of a surrogate pair"},
		{"in another argument", `{"command":"echo hi","description":"\udc00\ud800"}`, "the description holds half of a surrogate pair"},
	} {
		r.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":` + test.arguments + `}}`)
		text, err := json.Marshal(r.answer()["result"])
		require.NoError(t, err, test.name)
		assert.Contains(t, string(text), test.want, test.name)
		assert.Contains(t, string(text), `"isError":true`, test.name)
	}
	r.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo \ud83d\ude00"}}}`)
	text, err := json.Marshal(r.answer())
	require.NoError(t, err)
	assert.Contains(t, string(text), "\U0001F600")
}

// A client that reads no answers cannot hold the server after it has left.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	for _, line := range []string{handshake + "\n", "no message\n", strings.Repeat("no message\n", 20)} {
		in, client, err := os.Pipe()
		require.NoError(t, err)
		_, out := io.Pipe() // without a reader
		served := make(chan error, 1)
		go func() {
			served <- newServer(&children{}, false, description{}).serve(context.Background(), newStdio(in, out))
		}()
		_, err = io.WriteString(client, line)
		require.NoError(t, err)
		client.Close()
		select {
		case err := <-served:
			assert.NoError(t, err)
		case <-time.After(20 * time.Second):
			t.Errorf("after %q it does not end", line)
		}
		in.Close()
		out.Close()
	}
}

// Each line is a message that can be passed on, or gets an answer.
func FuzzParse(f *testing.F) {
	for _, line := range []string{handshake, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1.5,"result":{}}`, `[]`, `{"id":{}}`, `{"jsonrpc":"2.0","id":"\ud800","method":"x"}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		msg, problem := parse(line)
		if problem != nil {
			assert.Nil(t, msg)
			_, err := json.Marshal(problem)
			assert.NoError(t, err)
			return
		}
		request, ok := msg.(*jsonrpc.Request)
		if !ok {
			return
		}
		var sent struct{ ID json.RawMessage }
		text, err := jsonrpc.EncodeMessage(request)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &sent))
		if request.IsCall() { // the id is given back as it came
			var fields map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(line, &fields))
			assert.JSONEq(t, string(fields["id"]), string(sent.ID))
		}
	})
}
