package requests

import "fmt"

// Refusal is a request that is not forwarded.
type Refusal struct {
	Status int    // of the answer
	Reason string // for the user: ASCII on one line, with at most maxQuoted bytes of the request, quoted

	// Forwarded is the number of requests whose heads were forwarded before. If it is
	// 0, Response may be written to the client at once. Otherwise the client may be
	// waiting for other responses, and Response in their midst would be taken for a
	// part of them: close the writing side of the server's connection, copy to the
	// end, and write Response then, or close the client's connection without it.
	Forwarded int

	noBody bool
}

func (r *Refusal) Error() string { return "request refused: " + r.Reason }

// Response returns a complete response that ends the connection. Before closing the
// connection, read and drop the client's data for a moment: the kernel sends a reset if
// data is unread, and that may overtake the response.
func (r *Refusal) Response() []byte {
	body := r.Reason + "\n"
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		r.Status, statusText[r.Status], len(body))
	if r.noBody { // a response to HEAD has none (RFC 9110, section 9.3.2)
		return []byte(head)
	}
	return []byte(head + body)
}

var statusText = map[int]string{
	400: "Bad Request",
	403: "Forbidden",
	408: "Request Timeout",
	417: "Expectation Failed",
	421: "Misdirected Request",
	431: "Request Header Fields Too Large",
	501: "Not Implemented",
	505: "HTTP Version Not Supported",
}

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Reason: fmt.Sprintf(format, args...)}
}

// maxQuoted bounds the bytes of a request in a Reason. Reasons are kept, and shown to
// users and models: the client must not place a text of its own there.
const maxQuoted = 80

func cut(s string) string { return s[:min(len(s), maxQuoted)] }
