package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
)

// script is random commands on a few names, which end without an error.
func script(r *rand.Rand, lines int) string {
	names := []string{"a", "b", "c", `$'n\nl'`, `$'\377'`}
	path := func() string {
		var parts []string
		for range 1 + r.IntN(3) {
			parts = append(parts, names[r.IntN(len(names))])
		}
		return strings.Join(parts, "/")
	}
	dirModes, modes := []string{"755", "700"}, []string{"755", "644", "600", "444"}
	if os.Getuid() == 0 { // root lands files that a command has closed
		dirModes, modes = append(dirModes, "500", "600", "000"), append(modes, "000")
	}
	var out strings.Builder
	out.WriteString("exec 2>/dev/null; set +e\n")
	for n := range lines {
		p, q := path(), path()
		dir := filepath.Dir(p)
		switch r.IntN(13) {
		case 0, 1, 2:
			fmt.Fprintf(&out, "mkdir -p %[3]s && test -w %[3]s && echo %[2]d >%[1]s\n", p, n, dir)
		case 3:
			fmt.Fprintf(&out, "test -f %[1]s && ! test -L %[1]s && test -w %[3]s && echo %[2]d >>%[1]s\n", p, n, dir)
		case 4:
			fmt.Fprintf(&out, "chmod u+rwx %[1]s; rm -rf %[1]s\n", p)
		case 5:
			fmt.Fprintf(&out, "rm -rf %[1]s; mkdir -p %[1]s; echo %[2]d >%[1]s/a\n", p, n)
		case 6:
			fmt.Fprintf(&out, "mkdir -p %[1]s\n", p)
		case 7: // mv copies directories of the lower layer, and cannot copy all
			fmt.Fprintf(&out, "test -d %[1]s || mv -T %[1]s %[2]s\n", p, q)
		case 8:
			fmt.Fprintf(&out, "rm -rf t; mkdir t; echo %[1]d >t/a; mv -T t %[2]s && chmod %[3]s %[2]s; rm -rf t\n", n, q, dirModes[r.IntN(len(dirModes))])
		case 9, 10:
			fmt.Fprintf(&out, "test -L %[1]s || { test -d %[1]s && chmod %[2]s %[1]s || chmod %[3]s %[1]s; }\n", p, dirModes[r.IntN(len(dirModes))], modes[r.IntN(len(modes))])
		case 11:
			fmt.Fprintf(&out, "ln -sfn %s %s\n", names[r.IntN(len(names))], p)
		case 12:
			fmt.Fprintf(&out, "ln -fT %s %s\n", p, q)
		}
	}
	return out.String() + "true"
}

// Random commands in a trial, and in a sandbox on a copy: pk-diff lists the differences of the
// two trees, and after pk-apply there are none. Between the commands, some of the changes
// land, and the user makes files. PK_SEED is the seed of the first of PK_ROUNDS.
func TestFuzz(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	first, err := strconv.ParseUint(os.Getenv("PK_SEED"), 10, 64)
	if err != nil {
		first = 1 // the same in each run, so that a failure is one of the change
	}
	for i := range rounds(16) {
		seed := first + uint64(i)
		r := rand.New(rand.NewPCG(seed, 0))
		g := newGround(t, b)
		// Of two hard links one may land alone, and is another file then.
		const unlinked = `; find . -links +1 ! -type d -exec sh -c 'cp -dp "$1" "$1.x"; mv -fT "$1.x" "$1"' - {} \;`
		g.host(t, script(r, 40)+`; chmod -R u+rwX .`+unlinked)
		direct := g.copied(t)
		for range 1 + r.IntN(3) {
			line := script(r, 5+r.IntN(40)) + unlinked + "; true"
			plain := g.Command("pk-bash", "-y", "--raw", "-C", direct, "--", fixed+line)
			require.Zero(t, clitest.Finish(t, plain).Status)
			g.trial(t, line)
			if r.IntN(2) == 0 {
				some := []string{"a", "b/a", "c"}[r.IntN(3)]
				list := g.diff(t, "-z", "--name-only", some)
				if list.Stdout != "" {
					g.apply(t, some)
				}
			}
			if r.IntN(2) == 0 {
				name := fmt.Sprintf("mine-%d", r.IntN(5))
				g.host(t, "echo mine >"+name)
				g.in(t, direct, "echo mine >"+name)
			}
		}
		want, host := tree(t, direct), tree(t, g.Project)
		listed := strings.Split(g.diff(t, "-z", "--name-only").Stdout, "\x00")
		assert.ElementsMatch(t, differing(want, host), listed[:len(listed)-1], "seed %d", seed)
		got := g.apply(t, "--all")
		assert.Zero(t, got.Status, "seed %d: %s", seed, got.Stderr)
		sameTree(t, want, tree(t, g.Project))
		g.done(t)
		if os.Getuid() != 0 {
			sameTree(t, want, seen(t, g))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// differing are the paths of the lines that only one of two trees has.
func differing(one, other []string) []string {
	paths := []string{}
	for _, line := range append(without(one, other), without(other, one)...) {
		var path string
		_, err := fmt.Sscanf(line, "%q", &path)
		if err != nil {
			panic(err)
		}
		paths = append(paths, strings.TrimPrefix(path, "/"))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// seen is the tree of the project as the trial's commands see it.
func seen(t *testing.T, g *ground) []string {
	t.Helper()
	to, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	out := g.trial(t, `tar -cf - . | base64 -w0`)
	g.in(t, to, "base64 -d <<'END' | tar -xpf -\n"+out+"\nEND")
	t.Cleanup(func() { g.in(t, to, "chmod -R u+rwX .") })
	return tree(t, to)
}
