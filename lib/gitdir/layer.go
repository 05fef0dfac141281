package gitdir

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// Layer is a directory of pk's own that holds what commands write to one git
// directory of the host: the upper layer of an overlay over it.
//
// Three bytes of its lock file are locked with open file description locks, which a
// set-up program inherits, in this order:
//
//	starting   exclusive  a command, from before it looks whether the overlay is in use
//	                      until its sandbox is made; a command that tidies the layer
//	use        shared     a command, until its sandbox has ended and its work has landed
//	           exclusive  a command that shares the layer with nobody
//	landing    exclusive  a command that lands
type Layer struct {
	GitDir  string `json:"git_dir"`        // the host's, absolute, without links
	Dir     string `json:"dir"`            // of pk's own, absolute, without links
	Session string `json:"session"`        // names kept references and reflog entries
	Once    bool   `json:"once,omitempty"` // Dir goes with the command

	lock   *os.File
	shared bool // by the commands of a session
	fresh  bool
	lander *lander
}

// Names in the directory of a layer.
const (
	upperDir  = "upper"
	workDir   = "work"
	mergedDir = "merged" // where a session's keeper has the overlay
	lockFile  = "lock"
	stateFile = "state"
	onceDir   = "once-" // begins the name of a layer for one command
)

// Bytes of the lock file.
const (
	starting = iota
	use
	landing
)

// LayerName is the name of the directory of a layer over a git directory. The digest
// makes it unique, the rest is for people.
func LayerName(gitDir string) string {
	name := filepath.Base(gitDir)
	if name == ".git" {
		name = filepath.Base(filepath.Dir(gitDir))
	}
	readable := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return '_'
	}, name)
	sum := sha256.Sum256([]byte(gitDir))
	return "git-" + readable[:min(len(readable), 40)] + "-" + hex.EncodeToString(sum[:8])
}

// OpenShared opens the layer that the commands of a session share, below the
// directory in, and makes it if it is missing. Close it.
func OpenShared(in, gitDir, session string) (*Layer, error) {
	l := &Layer{GitDir: gitDir, Dir: filepath.Join(in, LayerName(gitDir)), Session: session, shared: true}
	err := l.open()
	if err == nil {
		err = l.wait(starting, unix.F_WRLCK)
	}
	if err == nil {
		if err = l.try(use, unix.F_WRLCK); err == nil {
			l.fresh, err = true, l.begin()
		} else if errors.Is(err, unix.EAGAIN) {
			err = nil
		}
	}
	if err == nil {
		err = l.try(use, unix.F_RDLCK) // only a command with the first lock has it exclusively
	}
	return l.opened(err)
}

// OpenOwn opens the layer over a git directory for a command without a session,
// below the directory in. What cannot land stays there for the next command. A
// command that runs at the same time gets an empty layer for itself. Close it.
func OpenOwn(in, gitDir string) (*Layer, error) {
	l := &Layer{GitDir: gitDir, Dir: filepath.Join(in, LayerName(gitDir)), Session: "command", fresh: true}
	err := l.open()
	if err == nil {
		err = l.try(use, unix.F_WRLCK)
	}
	if errors.Is(err, unix.EAGAIN) {
		l.lock.Close()
		l.Dir, l.Once = filepath.Join(l.Dir, onceDir+rand.Text()), true
		if err = l.open(); err == nil {
			err = l.try(use, unix.F_WRLCK)
		}
	}
	if err == nil {
		err = l.begin()
	}
	return l.opened(err)
}

// Reopen opens a layer whose command was killed, to land from it.
func (l *Layer) Reopen() error {
	err := l.open()
	if err == nil {
		err = l.wait(starting, unix.F_WRLCK)
	}
	if err == nil {
		err = l.try(use, unix.F_RDLCK)
	}
	l.shared = !l.Once
	_, err = l.opened(err)
	return err
}

func (l *Layer) opened(err error) (*Layer, error) {
	if err == nil {
		return l, nil
	}
	if l.lock != nil {
		l.lock.Close()
	}
	return nil, fmt.Errorf("cannot prepare the layer over git directory %q: %w", l.GitDir, err)
}

// open makes the directories and opens the lock file.
func (l *Layer) open() error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{upperDir, workDir, mergedDir} {
		if err := os.Mkdir(filepath.Join(l.Dir, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	info, err := os.Stat(l.GitDir)
	if err == nil { // the merged directory has the mode of the upper layer
		err = os.Chmod(l.Upper(), info.Mode().Perm()|0o700)
	}
	if err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Join(l.Dir, lockFile), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Join(l.Dir, lockFile), Err: err}
	}
	l.lock = os.NewFile(uintptr(fd), lockFile)
	return nil
}

// Upper is the upper layer, Work what the kernel needs beside it, and Merged where a
// session mounts the overlay.
func (l *Layer) Upper() string  { return filepath.Join(l.Dir, upperDir) }
func (l *Layer) Work() string   { return filepath.Join(l.Dir, workDir) }
func (l *Layer) Merged() string { return filepath.Join(l.Dir, mergedDir) }

// Fresh reports whether no other command uses the layer.
func (l *Layer) Fresh() bool { return l.fresh }

// Lock is a file to keep open until the sandbox has ended.
func (l *Layer) Lock() *os.File { return l.lock }

// Started is to be called once the sandbox is made.
func (l *Layer) Started() { _ = l.try(starting, unix.F_UNLCK) }

// Close gives the layer back.
func (l *Layer) Close() error { return l.lock.Close() }

// lockTime bounds the wait for a lock that is held while a sandbox is made, or while
// work lands: a large fetch takes its time.
const lockTime = 10 * time.Minute

func (l *Layer) try(which int, how int16) error {
	lock := unix.Flock_t{Type: how, Start: int64(which), Len: 1}
	_, err := fsat.Again(func() (int, error) { return 0, unix.FcntlFlock(l.lock.Fd(), unix.F_OFD_SETLK, &lock) })
	if err == unix.EACCES {
		err = unix.EAGAIN
	}
	return err
}

func (l *Layer) wait(which int, how int16) error {
	for limit := time.Now().Add(lockTime); ; time.Sleep(time.Millisecond) {
		err := l.try(which, how)
		if err != unix.EAGAIN || time.Now().After(limit) {
			return err
		}
	}
}

// state is what the commands that share a layer know of it.
type state struct {
	Since  int64             `json:"since"`            // ctime in ns: when the overlay was mounted
	Refs   map[string]string `json:"refs,omitempty"`   // what has landed since, by name
	Config string            `json:"config,omitempty"` // digest of the host's config for which the layer's was kept
}

// begin notes the time before a fresh overlay is mounted, by the clock that also
// stamps the host's files.
func (l *Layer) begin() error {
	old, _ := l.load()
	s := state{Config: old.Config}
	return l.save(s)
}

func (l *Layer) load() (s state, err error) {
	f, err := os.Open(filepath.Join(l.Dir, stateFile))
	if err != nil {
		return s, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if s.Since == 0 {
		var st unix.Stat_t
		err = errors.Join(err, unix.Fstat(int(f.Fd()), &st))
		s.Since = st.Ctim.Nano()
	}
	return s, err
}

func (l *Layer) save(s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	name := filepath.Join(l.Dir, stateFile)
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
