package edit

import (
	"math/bits"
	"math/rand/v2"
	"sort"
)

// index finds lines in a text: it compares hashes at the places of the rarest line. So a
// hunk of many equal lines takes no longer than one of a few.
type index struct {
	ids    map[string]int // of the text of a line
	places [][]int32      // by id: where such lines are
	hashes []uint64       // of the lines before one
	base   uint64
}

// maxTries bounds the places at which the hunks of one file are compared. Files of code
// need few; one where each line is in thousands of places is made to take long.
const maxTries = 1 << 27

// prime is the modulus of the hashes. Their base is random: no author of a text can give
// two parts of it the same hash.
const prime = 1<<61 - 1

func mulAdd(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	sum, carry := bits.Add64(low, c, 0)
	_, rest := bits.Div64(high+carry, sum, prime)
	return rest
}

func newIndex(lines []string, f fit) *index {
	x := &index{ids: map[string]int{}, hashes: make([]uint64, 1, len(lines)+1), base: 1<<32 + rand.Uint64N(1<<60)}
	for at, l := range lines {
		text := f.of(l)
		id, ok := x.ids[text]
		if !ok {
			id = len(x.places)
			x.ids[text] = id
			x.places = append(x.places, nil)
		}
		x.places[id] = append(x.places[id], int32(at))
		x.hashes = append(x.hashes, mulAdd(x.hashes[at], x.base, uint64(id)+1))
	}
	return x
}

// find returns the first places at or after from where lines stand.
func (t *target) find(from int, lines []string, f fit, most int) (places []int) {
	if t.indexes[f] == nil {
		t.indexes[f] = newIndex(t.lines, f)
	}
	x := t.indexes[f]
	rarest, hash, power := 0, uint64(0), uint64(1)
	var candidates []int32
	for i, l := range lines {
		id, ok := x.ids[f.of(l)]
		if !ok {
			return nil
		}
		if i == 0 || len(x.places[id]) < len(candidates) {
			rarest, candidates = i, x.places[id]
		}
		hash, power = mulAdd(hash, x.base, uint64(id)+1), mulAdd(power, x.base, 0)
	}
	first := sort.Search(len(candidates), func(i int) bool { return int(candidates[i])-rarest >= from })
	for _, c := range candidates[first:] {
		at := int(c) - rarest
		end := at + len(lines)
		if end > len(t.lines) || len(places) == most {
			break
		}
		if t.tries++; t.tries > maxTries {
			return nil
		}
		if mulAdd(x.hashes[at], power, hash) == x.hashes[end] && t.fits(at, lines, f) {
			places = append(places, at)
		}
	}
	return places
}
