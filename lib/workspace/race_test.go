package workspace_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/workspace"
)

// attackTime is the duration of the attack on each operation: $PK_ATTACK, or a moment.
func attackTime(t *testing.T) time.Duration {
	text := os.Getenv("PK_ATTACK")
	if text == "" {
		return confinetest.Share(15 * time.Millisecond)
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// enoughSwaps is the minimum number of swaps, on a busy machine too.
const enoughSwaps = 50

// swapper exchanges the directory d and the link evil, over and over, and restores them
// if the victim removes one.
type swapper struct {
	root   int
	target string
	swaps  atomic.Int64
	done   atomic.Bool
	ended  sync.WaitGroup
}

func attack(t *testing.T, root, target string) *swapper {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	s := &swapper{root: fd, target: target}
	s.restore()
	s.ended.Go(func() {
		for !s.done.Load() {
			if unix.Renameat2(s.root, "d", s.root, "evil", unix.RENAME_EXCHANGE) != nil {
				s.restore()
			} else if s.swaps.Add(1)%16 == 0 {
				s.restore()
			}
		}
	})
	return s
}

// restore makes missing entries, without following the link itself.
func (s *swapper) restore() {
	_ = unix.Symlinkat(s.target, s.root, "evil")
	_ = unix.Mkdirat(s.root, "d", 0o755)
	for _, name := range []string{"d", "evil"} {
		dir, err := unix.Openat(s.root, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = unix.Mkdirat(dir, "sub", 0o755)
		for _, file := range []string{"f", "sub/f"} {
			if fd, err := unix.Openat(dir, file, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644); err == nil {
				unix.Close(fd)
			}
		}
		unix.Close(dir)
	}
}

func (s *swapper) stop() {
	s.done.Store(true)
	s.ended.Wait()
	unix.Close(s.root)
}

// forbidden makes a tree that must not be reached, and returns its picture.
func forbidden(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir+"/sub", 0o755))
	for _, name := range []string{"f", "sub/f", "secret"} {
		require.NoError(t, os.WriteFile(dir+"/"+name, []byte("SECRET"), 0o644))
	}
	return picture(t, dir)
}

// picture is all entries of a directory of the host, with modes.
func picture(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		all.WriteString(strings.TrimPrefix(path, dir) + " " + info.Mode().String())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			all.WriteString(" " + string(data))
		}
		all.WriteString("\n")
		return nil
	}))
	return all.String()
}

var errLeak = errors.New("LEAK")

// leaks is an error if text contains forbidden content.
func leaks(text string, err error) error {
	if strings.Contains(text, "SECRET") || strings.Contains(text, "secret") {
		return errLeak
	}
	return err
}

var attacked = map[string]func(ctx context.Context, w workspace.Workspace) error{
	"Read": func(ctx context.Context, w workspace.Workspace) error {
		data, err := w.Read(ctx, "d/f")
		return leaks(string(data), err)
	},
	"Hash": func(ctx context.Context, w workspace.Workspace) error {
		sum, err := workspace.Hash(ctx, w, "d/sub/f")
		return leaks(map[bool]string{true: "SECRET"}[sum == workspace.HashOf([]byte("SECRET"))], err)
	},
	"Write":           func(ctx context.Context, w workspace.Workspace) error { return w.Write(ctx, "d/f", []byte("x")) },
	"create":          func(ctx context.Context, w workspace.Workspace) error { return w.Write(ctx, "d/new/new", []byte("x")) },
	"Append":          func(ctx context.Context, w workspace.Workspace) error { return w.Append(ctx, "d/f", []byte("x")) },
	"Delete":          func(ctx context.Context, w workspace.Workspace) error { return w.Delete(ctx, "d/f") },
	"RemoveAll":       func(ctx context.Context, w workspace.Workspace) error { return w.RemoveAll(ctx, "d") },
	"RemoveAll below": func(ctx context.Context, w workspace.Workspace) error { return w.RemoveAll(ctx, "d/sub") },
	"Rename from":     func(ctx context.Context, w workspace.Workspace) error { return w.Rename(ctx, "d/f", "got") },
	"Rename tree": func(ctx context.Context, w workspace.Workspace) error {
		_ = w.RemoveAll(ctx, "got2")
		return w.Rename(ctx, "d/sub", "got2")
	},
	"Rename to": func(ctx context.Context, w workspace.Workspace) error {
		_ = w.Write(ctx, "src", []byte("x"))
		return w.Rename(ctx, "src", "d/f")
	},
	"Rename over": func(ctx context.Context, w workspace.Workspace) error {
		_ = w.Write(ctx, "src", []byte("x"))
		return w.Rename(ctx, "src", "d/new/f")
	},
	"List": func(ctx context.Context, w workspace.Workspace) error {
		entries, err := w.List(ctx, "d")
		for _, entry := range entries {
			err = leaks(entry.Name(), err)
			if info, infoErr := entry.Info(); infoErr == nil && info.Size() == int64(len("SECRET")) && info.Mode().IsRegular() {
				return errLeak
			}
		}
		return err
	},
	"Exists": func(ctx context.Context, w workspace.Workspace) error {
		there, err := w.Exists(ctx, "d/secret")
		return leaks(map[bool]string{true: "SECRET"}[there], err)
	},
	"Stat": func(ctx context.Context, w workspace.Workspace) error {
		info, err := w.Stat(ctx, "d/f")
		return leaks(map[bool]string{true: "SECRET"}[err == nil && info.Size() == int64(len("SECRET"))], err)
	},
	"AtomicWrite": func(ctx context.Context, w workspace.Workspace) error {
		return workspace.AtomicWrite(ctx, w, "d/f", []byte("x"))
	},
	"WriteExclusive": func(ctx context.Context, w workspace.Workspace) error {
		return workspace.WriteExclusive(ctx, w, "d/exclusive", []byte("x"))
	},
	"WriteIfUnchanged": func(ctx context.Context, w workspace.Workspace) error {
		return workspace.WriteIfUnchanged(ctx, w, "d/f", []byte("x"), workspace.HashOf([]byte("SECRET")))
	},
	"Copy from": func(ctx context.Context, w workspace.Workspace) error {
		err := workspace.Copy(ctx, w, "d/f", "copied")
		data, _ := w.Read(ctx, "copied")
		return leaks(string(data), err)
	},
	"Copy to": func(ctx context.Context, w workspace.Workspace) error {
		_ = w.Write(ctx, "src", []byte("x"))
		return workspace.Copy(ctx, w, "src", "d/f")
	},
	"Entry": func(ctx context.Context, w workspace.Workspace) error {
		e, err := workspace.EntryOf(ctx, w, "d/f")
		return leaks(map[bool]string{true: "SECRET"}[e.Hash == workspace.HashOf([]byte("SECRET"))], err)
	},
	"Swap": func(ctx context.Context, w workspace.Workspace) error {
		old, err := workspace.EntryOf(ctx, w, "d/sub/f")
		if err != nil {
			return err
		}
		next, content := form("f 644 " + strings.Repeat("x", int(old.Size+1)%3))
		return workspace.Swap(ctx, w, "d/sub/f", old, next, strings.NewReader(content))
	},
	"Swap of itself": func(ctx context.Context, w workspace.Workspace) error {
		_ = swapForms(w, "d", "d 755", "f 644 x")
		_ = swapForms(w, "evil", "", "d 755")
		old, err := workspace.EntryOf(ctx, w, "d")
		if err != nil {
			return err
		}
		return workspace.Swap(ctx, w, "d", old, workspace.Entry{}, nil)
	},
	"Recover": func(ctx context.Context, w workspace.Workspace) error {
		_, err := workspace.Recover(ctx, w, "d/sub")
		return err
	},
	"Mkdir": func(ctx context.Context, w workspace.Workspace) error { return workspace.Mkdir(ctx, w, "d/new/dir") },
	"Walk": func(ctx context.Context, w workspace.Workspace) error {
		leaked := false
		err := workspace.Walk(ctx, w, "d", func(path string, _ fs.DirEntry) error {
			leaked = leaked || strings.Contains(path, "secret")
			return nil
		})
		return leaks(map[bool]string{true: "SECRET"}[leaked], err)
	},
	"Glob": func(ctx context.Context, w workspace.Workspace) error {
		found, err := workspace.Glob(ctx, w, "{d,evil}/**")
		return leaks(strings.Join(found, " "), err)
	},
	"Sub": func(ctx context.Context, w workspace.Workspace) error {
		sub, err := workspace.Sub(ctx, w, "d")
		if err != nil {
			return err
		}
		if c, ok := sub.(*workspace.LocalWorkspace); ok {
			defer c.Close()
		}
		data, err := sub.Read(ctx, "f")
		_ = sub.Write(ctx, "new", []byte("x"))
		return leaks(string(data), err)
	},
}

// While an attacker exchanges a directory with a link to a forbidden one, and back, no
// operation gets there.
func TestSwapsLeadNobodyOut(t *testing.T) {
	for name, setup := range map[string]func(t *testing.T) (w workspace.Workspace, root, target string){
		"local": func(t *testing.T) (workspace.Workspace, string, string) {
			w, root := local(t)
			return w, root, "../out"
		},
		"local, absolute link": func(t *testing.T) (workspace.Workspace, string, string) {
			w, root := local(t)
			return w, root, filepath.Dir(root) + "/out"
		},
		"local without openat2": func(t *testing.T) (workspace.Workspace, string, string) {
			w, root := local(t)
			workspace.WithoutOpenat2(w)
			return w, root, "../out"
		},
		"scoped": func(t *testing.T) (workspace.Workspace, string, string) {
			w, root := local(t)
			s, err := workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("**"), workspace.WithMandatoryDeny("out"))
			require.NoError(t, err)
			return s, root, "../out"
		},
		"scoped, link to what is denied": func(t *testing.T) (workspace.Workspace, string, string) {
			w, root := local(t)
			s, err := workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("**"), workspace.WithMandatoryDeny("denied"))
			require.NoError(t, err)
			return s, root, "denied"
		},
		"scoped without openat2, link to what is denied": func(t *testing.T) (workspace.Workspace, string, string) {
			w, root := local(t)
			workspace.WithoutOpenat2(w)
			s, err := workspace.NewScopedWorkspace(w, workspace.WithAllowWrite("**"), workspace.WithMandatoryDeny("denied"))
			require.NoError(t, err)
			return s, root, "denied"
		},
	} {
		t.Run(name, func(t *testing.T) {
			for op, do := range attacked {
				w, root, target := setup(t)
				place := target
				if !filepath.IsAbs(place) {
					place = filepath.Join(root, place)
				}
				before := forbidden(t, place)
				s := attack(t, root, target)
				var done, refused int
				for end := time.Now().Add(attackTime(t)); time.Now().Before(end) || s.swaps.Load() < enoughSwaps; {
					err := do(context.Background(), w)
					require.NotErrorIs(t, err, errLeak, op)
					if err == nil {
						done++
					} else {
						refused++
					}
				}
				s.stop()
				assert.Equal(t, before, picture(t, place), op)
				t.Logf("%s: %d done, %d refused, %d swaps", op, done, refused, s.swaps.Load())
			}
		})
	}
}

// Each of several calls at once is refused, or what it makes is no git directory, and no file of a rule, together
// with what the others make.
func TestWhatSeveralMakeTogether(t *testing.T) {
	allowed := func(t *testing.T, root string) workspace.Workspace {
		return scope(t, must[*workspace.LocalWorkspace](t)(workspace.NewLocalWorkspace(root)), workspace.WithAllowWrite("**"), workspace.WithMandatoryDeny("denied/f"))
	}
	write := func(path string, ws func(context.Context, workspace.Workspace, string) error) func(workspace.Workspace) error {
		return func(w workspace.Workspace) error { return ws(t.Context(), w, path) }
	}
	atomically := func(ctx context.Context, w workspace.Workspace, path string) error {
		return workspace.AtomicWrite(ctx, w, path, nil)
	}
	inPlace := func(ctx context.Context, w workspace.Workspace, path string) error { return w.Write(ctx, path, nil) }
	mkdir := func(ctx context.Context, w workspace.Workspace, path string) error {
		return workspace.Mkdir(ctx, w, path)
	}
	rename := func(from, to string) func(workspace.Workspace) error {
		return func(w workspace.Workspace) error { return w.Rename(t.Context(), from, to) }
	}
	for name, row := range map[string]struct {
		first, second func(workspace.Workspace) error
		never         []string // all of these
	}{
		"directories of a repository":      {write("d/objects", mkdir), write("d/refs", mkdir), []string{"d/HEAD", "d/objects", "d/refs"}},
		"a repository with files":          {write("d/objects/x", inPlace), write("d/refs/x", atomically), []string{"d/HEAD", "d/objects", "d/refs"}},
		"a repository, renamed":            {rename("o", "d/objects"), write("d/refs", mkdir), []string{"d/HEAD", "d/objects", "d/refs"}},
		"a directory that moves":           {rename("x", "denied"), write("x/f", inPlace), []string{"denied/f"}},
		"a directory that moves, atomic":   {rename("x", "denied"), write("x/f", atomically), []string{"denied/f"}},
		"a directory that moves, two deep": {rename("x", "denied"), rename("g", "x/f"), []string{"denied/f"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			one, other := allowed(t, root), allowed(t, root)
			both := 0
			for range 300 {
				require.NoError(t, os.MkdirAll(root+"/d", 0o755))
				require.NoError(t, os.WriteFile(root+"/d/HEAD", nil, 0o644))
				require.NoError(t, os.MkdirAll(root+"/o", 0o755))
				require.NoError(t, os.MkdirAll(root+"/x/many/deep", 0o755))
				require.NoError(t, os.WriteFile(root+"/g", nil, 0o644))
				var group sync.WaitGroup
				var first, second error
				group.Go(func() { first = row.first(one) })
				group.Go(func() { second = row.second(other) })
				group.Wait()
				if first == nil && second == nil {
					both++
				}
				has := 0
				for _, name := range row.never {
					if _, err := os.Lstat(root + "/" + name); err == nil {
						has++
					}
				}
				require.NotEqual(t, len(row.never), has, "%v, %v", first, second)
				kept, err := filepath.Glob(root + "/*/many/deep")
				require.NoError(t, err)
				require.Len(t, kept, 1, "nothing is lost: %v, %v", first, second)
				entries, err := os.ReadDir(root)
				require.NoError(t, err)
				for _, e := range entries {
					require.NoError(t, os.RemoveAll(root+"/"+e.Name()))
				}
			}
			t.Logf("both in %d of 300 rounds", both)
		})
	}
}
