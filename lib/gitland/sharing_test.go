package gitland

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Landed files have the modes that git itself gives them, for each value of core.sharedRepository.
func TestModesOfASharedRepository(t *testing.T) {
	const command = `export GIT_AUTHOR_DATE="1700000000 +0000" GIT_COMMITTER_DATE="1700000000 +0000"; echo 2 >a; git add a; git commit -qm 2; git branch d/b; git tag -a -m t e/t; git checkout -q -b n/m; echo 3 >a; git commit -qam 3`
	const modes = `cd .git; find . -path ./hooks -prune -o -name COMMIT_EDITMSG -o ! -path './logs/refs/heads/main' -printf '%m %p\n' | sort -k 2`
	for _, row := range []struct{ name, init, then string }{
		{"0640", "--shared=0640", ""},
		{"0640, set later", "", "0640"},
		{"0660", "--shared=0660", ""},
		{"0666", "--shared=0666", ""},
		{"0600", "--shared=0600", ""},
		{"0604, set later", "", "0604"},
		{"group", "--shared", ""},
		{"group, set later", "", "group"},
		{"all", "--shared=all", ""},
		{"true, set later", "", "true"},
		{"1, set later", "", "1"},
		{"2, set later", "", "2"},
		{"umask", "", "umask"},
		{"none", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.Sh(`git init -q ` + row.init + ` .; echo 1 >a; git add a; git commit -qm 1; ` + strings.ReplaceAll(`test -z "V" || git config core.sharedRepository V`, "V", row.then))
			g.Sh(`cp -a . ../direct; cd ../direct; ` + command)
			assert.Empty(t, g.landed(g.mount(g.Root+"-layers", command)))
			assert.Equal(t, g.Git(".", "rev-parse", "HEAD"), g.Git("../direct", "rev-parse", "HEAD"))
			g.Sh(`(` + modes + `) >../landed; cd ../direct; (` + modes + `) >../wanted; diff ../wanted ../landed`)
		})
	}
}
