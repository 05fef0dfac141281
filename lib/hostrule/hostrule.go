// Package hostrule has the rules that say to which hosts a command may connect,
// by name. They are values; nothing here looks at the network.
package hostrule

import (
	"fmt"
	"slices"
	"strings"
)

// MaxPorts bounds the different ports of a rule set. The gate listens on one
// socket for each, and hands them over in one message, which takes at most 253
// descriptors: SCM_MAX_FD, unix(7).
const MaxPorts = 200

// MaxRules bounds a rule set: the gate gives each name that is allowed an address,
// and has as many.
const MaxRules = 4096

// Rule allows connections to a host by name. The zero value allows nothing.
type Rule struct {
	Name     string   // lower case ASCII, no trailing dot; for a wildcard without "*."
	Wildcard bool     // one or more labels below Name, not Name itself
	Ports    []uint16 // sorted, without duplicates; 80 and 443 if none were given
	Private  bool     // the name may resolve to private addresses; never with Wildcard
	Origin   string   // the source of the rule, for people: "option --allow-host"
}

// Host is the rule without its ports: "NAME" or "*.NAME".
func (r Rule) Host() string {
	if r.Wildcard {
		return "*." + r.Name
	}
	return r.Name
}

// String is the rule as Parse takes it, with all its ports: "NAME:80,443 private".
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Host())
	for i, p := range r.Ports {
		b.WriteByte(":,"[min(i, 1)])
		fmt.Fprint(&b, p)
	}
	if r.Private {
		b.WriteString(" private")
	}
	return b.String()
}

// matches tells whether the rule is about a name that normal has returned.
func (r Rule) matches(name string) bool {
	if r.Name == "" || !r.Wildcard {
		return r.Name != "" && name == r.Name
	}
	return strings.HasSuffix(name, "."+r.Name)
}

// Rules is a set of rules. The zero value allows nothing.
type Rules []Rule

// Find returns the sum of the rules that match a name. exact tells that one of
// them gives the name itself; private, that one of these has Private, which is a
// property of the name and holds for all its ports. The name may be in any case and
// end in a dot. A name whose bytes or lengths no rule can have does not match: the
// name comes from the command.
func (r Rules) Find(name string) (ports []uint16, private, exact, ok bool) {
	name, valid := normal(name)
	if !valid {
		return nil, false, false, false
	}
	for _, rule := range r {
		if !rule.matches(name) {
			continue
		}
		ok = true
		ports = append(ports, rule.Ports...)
		if !rule.Wildcard {
			exact = true
			private = private || rule.Private
		}
	}
	return sorted(ports), private, exact, ok
}

// Allows returns the rule that lets a connection through: a rule for the name
// itself before a wildcard, then the first. Ask Find, not this rule, whether the
// name is private.
func (r Rules) Allows(name string, port uint16) (Rule, bool) {
	name, ok := normal(name)
	if !ok || port == 0 {
		return Rule{}, false
	}
	for _, wildcard := range []bool{false, true} {
		for _, rule := range r {
			if rule.Wildcard == wildcard && rule.matches(name) && slices.Contains(rule.Ports, port) {
				return rule, true
			}
		}
	}
	return Rule{}, false
}

// Ports returns the ports of all rules, sorted and each once.
func (r Rules) Ports() []uint16 {
	var ports []uint16
	for _, rule := range r {
		if rule.Name != "" {
			ports = append(ports, rule.Ports...)
		}
	}
	return sorted(ports)
}

// Check refuses a rule set that is too large. It does not repeat the checks of Parse.
func (r Rules) Check() error {
	if len(r) > MaxRules {
		return fmt.Errorf("cannot allow %d hosts: %d is the most; allow a domain with \"*.\" in place of many names", len(r), MaxRules)
	}
	if n := len(r.Ports()); n > MaxPorts {
		return fmt.Errorf("cannot allow %d different ports: %d is the most; name fewer", n, MaxPorts)
	}
	return nil
}

// String is the set on one line. Sets that allow the same have the same line: rules
// of one name are joined, and sorted by name, exact before wildcard. It leaves out
// origins.
func (r Rules) String() string {
	var words []string
	for _, rule := range r.canonical() {
		words = append(words, rule.String())
	}
	if words == nil {
		return "no host"
	}
	return strings.Join(words, "; ")
}

func (r Rules) canonical() Rules {
	var joined Rules
	for _, rule := range r {
		if rule.Name == "" || len(rule.Ports) == 0 {
			continue // allows nothing
		}
		i, found := slices.BinarySearchFunc(joined, rule, byHost)
		if !found {
			joined = slices.Insert(joined, i, Rule{Name: rule.Name, Wildcard: rule.Wildcard})
		}
		joined[i].Ports = sorted(slices.Concat(joined[i].Ports, rule.Ports))
		joined[i].Private = joined[i].Private || rule.Private
	}
	return joined
}

func byHost(a, b Rule) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 || a.Wildcard == b.Wildcard {
		return c
	}
	if b.Wildcard {
		return -1
	}
	return 1
}

// sorted sorts in place, and drops duplicates.
func sorted(ports []uint16) []uint16 {
	slices.Sort(ports)
	return slices.Compact(ports)
}
