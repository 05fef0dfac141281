package objects

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitlock"
)

// Options describe the objects that may be missing from the host's database.
type Options struct {
	// Shallow reports whether the history may end at a commit: its parents may be missing.
	// Nil: it ends nowhere. Cut is called with such commits before they are published. It has
	// to add them to the host's file `shallow`: without that the host's git would fail.
	Shallow func(commit string) bool
	Cut     func(commits []string) error

	// Promised are the kinds of objects, "blob" or "tree", that may be missing since the
	// repository is a partial clone: git fetches one from the remote when it needs it.
	Promised []string

	// Sharing is that of the repository.
	Sharing gitlock.Sharing

	// Budget bounds the work. Nil: there is one for this Lander.
	Budget *Budget
}

// Result is the outcome of one landing.
type Result struct {
	Added   int       // objects that the host has now
	Later   bool      // the Budget is spent: the rest may land with another one
	Refused []Refused // causes first; a pack that did not change is named once
	Omitted int       // refused objects beyond those in Refused
}

// Refused is an object that stays in the layer, or a file there that is not read.
type Refused struct {
	Name   string // an ID, or a path below the layer's `objects`
	Reason string
}

// maxRefused bounds Result.Refused, which users read.
const maxRefused = 100

// Lander lands objects from one layer in one database. It remembers finished objects, so
// that landing again is cheap. It is not for concurrent use.
//
// An object lands after all objects that it refers to, so the host's database is complete
// at any moment, and after SIGKILL. Packs are synced to the disk; loose objects are not,
// as git does by default.
type Lander struct {
	host      *Database
	format    Format
	options   Options
	target    *target
	landed    map[oid]struct{}       // the host has them
	absent    map[oid]kind           // of missing objects, as others refer to them
	announced map[oid]struct{}       // missing objects of which the host's git knows
	refused   map[attempt]string     // for good, with the reason
	packs     map[string]signature   // packs with nothing more to land
	dirs      map[string]signature   // the same for directories of loose objects
	kinds     map[oid]kind           // of objects of the host
	depths    map[oid]uint16         // of trees that landed, if other trees are in them
	special   map[specialFile]string // the fault in it, or ""
	seen      string                 // the state of the host's directories for Remember, or ""
}

// attempt is an object in a file that has not changed since it was read.
type attempt struct {
	id   oid
	file signature
}

// specialFile is a blob that git fsck checks under this name.
type specialFile struct {
	id   oid
	file string
}

// NewLander returns a Lander for a database of the host.
func NewLander(host *Database, f Format, o Options) *Lander {
	if o.Budget == nil {
		o.Budget = new(Budget)
	}
	return &Lander{
		host: host, format: f, options: o,
		landed:    map[oid]struct{}{},
		absent:    map[oid]kind{},
		announced: map[oid]struct{}{},
		refused:   map[attempt]string{},
		packs:     map[string]signature{},
		dirs:      map[string]signature{},
		kinds:     map[oid]kind{},
		depths:    map[oid]uint16{},
		special:   map[specialFile]string{},
	}
}

// Bounds of one round. Objects over them wait for the next one.
const (
	maxObjects = 4 << 20  // IDs that are new to the host; each takes some 250 bytes of memory
	maxKept    = 64 << 20 // bytes of trees and commits kept until they are published
	maxWhole   = 4 << 20  // bytes of a blob that is inflated in memory, and not piecemeal
)

// Bounds of publishing objects in files of their own; more go into a pack.
const (
	maxLooseObjects = 200
	maxLooseBytes   = 32 << 20
)

// node is an object of the layer that the host does not have.
type node struct {
	id      oid
	state   state
	kind    kind
	size    uint64
	sources []source // in the order in which they are tried
	refs    []uint32 // to other nodes: number, and kind in the upper bits
	shallow bool     // the parents of the commit may be missing
	cut     bool     // they are
	depth   uint16   // of the trees below a tree, without those that the host had before
	reason  string   // why it was refused, or waits
	data    []byte   // content, if it is small and loose
	entry   stored   // its position in landing.pack, if entry.at is not 0
}

// source is a place in the layer where an object may lie.
type source struct {
	pack   *layerPack // nil: a file of its own
	offset uint64
	file   *signature
}

type state byte

const (
	unread  state = iota
	reading       // it waits for its base
	waiting       // an object is missing: tried again in the next landing
	refused
	verified // content and format are right
	entered  // settle is visiting its references
	ready
	landed
)

const kindShift = 30 // maxObjects fits below it

// landing is one round of Land.
type landing struct {
	*Lander
	layer   int
	nodes   []node
	byID    map[oid]uint32
	packs   []*layerPack
	pack    *packWriter // private: verified objects of the layer's packs
	cache   cache
	kept    uint64
	full    bool                     // a bound of one round was met: another round may land more
	gaps    []oid                    // promised objects that are missing
	gapOf   map[oid]uint32           // their numbers
	missing map[uint32][]uint32      // numbers of gaps, by the node that refers to them
	dirs    map[string]signature     // of loose objects, if nothing in them is left
	special map[specialFile][]uint32 // the trees that have it
	ready   []uint32                 // children first
	result  Result
}

// Land lands the objects that the layer has and the host does not. layer is a descriptor
// of the `objects` directory of the overlay's upper layer, or -1 if there is none. The
// error means that the host's database could not be read or written; faults of the layer
// are in the Result.
func (l *Lander) Land(layer int) (Result, error) {
	if layer < 0 {
		return Result{}, nil
	}
	if err := l.host.refresh(); err != nil {
		return Result{}, err
	}
	if len(l.landed)+len(l.kinds) > 0 && (l.seen == "" || l.host.changed() != l.seen) { // git may have pruned objects
		clear(l.landed)
		clear(l.kinds)
		clear(l.packs)
		clear(l.dirs)
	}
	l.seen = ""
	var sum Result
	for {
		r := &landing{
			Lander: l, layer: layer,
			byID:    map[oid]uint32{},
			special: map[specialFile][]uint32{},
			dirs:    map[string]signature{},
			missing: map[uint32][]uint32{}, gapOf: map[oid]uint32{},
		}
		err := r.run()
		r.close()
		sum.add(r.result)
		if err != nil {
			return sum, fmt.Errorf("cannot land objects: %w", err)
		}
		sum.Later = r.options.Budget.spent
		if !r.full || r.result.Added == 0 || sum.Later {
			sum.Refused = slices.DeleteFunc(sum.Refused, func(refused Refused) bool {
				id, _ := l.format.parseID(refused.Name)
				_, ok := l.landed[id]
				return ok
			})
			return sum, nil
		}
	}
}

// Remember makes the next landing cheap, if the host's database does not change until then.
func (l *Lander) Remember() { l.seen = l.host.changed() }

// add adds the result of another round.
func (r *Result) add(next Result) {
	r.Added += next.Added
	for _, refused := range next.Refused {
		same := func(old Refused) bool { return old.Name == refused.Name }
		switch {
		case slices.ContainsFunc(r.Refused, same):
		case len(r.Refused) < maxRefused:
			r.Refused = append(r.Refused, refused)
		default:
			r.Omitted++
		}
	}
	r.Omitted = max(r.Omitted, next.Omitted)
}

func (r *landing) run() (err error) {
	if err := r.open(); err != nil {
		return err
	}
	r.list()
	if err := r.verify(); err != nil {
		return err
	}
	if err := r.checkSpecials(); err != nil {
		return err
	}
	r.settle()
	if err := r.publish(); err != nil {
		return err
	}
	r.conclude()
	return nil
}

// open opens the host's directory for new objects.
func (l *Lander) open() (err error) {
	if l.target == nil {
		l.target, err = newTarget(l.host, l.options.Sharing)
	}
	return err
}

func (r *landing) close() {
	for _, p := range r.packs {
		p.file.Close()
	}
	if r.pack != nil {
		r.pack.close()
	}
}

// refuse records a name that stays in the layer.
func (r *landing) refuse(name, reason string) {
	if len(r.result.Refused) < maxRefused {
		r.result.Refused = append(r.result.Refused, Refused{name, reason})
	} else {
		r.result.Omitted++
	}
}

// node returns the number of an object's node.
func (r *landing) node(id oid) (uint32, bool) {
	i, ok := r.byID[id]
	if !ok {
		if len(r.nodes) == maxObjects {
			r.full = true
			return 0, false
		}
		i = uint32(len(r.nodes))
		r.byID[id] = i
		r.nodes = append(r.nodes, node{id: id})
	}
	return i, true
}

// offer records that the layer may hold an object, and reports whether that is new.
func (r *landing) offer(id oid, s source) bool {
	if _, ok := r.landed[id]; ok {
		return false
	}
	if _, ok := r.byID[id]; !ok && r.host.has(id) {
		r.landed[id] = struct{}{}
		if s.pack == nil {
			r.host.freshen(id)
		}
		return false
	}
	i, ok := r.node(id)
	if !ok {
		return true
	}
	n := &r.nodes[i]
	if reason, ok := r.Lander.refused[attempt{id, *s.file}]; ok {
		if len(n.sources) == 0 {
			n.state, n.reason = refused, reason
		}
		return false
	}
	n.state = unread
	n.sources = append(n.sources, s)
	if last := len(n.sources) - 1; last > 0 && n.sources[last-1].pack == nil {
		n.sources[last], n.sources[last-1] = n.sources[last-1], s // deltas need bases in packs
	}
	return true
}

// verify reads all objects: packs first, since deltas have their bases there.
func (r *landing) verify() error {
	var packed []uint32
	for i := range r.nodes {
		if n := &r.nodes[i]; n.state == unread && n.sources[0].pack != nil {
			packed = append(packed, uint32(i))
		}
	}
	slices.SortStableFunc(packed, func(a, b uint32) int { return r.nodes[a].sources[0].compare(r.nodes[b].sources[0]) })
	for _, i := range packed {
		if err := r.resolve(i); err != nil {
			return err
		}
	}
	for i := range r.nodes {
		n := &r.nodes[i]
		if n.state != unread || len(n.sources) == 0 {
			continue
		}
		if err := r.readLoose(uint32(i)); err != nil {
			return err
		}
	}
	return nil
}

// fail gives up the present source of an object, and moves on to the next. A failure that
// may be temporary is not remembered.
func (r *landing) fail(i uint32, reason string, final bool) {
	n := &r.nodes[i]
	n.reason, n.state = reason, waiting
	if final {
		n.state = refused
		r.Lander.refused[attempt{n.id, *n.sources[0].file}] = reason
	}
	if len(n.sources) > 1 {
		n.sources, n.state = n.sources[1:], unread
	}
}

// accept parses a verified object. Its content matches its name from here on.
func (r *landing) accept(i uint32, k kind, data []byte) error {
	n := &r.nodes[i]
	n.state, n.kind, n.reason = verified, k, ""
	n.shallow = k == commit && r.options.Shallow != nil && r.options.Shallow(r.format.hex(n.id))
	var failed error
	err := check(r.format, k, data, func(ref ref) error {
		if ref.file != "" {
			f := specialFile{ref.id, ref.file}
			r.special[f] = append(r.special[f], i)
		}
		why, err := r.link(i, ref)
		failed = err
		if err != nil {
			return err
		}
		return why
	})
	if k == blob && r.suspect(n.size) {
		err = checkSpecial(".gitmodules", data)
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		n.sources = n.sources[:1] // another source has the same content
		r.fail(i, err.Error(), true)
	}
	return nil
}

// suspect reports whether a blob may be a file that git fsck checks, though no tree in the
// layer says so: where objects may be missing, the tree may have landed before.
func (r *landing) suspect(size uint64) bool { return len(r.options.Promised) > 0 && size <= maxSpecial }

// link records a reference. The first error means that the object is permanently invalid,
// the second one that the host cannot be read.
func (r *landing) link(i uint32, ref ref) (wrong, failed error) {
	n := &r.nodes[i]
	if j, ok := r.byID[ref.id]; ok {
		n.refs = append(n.refs, uint32(ref.kind-1)<<kindShift|j)
		return nil, nil
	}
	k, err := r.hostKind(ref.id)
	switch {
	case errors.Is(err, ErrNotFound):
		if _, had := r.landed[ref.id]; had { // and lost it
			delete(r.landed, ref.id)
			clear(r.Lander.packs)
			clear(r.Lander.dirs)
		}
		switch {
		case ref.parent && n.shallow:
			n.cut = true
		case r.promises(ref):
			r.lack(i, ref.id)
		case n.reason == "":
			n.reason = fmt.Sprintf("refers to the %s %s, which is missing", ref.kind, r.format.hex(ref.id))
		}
		return nil, nil
	case err != nil:
		return nil, err
	case k != ref.kind:
		return wrongKind(r.format, ref.id, k, ref.kind), nil
	case k == tree && n.kind == tree:
		n.depth = max(n.depth, r.depths[ref.id]+1)
	}
	return nil, nil
}

// lack records a reference to a missing object.
func (r *landing) lack(i uint32, id oid) {
	j, ok := r.gapOf[id]
	if !ok {
		j = uint32(len(r.gaps))
		r.gapOf[id], r.gaps = j, append(r.gaps, id)
	}
	r.missing[i] = append(r.missing[i], j)
}

func wrongKind(f Format, id oid, is, wanted kind) error {
	return fmt.Errorf("refers to the %s %s as a %s", is, f.hex(id), wanted)
}

// maxKinds bounds the memory of Lander.kinds.
const maxKinds = 1 << 18

func (r *landing) hostKind(id oid) (kind, error) {
	if k, ok := r.kinds[id]; ok {
		return k, nil
	}
	k, err := r.host.kind(id)
	if err == nil {
		if len(r.kinds) == maxKinds {
			clear(r.kinds)
		}
		r.kinds[id] = k
	}
	return k, err
}

// checkSpecials checks the files that git fsck checks by name.
func (r *landing) checkSpecials() error {
	for f, trees := range r.special {
		why, err := r.faultIn(f, func() ([]byte, error) { return r.specialData(f.id) })
		switch {
		case errors.Is(err, ErrNotFound):
			continue // each object that refers to it waits, or accept checks it later
		case err != nil:
			return err
		}
		for _, i := range trees {
			if why != "" && r.nodes[i].state == verified {
				r.nodes[i].sources = r.nodes[i].sources[:1]
				r.fail(i, why, true)
			}
		}
	}
	return nil
}

// faultIn is the fault in a file that git fsck checks by name, or "". It remembers that.
func (l *Lander) faultIn(f specialFile, read func() ([]byte, error)) (why string, err error) {
	if why, known := l.special[f]; known {
		return why, nil
	}
	data, err := read()
	switch {
	case errors.Is(err, ErrTooLarge):
		why = f.file + " is too large"
	case err != nil:
		return "", err
	default:
		if err := checkSpecial(f.file, data); err != nil {
			why = err.Error()
		}
	}
	l.special[f] = why
	return why, nil
}

func (r *landing) specialData(id oid) ([]byte, error) {
	if i, ok := r.byID[id]; ok && r.nodes[i].state != landed {
		n := &r.nodes[i]
		switch {
		case n.state != verified:
			return nil, ErrNotFound
		case n.size > maxSpecial:
			return nil, ErrTooLarge
		}
		return r.content(i)
	}
	_, data, err := r.host.read(id, maxSpecial)
	return data, err
}

// settle selects the objects to land: those whose references all lead to objects of the
// host or to others that land.
func (r *landing) settle() {
	type frame struct {
		node uint32
		next int
	}
	var stack []frame
	for root := range r.nodes {
		stack = append(stack, frame{uint32(root), 0})
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			n := &r.nodes[top.node]
			switch {
			case n.state == verified:
				n.state = entered
				if n.reason != "" {
					n.state = waiting
				}
			case n.state != entered:
				stack = stack[:len(stack)-1]
			case top.next == len(n.refs) && n.depth >= maxTreeDepth:
				n.sources = n.sources[:1]
				r.fail(top.node, fmt.Sprintf("has more than %d directories in each other", maxTreeDepth), true)
			case top.next == len(n.refs):
				n.state = ready
				r.ready = append(r.ready, top.node)
			default:
				ref := n.refs[top.next]
				j, wanted := ref&(1<<kindShift-1), kind(ref>>kindShift+1)
				if r.nodes[j].state == verified {
					stack = append(stack, frame{j, 0})
					continue
				}
				top.next++
				r.follow(top.node, j, wanted)
			}
		}
	}
}

// follow handles a reference to an object that is settled.
func (r *landing) follow(i, j uint32, wanted kind) {
	n, to := &r.nodes[i], &r.nodes[j]
	switch {
	case to.state != ready && to.state != landed && wanted == commit && n.shallow:
		n.cut = true
	case to.state != ready && to.state != landed:
		n.state, n.reason = waiting, fmt.Sprintf("refers to the %s %s, which does not land", wanted, r.format.hex(to.id))
	case to.kind != wanted:
		n.sources = n.sources[:1]
		r.fail(i, wrongKind(r.format, to.id, to.kind, wanted).Error(), true)
	case wanted == tree && n.kind == tree:
		n.depth = max(n.depth, to.depth+1)
	}
}

// maxTreeDepth bounds the directories in each other that one Lander adds. Git before 2.43 follows
// trees by recursion, without a limit, and crashes from some 30 000 on. Trees that the host had before
// count as nothing: a walk of all of them takes too long. So it takes hundreds of commands to
// get there.
const maxTreeDepth = 128

// maxDepths bounds the memory of Lander.depths.
const maxDepths = 1 << 20

// publish writes the objects in ready. A few loose blobs are on the host already.
func (r *landing) publish() error {
	if err := r.announce(); err != nil {
		return err
	}
	packed, size := 0, uint64(0)
	for _, i := range r.ready {
		if n := &r.nodes[i]; n.entry.at != 0 {
			packed++
			size += n.size
		}
	}
	if packed > maxLooseObjects || size > maxLooseBytes {
		return r.publishPack()
	}
	for _, i := range r.ready {
		if err := r.publishLoose(i); err != nil {
			return err
		}
	}
	return nil
}

// announce tells the host's git which objects will be missing, before others refer to
// them.
func (r *landing) announce() error {
	var cut []string
	missing := map[oid]bool{}
	for _, i := range r.ready {
		if n := &r.nodes[i]; n.cut {
			cut = append(cut, r.format.hex(n.id))
		}
		for _, j := range r.missing[i] {
			missing[r.gaps[j]] = true
		}
	}
	if len(cut) > 0 {
		if err := r.options.Cut(cut); err != nil {
			return err
		}
	}
	return r.promise(missing)
}

func (r *landing) publishLoose(i uint32) error {
	n := &r.nodes[i]
	data, err := r.content(i)
	if err == nil {
		err = r.target.loose(n.id, n.kind, n.size, bytes.NewReader(data))
	}
	if err == nil {
		r.done(i)
	}
	return err
}

func (r *landing) done(i uint32) {
	n := &r.nodes[i]
	n.state = landed
	r.landed[n.id] = struct{}{}
	if n.depth > 0 {
		if len(r.depths) == maxDepths {
			clear(r.depths)
		}
		r.depths[n.id] = n.depth
	}
	r.result.Added++
}

// publishPack publishes all objects in ready as one pack. None of them refers to an
// object outside that has not landed.
func (r *landing) publishPack() error {
	for _, i := range r.ready {
		if r.nodes[i].entry.at == 0 {
			data, err := r.content(i)
			if err == nil {
				err = r.store(i, data, nil, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	all := 0
	for i := range r.nodes {
		if r.nodes[i].entry.at != 0 {
			all++
		}
	}
	if all != len(r.ready) {
		if err := r.rewrite(); err != nil {
			return err
		}
	}
	list := make([]indexed, 0, len(r.ready))
	for _, i := range r.ready {
		n := &r.nodes[i]
		list = append(list, indexed{n.id, n.entry.at, n.entry.crc})
	}
	if err := r.pack.publish(list, false); err != nil {
		return err
	}
	for _, i := range r.ready {
		r.done(i)
	}
	return nil
}

// rewrite copies the objects in ready to a second pack. It stores an object whole there
// if its base does not land.
func (r *landing) rewrite() error {
	to, err := r.target.newPack()
	if err != nil {
		return err
	}
	if err := r.pack.buf.Flush(); err != nil {
		to.close()
		return err
	}
	slices.SortFunc(r.ready, func(a, b uint32) int {
		return cmp.Compare(r.nodes[a].entry.at, r.nodes[b].entry.at)
	})
	fresh := map[uint32]stored{}
	for _, i := range r.ready {
		n := &r.nodes[i]
		base, ok := fresh[n.entry.base]
		var s stored
		if n.entry.kind == offsetDelta && !ok {
			var data []byte
			if data, err = r.content(i); err == nil {
				s, err = to.append(n.kind, n.size, 0, bytes.NewReader(data))
			}
		} else {
			s, err = to.copy(r.pack, n.entry, base.at)
		}
		if err != nil {
			to.close()
			return err
		}
		fresh[i] = s
	}
	for i, s := range fresh {
		r.nodes[i].entry = s
	}
	r.pack.close()
	r.pack = to
	return nil
}

// conclude fills the result, causes first, and remembers finished objects and files.
func (r *landing) conclude() {
	for _, cause := range []bool{true, false} {
		for i := range r.nodes {
			n := &r.nodes[i]
			if n.state != landed && cause == (n.state == refused) {
				r.refuse(r.format.hex(n.id), n.reason)
				r.left(n)
			}
		}
	}
	for _, p := range r.packs {
		if !p.more {
			r.Lander.packs[p.name] = p.signature
		}
	}
	for name, s := range r.dirs {
		// A directory that changed in this tick of the clock may change again in it.
		if time.Since(time.Unix(s.ctime.Unix())) > time.Second {
			r.Lander.dirs[name] = s
		}
	}
}

// left records an object that stays in the layer: unless it is refused for good, its
// files are read again in the next landing.
func (r *landing) left(n *node) {
	delete(r.dirs, r.format.hex(n.id)[:2])
	for _, s := range n.sources {
		if s.pack != nil && n.state != refused {
			s.pack.more = true
		}
	}
}

// signature identifies the file that was read before. No process can set its ctime.
type signature struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func signatureOf(st *unix.Stat_t) signature {
	return signature{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}
