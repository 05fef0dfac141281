package gitdir

import (
	"container/heap"
	"math"
	"strconv"
	"strings"
)

const (
	// maxWalk bounds the commits visited to find one in the history of others.
	maxWalk = 100_000

	// clocks is by how many seconds a commit may claim to be older than its parent.
	clocks = 24 * 60 * 60

	// nearby commits count whatever their dates say: those of a command may be any.
	nearby = 64
)

// dated is a commit or tag to be visited.
type dated struct {
	id   string
	up   []string // its parents; of a tag, its object
	tree string
	date int64
}

// newest is a heap.
type newest []dated

func (n newest) Len() int           { return len(n) }
func (n newest) Less(i, j int) bool { return n[i].date > n[j].date }
func (n newest) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *newest) Push(d any)        { *n = append(*n, d.(dated)) }
func (n *newest) Pop() any {
	last := len(*n) - 1
	d := (*n)[last]
	*n = (*n)[:last]
	return d
}

// isAncestor reports whether a commit is in the history of one of others: of commits, or
// of tags of such. It visits the newest first, and after the first ones none that is older
// than the commit. So it misses it if clocks were wrong, or if it is very far down.
func (r *repository) isAncestor(a string, others ...string) bool {
	oldest, err := r.look(a)
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	var next newest
	visit := func(ids []string) bool {
		for _, id := range ids {
			if id == a {
				return true
			}
			if seen[id] {
				continue
			}
			seen[id] = true
			if r.ends.host[id] {
				continue // git sees no parents
			}
			if d, err := r.look(id); err == nil && (d.date >= oldest.date-clocks || len(seen) <= nearby) {
				heap.Push(&next, d)
			}
		}
		return false
	}
	if visit(others) {
		return true
	}
	for len(next) > 0 && len(seen) < maxWalk {
		if visit(heap.Pop(&next).(dated).up) {
			return true
		}
	}
	return false
}

// look reads the headers of a commit or a tag on the host.
func (r *repository) look(id string) (dated, error) {
	kind, text, err := r.objects.Read(id)
	if err != nil {
		return dated{}, err
	}
	d := dated{id: id}
	header, _, _ := strings.Cut(string(text), "\n\n")
	for line := range strings.SplitSeq(header, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case key == "parent" && kind == "commit":
			d.up = append(d.up, value)
		case key == "tree" && kind == "commit":
			d.tree = value
		case key == "committer" && kind == "commit":
			_, when, _ := strings.Cut(value, "> ")
			seconds, _, _ := strings.Cut(when, " ")
			d.date, _ = strconv.ParseInt(seconds, 10, 64)
		case key == "object" && kind == "tag":
			d.up, d.date = []string{value}, math.MaxInt64
		}
	}
	return d, nil
}
