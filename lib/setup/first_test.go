package setup

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whatever numbers files have, the command has its own at theirs, and the first process has
// its own files at numbers that no file of the command takes: it starts bwrap by one.
func TestPlace(t *testing.T) {
	for round := range uint64(2000) {
		random := rand.New(rand.NewPCG(round, 1))
		number := func() int { return 3 + random.IntN(40) }
		files := []uintptr{0, 1, 2}
		for range random.IntN(12) {
			at := number()
			for len(files) <= at {
				files = append(files, closed)
			}
			files[at] = uintptr(number())
		}
		stay, before := [3]int{number(), number(), number()}, [3]int{}
		before = stay
		if random.IntN(2) == 0 {
			stay[2], before[2] = 0, 0 // there is no such file
		}
		f := &first{}
		f.place(files, &stay[0], &stay[1], &stay[2])
		table := map[uintptr]uintptr{} // number -> the file that was there at first
		at := func(fd uintptr) uintptr {
			if file, moved := table[fd]; moved {
				return file
			}
			return fd
		}
		for _, c := range f.calls {
			require.EqualValues(t, unix.SYS_DUP3, c.number)
			require.True(t, c.args[0] != c.args[1] || c.args[0] < 3, "dup3 refuses equal numbers")
			table[c.args[1]] = at(c.args[0])
		}
		for to, file := range files {
			if file != closed {
				require.Equal(t, file, at(uintptr(to)), "round %d", round)
			}
		}
		for i := range stay {
			if before[i] > 0 {
				require.EqualValues(t, before[i], at(uintptr(stay[i])), "round %d", round)
			}
		}
	}
}
