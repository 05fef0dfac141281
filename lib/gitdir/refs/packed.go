package refs

import (
	"fmt"
	"iter"
	"sort"
	"strings"
)

// packed is the text of a packed-refs file whose refs are sorted by name. It is searched
// without parsing: a repository may have 50 000 refs.
type packed struct {
	header string // with its newline, or ""
	refs   string // lines "ID NAME", each perhaps with a line "^ID" after it
	hexLen int
}

const packedHeader = "# pack-refs with:"

// openPacked accepts a file of the host unchecked if its header says that it is sorted.
func openPacked(data string, hexLen int) (packed, error) {
	header, refs, ok := strings.Cut(data, "\n")
	if ok && strings.HasPrefix(header, packedHeader) && strings.Contains(header+" ", " sorted ") {
		return packed{header + "\n", refs, hexLen}, nil
	}
	return parsePacked(data, hexLen)
}

// parsePacked checks each line, and sorts a file that is not sorted. Callers check the
// names.
func parsePacked(data string, hexLen int) (packed, error) {
	p := packed{refs: data, hexLen: hexLen}
	if strings.HasPrefix(data, "#") {
		n := strings.IndexByte(data, '\n') + 1
		if n == 0 || !strings.HasPrefix(data, packedHeader) {
			return p, fmt.Errorf("its first line is no header")
		}
		p.header, p.refs = data[:n], data[n:]
	}
	last, sorted := "", true
	for rest := p.refs; rest != ""; {
		record := p.first(rest)
		if err := p.check(record); err != nil {
			return packed{hexLen: hexLen}, err
		}
		name := p.name(record)
		sorted = sorted && name > last
		last, rest = name, rest[len(record):]
	}
	if sorted {
		return p, nil
	}
	return p.sort()
}

// first returns the first record of text: the line of a ref, and the one of the
// object that its tag leads to. A record without a newline goes to the end.
func (p packed) first(text string) string {
	n := strings.IndexByte(text, '\n') + 1
	if n == 0 {
		return text
	}
	if n < len(text) && text[n] == '^' {
		m := strings.IndexByte(text[n:], '\n') + 1
		if m == 0 {
			return text
		}
		n += m
	}
	return text[:n]
}

func (p packed) check(record string) error {
	ref, peeled, _ := strings.Cut(record, "\n")
	id, ok := "", len(ref) > p.hexLen+1 && ref[p.hexLen] == ' ' && strings.HasSuffix(record, "\n")
	if ok {
		id, ok = parseID(ref[:p.hexLen], p.hexLen)
		ok = ok && id == ref[:p.hexLen]
	}
	if ok && peeled != "" {
		_, ok = parseID(strings.TrimSuffix(peeled[1:], "\n"), p.hexLen)
	}
	if !ok {
		return fmt.Errorf("it has a line that git does not write: %.80q", ref)
	}
	return nil
}

func (p packed) name(record string) string {
	line, _, _ := strings.Cut(record, "\n")
	return line[min(p.hexLen+1, len(line)):]
}

// sort sorts the records by name, as git does when it reads a file of an old git.
func (p packed) sort() (packed, error) {
	var records []string
	for rest := p.refs; rest != ""; {
		records = append(records, p.first(rest))
		rest = rest[len(records[len(records)-1]):]
	}
	sort.Slice(records, func(i, j int) bool { return p.name(records[i]) < p.name(records[j]) })
	for i := 1; i < len(records); i++ {
		if p.name(records[i]) == p.name(records[i-1]) {
			return packed{hexLen: p.hexLen}, fmt.Errorf("it names %q twice", p.name(records[i]))
		}
	}
	p.refs = strings.Join(records, "")
	return p, nil
}

// find returns the offset of the first record whose name is not before this one.
func (p packed) find(name string) int {
	low, high := 0, len(p.refs)
	for low < high {
		at := max(p.start((low+high)/2), low)
		record := p.first(p.refs[at:])
		if p.name(record) < name {
			low = at + len(record)
		} else {
			high = at
		}
	}
	return low
}

// start returns the beginning of the record that holds the byte at an offset.
func (p packed) start(at int) int {
	for {
		at = strings.LastIndexByte(p.refs[:at], '\n') + 1
		if at == 0 || p.refs[at] != '^' {
			return at
		}
		at--
	}
}

// get returns the ID of a ref, or "".
func (p packed) get(name string) string {
	at := p.find(name)
	if at == len(p.refs) {
		return ""
	}
	record := p.first(p.refs[at:])
	if id, ok := parseID(record[:min(p.hexLen, len(record))], p.hexLen); ok && p.name(record) == name {
		return id
	}
	return ""
}

// below yields the refs whose names begin with name and a slash.
func (p packed) below(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := p.refs[p.find(name+"/"):]; rest != ""; {
			record := p.first(rest)
			if found := p.name(record); !strings.HasPrefix(found, name+"/") || !yield(found) {
				return
			}
			rest = rest[len(record):]
		}
	}
}

// each calls fn for each ref in the order of names, until it returns false.
func (p packed) each(fn func(name, id string) bool) {
	for rest := p.refs; rest != ""; {
		record := p.first(rest)
		if !fn(p.name(record), record[:p.hexLen]) {
			return
		}
		rest = rest[len(record):]
	}
}

// without returns the text of the file without some refs.
func (p packed) without(names map[string]bool) string {
	var out strings.Builder
	out.Grow(len(p.header) + len(p.refs))
	out.WriteString(p.header)
	for rest := p.refs; rest != ""; {
		record := p.first(rest)
		if !names[p.name(record)] {
			out.WriteString(record)
		}
		rest = rest[len(record):]
	}
	return out.String()
}

// differences calls fn for each name whose IDs in both differ, in order.
func differences(a, b packed, fn func(name string)) {
	x, y := a.refs, b.refs
	for x != "" || y != "" {
		var left, right string
		if x != "" {
			left = a.first(x)
		}
		if y != "" {
			right = b.first(y)
		}
		switch {
		case right == "" || left != "" && a.name(left) < b.name(right):
			fn(a.name(left))
			x = x[len(left):]
		case left == "" || a.name(left) > b.name(right):
			fn(b.name(right))
			y = y[len(right):]
		default:
			if left[:a.hexLen] != right[:b.hexLen] {
				fn(a.name(left))
			}
			x, y = x[len(left):], y[len(right):]
		}
	}
}
