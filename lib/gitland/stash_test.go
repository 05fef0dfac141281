package gitland_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The host's list of stashes is the command's, or as it was, and the line that tells of it is true.
func TestStashesThatGo(t *testing.T) {
	const (
		expire = "git reflog expire --expire=now refs/stash"
		two    = "one two"
	)
	for _, row := range []struct{ name, command, told, list, trash string }{
		{"expired", expire, `"refs/stash": its log is empty, and the host's lists stashes; it is dropped`, two, ""},
		{"all logs expired", "git reflog expire --expire=now --all", `"refs/stash": its log is empty, and the host's lists stashes; it is dropped`, two, ""},
		{"the log removed", "rm .git/logs/refs/stash", `"refs/stash": its log is empty, and the host's lists stashes; it is dropped`, two, ""},
		{"one expired", "git reflog delete stash@{1}", `"refs/stash" had ID, which is now "refs/pk/trash/stash"`, "two", "one"},
		{"cleared", "git stash clear", `"refs/stash" had ID, which is now "refs/pk/trash/stash-2"`, "", two},
		{"dropped", "git stash drop -q", `"refs/stash" had ID, which is now "refs/pk/trash/stash"`, "one", "two"},
		{"expired, then cleared", expire + "; git stash clear", `"refs/stash" had ID, which is now "refs/pk/trash/stash-2"`, "", two},
		{"expired, then another one", expire + "; echo 3 >a; git stash push -q -m three", `"refs/stash" had ID, which is now "refs/pk/trash/stash-2"`, "three", two},
		{"expired with another one", "echo 3 >a; git stash push -q -m three; " + expire, `"refs/stash": its log does not end with its value; it stays in the sandbox`, two, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, "for n in one two; do echo $n >a; git stash push -q -m $n; done", row.command)
			l := u.layer(t)
			told := l.LandLast()
			require.NoError(t, l.Close())
			messages := func(script string) (list []string) {
				out, err := command(u.dir+"/project", script).CombinedOutput()
				require.NoError(t, err, "%s", out)
				for line := range strings.Lines(string(out)) {
					list = append(list, strings.TrimSpace(line[strings.LastIndex(line, ":")+1:]))
				}
				return list
			}
			trash := messages("git for-each-ref --format='%(objectname) %(contents:subject)' refs/pk/trash")
			assert.Equal(t, row.trash, strings.Join(trash, " "))
			assert.ElementsMatch(t, strings.Fields(row.list), messages("git stash list"))
			id, _ := command(u.dir+"/project", "git for-each-ref --format='%(objectname)' refs/pk/trash | tail -n 1 | cut -c-10").Output()
			assert.Equal(t, []string{strings.ReplaceAll(row.told, "ID", strings.TrimSpace(string(id)))}, told)
			if strings.HasSuffix(row.told, "dropped") {
				assert.NoFileExists(t, l.Upper()+"/logs/refs/stash", "the next command has the host's list")
			}
		})
	}
}
