package workspace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/pattern"
	"pikuri/lib/workspace"
)

var ctx = context.Background()

// records keeps the records of a ViolationLogger.
type records []workspace.ViolationRecord

func (r *records) LogViolation(_ context.Context, record workspace.ViolationRecord) {
	*r = append(*r, record)
}

// fenced returns a scope on a directory with a tree in it.
func fenced(t testing.TB, tree []string, opts ...workspace.ScopedOption) (*workspace.ScopedWorkspace, string) {
	t.Helper()
	w, root := local(t)
	confinetest.Grow(t, root, tree...)
	return scope(t, w, opts...), root
}

func scope(t testing.TB, w workspace.Workspace, opts ...workspace.ScopedOption) *workspace.ScopedWorkspace {
	t.Helper()
	s, err := workspace.NewScopedWorkspace(w, opts...)
	require.NoError(t, err)
	return s
}

var (
	all    = workspace.WithAllowWrite("**")
	noRead = workspace.WithDenyRead("secret/**")
	denied = workspace.ErrAccessDenied
)

// reads are the ways to learn about a path.
func reads(w workspace.Workspace, path string) map[string]error {
	errs := map[string]error{}
	_, errs["Read"] = w.Read(ctx, path)
	f, err := workspace.Open(ctx, w, path)
	if errs["Open"] = err; err == nil {
		f.Close()
	}
	_, errs["List"] = w.List(ctx, path)
	_, errs["Exists"] = w.Exists(ctx, path)
	_, errs["Stat"] = w.Stat(ctx, path)
	_, errs["Hash"] = workspace.Hash(ctx, w, path)
	errs["Walk"] = workspace.Walk(ctx, w, path, func(string, fs.DirEntry) error { return nil })
	for _, err := range workspace.Entries(ctx, w, path) {
		errs["Entries"] = err
	}
	errs["Copy"] = workspace.Copy(ctx, w, path, "copied")
	errs["WriteIfUnchanged"] = workspace.WriteIfUnchanged(ctx, w, path, nil, workspace.HashOf([]byte("text\n")))
	return errs
}

// writes are the ways to change something at a path.
func writes(w workspace.Workspace, path string) map[string]error {
	return map[string]error{
		"Write": w.Write(ctx, path, []byte("x")), "Append": w.Append(ctx, path, []byte("x")), "Delete": w.Delete(ctx, path),
		"RemoveAll": w.RemoveAll(ctx, path), "AtomicWrite": workspace.AtomicWrite(ctx, w, path, []byte("x")),
		"Rename to": w.Rename(ctx, "src", path), "Rename from": w.Rename(ctx, path, "dst"), "Copy to": workspace.Copy(ctx, w, "src", path),
		"Mkdir": workspace.Mkdir(ctx, w, path), "WriteExclusive": workspace.WriteExclusive(ctx, w, path, []byte("x")),
	}
}

func TestZeroScopeWritesNothing(t *testing.T) {
	s, _ := fenced(t, []string{"f", "src"})
	for what, err := range writes(s, "f") {
		assert.ErrorIs(t, err, denied, what)
	}
	_, err := s.Read(ctx, "f")
	assert.NoError(t, err)
}

func TestScopePrintsItself(t *testing.T) {
	s, _ := fenced(t, nil, noRead, workspace.WithAllowWrite("src/**", "*.md"), workspace.WithMandatoryDeny(".git"), workspace.WithoutHardLinks())
	assert.Equal(t, `mandatory-deny [".git"], deny-read ["secret/**"], allow-write ["src/**" "*.md"], no hard links`, s.String())
}

// A rule applies to the file, not to the spelling of its path.
func TestLinksAreNoWayAroundRules(t *testing.T) {
	tree := []string{
		"secret/key", "pub/", "src", "alias => secret", "pub/deep => ../secret/key", "pub/new => ../secret/new", "abs => {base}/secret",
		"pub/climb => ../secret/../pub", "pub/x",
	}
	for name, openat2 := range map[string]bool{"openat2": true, "without": false} {
		s, root := fenced(t, tree, all, workspace.WithMandatoryDeny("secret"))
		if !openat2 {
			w, err := workspace.NewLocalWorkspace(root)
			require.NoError(t, err)
			workspace.WithoutOpenat2(w)
			s = scope(t, w, all, workspace.WithMandatoryDeny("secret"))
		}
		for _, path := range []string{
			"secret/key", "./secret//key", "pub/../secret/key", "alias/key", "pub/deep", "pub/new", "abs/key", "abs/none", "secret/none", "alias",
			"secret/../secret/key", "pub/climb/x",
		} {
			for what, err := range reads(s, path) {
				assert.ErrorIs(t, err, denied, "%s: %s %q", name, what, path)
			}
		}
		for _, path := range []string{"secret/key", "alias/key", "alias/new", "abs/new", "secret/a/b/c"} {
			for what, err := range writes(s, path) {
				assert.ErrorIs(t, err, denied, "%s: %s %q", name, what, path)
			}
		}
		for _, path := range []string{"pub/deep", "pub/new"} {
			assert.ErrorIs(t, s.Write(ctx, path, nil), denied)
			assert.ErrorIs(t, workspace.AtomicWrite(ctx, s, path, nil), denied)
		}
		data, err := os.ReadFile(root + "/secret/key")
		require.NoError(t, err)
		assert.Equal(t, "text\n", string(data))
		left, err := os.ReadDir(root + "/secret")
		require.NoError(t, err)
		assert.Len(t, left, 1)
	}
}

// A link with a denied name cannot be read, even if its target can.
func TestRulesHoldBothNames(t *testing.T) {
	s, _ := fenced(t, []string{"secret/open => ../pub/f", "pub/f"}, all, noRead)
	_, err := s.Read(ctx, "secret/open")
	assert.ErrorIs(t, err, denied, "what was typed")
	_, err = s.Read(ctx, "pub/f")
	assert.NoError(t, err)
}

// Hard links are other names of the same file.
func TestHardLinksAreNoWayAroundRules(t *testing.T) {
	s, root := fenced(t, []string{"secret/key", "pub/"}, all, noRead, workspace.WithMandatoryDeny(".git"))
	require.NoError(t, os.Link(root+"/secret/key", root+"/pub/hard"))
	assert.ErrorIs(t, s.Write(ctx, "pub/hard", []byte("x")), denied)
	assert.ErrorIs(t, s.Append(ctx, "pub/hard", []byte("x")), denied)
	_, err := s.Read(ctx, "pub/hard")
	assert.NoError(t, err, "reading it is an option")

	strict := scope(t, must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(root)), all, noRead, workspace.WithoutHardLinks())
	_, err = strict.Read(ctx, "pub/hard")
	assert.ErrorIs(t, err, denied)
	_, err = workspace.Open(ctx, strict, "pub/hard")
	assert.ErrorIs(t, err, denied)
	assert.ErrorIs(t, workspace.Copy(ctx, strict, "pub/hard", "got"), denied)
	assert.ErrorIs(t, strict.Rename(ctx, "pub/hard", "got"), denied)
	assert.NoError(t, workspace.AtomicWrite(ctx, s, "pub/hard", []byte("x")), "that is a new file")
	data, err := os.ReadFile(root + "/secret/key")
	require.NoError(t, err)
	assert.Equal(t, "text\n", string(data))
}

// A file that may not be read may not be moved to a readable place.
func TestRenameNeedsToRead(t *testing.T) {
	for name, w := range map[string]workspace.Workspace{"local": must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(t.TempDir())), "mem": workspace.NewMemWorkspace()} {
		require.NoError(t, w.Write(ctx, "secret/key", []byte("SECRET")))
		s := scope(t, w, all, noRead)
		assert.ErrorIs(t, s.Rename(ctx, "secret/key", "leak"), denied, name)
		assert.ErrorIs(t, s.Rename(ctx, "secret", "leak"), denied, name)
		assert.ErrorIs(t, workspace.Copy(ctx, s, "secret/key", "leak"), denied, name)
		assert.NoError(t, s.Write(ctx, "secret/in", []byte("x")), "%s: what may be written may be", name)
		assert.NoError(t, s.Delete(ctx, "secret/in"), name)
	}
}

// An operation on a directory applies to its whole tree.
func TestAncestorsOfWhatIsDeniedStay(t *testing.T) {
	for name, w := range map[string]workspace.Workspace{"local": must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(t.TempDir())), "mem": workspace.NewMemWorkspace()} {
		for _, path := range []string{"x/a", "x/sub/.hg/config", "x/z", "y/secret/key", "fine/f", "part/yes", "part/no", "to/f"} {
			require.NoError(t, w.Write(ctx, path, []byte("text")))
		}
		rules := []workspace.ScopedOption{
			workspace.WithAllowWrite("{x,y,fine,to,new}/**", "part", "part/yes"), workspace.WithMandatoryDeny("**/.hg/**"), workspace.WithDenyRead("**/secret"),
			workspace.WithMandatoryDeny("new/fine/f"),
		}
		s := scope(t, w, rules...)
		for _, path := range []string{"x", "x/sub", "part"} {
			assert.ErrorIs(t, s.RemoveAll(ctx, path), denied, "%s: %s", name, path)
		}
		if workspace.CapabilitiesOf(w).RenameDir {
			for _, move := range [][2]string{{"x", "new/x"}, {"x/sub", "new/sub"}, {"y", "new/y"}, {"fine", "new/fine"}} {
				assert.ErrorIs(t, s.Rename(ctx, move[0], move[1]), denied, "%s: %s", name, move)
			}
			assert.NoError(t, s.Rename(ctx, "to", "new/to"))
		}
		for _, path := range []string{"x/a", "x/sub/.hg/config", "x/z", "y/secret/key", "fine/f", "part/yes", "part/no"} {
			there, err := w.Exists(ctx, path)
			assert.True(t, there && err == nil, "%s: %s is gone", name, path)
		}
		assert.NoError(t, s.RemoveAll(ctx, "fine"))
		assert.NoError(t, s.RemoveAll(ctx, "y"), "%s: what may be written may be removed unread", name)
	}
}

// A pattern that cannot be parsed is an error: it would match nothing.
func TestPatternsFailClosed(t *testing.T) {
	m := workspace.NewMemWorkspace()
	for _, text := range []string{"a[", "", "/abs", "../x", "a/../b", "!x", "a**b", "{a", "[]", "a\x00"} {
		for _, option := range []func(...string) workspace.ScopedOption{workspace.WithDenyRead, workspace.WithAllowWrite, workspace.WithMandatoryDeny} {
			s, err := workspace.NewScopedWorkspace(m, option("fine", text))
			assert.Nil(t, s)
			assert.ErrorIs(t, err, workspace.ErrInvalid, "%q", text)
			_, ok := errors.AsType[*pattern.SyntaxError](err)
			assert.True(t, ok)
		}
	}
	_, err := workspace.NewScopedWorkspace(nil)
	assert.ErrorIs(t, err, workspace.ErrInvalid)
}

// The table of seed patterns.
func TestWhatPatternsDeny(t *testing.T) {
	for text, row := range map[string]struct{ yes, no []string }{
		"secret/**":    {[]string{"secret", "secret/key", "secret/a/b/c"}, []string{"secrets/x", "a/secret"}},
		"secret":       {[]string{"secret", "secret/key"}, []string{"secrets"}},
		"secret/":      {[]string{"secret", "secret/key"}, []string{"secrets"}},
		"./secret/**":  {[]string{"secret/key"}, nil},
		"**/secret/**": {[]string{"secret", "a/secret", "a/b/secret/c"}, []string{"a/secrets"}},
		"**/conf.yaml": {[]string{"conf.yaml", "a/b/conf.yaml"}, []string{"conf.yaml.bak"}},
		"**/*.pem":     {[]string{"x.pem", "a/x.pem"}, []string{"x.pem.bak"}},
		"*.pem":        {[]string{"x.pem"}, []string{"a/x.pem"}},
		"foo.txt":      {[]string{"foo.txt"}, []string{"a/foo.txt"}},
		"**/[ab].txt":  {[]string{"a.txt", "x/b.txt"}, []string{"c.txt"}},
		"**/a/*.go":    {[]string{"a/x.go", "z/a/x.go"}, []string{"a/b/x.go"}},
		"a/**/b":       {[]string{"a/b", "a/x/y/b"}, []string{"b"}},
		"dir*/**":      {[]string{"dir1/x", "dir"}, []string{"d/x"}},
		"{a,b}/**":     {[]string{"a/x", "b"}, []string{"c"}},
		"**":           {[]string{".", "a", "a/b/c"}, nil},
	} {
		s := scope(t, workspace.NewMemWorkspace(), workspace.WithMandatoryDeny(text))
		for _, path := range row.yes {
			_, err := s.Exists(ctx, path)
			assert.ErrorIs(t, err, denied, "%q, %q", text, path)
		}
		for _, path := range row.no {
			_, err := s.Exists(ctx, path)
			assert.NoError(t, err, "%q, %q", text, path)
		}
	}
	s := scope(t, workspace.NewMemWorkspace(), all)
	assert.NoError(t, s.Write(ctx, "a/b/c", nil), "** is everything")
	assert.NoError(t, s.Write(ctx, "d", nil), "** is everything")
}

// Lists leave out unreadable entries, and go on.
func TestListsLeaveOutWhatIsDenied(t *testing.T) {
	tree := []string{"a", "secret/key", "sub/secret/key", "sub/f", "z", "alias => sub"}
	s, _ := fenced(t, tree, all, workspace.WithDenyRead("**/secret", "alias/f"))
	list := func(dir string) (names []string) {
		entries, err := s.List(ctx, dir)
		require.NoError(t, err)
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	assert.Equal(t, []string{"a", "alias", "sub", "z"}, list("."))
	assert.Equal(t, []string{"f"}, list("sub"))
	assert.Empty(t, list("alias"), "what is denied under the name it is asked by")
	var seen []string
	require.NoError(t, workspace.Walk(ctx, s, ".", func(path string, _ fs.DirEntry) error {
		seen = append(seen, path)
		return nil
	}))
	assert.Equal(t, []string{"a", "alias", "sub", "sub/f", "z"}, seen)
	found, err := workspace.Glob(ctx, s, "**")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "alias", "sub/f", "z"}, found)
	for entry, err := range workspace.Entries(ctx, s, ".") {
		require.NoError(t, err)
		assert.NotEqual(t, "secret", entry.Name())
	}
}

// A denied path does not reveal whether it exists.
func TestDeniedPathsDoNotTellWhetherTheyExist(t *testing.T) {
	s, _ := fenced(t, []string{"secret/key", "secret/dir/", "alias => secret", "f", "src"}, all, workspace.WithMandatoryDeny("secret"))
	for _, dir := range []string{"secret/", "alias/"} {
		want := map[string]string{}
		for i, name := range []string{"none", "key", "key/below", "dir", "dir/none"} {
			for what, err := range reads(s, dir+name) {
				text := strings.ReplaceAll(err.Error(), dir+name, "PATH")
				if i == 0 {
					want[what] = text
				}
				assert.Equal(t, want[what], text, "%s %s", what, dir+name)
			}
			for what, err := range writes(s, dir+name) {
				text := strings.ReplaceAll(err.Error(), dir+name, "PATH")
				if i == 0 {
					want[what] = text
				}
				assert.Equal(t, want[what], text, "%s %s", what, dir+name)
			}
		}
	}
}

// The records of refusals.
func TestViolationRecords(t *testing.T) {
	var got records
	s, root := fenced(t, []string{"secret/key", "alias => secret", "out => /etc", "f", "h"},
		noRead, workspace.WithAllowWrite("f", "h", "dst"), workspace.WithMandatoryDeny("no"), workspace.WithViolationLogger(&got))
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o644))
	require.NoError(t, os.Link(root+"/h", root+"/h2"))
	rec := func(op, path, reason string, kind workspace.ViolationKind) workspace.ViolationRecord {
		return workspace.ViolationRecord{Operation: op, Path: path, Reason: reason, Kind: kind}
	}
	with := func(r workspace.ViolationRecord, change func(r *workspace.ViolationRecord)) workspace.ViolationRecord {
		change(&r)
		return r
	}
	const policy = workspace.ViolatedPolicy
	for _, row := range []struct {
		do   func() error
		want workspace.ViolationRecord
	}{
		{func() error { _, err := s.Read(ctx, "./secret/key"); return err },
			with(rec("read", "./secret/key", "deny-read pattern matched", policy), func(r *workspace.ViolationRecord) {
				r.Resolved, r.Pattern = "", "secret/**"
			})},
		{func() error { _, err := s.Stat(ctx, "alias/key"); return err },
			with(rec("stat", "alias/key", "deny-read pattern matched", policy), func(r *workspace.ViolationRecord) {
				r.Resolved, r.Pattern = "secret/key", "secret/**"
			})},
		{func() error { return s.Write(ctx, "g", nil) }, rec("write", "g", "not in allow-write list", policy)},
		{func() error { return workspace.AtomicWrite(ctx, s, "g", nil) }, rec("write", "g", "not in allow-write list", policy)},
		{func() error { return s.Append(ctx, "no/x", nil) },
			with(rec("append", "no/x", "mandatory deny", policy), func(r *workspace.ViolationRecord) { r.Pattern = "no" })},
		{func() error { return s.Rename(ctx, "f", "g") },
			with(rec("rename", "f", "not in allow-write list", policy), func(r *workspace.ViolationRecord) { r.To, r.Resolved = "g", "g" })},
		{func() error { _, err := s.Read(ctx, "../x"); return err }, rec("read", "../x", "path traversal", workspace.ViolatedRoot)},
		{func() error { _, err := s.List(ctx, "out"); return err }, rec("list", "out", "path traversal", workspace.ViolatedRoot)},
		{func() error { _, err := s.Read(ctx, "fifo"); return err }, rec("read", "fifo", "not a regular file", workspace.ViolatedFileKind)},
		{func() error { return s.Write(ctx, "h", nil) }, rec("write", "h", "several hard links", workspace.ViolatedHardLinks)},
		{func() error { _, err := s.Read(ctx, "missing"); return err }, workspace.ViolationRecord{}},
	} {
		got = nil
		require.Error(t, row.do())
		if row.want.Operation == "" {
			assert.Empty(t, got)
			continue
		}
		if assert.Len(t, got, 1, "%v", row.want) {
			assert.False(t, got[0].Time.IsZero())
			row.want.Time = got[0].Time
			assert.Equal(t, row.want, got[0])
		}
	}
}

// A logger that panics changes nothing.
func TestLoggerMayPanic(t *testing.T) {
	s, _ := fenced(t, nil, workspace.WithViolationLogger(panics{}))
	assert.ErrorIs(t, s.Write(ctx, "f", nil), denied)
	s, _ = fenced(t, nil, workspace.WithViolationLogger(nil))
	assert.ErrorIs(t, s.Write(ctx, "f", nil), denied)
}

type panics struct{}

func (panics) LogViolation(context.Context, workspace.ViolationRecord) { panic("no") }

func TestViolationWriter(t *testing.T) {
	var out bytes.Buffer
	s, _ := fenced(t, nil, workspace.WithViolationLogger(workspace.NewViolationWriter(&out)))
	require.Error(t, s.Write(ctx, "a\nb", nil))
	require.Error(t, s.Write(ctx, "\xff", nil))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	var first, second map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &second))
	assert.Equal(t, "write", first["operation"])
	assert.Equal(t, "a\nb", first["path"])
	assert.Equal(t, "not in allow-write list", first["reason"])
	assert.Equal(t, "policy", first["kind"])
	assert.NotEmpty(t, first["time"])
	assert.NotContains(t, first, "path_base64")
	assert.Equal(t, "/w==", second["path_base64"])
}

// An atomic write needs no permission beyond its path.
func TestAtomicWriteUnderNarrowScope(t *testing.T) {
	for name, w := range map[string]workspace.Workspace{"local": must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(t.TempDir())), "mem": workspace.NewMemWorkspace()} {
		s := scope(t, w, workspace.WithAllowWrite("conf/app.json", "*.md"))
		assert.NoError(t, workspace.AtomicWrite(ctx, s, "conf/app.json", []byte("x")), name)
		assert.NoError(t, workspace.AtomicWrite(ctx, s, "a.md", []byte("x")), name)
		assert.NoError(t, workspace.Copy(ctx, s, "a.md", "b.md"), name)
		assert.ErrorIs(t, workspace.AtomicWrite(ctx, s, "conf/other", []byte("x")), denied, name)
	}
}

// A refusal comes before the first effect.
func TestRefusalsMakeNothing(t *testing.T) {
	s, root := fenced(t, []string{"f", "src"}, workspace.WithAllowWrite("f", "a/b/ok"))
	for what, err := range writes(s, "a/b/c") {
		assert.ErrorIs(t, err, denied, what)
	}
	assert.ErrorIs(t, s.Rename(ctx, "f", "x/y/z"), denied)
	left, err := os.ReadDir(root)
	require.NoError(t, err)
	assert.Len(t, left, 2)
}

// The rules of a scope apply in a Sub of it, and a link out of the Sub leads outside.
func TestSubOfScope(t *testing.T) {
	s, root := fenced(t, []string{"sub/f", "sub/.env", "sub/out => ../other/f", "sub/in => ../sub/f", "other/f", "lsub => sub"},
		workspace.WithAllowWrite("sub/**"), workspace.WithDenyRead("sub/.env"))
	sub, err := workspace.Sub(ctx, s, "sub")
	require.NoError(t, err)
	_, err = sub.Read(ctx, ".env")
	assert.ErrorIs(t, err, denied)
	_, err = sub.Read(ctx, "out")
	assert.ErrorIs(t, err, workspace.ErrPathTraversal)
	assert.ErrorIs(t, sub.Write(ctx, "out", nil), fs.ErrPermission)
	data, err := sub.Read(ctx, "in")
	assert.NoError(t, err)
	assert.Equal(t, "text\n", string(data))
	_, err = workspace.Sub(ctx, s, "lsub")
	assert.ErrorIs(t, err, workspace.ErrPathTraversal, "a view begins where it says")
	_, err = workspace.Sub(ctx, s, "sub/f")
	assert.ErrorIs(t, err, workspace.ErrNotDir)
	_, err = workspace.Sub(ctx, s, "../x")
	assert.ErrorIs(t, err, workspace.ErrPathTraversal)
	same, err := workspace.Sub(ctx, s, "./")
	assert.NoError(t, err)
	assert.Same(t, s, same)
	deeper, err := workspace.Sub(ctx, sub, "deeper")
	require.NoError(t, err)
	require.NoError(t, deeper.Write(ctx, "f", []byte("x")))
	assert.FileExists(t, filepath.Join(root, "sub/deeper/f"))
	for _, name := range []string{"", ".", "./", "x/.."} {
		assert.ErrorIs(t, sub.RemoveAll(ctx, name), denied, "W19: %q", name)
	}
}

// Sub of a guarded LocalWorkspace keeps its guards, and its links to itself.
func TestSubOfLocal(t *testing.T) {
	w, root := local(t)
	confinetest.Grow(t, root, "a/b/f", "a/out => ../c", "c/f", "a/b/abs => {base}/a/b/f", "link => a")
	sub, err := w.Sub(ctx, "link/b")
	require.NoError(t, err)
	defer sub.Close()
	assert.Equal(t, root+"/a/b", sub.Root())
	data, err := sub.Read(ctx, "abs")
	assert.NoError(t, err)
	assert.Equal(t, "text\n", string(data))
	_, err = w.Sub(ctx, "a/out")
	assert.NoError(t, err, "inside the whole")
	_, err = w.Sub(ctx, "a/b/f")
	assert.ErrorIs(t, err, workspace.ErrExist)
	outside := filepath.Dir(root) + "/outside"
	require.NoError(t, os.Mkdir(outside, 0o755))
	require.NoError(t, os.Symlink(outside, root+"/esc"))
	_, err = w.Sub(ctx, "esc/new")
	assert.ErrorIs(t, err, workspace.ErrPathTraversal)
	assert.NoDirExists(t, outside+"/new")

	guarded := w.Guarded(func(a workspace.Access) error {
		if a.Path == "a/b/f" {
			return denied
		}
		return nil
	}).(*workspace.LocalWorkspace)
	sub, err = guarded.Sub(ctx, "a")
	require.NoError(t, err)
	defer sub.Close()
	_, err = sub.Read(ctx, "b/f")
	assert.ErrorIs(t, err, denied)
	_, err = sub.Read(ctx, "b/abs")
	assert.ErrorIs(t, err, denied)
}

func TestReadOnlyOfScopeIsScoped(t *testing.T) {
	s, _ := fenced(t, []string{"secret/key", "f"}, all, noRead)
	r := workspace.ReadOnly(s)
	_, err := r.Read(ctx, "secret/key")
	assert.ErrorIs(t, err, denied)
	assert.ErrorIs(t, r.Write(ctx, "f", nil), workspace.ErrReadOnly)
	again := scope(t, r, all, workspace.WithMandatoryDeny("f"))
	_, err = again.Read(ctx, "f")
	assert.ErrorIs(t, err, denied)
	assert.ErrorIs(t, again.Write(ctx, "g", nil), workspace.ErrReadOnly)
}

// A scope over a scope asks both, links included.
func TestScopesAddUp(t *testing.T) {
	s, _ := fenced(t, []string{"a/f", "b/f", "la => a", "lb => b"}, all, workspace.WithDenyRead("a"))
	both := scope(t, s, all, workspace.WithDenyRead("b"))
	for _, path := range []string{"a/f", "b/f", "la/f", "lb/f"} {
		_, err := both.Read(ctx, path)
		assert.ErrorIs(t, err, denied, path)
	}
}

// On a tree that ignores case, patterns that deny cover all cases of a name, and patterns
// that allow only the given one.
func TestFoldedNames(t *testing.T) {
	m := workspace.NewMemWorkspace()
	rules := []workspace.ScopedOption{
		workspace.WithAllowWrite("pub/**", "No/**"), workspace.WithDenyRead("Secret", "*.KEY"), workspace.WithMandatoryDeny("no", "stra\u00dfe"),
	}
	exact, folded := scope(t, m, rules...), scope(t, m, append(rules, workspace.WithFoldedNames())...)
	for _, path := range []string{"secret/f", "SECRET/f", "secRET", "a.key", "a.Key", "NO/x", "STRA\u1e9eE", "\u017fecret", "a.\u212aey"} {
		_, err := exact.Exists(ctx, path)
		assert.NoError(t, err, path)
		_, err = folded.Exists(ctx, path)
		assert.ErrorIs(t, err, denied, path)
	}
	for _, path := range []string{"secrets", "f", "pub/f"} {
		_, err := folded.Exists(ctx, path)
		assert.NoError(t, err, path)
	}
	odd := scope(t, m, workspace.WithDenyRead("[W-g]x"), workspace.WithFoldedNames())
	_, err := odd.Exists(ctx, "f")
	assert.ErrorIs(t, err, denied, "what cannot be folded denies too much")
	assert.ErrorIs(t, folded.Write(ctx, "No/f", nil), denied)
	assert.NoError(t, exact.Write(ctx, "No/f", nil))
	assert.ErrorIs(t, folded.Write(ctx, "PUB/f", nil), denied)
}

func TestZeroValuesDoNothing(t *testing.T) {
	for name, w := range map[string]workspace.Workspace{"local": &workspace.LocalWorkspace{}, "mem": &workspace.MemWorkspace{}} {
		for what, errs := range map[string]map[string]error{"reads": reads(w, "f"), "writes": writes(w, "f")} {
			for op, err := range errs {
				assert.ErrorIs(t, err, workspace.ErrClosed, "%s %s %s", name, what, op)
			}
		}
	}
	s := &workspace.ScopedWorkspace{}
	for op, err := range reads(s, "f") {
		assert.ErrorIs(t, err, denied, op)
	}
	for op, err := range writes(s, "f") {
		assert.ErrorIs(t, err, denied, op)
	}
	assert.Zero(t, s.Capabilities())
	assert.NoError(t, (&workspace.LocalWorkspace{}).Close())
	assert.Empty(t, (&workspace.LocalWorkspace{}).Root())
}

// A link that climbs out of a denied directory reveals nothing of its content, neither to
// a reader nor to a writer.
func TestClimbingOutOfWhatIsDeniedTellsNothing(t *testing.T) {
	for _, openat2 := range []bool{true, false} {
		s, root := fenced(t, []string{
			"secret/dir/", "secret/file", "pub/x", "pub/dir => ../secret/dir/../../pub/x", "pub/file => ../secret/file/../../pub/x",
			"pub/none => ../secret/none/../../pub/x",
		}, all, noRead)
		if !openat2 {
			w := must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(root))
			workspace.WithoutOpenat2(w)
			s = scope(t, w, all, noRead)
		}
		for _, name := range []string{"dir", "file", "none"} {
			_, err := s.Read(ctx, "pub/"+name)
			assert.ErrorIs(t, err, denied, name)
			assert.ErrorIs(t, s.Write(ctx, "pub/"+name, nil), denied, name)
			assert.ErrorIs(t, workspace.AtomicWrite(ctx, s, "pub/"+name, nil), denied, name)
		}
	}
}

// Guards are also asked about an entry that appears in a tree during its removal.
func TestLateComersAreAskedAbout(t *testing.T) {
	w, root := local(t)
	confinetest.Grow(t, root, "d/a/b", "d/late")
	asked := 0
	s := w.Guarded(func(a workspace.Access) error {
		if a.Path != "d/late" {
			return nil
		}
		if asked++; asked == 1 {
			return nil // as if the entry had not been there
		}
		return denied
	})
	assert.ErrorIs(t, s.RemoveAll(ctx, "d"), denied)
	assert.FileExists(t, root+"/d/late")
}

// Rules hold over every view, in the names of that view.
func TestScopeOverEveryView(t *testing.T) {
	views := map[string]func(w workspace.Workspace) (workspace.Workspace, error){
		"sub": func(w workspace.Workspace) (workspace.Workspace, error) { return workspace.Sub(ctx, w, "top") },
		"scope": func(w workspace.Workspace) (workspace.Workspace, error) {
			return workspace.Sub(ctx, scope(t, w, all), "top")
		},
		"read-only": func(w workspace.Workspace) (workspace.Workspace, error) {
			return workspace.Sub(ctx, workspace.ReadOnly(w), "top")
		},
	}
	for name, view := range views {
		w, root := local(t)
		confinetest.Grow(t, root, "top/secret/key", "top/alias => secret", "top/f")
		m := workspace.NewMemWorkspace()
		m.MustWrite("top/secret/key", nil)
		m.MustWrite("top/f", nil)
		for where, inner := range map[string]workspace.Workspace{"local": w, "mem": m} {
			v, err := view(inner)
			require.NoError(t, err, name)
			s := scope(t, scope(t, v, all, workspace.WithMandatoryDeny("nothing")), all, workspace.WithMandatoryDeny("secret"))
			_, err = s.Read(ctx, "secret/key")
			assert.ErrorIs(t, err, denied, "%s of %s", name, where)
			_, err = s.Read(ctx, "f")
			assert.NoError(t, err, "%s of %s", name, where)
			names := []string{"f"}
			if where == "local" {
				_, err = s.Read(ctx, "alias/key")
				assert.ErrorIs(t, err, denied, "%s of %s", name, where)
				names = []string{"alias", "f"}
			}
			entries, err := s.List(ctx, ".")
			require.NoError(t, err)
			var got []string
			for _, entry := range entries {
				got = append(got, entry.Name())
			}
			assert.Equal(t, names, got, "%s of %s", name, where)
			if name != "read-only" {
				assert.ErrorIs(t, s.RemoveAll(ctx, "secret"), denied)
				assert.ErrorIs(t, s.Write(ctx, "secret/new", nil), denied)
				assert.NoError(t, s.Write(ctx, "new", nil))
			}
		}
	}
}
