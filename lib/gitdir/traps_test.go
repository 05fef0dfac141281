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
		"of a tracked file":                              {"", "rm a; ln -s /etc/hostname a", []string{"a"}},
		"of one in a conflict":                           {`git checkout -qb o; echo o >a; git commit -qam o; git checkout -q -; echo m >a; git commit -qam m; git merge -q o || :`, "ln -sf /etc/hostname a", []string{"a"}},
		"of files that are not checked out":              {`git sparse-checkout init --cone --sparse-index; git sparse-checkout set e`, "ln -s /usr d", []string{"d"}},
		"of files in a split index":                      {`git update-index --split-index`, "rm -r d; ln -s /usr d", []string{"d"}},
		"through another link":                           {"", "ln -s /usr out; rm -r d; ln -s out/share d", []string{"d"}},
		"into the git directory":                         {"", "rm -r d; ln -s .git d", []string{"d"}},
		"that leads nowhere":                             {"", "rm -r d; ln -s /missing d", []string{"d"}},
		"in a directory that moved":                      {"", "mkdir n; ln -s /usr n/d; rm -r e; mv n e", []string{"e/d"}},
		"a link within the root":                         {"", "mv d f; ln -s f d", nil},
		"a tracked link":                                 {"ln -s /usr l; git add l; git commit -qm l", "rm l; ln -s /usr/share l", nil},
		"a new link":                                     {"", "mkdir -p v/bin; ln -s /usr/bin/python3 v/bin/python", nil},
		"the user's link":                                {"rm -r d; ln -s /usr d", "touch x", nil},
		"a link that git format-patch writes through":    {"", "ln -s a 0001-x.patch; ln -s a e/v2-0000-cover-letter.patch; touch 0002-y.patch; ln -s a 001-x.patch", []string{"0001-x.patch", "e/v2-0000-cover-letter.patch"}},
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
