package probe

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"pikuri/lib/internal/fsat"

	"golang.org/x/sys/unix"
)

// Targets tells the program inside where the targets are. It holds no secret
// itself.
type Targets struct {
	Dir      string    `json:"dir"`      // the scene's directory; the sandbox shows parts of it
	Home     string    `json:"home"`     // the home in the sandbox
	Variable string    `json:"variable"` // of the environment; "" if all were passed
	Key      int       `json:"key"`      // in the session keyring; 0: this kernel has no keys
	KeyName  string    `json:"keyname"`
	PID      int       `json:"pid"`   // of a process
	Start    string    `json:"start"` // its start time: inside, the number may be another process's
	Abstract string    `json:"abstract"`
	TCP      string    `json:"tcp"`
	TTY      [2]uint64 `json:"tty"`      // device and inode of the caller's terminal
	Passed   []int     `json:"passed"`   // descriptors that the sandbox passes on purpose
	Unfenced bool      `json:"unfenced"` // there is no sandbox: do no harm

	inherited []int
}

// Project is the project root of the check.
func (t *Targets) Project() string { return filepath.Join(t.Dir, "project") }

// Second is a writable root whose .git is a symbolic link into /oldroot, where
// bwrap has the host's files while it makes a sandbox. An earlier command could
// have left such a link.
func (t *Targets) Second() string { return filepath.Join(t.Dir, "second") }

func (t *Targets) victim() string    { return filepath.Join(t.Dir, "victim") }
func (t *Targets) secret() string    { return filepath.Join(t.Dir, "beside", "secret") }
func (t *Targets) socket() string    { return filepath.Join(t.Dir, "beside", "socket") }
func (t *Targets) hook() string      { return filepath.Join(t.Project(), ".git", "hooks", "pre-commit") }
func (t *Targets) task() string      { return filepath.Join(t.Project(), ".vscode", "tasks.json") }
func (t *Targets) cache() string     { return filepath.Join(t.home(), ".cache", "go-build") }
func (t *Targets) home() string      { return filepath.Join(t.Dir, "home") }
func (t *Targets) gitConfig() string { return filepath.Join(t.Project(), ".git", "config") }

// planted is where the command makes a repository.
func (t *Targets) planted() string { return filepath.Join(t.Project(), "planted") }

func (t *Targets) sshKey() string { return filepath.Join(t.home(), ".ssh", "id_ed25519") }

// Environ is the environment for the program that makes the sandbox: env with the
// scene's home and a secret, and without the variables that lead to the caller's
// caches and sessions.
func (s *Scene) Environ(env []string) []string {
	var kept []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if name != "HOME" && name != "GOCACHE" && !strings.HasPrefix(name, "XDG_") {
			kept = append(kept, kv)
		}
	}
	return append(kept, "HOME="+s.home(), s.Variable+"=1")
}

// Scene is the part of a check outside the sandbox. The caller must Remove it.
type Scene struct {
	Targets

	before   string
	leaked   int // a descriptor of the directory that children inherit
	keyed    bool
	process  *exec.Cmd
	hold     io.Closer // the target lives until it is closed
	dead     chan struct{}
	closers  []io.Closer
	terminal *os.File // the other end of the pseudo-terminal
}

// New makes a scene in a new directory below parent, that belongs to uid and
// gid. self is a program that dispatches Modes. The caller
// must have locked its goroutine to the thread, and must start the sandbox from
// there: keyrings belong to threads.
func New(parent, self string, uid, gid int) (*Scene, error) {
	dir, err := os.MkdirTemp(parent, "pk-check-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a directory to check in: %w", err)
	}
	s := &Scene{leaked: -1}
	if s.Dir, err = filepath.EvalSymlinks(dir); err == nil {
		err = s.build(self, uid, gid)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the targets of the check: %w", errors.Join(err, s.Remove()))
	}
	return s, nil
}

func (s *Scene) build(self string, uid, gid int) error {
	id := strings.ToLower(rand.Text()[:8])
	s.Home, s.Variable, s.KeyName, s.Abstract = s.home(), "CHECK_TOKEN_"+strings.ToUpper(id), "pk-check-"+id, "@pk-check-"+id
	for _, step := range []func() error{
		s.makeFiles, s.listen, s.addKey, s.openTerminal,
		func() error { return s.startTarget(self) },
		func() error { return s.giveTo(uid, gid) },
		func() (err error) { s.before, err = s.listing(); return err },
		s.leak,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// gitHead and gitConfig make a repository of the project.
const (
	gitHead   = "ref: refs/heads/main\n"
	gitConfig = "[core]\n\trepositoryformatversion = 0\n"
)

func (s *Scene) makeFiles() error {
	project := s.Project()
	for _, dir := range []string{s.victim(), s.Second(), s.cache(), project + "/.git/hooks", project + "/.git/objects", project + "/.git/refs/heads"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for path, content := range map[string]string{
		s.secret(): "secret\n", s.sshKey(): "secret\n", project + "/main.c": "int main(void) { return 0; }\n",
		project + "/.git/HEAD": gitHead, s.gitConfig(): gitConfig, s.hook() + ".sample": "#!/bin/sh\n", s.task(): "{}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink(s.secret(), project+"/door"), os.Symlink("/oldroot"+s.victim(), s.Second()+"/.git"))
}

// listen opens the three kinds of sockets that services listen on.
func (s *Scene) listen() error {
	dir, err := os.Open(filepath.Dir(s.socket()))
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, l := range []struct{ network, address string }{{"unix", socketIn(dir)}, {"unix", s.Abstract}, {"tcp", "127.0.0.1:0"}} {
		listener, err := net.Listen(l.network, l.address)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, listener)
		s.TCP = listener.Addr().String()
	}
	return nil
}

// socketIn names the scene's socket through its open directory: an address holds
// 107 bytes, and the path of a temporary directory may be longer.
func socketIn(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd()) }

// addKey puts a key into the session keyring. Any process of the user that knows
// its number may read it. A kernel without keys has no such target.
func (s *Scene) addKey() error {
	id, err := unix.AddKey("user", s.KeyName, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	if err == unix.ENOSYS || err == unix.EPERM || err == unix.EDQUOT {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("add_key", err)
	}
	s.Key, s.keyed = id, true
	const possessorAndUser = 0x3f3f0000
	return os.NewSyscallError("keyctl", unix.KeyctlSetperm(id, possessorAndUser))
}

// openTerminal makes a pseudo-terminal as the caller's terminal. Without
// pseudo-terminals the scene has none.
func (s *Scene) openTerminal() error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	s.closers = append(s.closers, master)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return os.NewSyscallError("ioctl", err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	s.closers = append(s.closers, slave)
	s.terminal = slave
	var st unix.Stat_t
	err = unix.Fstat(int(slave.Fd()), &st)
	s.TTY = [2]uint64{st.Dev, st.Ino}
	return os.NewSyscallError("fstat", err)
}

// Terminal is a terminal for the sandbox to run on, or nil.
func (s *Scene) Terminal() *os.File { return s.terminal }

// startTarget starts the process to find, signal and trace.
func (s *Scene) startTarget(self string) error {
	s.process = exec.Command(self, targetOption)
	s.process.Env = []string{}
	var err error
	if s.hold, err = s.process.StdinPipe(); err == nil { // it ends with this process too
		err = s.process.Start()
	}
	if err != nil {
		s.process = nil
		return err
	}
	s.dead = make(chan struct{})
	go func() { _ = s.process.Wait(); close(s.dead) }()
	s.PID = s.process.Process.Pid
	s.Start, err = startOf(s.PID)
	return err
}

// wait is the target: it lives until its standard input ends.
func wait(stdin io.Reader) error {
	_, err := io.Copy(io.Discard, stdin)
	return err
}

// giveTo changes the owner of the scene to the user that root will become.
func (s *Scene) giveTo(uid, gid int) error {
	if uid == os.Geteuid() {
		return nil
	}
	return filepath.WalkDir(s.Dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

// highFD is above the numbers that --pass-fd takes.
const highFD = 300

// leak opens the scene's directory without O_CLOEXEC, as careless programs do: all
// children inherit it.
func (s *Scene) leak() error {
	fd, err := unix.Open(s.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	s.leaked, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD, highFD)
	return os.NewSyscallError("fcntl", err)
}

// Argument encodes the targets for the program inside.
func (t *Targets) Argument() string {
	text, _ := json.Marshal(t) // strings and numbers
	return string(text)
}

// Judge reads the output of the program inside, and looks at the scene. It returns
// a result for every attack.
func (s *Scene) Judge(output io.Reader) []Result {
	said := map[string]Result{}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var r Result
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Name != "" {
			said[r.Name] = r
		}
	}
	var results []Result
	for _, a := range Attacks() {
		r, ok := said[a.Name]
		if !ok {
			r = Result{Name: a.Name, Guarantee: a.Guarantee, Outcome: Untried, Said: "the probe ended before"}
		}
		if a.got != nil && (r.Outcome == In || r.Outcome == Refused) {
			r = Result{Name: a.Name, Guarantee: a.Guarantee, Outcome: Refused}
			if a.got(s) {
				r.Outcome = In
			}
		}
		results = append(results, r)
	}
	return results
}

// killed reports whether the target died of a signal. It ends the target's input
// and waits, so that a signal on its way needs no timeout.
func (s *Scene) killed() bool {
	_ = s.hold.Close()
	<-s.dead
	status, ok := s.process.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// littered reports whether a file in the scene appeared, vanished or changed. It
// skips files that have an attack of their own.
func (s *Scene) littered() bool {
	now, err := s.listing()
	return err != nil || now != s.before
}

func (s *Scene) listing() (string, error) {
	var out strings.Builder
	own := []string{s.cache(), s.victim(), filepath.Join(s.home(), ".cache", "pikuri"), s.hook(), s.gitConfig(), s.planted()} // the third: a session's
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, dir := range own {
			switch {
			case path == dir && d.IsDir():
				return fs.SkipDir
			case path == dir:
				return nil
			}
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size := info.Size()
		if info.IsDir() {
			size = 0
		}
		fmt.Fprintf(&out, "%q %v %d\n", path, info.Mode(), size)
		return nil
	})
	return out.String(), err
}

// Remove ends the target and removes the scene.
func (s *Scene) Remove() error {
	if s.process != nil {
		_ = s.hold.Close()
		<-s.dead
	}
	for _, c := range s.closers {
		_ = c.Close()
	}
	if s.leaked >= 0 {
		_ = unix.Close(s.leaked)
	}
	if s.keyed {
		_, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, s.Key, unix.KEY_SPEC_SESSION_KEYRING, 0, 0)
	}
	dir, err := os.Open(filepath.Dir(s.Dir))
	if err != nil {
		return err
	}
	defer dir.Close()
	e := fsat.Eraser{Opener: fsat.Kernel()} // overlays leave directories without permissions
	if err = e.Remove(int(dir.Fd()), filepath.Base(s.Dir)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %q: %w", s.Dir, err)
	}
	return nil
}

// startOf returns the start time of a process, in ticks since boot, and its parent.
// With its PID they identify it.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", errors.New("internal error: a short stat")
	}
	return string(fields[19]) + "/" + string(fields[1]), nil
}
