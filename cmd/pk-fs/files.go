package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitland"
	"pikuri/lib/gitsync"
	"pikuri/lib/session"
	"pikuri/lib/workspace"
)

// pieceSize is the size of each piece where the kernel does not copy: large enough for a
// copy to be as fast as cat's.
const pieceSize = 256 << 10

func (w *work) cat() error {
	return w.each(func(typed string) error {
		p, err := w.at("cat", typed, toRead)
		if err != nil {
			return err
		}
		f, err := workspace.Open(context.Background(), p.Workspace, p.path)
		if err != nil {
			return w.failed("cat", typed, err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Size() > 0 && isStream(w.ctx.Stdout, info) {
			return fmt.Errorf("cannot cat %q: standard output is the same file", typed) // it would never end
		}
		return w.failed("cat", typed, w.pour(f))
	})
}

// isStream reports whether a stream of this command is the file of info.
func isStream(stream any, info fs.FileInfo) bool {
	file, ok := stream.(*os.File)
	st, known := info.Sys().(*unix.Stat_t)
	var own unix.Stat_t
	return ok && known && unix.Fstat(int(file.Fd()), &own) == nil && own.Dev == st.Dev && own.Ino == st.Ino
}

// notItself refuses to read a file while it is being written: appended bytes would
// be read again, without an end, and a write in place first loses the content.
func (w *work) notItself(verb string, p *operand) error {
	info, err := p.Stat(context.Background(), p.path)
	if err == nil && isStream(w.ctx.Stdin, info) {
		return fmt.Errorf("cannot %s %q: standard input is the same file", verb, p.typed)
	}
	return nil // opening it reports the error of the path
}

// pour copies a file to standard output. To a file, the kernel can do it; to
// anything else, larger pieces than io.Copy's are faster.
func (w *work) pour(f workspace.File) error {
	out := &outlets{to: w.ctx.Stdout}
	if file, ok := w.ctx.Stdout.(*os.File); ok && isFile(file) {
		to, fromFile := f.(io.WriterTo)
		if fromFile {
			_, err := to.WriteTo(file)
			return blame(err)
		}
	}
	buf := make([]byte, pieceSize)
	_, err := io.CopyBuffer(out, onlyReader{f}, buf)
	if out.err != nil {
		return &outputError{out.err}
	}
	return err
}

// blame turns an error that is not of the file, which names itself, into one of
// standard output.
func blame(err error) error {
	if _, ok := errors.AsType[*workspace.Error](err); ok || err == nil {
		return err
	}
	return &outputError{err}
}

func isFile(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// outlets remembers a failure of the output.
type outlets struct {
	to  io.Writer
	err error
}

func (o *outlets) Write(p []byte) (n int, err error) {
	n, err = o.to.Write(p)
	o.err = err
	return n, err
}

// onlyReader hides the other methods of a file, so that the buffer is used.
type onlyReader struct{ io.Reader }

func (w *work) write() error {
	typed, req := w.args[0], toWrite
	if w.exclusive {
		req = itself // a link has the name, wherever it leads
	}
	p, err := w.file("write", typed, req)
	if err != nil {
		return err
	}
	if !w.atomic && w.ifUnchanged == "" {
		if err := w.notItself("write", p); err != nil {
			return err
		}
	}
	out, err := workspace.Create(context.Background(), p.Workspace, p.path, workspace.WriteOptions{
		Atomic: w.atomic, Exclusive: w.exclusive, IfHash: w.ifUnchanged,
		// If the name reached the disk before the content, a crash would leave an
		// empty file.
		Sync: w.sync || w.atomic || w.ifUnchanged != "",
	})
	if err != nil {
		return w.failed("write", typed, err)
	}
	defer out.Abort()
	sum := sha256.New()
	var to io.Writer = out
	if w.json {
		to = io.MultiWriter(out, sum)
	}
	n, err := w.take(to, math.MaxInt64)
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return w.failed("write", typed, err)
	}
	if !w.json {
		return nil
	}
	return w.answers().write(record{Bytes: &n, SHA256: hex.EncodeToString(sum.Sum(nil))}, typed)
}

func (w *work) append() error {
	typed := w.args[0]
	p, err := w.file("append", typed, toWrite)
	if err != nil {
		return err
	}
	if err := w.notItself("append", p); err != nil {
		return err
	}
	out, err := workspace.Create(context.Background(), p.Workspace, p.path, workspace.WriteOptions{Append: true, Sync: w.sync})
	if err != nil {
		return w.failed("append", typed, err)
	}
	defer out.Abort()
	if _, err = w.take(out, math.MaxInt64); err == nil {
		err = out.Close()
	}
	return w.failed("append", typed, err)
}

// take reads standard input to its end, or limit bytes of it.
func (w *work) take(to io.Writer, limit int64) (int64, error) {
	in := &inlet{from: io.LimitReader(w.ctx.Stdin, limit)}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, in, make([]byte, pieceSize))
	if in.err != nil {
		return n, fmt.Errorf("cannot read standard input: %w", cause(in.err))
	}
	return n, err
}

// inlet remembers a failure of the input.
type inlet struct {
	from io.Reader
	err  error
}

func (i *inlet) Read(p []byte) (int, error) {
	n, err := i.from.Read(p)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

func (w *work) cp() error {
	src, dst := w.args[0], w.args[1]
	from, err := w.at("cp", src, toRead)
	if err != nil {
		return err
	}
	to, err := w.file("cp", dst, toWrite)
	if err != nil {
		return err
	}
	if same(from, to) {
		return sameFile("cp", src, dst)
	}
	return w.copy("cp", from, to)
}

// copy copies a file from one root to another, or within one, in one step.
func (w *work) copy(verb string, from, to *operand) error {
	ctx := context.Background()
	in, err := workspace.Open(ctx, from.Workspace, from.path)
	if err != nil {
		return w.failed(verb, from.typed, err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return w.failed(verb, from.typed, err)
	}
	out, err := workspace.Create(ctx, to.Workspace, to.path, workspace.WriteOptions{Atomic: true, Sparse: workspace.Sparse(info), Perm: info.Mode().Perm(), Sync: w.sync})
	if err != nil {
		return w.failed(verb, to.typed, err)
	}
	defer out.Abort()
	if workspace.Sparse(info) {
		_, err = io.Copy(out, in) // passes over holes
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{out}, onlyReader{in}, make([]byte, pieceSize))
	}
	if err != nil {
		return w.failed(verb, to.typed, err)
	}
	return w.failed(verb, to.typed, out.Close())
}

// mv renames within a root. From one root to another a file is copied and then
// removed, as mv(1) does between file systems, if it has not changed since; a directory is refused.
func (w *work) mv() error { return w.move(w.args[0], w.args[1]) }

func (w *work) move(src, dst string) error {
	if _, err := w.at("mv", src, confine.Request{Itself: true, Existing: true}); err != nil {
		return err // a file that is moved can be read at its new place
	}
	from, err := w.at("mv", src, itself)
	if err != nil {
		return err
	}
	to, err := w.at("mv", dst, itself)
	if err != nil {
		return err
	}
	if endsInSlash(dst) { // as with rename(2), only a directory can have such a name
		if _, err := w.confined.Lookup(src+"/", itself); errors.Is(err, unix.ENOTDIR) {
			return &workspace.Error{Op: "mv", Path: src, To: dst, Err: workspace.ErrNotDir}
		}
	}
	ctx := context.Background()
	switch {
	case from.root == to.root && from.path == to.path:
		return sameFile("mv", src, dst)
	case from.root == to.root:
		if err := w.refuseLeading(from, to); err != nil {
			return w.failedTo("mv", src, dst, err)
		}
		return w.failedTo("mv", src, dst, from.Rename(ctx, from.path, to.path))
	}
	old, err := workspace.EntryOf(ctx, from.Workspace, from.path)
	switch {
	case err != nil:
		return w.failed("mv", src, err)
	case same(w.reached(src), to):
		return sameFile("mv", src, dst)
	case old.Kind == workspace.KindLink:
		if err = w.refuseLeading(from, to); err != nil {
			return w.failedTo("mv", src, dst, err)
		}
		err = w.moveLink(ctx, old, to)
	default:
		err = w.copy("mv", from, to)
	}
	if err != nil {
		return err
	}
	return w.failed("mv", src, workspace.Swap(ctx, from.Workspace, from.path, old, workspace.Entry{}, nil))
}

// refuseLeading refuses to move a link to where it would lead programs of the host elsewhere.
func (w *work) refuseLeading(from, to *operand) error {
	host := w.hosts[to.root]
	if host == nil {
		return nil
	}
	why, err := host.Moved(filepath.Join(from.root, from.path), to.path)
	if err == nil && why == "" {
		return nil
	}
	if err != nil {
		why = err.Error()
	}
	return &workspace.Error{Err: workspace.ErrAccessDenied, Detail: why, Cause: err}
}

// same reports whether two operands, links followed, are one file.
func same(a, b *operand) bool {
	if a == nil || b == nil {
		return false
	}
	ctx := context.Background()
	from, err := a.Stat(ctx, a.path)
	to, toErr := b.Stat(ctx, b.path)
	if err != nil || toErr != nil {
		return false
	}
	x, known := from.Sys().(*unix.Stat_t)
	y, too := to.Sys().(*unix.Stat_t)
	return known && too && x.Dev == y.Dev && x.Ino == y.Ino
}

func sameFile(verb, src, dst string) error {
	return &workspace.Error{Op: verb, Path: src, To: dst, Err: workspace.ErrInvalid, Detail: "they are the same file"}
}

// moveLink puts a link itself at a place of another root.
func (w *work) moveLink(ctx context.Context, link workspace.Entry, to *operand) error {
	there, err := workspace.EntryOf(ctx, to.Workspace, to.path)
	switch {
	case err != nil:
	case there.Kind == workspace.KindDir:
		err = &workspace.Error{Err: workspace.ErrIsDir}
	default:
		err = workspace.Swap(ctx, to.Workspace, to.path, there, link, nil)
	}
	return w.failed("mv", to.typed, err)
}

func (w *work) rm() error {
	return w.each(func(typed string) error { return w.remove(typed, w.recursive) })
}

func (w *work) remove(typed string, recursive bool) error {
	req := itself
	req.Existing = !w.force // a missing file is probably a slip of the finger
	p, err := w.at("rm", typed, req)
	if err != nil {
		return err
	}
	remove := p.Delete
	if recursive {
		remove = p.RemoveAll
	}
	return w.failed("rm", typed, remove(context.Background(), p.path))
}

func (w *work) mkdir() error { return w.each(w.makeDir) }

func (w *work) makeDir(typed string) error {
	p, err := w.at("mkdir", typed, toWrite)
	if err != nil {
		return err
	}
	return w.failed("mkdir", typed, workspace.Mkdir(context.Background(), p.Workspace, p.path))
}

func (w *work) exists() error {
	return w.each(func(typed string) error {
		p, err := w.at("exists", typed, toRead)
		if errors.Is(err, workspace.ErrNotFound) || errors.Is(err, workspace.ErrNotDir) {
			return w.existence(typed, false)
		}
		if err != nil {
			return err
		}
		found, err := p.Exists(context.Background(), p.path)
		if err != nil {
			return w.failed("exists", typed, err)
		}
		return w.existence(typed, found)
	})
}

func (w *work) existence(typed string, found bool) error {
	w.refused = w.refused || !found
	if !w.json {
		return nil
	}
	return w.answers().write(record{Exists: &found}, typed)
}

func (w *work) gitClone() error {
	if err := w.scratch(); err != nil {
		return err
	}
	return w.git("git-clone", w.args[1], toWrite, func(c *gitsync.Client, p *operand) error {
		return c.Clone(context.Background(), w.args[0], p.path)
	})
}

func (w *work) gitPull() error {
	if err := w.scratch(); err != nil {
		return err
	}
	return w.git("git-pull", w.args[0], toWrite, func(c *gitsync.Client, p *operand) error {
		return c.Pull(context.Background(), p.path)
	})
}

func (w *work) gitHead() error {
	return w.git("git-head", w.args[0], toRead, func(c *gitsync.Client, p *operand) error {
		commit, err := c.Head(context.Background(), p.path)
		if err != nil {
			return err
		}
		return w.answers().line(commit)
	})
}

// gitAdopt prints the git directory, and names on standard error the parts that were
// left out.
func (w *work) gitAdopt() error {
	typed := w.args[0]
	where, err := w.confined.Lookup(typed, confine.Request{Mode: confine.Write, Existing: true})
	if err != nil {
		return w.failed("git-adopt", typed, err)
	}
	if root := w.confined.Shown(where); root != "" {
		return fmt.Errorf("cannot git-adopt %q: the session keeps the changes of %q to itself", typed, root)
	}
	if err := w.answers().judge(where); err != nil {
		return err
	}
	base, err := session.Base(os.Getenv)
	if err != nil {
		return err
	}
	adopted, err := gitland.Adopt(filepath.Join(base, session.GitDir), where)
	if err != nil {
		return err
	}
	for _, line := range adopted.Told {
		w.ctx.Warn("git: %s", line)
	}
	w.ctx.Warn("hooks, other configuration and the like are left in %q", adopted.Rest)
	for _, path := range namedIn(where, adopted.GitDir) {
		w.ctx.Warn("git: your own configuration runs or reads %q, which a command has made: look at it before you use git there", path)
	}
	return w.answers().line(adopted.GitDir)
}

// namedIn lists the files and directories of a repository that the user's configuration of git
// runs or reads in any, such as hooks at a relative core.hooksPath.
func namedIn(dir, gitDir string) (list []string) {
	names, err := gitconfig.NewNames([]string{dir}, nil, os.LookupEnv)
	if err != nil || names.Repository(dir, gitDir, gitDir) != nil {
		return nil
	}
	for _, n := range names.Named {
		if _, err := os.Lstat(n.Path); err == nil && !n.Way && strings.HasPrefix(n.Path, dir+"/") && !strings.HasPrefix(n.Path+"/", gitDir+"/") {
			list = append(list, n.Path)
		}
	}
	return list
}

// scratch refuses a directory for git in which the workspace can write.
func (w *work) scratch() error {
	root, ok := confine.LiesIn(os.TempDir(), confine.WritablePaths(w.confined.Roots()))
	if !ok {
		return nil
	}
	err := fmt.Errorf("cannot have git work in %q: it lies in the writable root %q", os.TempDir(), root)
	return cli.WithHint(err, "set TMPDIR to a directory outside")
}

func (w *work) git(verb, typed string, req confine.Request, do func(*gitsync.Client, *operand) error) error {
	p, err := w.at(verb, typed, req)
	if err != nil {
		return err
	}
	client := gitsync.New(p.Workspace, gitsync.Config{
		Protocols: w.protocols, Env: w.passEnv, Timeout: time.Duration(w.timeout) * time.Second,
	})
	return w.failed(verb, typed, do(client, p))
}
