package index

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// indexOf makes an index of fields such as "f=1", "f=1xvsi" with a mode and flags, and "f#2=1" at a stage. The
// letter stands in their stat data.
func indexOf(t *testing.T, fields string, letter byte) *Index {
	w := newWriter(20)
	for _, field := range strings.Fields(fields) {
		name, version, _ := strings.Cut(field, "=")
		path, stage, _ := strings.Cut(name, "#")
		e := Entry{Path: path, Mode: ModeFile, ID: strings.Repeat(version[:1], 40), Flags: Flags{strings.Contains(version, "v"), strings.Contains(version, "s"), strings.Contains(version, "i")}}
		if strings.Contains(version, "x") {
			e.Mode = ModeExecutable
		}
		if version[:1] == "D" {
			e.Mode, e.ID = modeDirectory, strings.Repeat("d", 40)
		}
		e.Stage, _ = strconv.Atoi(stage)
		require.NoError(t, w.add(e))
	}
	x, err := ParseHost(w.text(), 40)
	require.NoError(t, err)
	for i := range x.entries {
		x.data[int(x.entries[i].at)+statSize-1] = letter
	}
	return x
}

// fieldsOf is the reverse, with the letters behind the versions.
func fieldsOf(x *Index) string {
	var fields []string
	for i := range x.entries {
		e := x.entry(&x.entries[i])
		field := e.Path
		if e.Stage > 0 {
			field += fmt.Sprint("#", e.Stage)
		}
		field += "=" + e.ID[:1]
		if letter := x.size(&x.entries[i]); letter > 0 {
			field += string(rune(letter))
		}
		for i, is := range []bool{e.Mode == ModeExecutable, e.AssumeValid, e.SkipWorktree, e.IntentToAdd} {
			if is {
				field += "xvsi"[i : i+1]
			}
		}
		fields = append(fields, field)
	}
	return strings.Join(fields, " ")
}

// headsOf makes the versions of fields such as "f=1122": those of Base, Own, Host and Now, 0 for none.
func headsOf(fields string) map[string]Heads {
	heads := map[string]Heads{}
	for _, field := range strings.Fields(fields) {
		path, versions, _ := strings.Cut(field, "=")
		of := func(i int) Entry {
			if versions[i] == '0' {
				return Entry{}
			}
			return Entry{Mode: ModeFile, ID: strings.Repeat(versions[i:i+1], 40)}
		}
		heads[path] = Heads{of(0), of(1), of(2), of(3)}
	}
	return heads
}

func TestMerge(t *testing.T) {
	for _, test := range []struct{ name, heads, base, own, host, want, both string }{
		// All HEADs alike.
		{"nothing changed", "", "f=1", "f=1", "f=1", "f=1H", ""},
		{"the command stages", "", "f=1 g=1", "f=2 g=1", "f=1 g=1", "f=2O g=1H", ""},
		{"the user stages", "", "f=1 g=1", "f=1 g=1", "f=2 g=1", "f=2H g=1H", ""},
		{"both stage the same", "", "f=1", "f=2", "f=2", "f=2O", ""},
		{"both stage, otherwise", "", "f=1", "f=2", "f=3", "f=3H", "f"},
		{"the command adds", "", "", "n=1", "", "n=1O", ""},
		{"the command deletes", "", "f=1 g=1", "g=1", "f=1 g=1", "g=1H", ""},
		{"the user deletes", "", "f=1 g=1", "f=1 g=1", "g=1", "g=1H", ""},
		{"the command deletes, the user stages", "", "f=1", "", "f=2", "f=2H", "f"},
		{"the user deletes, the command stages", "", "f=1", "f=2", "", "", "f"},
		{"sorted bytewise", "a-c=0101", "a-b=1 a/b=1 a0=1", "a-b=2 a-c=1 a/b=1 a0=1", "a-b=1 a/b=1 a0=1", "a-b=2O a-c=1O a/b=1H a0=1H", ""},

		// The command commits.
		{"a commit of the command", "f=1212", "f=1 g=1", "f=2 g=1", "f=1 g=1", "f=2O g=1H", ""},
		{"a commit of the command, with a new and a deleted file", "d=1010 n=0101", "d=1", "n=1", "d=1", "n=1O", ""},
		{"a commit of the command, the user has staged another file", "f=1212", "f=1 g=1", "f=2 g=1", "f=1 g=2", "f=2O g=2H", ""},
		{"a commit of the command, the user has staged the same file", "f=1212", "f=1", "f=2", "f=3", "f=3H", "f"},
		{"a commit of the command, the user has deleted the file", "f=1212", "f=1", "f=2", "", "", "f"},
		{"a commit of the command deletes, the user has staged the file", "f=1010", "f=1", "", "f=2", "f=2H", "f"},
		{"the command commits what was staged", "f=1212", "f=2", "f=2", "f=2", "f=2H", ""},
		{"the user unstages what the command commits", "f=1212 n=0101", "f=2 n=1", "f=2 n=1", "f=1", "f=2O n=1O", ""},
		{"the user unstages, the command has committed something else", "f=1212", "f=3", "f=2", "f=1", "f=2O", ""},
		{"the user has restaged what the command commits", "f=1212", "f=2", "f=2", "f=3", "f=3H", "f"},
		{"the command stages on top of its commit", "f=1212", "f=1", "f=3", "f=1", "f=3O", ""},
		{"the command stages on top of its commit, so does the user", "f=1212", "f=1", "f=3", "f=4", "f=4H", "f"},
		{"the command makes the file of its commit executable", "f=1212", "f=1", "f=2x", "f=1", "f=2Ox", ""},
		{"both stage the same on top of a commit", "f=1212", "f=1", "f=3", "f=3", "f=3O", ""},
		{"git rm --cached after a commit", "f=1212", "f=1", "", "f=1", "", ""},
		{"git rm --cached of a file of that commit", "n=0101", "", "", "", "", ""},
		{"git rm --cached of a new file just committed", "n=0101", "n=1", "", "n=1", "", ""},
		{"git rm --cached by both", "f=1212", "f=1", "", "", "", ""},
		{"git rm --cached by the command, the user stages", "f=1212", "f=1", "", "f=3", "f=3H", "f"},
		{"git reset --soft HEAD~", "f=2121", "f=2", "f=2", "f=2", "f=2O", ""},
		{"git reset HEAD~", "f=2121 n=1010", "f=2 n=1", "f=1", "f=2 n=1", "f=1O", ""},
		{"git reset HEAD~, the user has staged", "f=2121", "f=2", "f=1", "f=3", "f=3H", "f"},

		// The user commits.
		{"the user commits what was staged, the command resets", "f=1122 n=0011", "f=2 n=1", "f=1", "f=2 n=1", "f=2H n=1H", ""},
		{"the user commits, the command has not seen it", "f=1122 n=0011", "f=1", "f=1", "f=2 n=1", "f=2H n=1H", ""},
		{"the user commits, the command stages the file", "f=1122", "f=1", "f=3", "f=2", "f=2H", "f"},
		{"the user commits something else than was staged, the command stages", "f=1122", "f=3", "f=4", "f=2", "f=2H", "f"},
		{"the user commits, the command deletes the file", "f=1122", "f=1", "", "f=2", "f=2H", "f"},
		{"the user commits something else than was staged, the command deletes", "f=1122", "f=3", "", "f=2", "f=2H", "f"},
		{"a file of Now alone", "n=0001", "", "", "", "n=1", ""},
		{"a file of Now alone, between others", "b=0001", "a=1 c=1", "a=1 c=1", "a=1 c=1", "a=1H b=1 c=1H", ""},
		{"a version of Now alone", "f=1213", "f=1", "f=2", "f=1", "f=3", ""},
		{"a version of Now is in base", "f=1221", "f=1", "f=2", "f=2", "f=1B", ""},
		{"a path of no index", "n=1110", "", "", "", "", ""},
		{"gone from Now", "n=1110", "n=1", "n=1", "n=1", "", ""},

		// A file and a directory.
		{"the command adds below the user's file", "", "", "d/a=1 d/b=1", "d=1", "d=1H", "d/a d/b"},
		{"the command adds a file, the user a directory", "", "", "d=1", "d-=1 d/a=1 d/b=1", "d-=1H d/a=1H d/b=1H", "d"},
		{"far above", "", "", "d/a/b/c=1", "d=1", "d=1H", "d/a/b/c"},
		{"only the name begins alike", "", "", "d/a=1 e=1", "d-=1 d0=1 e-/a=1", "d-=1H d/a=1O d0=1H e=1O e-/a=1H", ""},
		{"the command makes a file a directory", "d=1010 d/a=0101", "d=1", "d/a=1", "d=1", "d/a=1O", ""},
		{"the command makes a directory a file", "d=0101 d/a=1010", "d/a=1", "d=1", "d/a=1", "d=1O", ""},
		{"the same without a commit", "", "d=1 e/a=1", "d/a=1 e=1", "d=1 e/a=1", "d/a=1O e=1O", ""},
		{"the command makes a file a directory, the user has staged the file", "d=1010 d/a=0101", "d=1", "d/a=1", "d=2", "d=2H", "d d/a"},
		{"the command makes a directory a file, the user has staged below", "d=0101 d/a=1010", "d/a=1", "d=1", "d/a=1 d/b=1", "d/b=1H", "d"},
		{"the command makes a directory a file, the user deletes below", "d=0101 d/a=1010", "d/a=1", "d=1", "", "d=1O", ""},
		{"a file of Now below the user's", "d/a=0001", "", "", "d=1", "d=1H", "d/a"},
		{"a file of Now below the command's", "d/a=0001", "", "d=1", "", "d=1O", "d/a"},
		{"a file of the command's below that of Now", "d=0001", "", "d/a=1", "", "d=1", "d/a"},
		{"a file that is left out is not above", "d=0001", "", "d/a=1", "d/b=1", "d/a=1O d/b=1H", "d"},
		{"a conflict and a file above", "d/a=2121", "d/a=3", "d/a=4", "d=1", "d=1H", "d/a"},

		// The intent to add.
		{"an intent of the user's", "", "", "", "n=ei", "n=eHi", ""},
		{"an intent of the command's", "", "", "n=ei", "", "n=eOi", ""},
		{"an intent of the command's, the user has staged", "", "", "n=ei", "n=1", "n=1H", "n"},
		{"an intent of the user's, the command adds", "", "", "n=1", "n=ei", "n=1O", ""},
		{"an intent of both, the command adds", "", "n=ei", "n=1", "n=ei", "n=1O", ""},
		{"the command removes an intent", "", "n=ei", "", "n=ei", "", ""},
		{"the command only intends now", "", "f=e g=e", "f=ei", "f=e g=e", "f=eOi", ""},
		{"the command only intends after a commit", "f=1212", "f=1", "f=ei", "f=1", "f=eOi", ""},
		{"the user only intends now", "", "n=1", "n=1", "n=ei", "n=eHi", ""},
		{"an intent of the user's, the command commits", "n=0101", "", "n=1", "n=ei", "n=1O", ""},
		{"an intent of the user's, the command commits and removes", "n=0101", "", "", "n=ei", "", ""},
		{"an intent of the user's, the command commits an empty file", "n=0e0e", "", "", "n=ei", "", ""},
		{"an intent of the user's, Now has an empty file", "n=000e", "", "", "n=ei", "n=e", ""},
		{"an intent of the user's, gone from Now", "n=0100", "", "n=1", "n=ei", "n=eHi", ""},
		{"an intent of the user's in place of a file", "f=1212", "f=1", "f=2", "f=ei", "f=eHi", ""},
		{"an intent of the command's after git reset -N HEAD~", "n=1010", "n=1", "n=ei", "n=1", "n=eOi", ""},
		{"the user has removed an intent that the command has too", "n=1010", "n=ei", "n=ei", "", "", ""},

		// Flags.
		{"flags of the user's", "", "f=1 g=1", "f=2 g=1", "f=1vs g=1v", "f=2Ovs g=1Hv", ""},
		{"flags of the user's gone", "", "f=1vs", "f=2vs", "f=1", "f=2O", ""},
		{"flags of the command's", "", "f=1 g=1", "f=1v g=2s", "f=1 g=1", "f=1Hv g=2Os", ""},
		{"flags of the command's gone", "", "f=1vs", "f=2", "f=1vs", "f=2O", ""},
		{"one flag of each", "", "f=1", "f=2v", "f=1s", "f=2Ovs", ""},
		{"flags of the command's, the user has staged", "", "f=1", "f=1v", "f=2", "f=2Hv", ""},
		{"flags of the command's in a conflict", "", "f=1", "f=2v", "f=3s", "f=3Hs", "f"},
		{"flags of the command's in a file that it adds", "", "", "n=1s", "", "n=1Os", ""},
		{"flags of the user's after a commit", "f=1212", "f=1", "f=2", "f=1vs", "f=2Ovs", ""},
		{"flags of the command's after a commit", "f=1212", "f=1vs", "f=2", "f=1vs", "f=2O", ""},
		{"flags of the command's, and Now has the user's version", "f=1122", "f=1", "f=1v", "f=2", "f=2Hv", ""},
		{"flags of the user's, and Now alone has the version", "f=1213", "f=1", "f=2", "f=1s", "f=3s", ""},
		{"flags of base", "n=1001", "n=1s", "", "", "n=1Bs", ""},
		{"the user commits what was staged, the command stages more", "f=1122", "f=2", "f=3", "f=2", "f=3O", ""},
		{"the user commits, the command stages the same", "f=1122", "f=1", "f=2", "f=2", "f=2H", ""},
		{"flags of a file that the command deletes", "f=1122", "f=1v", "", "f=1v", "f=1Hv", "f"},
		{"flags of an intent", "n=0101", "", "n=1", "n=eis", "n=1Os", ""},

		// Unmerged.
		{"unmerged in the command's", "", "f=1", "f#1=1 f#2=2 f#3=3", "f=1", "f#1=1O f#2=2O f#3=3O", ""},
		{"unmerged in the user's", "", "f=1", "f=1", "f#1=1 f#2=2 f#3=3", "f#1=1H f#2=2H f#3=3H", ""},
		{"unmerged in the user's, the command stages", "", "f=1", "f=2", "f#1=1 f#3=3", "f#1=1H f#3=3H", "f"},
		{"the command resolves", "", "f#1=1 f#2=2", "f=2", "f#1=1 f#2=2", "f=2O", ""},
		{"at another stage", "", "f#1=1 f#2=2", "f#1=1 f#3=2", "f#1=1 f#2=2", "f#1=1O f#3=2O", ""},
		{"unmerged after a commit", "f=1212", "f=1", "f#1=1 f#2=2 f#3=3", "f=1", "f#1=1O f#2=2O f#3=3O", ""},
		{"the only stage has the version of HEAD", "f=1212", "f=1", "f#2=2", "f=1", "f#2=2O", ""},
		{"the only stage has the version of Now", "f=1112", "f#2=2", "f=1", "f#2=2", "f=2", ""},
		{"the command resolves and commits", "f=1212", "f#1=0 f#2=1 f#3=2", "f=2", "f#1=0 f#2=1 f#3=2", "f=2O", ""},
		{"the flags of the user's are not those of a stage", "", "f=1", "f#2=2", "f=1vs", "f#2=2O", ""},
		{"a file at another stage than the user's below", "", "", "d#2=1", "d/a#3=1", "d#2=1O d/a#3=1H", ""},
		{"a file at another stage than those below", "", "", "d#2=1 d/a#3=1 d/b=1", "", "d#2=1O d/a#3=1O d/b=1O", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, both := Merge(indexOf(t, test.base, 'B'), indexOf(t, test.own, 'O'), indexOf(t, test.host, 'H'), headsOf(test.heads))
			x, err := Parse(text, 40, nil)
			require.NoError(t, err)
			require.NoError(t, x.Check())
			assert.Equal(t, test.want, fieldsOf(x))
			assert.Equal(t, strings.Fields(test.both), append([]string{}, both...))
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	files := indexOf(t, "f=1", 'B')
	sparse := indexOf(t, "d/=D f=1", 'H')
	text, _ := Merge(files, files, sparse, nil)
	assert.Nil(t, text)
	text, _ = Merge(files, files, files, map[string]Heads{"f": {Now: Entry{Mode: ModeFile, ID: "1"}}})
	assert.Nil(t, text)
	text, _ = Merge(sparse, files, files, nil)
	assert.NotNil(t, text, "it is not in the result")
}

// Git lists the staged changes of the result.
func TestMergeInGit(t *testing.T) {
	for _, test := range []struct{ name, before, command, user, want string }{
		{"a commit of the command", ":", "commit f g n", ":", ""},
		{"the user has staged", ":", "commit f n", "stage g", "M\tg\n"},
		{"staged on top", ":", "commit f n; echo 3 >f; git add f", "stage g", "M\tf\nM\tg\n"},
		{"the user unstages", "stage f n", "git commit -qm 2", "git reset -q", ""},
		{"the user commits, the command resets", "stage f n", "git reset -q", "git commit -qm 2; stage g", "M\tg\n"},
		{"the command removes from the index", "stage g", "commit n; git rm -q --cached f n", ":", "D\tf\nD\tn\n"},
		{"a file in place of a directory", ":", "rm -r d; commit d", "stage g", "M\tg\n"},
		{"a directory in place of a file", ":", "rm f; mkdir f; commit f/a", "stage g", "M\tg\n"},
		{"a merge under way", ":", "git checkout -qb other; commit f; git checkout -q -; echo 3 >f; git commit -qam 3; ! git merge -q other", "stage g", "U\tf\nM\tg\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			user, command := newRepository(t, "sha1"), &repository{t, t.TempDir(), 40}
			run := func(r *repository, script string) {
				cmd := exec.Command("sh", "-ec", "stage() { for n; do echo 2 >$n; git add $n; done; }; commit() { stage $*; git commit -qm 2; }; "+script)
				cmd.Dir = r.dir
				cmd.Env = append(os.Environ(), "HOME="+r.dir, "GIT_CONFIG_NOSYSTEM=1")
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			versions := map[string]*[4]Entry{}
			read := func(r *repository, commit string, n int) {
				for line := range strings.Lines(r.git("ls-tree", "-r", commit)) {
					var e Entry
					var kind string
					_, err := fmt.Sscanf(line, "%o %s %s %s", &e.Mode, &kind, &e.ID, &e.Path)
					require.NoError(t, err)
					if versions[e.Path] == nil {
						versions[e.Path] = new([4]Entry)
					}
					versions[e.Path][n] = e
				}
			}
			run(user, "git config user.name a; git config user.email a; mkdir d; for n in d/a f g z; do echo 1 >$n; done; git add .; git commit -qm 1; "+test.before)
			require.NoError(t, os.CopyFS(command.dir, os.DirFS(user.dir)))
			base, began := user.parse(), user.git("rev-parse", "HEAD")
			run(command, test.command)
			run(user, test.user)
			user.git("fetch", "-q", command.dir, "HEAD")
			now := user.git("rev-parse", "HEAD")
			read(user, strings.TrimSpace(began), 0)
			read(command, "HEAD", 1)
			read(user, "HEAD", 2)
			if now == began {
				user.git("reset", "-q", "--soft", "FETCH_HEAD")
			}
			read(user, "HEAD", 3)
			heads := map[string]Heads{}
			for path, v := range versions {
				if v[0] != v[1] || v[0] != v[2] || v[0] != v[3] {
					heads[path] = Heads{v[0], v[1], v[2], v[3]}
				}
			}
			text, both := Merge(base, command.parse(), user.parse(), heads)
			assert.Empty(t, both)
			user.install(text)
			user.install(user.agree().Encode())
			assert.Equal(t, test.want, user.git("diff", "--cached", "--name-status", "--no-renames"))
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	var all []Entry
	for i := range 100_000 {
		all = append(all, Entry{Path: fmt.Sprintf("directory/%06d/file", i), Mode: ModeFile, ID: strings.Repeat("1", 40)})
	}
	x, err := Of(all, 40)
	require.NoError(b, err)
	heads := headsOf("a=0101 directory/050000/file=1212")
	b.ReportAllocs()
	for b.Loop() {
		Merge(x, x, x, heads)
	}
}
