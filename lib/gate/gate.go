// Package gate is the network of a sandbox that is not the host's: a network namespace
// with a loopback, the requested ports of the host's loopback, and, if hosts are allowed,
// a gate to them by name.
//
// A gate process makes two network namespaces, joined by a veth pair. One is the
// command's. In the other every address is local and no process lives: the command's
// packets end at sockets of the gate. The gate answers names with synthetic addresses,
// checks each connection against the rules, resolves the name on the host, and connects
// to an address that it has checked. The command needs no proxy, no variable and no
// certificate, and there is no route around the gate. When the gate ends, for any reason,
// the pair is gone and the command reaches nothing any more.
//
// The gate lives as long as a set-up program is connected to it (Join). A session has one
// gate at a time, which its commands share.
package gate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"pikuri/lib/hostrule"
	"pikuri/lib/internal/hidden"
	"pikuri/lib/session"
)

// Mode is the gate process.
var Mode = hidden.Mode{Name: option, Run: main, Title: session.GateTitle}

const option = "--pk-gate"

// Config is the network that a command may reach. The zero value is only a loopback.
type Config struct {
	Allow   bool           `json:"allow,omitempty"` // there is a gate to hosts; without it Rules is empty
	Rules   hostrule.Rules `json:"rules,omitempty"`
	Publish []uint16       `json:"publish,omitempty"` // ports of the sandbox, opened on the host's loopback
	Connect []uint16       `json:"connect,omitempty"` // ports of the host's loopback, opened inside
	Proxy   Proxy          `json:"proxy,omitzero"`
}

// Equal reports whether two commands can share one gate.
func (c Config) Equal(o Config) bool {
	return c.Allow == o.Allow && c.Rules.String() == o.Rules.String() && c.Proxy == o.Proxy &&
		slices.Equal(sorted(c.Publish), sorted(o.Publish)) && slices.Equal(sorted(c.Connect), sorted(o.Connect))
}

// Check refuses rules that no gate can enforce.
func (c Config) Check() error {
	if slices.Contains(c.Rules.Ports(), 53) {
		return errors.New("port 53 cannot be allowed: the gate itself answers names there")
	}
	return c.Rules.Check()
}

func sorted(ports []uint16) []uint16 {
	ports = slices.Clone(ports)
	slices.Sort(ports)
	return slices.Compact(ports)
}

// String formats the Config in one line, for messages.
func (c Config) String() string {
	words := []string{"none"}
	if c.Allow {
		words = []string{"allow", c.Rules.String()}
	}
	for _, p := range sorted(c.Publish) {
		words = append(words, fmt.Sprintf("publish %d", p))
	}
	for _, p := range sorted(c.Connect) {
		words = append(words, fmt.Sprintf("connect %d", p))
	}
	return strings.Join(words, " ")
}

// Resolver is the address at which the command asks for names.
var Resolver = netip.AddrFrom4([4]byte{198, 18, 0, 1})

// Failure is an error with a hint.
type Failure struct {
	Err    error
	Advice string
}

// hinted is a Failure, or another error with a hint.
type hinted interface {
	error
	Hint() string
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Hint is the line to type or the change to make, or "".
func (f *Failure) Hint() string { return f.Advice }
