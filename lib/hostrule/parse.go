package hostrule

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The lengths of RFC 1035, section 2.3.4, of a name without its trailing dot.
const (
	maxLabel = 63
	maxName  = 253
)

// maxText bounds the text of a rule: a name, MaxPorts ports and a word need less.
const maxText = 2048

// Parse reads a rule: "NAME[:PORT[,PORT]...] [private]". NAME may begin with "*.",
// for the names below a domain of at least two labels. Parse does not know the domains
// under which anyone can register a name, some of which have two labels.
func Parse(text string) (Rule, error) {
	r, err := parse(strings.Trim(text, " \t"))
	if err != nil {
		return Rule{}, fmt.Errorf("cannot allow %q: %w", shown(text), err)
	}
	return r, nil
}

func parse(text string) (Rule, error) {
	if len(text) > maxText {
		return Rule{}, fmt.Errorf("it is longer than %d bytes: type one rule", maxText)
	}
	host, word := text, ""
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		host, word = text[:i], strings.TrimLeft(text[i:], " \t")
	}
	if word != "" && word != "private" {
		return Rule{}, fmt.Errorf("behind the name stands %q: type \"private\" there, or nothing", shown(word))
	}
	if err := foreign(host); err != nil {
		return Rule{}, err
	}
	name, list, given := strings.Cut(host, ":")
	r := Rule{Private: word != "", Ports: []uint16{80, 443}}
	if err := r.setName(name); err != nil {
		return Rule{}, err
	}
	if r.Wildcard && r.Private {
		return Rule{}, errors.New("a wildcard cannot be private: type each private name by itself")
	}
	if given {
		ports, err := parsePorts(list)
		if err != nil {
			return Rule{}, err
		}
		r.Ports = ports
	}
	return r, nil
}

// foreign refuses URLs and other non-names that people type in place of a name.
func foreign(host string) error {
	if scheme, _, ok := strings.Cut(host, "://"); ok {
		return fmt.Errorf("it has a scheme: leave out %q", scheme+"://")
	}
	if strings.Contains(host, "@") {
		return errors.New("it has a user: leave out everything up to the \"@\"")
	}
	if isAddress(host) {
		return errAddress
	}
	if i := strings.IndexAny(host, "/?\\"); i >= 0 {
		return fmt.Errorf("it has a path: leave out %q, a rule is for all of a host", host[i:])
	}
	if strings.Count(host, ":") > 1 {
		return errors.New("it has two colons: type NAME:PORT,PORT for several ports")
	}
	return nil
}

var errAddress = errors.New("it is an address: type the host's name; a port of this machine takes --connect")

// isAddress knows addresses as netip does, with or without a port. setName knows
// the other forms.
func isAddress(host string) bool {
	if strings.HasPrefix(host, "[") {
		return true
	}
	_, err := netip.ParseAddr(host)
	_, portErr := netip.ParseAddrPort(host)
	return err == nil || portErr == nil
}

// setName checks a name as it was typed, and sets Name and Wildcard.
func (r *Rule) setName(typed string) error {
	name := typed
	switch {
	case typed == "":
		return errors.New("it has no name: type NAME or NAME:PORT")
	case typed == "*" || typed == "*.":
		return errors.New("it would allow every host: type the name of each, or leave the network to it with --net host")
	case strings.HasPrefix(typed, "*."):
		name, r.Wildcard = typed[2:], true
	}
	if strings.Contains(name, "*") {
		return errors.New("\"*\" can only be the whole first label: type \"*.NAME\" for what is below NAME")
	}
	var err error
	if r.Name, err = checkName(name); err != nil {
		return err
	}
	if r.Wildcard && !strings.Contains(r.Name, ".") {
		return errors.New("it would allow a whole top-level domain: type \"*.\" and at least two labels")
	}
	return nil
}

// checkName returns a name in lower case and without its trailing dot.
func checkName(name string) (string, error) {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return "", errors.New("it is not ASCII: type the form that begins with \"xn--\"")
		}
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > maxName {
		return "", fmt.Errorf("its name is longer than %d bytes: type a shorter one", maxName)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
		last = label
	}
	switch {
	case isNumber(last):
		return "", errAddress
	case last == "localhost":
		return "", errors.New("it is this machine: --connect opens one of its ports")
	}
	return name, nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("it has an empty label: type one dot between labels")
	case len(label) > maxLabel:
		return fmt.Errorf("its label %q is longer than %d bytes: type a shorter one", label, maxLabel)
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Errorf("its label %q begins or ends with \"-\": type it without", label)
	}
	for i := range len(label) {
		if !isNameByte(label[i]) {
			return fmt.Errorf("its name holds %q: type letters, digits, \"-\", \"_\" and dots", label[i])
		}
	}
	return nil
}

// isNameByte: host names have no "_", RFC 952, but names below which services are
// have it, and real hosts do.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// isNumber tells that a name with this last label is an IPv4 address to browsers and
// to inet_aton(3): 127.1, 2130706433, 0x7f.1. WHATWG URL Standard,
// "ends in a number checker".
func isNumber(last string) bool {
	return strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

func parsePorts(list string) ([]uint16, error) {
	var ports []uint16
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil || n == 0 || word[0] == '0' {
			return nil, fmt.Errorf("%q is no port: type a number from 1 to 65535", word)
		}
		ports = append(ports, uint16(n))
	}
	ports = sorted(ports)
	if len(ports) > MaxPorts {
		return nil, fmt.Errorf("it has %d different ports: %d is the most", len(ports), MaxPorts)
	}
	return ports, nil
}

// normal returns a requested name in the form of rules, and whether any rule
// could match it.
func normal(name string) (string, bool) {
	if len(name) > maxName+1 {
		return "", false
	}
	name, err := checkName(name)
	return name, err == nil
}

// shown is a text that is safe to repeat: the part before an "@" may be a
// password.
func shown(text string) string {
	if i := strings.LastIndexByte(text, '@'); i > 0 {
		text = "..." + text[i:]
	}
	if len(text) > maxName {
		text = text[:maxName] + "..."
	}
	return text
}
