package gitdir

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTraps(t *testing.T) {
	long := "-" + strings.Repeat("n", 254)
	for name, row := range map[string]struct {
		host, command string
		traps         []string
	}{
		"a link in the place of tracked files":           {"", "rm -r d; ln -s /usr d", []string{"d"}},
		"of a tracked file, which git reads as a link":   {"", "rm a; ln -s /etc/hostname a", nil},
		"of one in a conflict":                           {`git checkout -qb o; echo o >a; git commit -qam o; git checkout -q -; echo m >a; git commit -qam m; git merge -q o || :`, "ln -sf /etc/hostname a", []string{"a"}},
		"of files that are not checked out":              {`git sparse-checkout init --cone --sparse-index; git sparse-checkout set e`, "ln -s /usr d", []string{"d"}},
		"of files in a split index":                      {`git update-index --split-index`, "rm -r d; ln -s /usr d", []string{"d"}},
		"through another link":                           {"", "ln -s /usr out; rm -r d; ln -s out/share d", []string{"d"}},
		"into the git directory":                         {"", "rm -r d; ln -s .git d", []string{"d"}},
		"that leads nowhere":                             {"", "rm -r d; ln -s /missing d", []string{"d"}},
		"in a directory that moved":                      {"mkdir e/s; touch e/s/f; git add e; git commit -qm s", "mkdir n; ln -s /usr n/s; rm -r e; mv n e", []string{"e/s"}},
		"that leads to another directory of the root":    {"", "mv d f; ln -s f d", []string{"d"}},
		"a tracked link":                                 {"ln -s /usr l; git add l; git commit -qm l", "rm l; ln -s /usr/share l", nil},
		"a new link":                                     {"", "mkdir -p v/bin; ln -s /usr/bin/python3 v/bin/python", nil},
		"the user's link":                                {"rm -r d; ln -s /usr d", "touch x", nil},
		"a link that git format-patch writes through":    {"", "ln -s a 0001-x.patch; ln -s a e/v2-0000-cover-letter.txt; touch 0002-y.patch; ln -s a 001-x.patch", []string{"0001-x.patch", "e/v2-0000-cover-letter.txt"}},
		"a link to a patch beside it":                    {"", "touch 0002-y.patch; ln -s ../0002-y.patch e/0001-x.patch", nil},
		"a link to a patch elsewhere":                    {"", "ln -s /usr/0001-x.patch 0001-x.patch", []string{"0001-x.patch"}},
		"such a link that is tracked":                    {"ln -s a 0001-x.patch; git add .; git commit -qm l", "rm 0001-x.patch; git checkout -q .", nil},
		"a link that git mergetool writes into":          {"", "ln -s /usr a.orig", []string{"a.orig"}},
		"in the work tree of another git directory":      {"git init -q r; git -C r config core.worktree ../../d; git --git-dir r/.git --work-tree d add d; rm -r .git", "touch d/-x", []string{"d/-x"}},
		"a name that is an option":                       {"", "touch ./-e; mkdir ./-d e/-d; touch -- e/-e", []string{"-d", "-e"}},
		"such a name of the user's":                      {"touch ./-e", "touch x", nil},
		"such a name with 255 bytes, and the usual ones": {"", "touch ./" + long + " fenced" + long[:maxFenced] + FencedSuffix, []string{long}},
		"such a name that is tracked":                    {"touch ./-e; git add ./-e", "echo x >./-e", nil},
		"such a name in no work tree":                    {"rm -rf .git", "touch ./-e", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.Sh(`repo .; mkdir d e; echo a >a; echo d >d/d; echo e >e/d; git add .; git commit -qm one; ` + row.host)
			g.command(func() {})
			made := g.command(func() { g.Sh(row.command) })
			assert.ElementsMatch(t, row.traps, g.names(made))
			for _, m := range made {
				require.NotEmpty(t, m.Fenced)
				assert.NotContains(t, m.Fenced[:1], "-")
				assert.Contains(t, m.Line(""), m.Fenced)
			}
			assert.Empty(t, g.command(func() {}), "nothing is given back")
		})
	}
}
