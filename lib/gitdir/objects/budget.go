package objects

import "golang.org/x/sys/unix"

// Bounds of the work on the layers of one command. A megabyte can be a gigabyte inflated,
// and names and links can be many for one file.
const (
	leastWork = MaxObject // bytes inflated or put together from deltas
	ratio     = 64        // further ones for each byte of a file: the largest projects' packs hold 50
	maxWasted = 1 << 30   // bytes of objects that turn out not to be what their name says
)

// Budget bounds the work on layers, over all rounds and landings. The zero value is a full
// one. It is not for concurrent use.
type Budget struct {
	done, wasted, files uint64
	spent               bool // by work that was not wasted
}

// Grant adds work for a file of a layer. It counts a hole as nothing, and a file with
// several names once.
func (b *Budget) Grant(st *unix.Stat_t) {
	const block = 4096 // some file systems keep a small file in its inode
	b.files += min(uint64(st.Size), uint64(st.Blocks)*512+block) / max(1, uint64(st.Nlink))
}

// Spend counts work, and reports whether the bound allows it.
func (b *Budget) Spend(bytes uint64) bool {
	switch {
	case b.spent || b.wasted > maxWasted:
		return false
	case bytes > leastWork+ratio*b.files-b.done:
		b.spent = true
		return false
	}
	b.done += bytes
	return true
}

// Waste counts the work since done was before as wasted.
func (b *Budget) waste(before uint64) { b.wasted += b.done - before }
