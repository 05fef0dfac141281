package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine"
)

// Variables that make the test binary a writer of records.
const (
	envFile    = "PK_AUDIT_FILE"
	envSession = "PK_AUDIT_SESSION"
	envLimit   = "PK_AUDIT_LIMIT" // of the file's size
)

const perWriter = 125

func TestMain(m *testing.M) {
	if name := os.Getenv(envFile); name != "" {
		if err := writeRecords(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func writeRecords(name string) error {
	var limit uint64
	if _, err := fmt.Sscan(os.Getenv(envLimit), &limit); err == nil {
		if err := syscall.Setrlimit(unix.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	l, err := Open("writer", name, nil)
	for i := range perWriter {
		if err == nil {
			_, err = l.Append(Record{Event: Begin, Session: os.Getenv(envSession), Command: fmt.Sprint(i)})
		}
	}
	return err
}

func writer(t *testing.T, name, session, limit string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = []string{envFile + "=" + name, envSession + "=" + session, envLimit + "=" + limit}
	return cmd
}

// file returns a name for an audit file, in a directory of this test.
func file(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "audit")
}

// appended writes records to a new file, and returns its lines.
func appended(t *testing.T, name string, commands ...string) []string {
	t.Helper()
	l, err := Open("pk-test", name, nil)
	require.NoError(t, err)
	defer l.Close()
	for _, c := range commands {
		r := Record{Event: Begin}
		r.SetCommand(c)
		_, err := l.Append(r)
		require.NoError(t, err)
	}
	return lines(t, name)
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return slices.Collect(strings.Lines(string(text)))
}

func records(t *testing.T, name string) []Record {
	t.Helper()
	var list []Record
	for _, line := range lines(t, name) {
		var r Record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		list = append(list, r)
	}
	return list
}

func findings(t *testing.T, name string) []string {
	t.Helper()
	found := []string{}
	require.NoError(t, Check(name, func(f Finding) { found = append(found, fmt.Sprintf("%d: %s", f.Line, f.Text)) }))
	return found
}

func TestManyWriters(t *testing.T) {
	name := file(t)
	var writers []*exec.Cmd
	for i := range 8 {
		cmd := writer(t, name, fmt.Sprint(i), "")
		require.NoError(t, cmd.Start())
		writers = append(writers, cmd)
	}
	for _, cmd := range writers {
		require.NoError(t, cmd.Wait())
	}
	next := map[string]int{}
	for _, r := range records(t, name) {
		assert.Equal(t, fmt.Sprint(next[r.Session]), r.Command, r.Session)
		next[r.Session]++
	}
	assert.Len(t, next, 8)
	for session, n := range next {
		assert.Equal(t, perWriter, n, session)
	}
	assert.Empty(t, findings(t, name))
}

func TestRecord(t *testing.T) {
	name := file(t)
	all := appended(t, name, "echo \u009b <&>", "\xff", strings.Repeat("é", maxCommand))
	assert.Contains(t, all[0], `"command":"echo \u009b <&>"`)
	got := records(t, name)
	assert.Equal(t, origin.hash, got[0].Prev)
	assert.Equal(t, hash([]byte(strings.TrimSuffix(all[0], "\n"))), got[1].Prev)
	assert.Equal(t, []uint64{1, 2, 3}, []uint64{got[0].Seq, got[1].Seq, got[2].Seq})
	assert.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$`, got[0].Time)
	assert.Equal(t, os.Getuid(), got[0].UID)
	assert.Equal(t, []byte("\xff"), got[1].CommandBytes)
	assert.Empty(t, got[1].Command)
	assert.Equal(t, strings.Repeat("é", maxCommand/2), got[2].Command)
	assert.Equal(t, hash([]byte(strings.Repeat("é", maxCommand))), got[2].CommandSHA256)
	info, err := os.Stat(name)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

// A line is never longer than the tail that the next writer reads to find its end.
func TestLongRecord(t *testing.T) {
	name := file(t)
	l, err := Open("pk-test", name, nil)
	require.NoError(t, err)
	defer l.Close()
	r := Record{Event: End, Result: strings.Repeat("x", maxLine), Files: slices.Repeat([]File{{Path: strings.Repeat("\x01", 4096)}}, 1000)}
	r.SetCommand(strings.Repeat("\x01", 2*maxCommand))
	r.Error, r.Reason, r.Description = r.Command, r.Command, r.Command
	_, err = l.Append(r)
	require.NoError(t, err)
	assert.Less(t, len(lines(t, name)[0]), maxLine)
	got := records(t, name)[0]
	assert.True(t, got.Truncated)
	assert.Nil(t, got.Result)
	assert.NotEmpty(t, got.Files)
	assert.Empty(t, findings(t, name))
}

func TestFindings(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(lines []string) []string
		want []string
	}{
		{"nothing changed", func(l []string) []string { return l }, nil},
		{"cut at the end", func(l []string) []string { return l[:3] }, []string{"3: records 4 to 5 are missing after it"}},
		{"cut within a line", func(l []string) []string { return append(l[:3], l[3][:20]) }, []string{"4: it is not a whole record: its writer was killed, or the disk was full"}},
		{"cut to nothing", func(l []string) []string { return nil }, []string{"0: records 1 to 5 are missing after it"}},
		{"first removed", func(l []string) []string { return l[1:] }, []string{"1: records 1 to 1 are missing before it"}},
		{"removed", func(l []string) []string { return slices.Delete(l, 1, 3) }, []string{"2: records 2 to 3 are missing before it"}},
		{"edited", func(l []string) []string { l[1] = strings.Replace(l[1], `"b"`, `"B"`, 1); return l }, []string{"3: it does not follow on the line before, record 2: one of both was changed"}},
		{"last edited", func(l []string) []string { l[4] = strings.Replace(l[4], `"e"`, `"E"`, 1); return l }, []string{"5: it is not record 5 as it was written"}},
		{"duplicate", func(l []string) []string { return slices.Insert(l, 2, l[1]) }, []string{"3: record 2 comes after record 2: lines were moved or copied"}},
		{"swapped", func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }, []string{
			"2: records 2 to 2 are missing before it",
			"3: record 2 comes after record 3: lines were moved or copied",
			"4: records 3 to 3 are missing before it",
		}},
		{"a line that is no record", func(l []string) []string { return slices.Insert(l, 2, "hello\n") }, []string{"3: it is not a record"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := file(t)
			edited := test.edit(appended(t, name, "a", "b", "c", "d", "e"))
			require.NoError(t, os.WriteFile(name, []byte(strings.Join(edited, "")), 0o600))
			assert.Equal(t, append([]string{}, test.want...), findings(t, name))
		})
	}
}

func TestWithoutHead(t *testing.T) {
	name := file(t)
	appended(t, name, "a", "b")
	require.NoError(t, os.Remove(name+headSuffix))
	assert.Equal(t, []string{"2: there is no valid .head file: records after it may be missing"}, findings(t, name))
	appended(t, name, "c")
	assert.Equal(t, []string{"3: records may be missing before it: pk found the file cut, or without its .head file"}, findings(t, name))
	got := records(t, name)
	assert.Equal(t, []Event{Begin, Begin, Gap, Begin}, []Event{got[0].Event, got[1].Event, got[2].Event, got[3].Event})
}

// The next writer goes on after a cut, and the cut stays visible.
func TestWritingAfterACut(t *testing.T) {
	for _, keep := range []int{0, 2} {
		name := file(t)
		all := appended(t, name, "a", "b", "c", "d")
		require.NoError(t, os.WriteFile(name, []byte(strings.Join(all[:keep], "")), 0o600))
		appended(t, name, "e")
		got := records(t, name)[keep:]
		assert.Equal(t, []Event{Gap, Begin}, []Event{got[0].Event, got[1].Event})
		assert.Equal(t, fmt.Sprintf("the file ended with record %d, and record 4 had been written", keep), got[0].Error)
		assert.Equal(t, []string{fmt.Sprintf("%d: records %d to 4 are missing before it", keep+1, keep+1)}, findings(t, name))
	}
}

// A change of the last line stays visible when records follow.
func TestWritingAfterAnEdit(t *testing.T) {
	for _, text := range []string{`"B"`, `"a longer text"`} {
		name := file(t)
		all := appended(t, name, "a", "b")
		all[1] = strings.Replace(all[1], `"b"`, text, 1)
		require.NoError(t, os.WriteFile(name, []byte(strings.Join(all, "")), 0o600))
		appended(t, name, "c")
		assert.Equal(t, []string{"3: it does not follow on the line before, record 2: one of both was changed"}, findings(t, name))
	}
}

// A writer was killed within its write, after it, or between the newline and the remark of
// the next writer.
func TestWritingAfterAKill(t *testing.T) {
	for _, test := range []struct {
		name string
		rest string // after the last line in the head
		want []Event
	}{
		{"before the head was written", "", []Event{Begin, Begin, Begin}},
		{"within a line", `{"time":"20`, []Event{Begin, Begin, "", Torn, Begin}},
		{"behind the newline of a part", "{\"time\":\"20\n", []Event{Begin, Begin, "", Torn, Begin}},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := file(t)
			appended(t, name, "a")
			head, err := os.ReadFile(name + headSuffix)
			require.NoError(t, err)
			all := appended(t, name, "b")
			if test.rest == "" {
				require.NoError(t, os.WriteFile(name+headSuffix, head, 0o600))
				assert.Empty(t, findings(t, name))
			} else {
				require.NoError(t, os.WriteFile(name, []byte(strings.Join(all, "")+test.rest), 0o600))
				assert.Len(t, findings(t, name), 1)
			}
			var got []Event
			for _, line := range appended(t, name, "c") {
				link, _ := parse([]byte(line))
				got = append(got, link.Event)
			}
			assert.Equal(t, test.want, got)
			assert.Empty(t, findings(t, name))
		})
	}
}

// A record that does not fit is an error, and the next one says so.
func TestFullDisk(t *testing.T) {
	name := file(t)
	out, err := writer(t, name, "s", "4100").CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, fmt.Sprintf("cannot write to audit file %q: file too large\n", name), string(out))
	appended(t, name, "more")
	all := lines(t, name)
	link, ok := parse([]byte(all[len(all)-2]))
	assert.True(t, ok)
	assert.Equal(t, Torn, link.Event)
	assert.Empty(t, findings(t, name))
}

func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct {
		name, want string
		make       func(t *testing.T, name string) error
	}{
		{"a directory", "is a directory", func(_ *testing.T, name string) error { return os.Mkdir(name, 0o700) }},
		{"a FIFO", "it is not a regular file", func(_ *testing.T, name string) error { return unix.Mkfifo(name, 0o600) }},
		{"a shell's start-up file", "it has other content than records", func(_ *testing.T, name string) error {
			return os.WriteFile(name, []byte("alias ll='ls -l'\n"), 0o600)
		}},
		{"a head that is another file", "its .head file: it has other content than the number and the hash of a record", func(_ *testing.T, name string) error {
			return os.WriteFile(name+headSuffix, []byte("notes\n"), 0o600)
		}},
		{"two names", "it has 2 hard links", func(t *testing.T, name string) error {
			appended(t, name)
			return os.Link(name, name+".2")
		}},
		{"a head with two names", "its .head file: it has 2 hard links", func(t *testing.T, name string) error {
			appended(t, name)
			return os.Link(name+headSuffix, name+".2")
		}},
		{"a link at the head", "its .head file: too many levels of symbolic links", func(_ *testing.T, name string) error { return os.Symlink("x", name+headSuffix) }},
		{"writable by others", "it can be written by others: chmod go-w", func(t *testing.T, name string) error {
			appended(t, name)
			return os.Chmod(name, 0o620)
		}},
		{"a head that others can read", "its .head file: it can be read by others, who could lock it: chmod go-r", func(t *testing.T, name string) error {
			appended(t, name)
			return os.Chmod(name+headSuffix, 0o640)
		}},
		{"a directory that others can write", "its directory can be written by others: chmod go-w", func(_ *testing.T, name string) error { return os.Chmod(filepath.Dir(name), os.ModeSticky|0o777) }},
		{"another user's", "it belongs to uid 4321", func(t *testing.T, name string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root makes files of others")
			}
			appended(t, name)
			return os.Chown(name, 4321, 0)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := file(t)
			require.NoError(t, test.make(t, name))
			_, err := Open("pk-test", name, nil)
			assert.EqualError(t, err, fmt.Sprintf("cannot use audit file %q: %s", name, test.want))
		})
	}
}

// Others may read the log, and whoever can open a file can lock it. With the lock on the log
// this would never end.
func TestLockOfAReader(t *testing.T) {
	name := file(t)
	appended(t, name)
	require.NoError(t, os.Chmod(name, 0o644))
	reader, err := os.Open(name)
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, unix.Flock(int(reader.Fd()), unix.LOCK_EX))
	appended(t, name, "true")
	assert.Empty(t, findings(t, name))
}

// Records to a file without a name are lost.
func TestRemovedWhileOpen(t *testing.T) {
	name := file(t)
	l, err := Open("pk-test", name, nil)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Remove(name))
	_, err = l.Append(Record{Event: Begin})
	assert.ErrorContains(t, err, "it was removed, or has another name")
}

func TestCheckOutside(t *testing.T) {
	name := file(t)
	dir := filepath.Dir(name)
	project := filepath.Join(dir, "project")
	require.NoError(t, os.Mkdir(project, 0o755))
	require.NoError(t, os.Symlink(dir, filepath.Join(project, "link")))
	require.NoError(t, os.Symlink(filepath.Join(project, "inside"), filepath.Join(dir, "leads-in")))
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(project, &st))
	roots := func(path string) []confine.Root {
		return []confine.Root{{Path: path, Dir: true, Dev: st.Dev, Ino: st.Ino}}
	}
	for _, test := range []struct {
		file, root string
		ok         bool
	}{
		{"audit", project, true},
		{"project/inside", project, false},
		{"project/link/audit", project, false}, // a command could lead the link elsewhere
		{"leads-in", project, false},
		{"project/inside", "/elsewhere", false}, // the root is bind-mounted
	} {
		l, err := Open("pk-test", filepath.Join(dir, test.file), nil)
		require.NoError(t, err)
		defer l.Close()
		err = l.CheckOutside(roots(test.root))
		assert.Equal(t, test.ok, err == nil, "%+v: %v", test, err)
	}
	assert.NoError(t, (*Log)(nil).CheckOutside(roots(dir)))
}

// Another file than one of records is left as it is.
func TestOtherFilesStay(t *testing.T) {
	name := file(t)
	require.NoError(t, os.WriteFile(name, []byte("notes\n"), 0o600))
	_, err := Open("pk-test", name, nil)
	require.Error(t, err)
	assert.NoFileExists(t, name+headSuffix)
	name = file(t)
	require.NoError(t, os.WriteFile(name+headSuffix, []byte("notes\n"), 0o600))
	_, err = Open("pk-test", name, nil)
	require.Error(t, err)
	assert.Equal(t, []string{"notes\n"}, lines(t, name+headSuffix))
}

// The disk was full when the first record was written.
func TestTornFirstRecord(t *testing.T) {
	name := file(t)
	require.NoError(t, os.WriteFile(name, []byte(recordBegins+"2026-"), 0o600))
	assert.Len(t, appended(t, name, "true"), 3)
}

// A command that would see the file does not run, and leaves no gap in the records of others.
func TestInsideForAWhile(t *testing.T) {
	name := file(t)
	l, err := Open("pk-test", name, nil)
	require.NoError(t, err)
	defer l.Close()
	require.Error(t, l.CheckOutside([]confine.Root{{Path: filepath.Dir(name), Dir: true}}))
	seq, err := l.Append(Record{Event: Refused})
	assert.NoError(t, err)
	assert.Zero(t, seq)
	for _, e := range []Event{Begin, End, Question, Input, Landing} {
		_, err = l.Append(Record{Event: e})
		assert.ErrorContains(t, err, "it lies in", e)
	}
	require.NoError(t, l.CheckOutside(nil))
	seq, err = l.Append(Record{Event: Begin})
	assert.NoError(t, err)
	assert.Equal(t, uint64(1), seq)
}

// Root has opened a file in a directory of its own, and has become the owner of a project.
func TestCheckOutsideWithoutPermission(t *testing.T) {
	name := file(t)
	l, err := Open("pk-test", name, nil)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Chmod(filepath.Dir(name), 0))
	defer os.Chmod(filepath.Dir(name), 0o700) //nolint:errcheck // the clean-up of the directory fails then
	assert.NoError(t, l.CheckOutside(nil))
	dir := l.above[1]
	assert.Error(t, l.CheckOutside([]confine.Root{{Path: "/elsewhere", Dir: true, Dev: dir.Dev, Ino: dir.Ino}}))
}

func TestCheckTakesFilesOnly(t *testing.T) {
	name := file(t)
	require.NoError(t, unix.Mkfifo(name, 0o600))
	for _, other := range []string{name, filepath.Dir(name), os.DevNull} {
		err := Check(other, func(Finding) {})
		assert.EqualError(t, err, fmt.Sprintf("cannot check audit file %q: it is not a regular file", other))
	}
}

func TestNoLog(t *testing.T) {
	var l *Log
	seq, err := l.Append(Record{Event: Begin})
	assert.NoError(t, err)
	assert.Zero(t, seq)
	l.Close()
}

func BenchmarkBeginAndEnd(b *testing.B) {
	name := filepath.Join(b.TempDir(), "audit")
	for b.Loop() {
		l, err := Open("pk-test", name, nil)
		require.NoError(b, err)
		for _, e := range []Event{Begin, End} {
			_, err := l.Append(Record{Event: e, Command: "make test"})
			require.NoError(b, err)
		}
		l.Close()
	}
}
