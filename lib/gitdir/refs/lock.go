package refs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pikuri/lib/internal/gitlock"
)

// patience is the time for which all changes of one Apply together wait for locks of
// other processes. git itself waits 0.1 s for a ref and 1 s for packed-refs.
const patience = 2 * time.Second

// acquire locks a file, and makes its directory if necessary.
func (t *transaction) acquire(file string) (l *gitlock.Lock, err error) {
	if t.journal != nil {
		if _, err := t.journal.WriteString(file + "\n"); err != nil {
			return nil, err
		}
	}
	for ; ; time.Sleep(time.Millisecond) {
		if err = makeParents(file, t.o.Sharing); err == nil {
			if t.o.Locking != nil {
				t.o.Locking(file)
			}
			l, err = gitlock.Acquire(file, t.deadline)
		}
		if err == nil {
			l.Sharing = t.o.Sharing
		}
		if !errors.Is(err, fs.ErrNotExist) || !time.Now().Before(t.deadline) {
			return l, err
		}
	}
}

// makeParents makes the directories above a file. It may have to be called again:
// git removes empty ones.
func makeParents(file string, s gitlock.Sharing) error {
	dir := filepath.Dir(file)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%q is no directory", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(dir, s); err != nil {
		return err
	}
	gitlock.Step("mkdir")
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Share(f)
}

// removeParents removes the empty directories above a removed file. Like git it leaves
// the first ones, such as refs/heads.
func removeParents(top, name string) {
	for dir := filepath.Dir(name); strings.Count(dir, "/") >= 2; dir = filepath.Dir(dir) {
		if syscall.Rmdir(filepath.Join(top, dir)) != nil {
			return
		}
	}
}

// removeEmpty removes a tree of empty directories, as git does if a ref is made with the
// name of a deleted one's directory.
func removeEmpty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir)
}
