// Package limits bounds the resources of a command: memory and processes by a
// cgroup (version 2), processor time and the size of files by rlimits. A limit
// that cannot be enforced here is refused with the reason; it is never left
// out, and never replaced by a weaker one.
//
// The limits hold for a command that cannot reach the cgroup file system: one
// in a sandbox. An unfenced command can move itself out of its cgroup, as any
// process of the same user can move it.
package limits

import (
	"fmt"
	"strings"
	"time"
)

// Limits are the limits of one command. Zero in a field means no limit.
type Limits struct {
	// Memory bounds, in bytes, the memory of all processes of the command together:
	// their own pages, files cached for them, files on the sandbox's tmpfs, and the
	// kernel's memory for them. They get no swap. If they exceed the limit, the
	// kernel kills all of them.
	Memory int64

	// Pids bounds the processes and threads that the command has at once. Beyond
	// it, fork fails; no process is killed.
	Pids int64

	// CPUTime is the processor time of each single process, in whole seconds. The
	// kernel then sends SIGXCPU, and SIGKILL a second later. Each new process
	// starts at zero, so the command as a whole may use more. pk-bash's --timeout
	// bounds the whole.
	CPUTime time.Duration

	// FileSize is the size up to which a process may write a file, in bytes; beyond
	// it the kernel sends SIGXFSZ, or returns EFBIG if the process ignores that. It
	// is per file: the number of files is not bounded. It covers a standard output
	// that is a file, not pipes and terminals.
	FileSize int64
}

// Zero reports whether there is no limit.
func (l Limits) Zero() bool { return l == Limits{} }

// cgroup reports whether a cgroup is needed.
func (l Limits) cgroup() bool { return l.Memory > 0 || l.Pids > 0 }

// controllers are the cgroup controllers that the limits need.
func (l Limits) controllers() []string {
	var names []string
	if l.Memory > 0 {
		names = append(names, "memory")
	}
	if l.Pids > 0 {
		names = append(names, "pids")
	}
	return names
}

// String formats the limits as options, on one line.
func (l Limits) String() string {
	var words []string
	for _, o := range []struct {
		name  Name
		value int64
		text  string
	}{
		{Memory, l.Memory, FormatSize(l.Memory)},
		{Pids, l.Pids, fmt.Sprint(l.Pids)},
		{CPUTime, int64(l.CPUTime), fmt.Sprint(int64(l.CPUTime / time.Second))},
		{FileSize, l.FileSize, FormatSize(l.FileSize)},
	} {
		if o.value != 0 {
			words = append(words, fmt.Sprintf("--%s %s", o.name, o.text))
		}
	}
	return strings.Join(words, " ")
}

// check refuses values that no parser returns.
func (l Limits) check() error {
	if l.Memory < 0 || l.Pids < 0 || l.CPUTime < 0 || l.FileSize < 0 || l.CPUTime%time.Second != 0 {
		return fmt.Errorf("internal error: limits out of range: %s", l)
	}
	if l.Memory > 0 && l.Memory < LeastMemory {
		return &Refusal{
			Reason: fmt.Sprintf("cannot limit the memory to %s: no sandbox starts in so little", FormatSize(l.Memory)),
			Advice: "give the command --memory " + FormatSize(LeastMemory) + " or more",
		}
	}
	if l.Pids > 0 && l.Pids < LeastPids {
		return &Refusal{
			Reason: fmt.Sprintf("cannot limit the processes to %d: no sandbox starts with so few", l.Pids),
			Advice: fmt.Sprintf("give the command --pids %d or more", int64(LeastPids)),
		}
	}
	if l.FileSize > 0 && l.FileSize < LeastFileSize {
		return &Refusal{
			Reason: fmt.Sprintf("cannot limit files to %s: no sandbox starts with so little", FormatSize(l.FileSize)),
			Advice: "give the command --file-size " + FormatSize(LeastFileSize) + " or more",
		}
	}
	return nil
}

// Name names a limit as its option does, without the dashes.
type Name string

// The limits, in the order in which they are listed.
const (
	Memory   Name = "memory"
	Pids     Name = "pids"
	CPUTime  Name = "cpu-time"
	FileSize Name = "file-size"
)

// Refusal is a limit that cannot be enforced, with advice.
type Refusal struct {
	Reason string
	Advice string
}

func (r *Refusal) Error() string { return r.Reason }

// Hint is the change to make or the option to type instead, or "".
func (r *Refusal) Hint() string { return r.Advice }
