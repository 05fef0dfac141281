// Package keeper gives a session its overlays: in an umbrella, each of them is
// mounted exactly once, in a namespace that commands can join.
//
// Two mounts of one overlay at the same time corrupt it without a word, and an
// overlay lives as long as the last sandbox that shows it. So the mounts are
// made in a user and a mount namespace of their own, held from one command to
// the next by a small process, the keeper; the commands of the session join it
// and bind what is mounted there.
//
// The keeper does nothing but hold and, in the end, leave: when no command has
// used the session for a while it unmounts, and a keeper of an umbrella without
// a name removes the umbrella. What a command needs and nobody has mounted yet
// is mounted by that command, in the keeper's namespaces. So there is nothing to
// ask the keeper, and nothing that a command could tell it.
//
// A command in a sandbox cannot reach it. It is in no process namespace of
// theirs, so it can be neither signalled nor traced, and /proc shows nothing of
// it; its user namespace is the parent of theirs; and what it trusts lies in the
// umbrella, of which they see the playground alone.
package keeper

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/hidden"
	"pikuri/lib/mountinfo"
	"pikuri/lib/umbrella"
)

// Names of the modes.
const (
	startOption = "--pk-keeper-start"
	keepOption  = "--pk-keeper"
	mountOption = "--pk-keeper-mount"
)

// Idle is how long the keeper of a named session waits for the next command.
// The last layers of its overlays stay in the umbrella; only the next command
// takes a few milliseconds more.
const Idle = 15 * time.Minute

// Descriptors of a keeper that starts.
const (
	readyFD = 3 // where it says "ready", or what keeps it from that
	selfFD  = 4 // this program, for what starts it again
	busyFD  = 5 // keeps others from starting one too, until then
	userFD  = 6 // the namespaces of one that was killed, to take its place in
	mntFD   = 7
)

// ready is what a keeper says once its namespaces can be joined.
const ready = "ready"

// Modes are the modes in which a program that calls Join starts itself again.
func Modes() []hidden.Mode {
	mount := func(args []string) error { return mountAll(args, os.Stdout) }
	return []hidden.Mode{{Name: startOption, Run: launch}, {Name: keepOption, Run: keep}, {Name: mountOption, Run: mount}}
}

// launch starts the keeper and ends, so that the keeper is nobody's child: who
// waits for his children, or ends them, does not meet it. args are those of the
// keeper; the first is a line by which the keeper is started in namespaces that
// exist already, as JSON, or empty.
func launch(args []string) error {
	if len(args) != 4 {
		return hidden.ErrOwnUse
	}
	// What the caller of pk has open is nothing for a process that stays.
	if err := unix.CloseRange(readyFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot close inherited descriptors: %w", err)
	}
	title := "pk-keeper: session " + strings.TrimPrefix(args[2], umbrella.Prefix)
	cmd := &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", selfFD),
		Args:        append([]string{title, keepOption}, args[1:]...),
		Dir:         "/",
		ExtraFiles:  []*os.File{os.NewFile(readyFD, "ready"), os.NewFile(selfFD, "self"), os.NewFile(busyFD, "busy")},
		Env:         []string{},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if args[0] == "" {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	} else {
		var line []string
		if err := json.Unmarshal([]byte(args[0]), &line); err != nil || len(line) == 0 {
			return hidden.ErrOwnUse
		}
		cmd.Path, cmd.Args = line[0], append(line, cmd.Args[1:]...)
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(userFD, "user"), os.NewFile(mntFD, "mnt"))
	}
	return cmd.Start()
}

// keep is the keeper. args: the base, the umbrella's name, and how long to
// wait for the next command, 0 for an umbrella that goes with its last one.
func keep(args []string) error {
	for _, fd := range []int{selfFD, userFD, mntFD} {
		unix.Close(fd)
	}
	unix.CloseOnExec(busyFD)
	starter := os.NewFile(readyFD, "ready")
	k, idle, err := takeOver(args)
	if err != nil {
		fmt.Fprint(starter, err)
		return err
	}
	fmt.Fprint(starter, ready)
	starter.Close()
	unix.Close(busyFD)
	go endOrphans(k.Marker())
	for {
		if err := k.Idle(idle); err != nil {
			return err
		}
		if unmounted(k) {
			return k.Leave(idle == 0)
		}
		// What the last command left is still on its way out, or was forgotten
		// there: nobody uses the umbrella any more.
		for _, pid := range umbrella.Seen(k.Marker()) {
			if pid != os.Getpid() {
				umbrella.End(pid, k.Marker())
			}
		}
		if err := k.Resume(); err != nil {
			return err
		}
		time.Sleep(stragglerPause)
	}
}

// stragglerPause is how often a keeper that is to leave looks whether the
// processes of the last command are gone. They take milliseconds.
const stragglerPause = 100 * time.Millisecond

// takeOver makes this process the keeper, in namespaces that must be its own:
// anywhere else the mounts would be everybody's.
func takeOver(args []string) (*umbrella.Keeping, time.Duration, error) {
	if len(args) != 3 || !mapped() {
		return nil, 0, hidden.ErrOwnUse
	}
	idle, err := time.ParseDuration(args[2])
	if err != nil {
		return nil, 0, hidden.ErrOwnUse
	}
	if err := os.Chdir("/"); err != nil {
		return nil, 0, err
	}
	unix.Umask(0o077)
	_ = os.WriteFile("/proc/self/comm", []byte("pk-keeper"), 0) // a courtesy to ps
	// What the machine mounts and unmounts later is to be seen here too: a
	// keeper must not keep a disk from being taken out.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, 0, fmt.Errorf("cannot follow the machine's mounts: %w", err)
	}
	debug.FreeOSMemory() // what start-up left
	k, err := umbrella.Keep(args[0], args[1])
	return k, idle, err
}

// mapped tells a user namespace that was made for one user from the machine's
// own.
func mapped() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(ids))
	return err == nil && len(fields) == 3 && fields[0] == "0" && fields[2] == "1"
}

// unmounted takes the mounts down, unless a process still sees one of them, or may
// have and is not done with it.
func unmounted(k *umbrella.Keeping) bool {
	for _, pid := range umbrella.Seen(k.Marker()) {
		if pid != os.Getpid() {
			return false
		}
	}
	if umbrella.Leaving() {
		return false
	}
	for _, m := range slices.Backward(mountsOf("/proc/self/mountinfo", k.Marker())) {
		if unix.Unmount(m.Point, 0) != nil {
			return false
		}
	}
	return true
}

// mountsOf reads from a mount table what is mounted under marker, in order.
func mountsOf(table, marker string) []mountinfo.Mount {
	marked, _ := split(table, marker)
	return marked
}

// split tells what is mounted under marker from the rest of a table.
func split(table, marker string) (marked, rest []mountinfo.Mount) {
	mounts, _ := mountinfo.Read(table) // of a process that has gone, nothing
	for _, m := range mounts {
		if m.Source == marker {
			marked = append(marked, m)
		} else {
			rest = append(rest, m)
		}
	}
	return marked, rest
}
