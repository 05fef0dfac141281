package gitland

import (
	"container/heap"
)

const (
	// maxWalk bounds the commits visited to find one in the history of others.
	maxWalk = 100_000

	// maxVisits bounds those of all walks of a landing: a command can make any number of
	// references, each with a history of its own.
	maxVisits = 500_000

	// maxHeaders bounds the commits that are remembered, and maxParents the parents of each.
	maxHeaders = 200_000
	maxParents = 16

	// clocks is by how many seconds a commit may claim to be older than its parent.
	clocks = 24 * 60 * 60

	// nearby commits count with any date: a command may set any.
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

// past is the history as far as a landing has read it, so that many questions about it cost
// little more than one.
type past struct {
	headers map[string]dated
	walks   map[string]*walk // by the commit at which one begins; "": at several
	visits  int
}

// walk visits the history of commits, the newest first, as far as the questions so far have
// asked.
type walk struct {
	from, seen map[string]bool
	soon       []dated // visited with any dates
	next       newest
	near       int // how many more of these there may be
}

// isAncestor reports whether a commit is in the history of one of others: of commits, or
// of tags of such. It visits the newest first, and after the first ones none that is older
// than the commit. So it misses it if clocks were wrong, or if it is very far down, or if the
// landing has visited very many.
func (r *repository) isAncestor(a string, others ...string) bool {
	oldest, err := r.look(a)
	if err != nil {
		return false
	}
	return r.reaches(r.walk(others), a, oldest.date-clocks)
}

// reaches reports whether a walk comes to a commit, if it visits none that is older than a time.
func (r *repository) reaches(w *walk, id string, oldest int64) bool {
	for !w.seen[id] && len(w.seen) < maxWalk && r.past.visits < maxVisits {
		d, ok := w.pop(oldest)
		if !ok {
			break
		}
		r.visit(w, d.up)
	}
	return w.seen[id]
}

// from returns a walk that goes by dates alone.
func (r *repository) from(ids ...string) *walk {
	w := &walk{seen: map[string]bool{}}
	r.visit(w, ids)
	return w
}

// walk returns a walk from commits: an earlier walk from some of them, if there is one.
func (r *repository) walk(ids []string) *walk {
	key, from := "", map[string]bool{}
	if len(ids) == 1 {
		key = ids[0]
	}
	for _, id := range ids {
		from[id] = true
	}
	w := r.past.walks[key]
	common := 0
	for id := range from {
		if w != nil && w.from[id] {
			common++
		}
	}
	if w == nil || common < len(w.from) || common < len(from) && len(w.seen) >= maxWalk {
		w = &walk{from: map[string]bool{}, seen: map[string]bool{}}
		if r.past.walks == nil {
			r.past.walks = map[string]*walk{}
		}
		r.past.walks[key] = w
	}
	if len(w.from) < len(from) {
		w.from, w.near = from, nearby
		r.visit(w, ids)
	}
	return w
}

// visit notes commits that a walk has reached.
func (r *repository) visit(w *walk, ids []string) {
	for _, id := range ids {
		if w.seen[id] {
			continue
		}
		w.seen[id] = true
		r.past.visits++
		d, err := r.look(id)
		if r.ends.host[id] {
			d.up = nil // git sees no parents
		}
		switch {
		case err != nil:
		case w.near > 0:
			w.near--
			w.soon = append(w.soon, d)
		default:
			heap.Push(&w.next, d)
		}
	}
}

// pop returns a commit whose parents have not been visited, and that is not older than a time.
func (w *walk) pop(oldest int64) (dated, bool) {
	if len(w.soon) > 0 {
		d := w.soon[0]
		w.soon = w.soon[1:]
		return d, true
	}
	if len(w.next) == 0 || w.next[0].date < oldest {
		return dated{}, false
	}
	return heap.Pop(&w.next).(dated), true
}

// look reads the headers of a commit or a tag on the host.
func (r *repository) look(id string) (dated, error) {
	if d, ok := r.past.headers[id]; ok {
		return d, nil
	}
	header, err := r.objects.Header(id)
	if err != nil {
		return dated{}, err
	}
	d := dated{id, header.Parents, header.Tree, header.Time}
	if r.past.headers == nil {
		r.past.headers = map[string]dated{}
	}
	if len(r.past.headers) < maxHeaders && len(d.up) <= maxParents {
		r.past.headers[id] = d
	}
	return d, nil
}
