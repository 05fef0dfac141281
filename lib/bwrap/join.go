package bwrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/umbrella"
)

// Joined says that the overlays of a plan are those of a session, mounted
// already in namespaces that the sandbox is to be made in. The chain is then
//
//	nsenter(1)  enters the namespaces
//	the stage   (this program again) closes them behind itself, and prepares in
//	            a copy of the mount namespace what bwrap cannot mount
//	bwrap       binds the overlays like any other directory
//
// It is all exec. What this process gave up before it became nsenter, it has
// given up for good; what can only be given up inside, the stage can, in
// StageJoined.
type Joined struct {
	User, Mount *os.File                     // the namespaces
	Keeper      int                          // the process that keeps them
	Lock        *os.File                     // and what it has locked, as umbrella.KeeperLock opens it
	Enter       func(user, mnt int) []string // the words that enter them and become another program
	Shown       map[string]string            // Source of an overlay -> where the mount namespace shows it
	Root        string                       // where this process sees the files of the mount namespace
}

// joinedOption is the first argument of a stage inside a session's namespaces.
const joinedOption = "--pk-joined"

// joinedWords is how many words go before the job: the descriptors of the
// namespaces and the lock, the keeper, the parent, and where to stage.
const joinedWords = 6

// Nsenter is the path of nsenter(1), as root installed it, or "".
func Nsenter() string { return findTrusted("nsenter") }

// Overlays lists the directories that the plan shows as overlays.
func (p *Plan) Overlays() []string {
	var dirs []string
	for _, m := range p.Mounts {
		if m.Op == OpOverlay {
			dirs = append(dirs, m.Source)
		}
	}
	return dirs
}

// Hosts lists what the plan shows of the host.
func (p *Plan) Hosts() []string {
	var paths []string
	for _, m := range p.Mounts {
		if m.showsHost() && m.Op != OpPin && m.Op != OpProtect {
			paths = append(paths, m.Source)
		}
	}
	return paths
}

// Join makes the plan one of a session. An overlay that the session does not
// show is shown read-only, and named with the reason, unless the caller asked
// for it by name and counts on it.
func (p *Plan) Join(j *Joined, refused map[string]string) error {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Op != OpOverlay {
			continue
		}
		if at, ok := j.Shown[m.Source]; ok {
			m.seenAt = filepath.Join(j.Root, at)
			continue
		}
		if m.Rule == overlayRule {
			return &Refusal{Reason: fmt.Sprintf("cannot overlay %q: %s", m.Source, refused[m.Source]), Advice: "show it with --readable or --writable"}
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("%q is read-only inside: %s", m.Source, refused[m.Source]))
		p.Degraded = append(p.Degraded, m.Source)
		m.Op = OpReadOnly
	}
	p.Joined = j
	return nil
}

// overlayRule is the rule of an overlay that was asked for by name.
const overlayRule = "option --overlay"

// shownAt is where an overlay is to be bound from; "" means that it is to be made.
func (p *Plan) shownAt(m Mount) string {
	if p.Joined == nil {
		return ""
	}
	return p.Joined.Shown[m.Source]
}

// joinedLine wraps the command line of bwrap. self is a path by which this
// program can be started, parent the process that will be that of bwrap, hand
// as in commandLine.
func (p *Plan) joinedLine(staging, self string, parent int, hand func(*os.File) int, job, bwrapLine []string) []string {
	user, mnt, lock := hand(p.Joined.User), hand(p.Joined.Mount), hand(p.Joined.Lock)
	line := append(p.Joined.Enter(user, mnt), self, joinedOption)
	for _, n := range []int{user, mnt, lock, p.Joined.Keeper, parent} {
		line = append(line, strconv.Itoa(n))
	}
	line = append(line, staging)
	return append(append(append(line, job...), "--"), bwrapLine...)
}

// Modes are the modes in which a program that runs a Plan starts itself again.
func Modes() []hidden.Mode {
	return []hidden.Mode{{Name: stageOption, Run: runStage}, {Name: joinedOption, Run: stageJoined}}
}

// stageJoined does the job of a stage in a session's namespaces and becomes
// bwrap. It returns only when that fails.
func stageJoined(args []string) error {
	runtime.LockOSThread() // what follows is set per thread, and this one execs
	closeOnExec(os.Args[0])
	job, line := splitJob(args, joinedWords)
	if len(line) == 0 || !insideOwnNamespace() {
		return hidden.ErrOwnUse
	}
	var n [joinedWords - 1]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[i]); err != nil {
			return fmt.Errorf("internal error: %s got %q for a number", joinedOption, args[i])
		}
	}
	for _, fd := range n[:2] {
		if unix.Close(fd) != nil {
			return fmt.Errorf("internal error: %s got no namespace as %d", joinedOption, fd)
		}
	}
	// Without its keeper the next command of the session does not find these
	// namespaces, unless it finds somebody in them: it mounts the overlays again.
	lock := os.NewFile(uintptr(n[2]), "lock")
	if !umbrella.IsKeeper(lock, n[3]) {
		return errors.New("the keeper of the session has been killed meanwhile; try again")
	}
	lock.Close()
	if err := dieWith(args[4]); err != nil {
		return err
	}
	if staging := args[5]; staging != "" {
		// A copy of the session's mounts, for this sandbox alone.
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("cannot prepare the sandbox: %w", os.NewSyscallError("unshare", err))
		}
		if err := prepare(staging, job); err != nil {
			return err
		}
	}
	closeOnExec(line[0])
	return fmt.Errorf("cannot start bwrap %q: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
}
