// Package rlimit looks at the resource limits with which pk's own processes run: those of
// the caller.
package rlimit

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// minSignals is the number of pending signals that Signals asks for: one for each thread
// of a Go program that has just started, and as many for the user's other processes.
const minSignals = 64

// Limit is an error about a limit that is too low.
type Limit struct {
	Reason string
	Advice string
}

func (l *Limit) Error() string { return l.Reason }

// Hint is the line to type.
func (l *Limit) Hint() string { return l.Advice }

// Signals returns an error if the limit on pending signals (ulimit -i) is too low to
// change the IDs or capabilities of all threads. Go's library sends each thread a real-time
// signal for that. The kernel refuses it above the limit, and the library waits for ever.
func Signals() error {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_SIGPENDING, &l) != nil || l.Cur >= minSignals {
		return nil
	}
	return &Limit{
		fmt.Sprintf("too few signals may be pending: the limit is %d, a start needs %d", l.Cur, minSignals),
		fmt.Sprintf("raise the limit: ulimit -i %d; if the shell may not, start it with a higher one", minSignals),
	}
}

// Raise raises the limits of a process that serves later commands as well to the hard
// limits of its starter. The kernel applies the first four, with which a user
// namespace is made, to all that is in it later.
func Raise() {
	for _, resource := range []int{
		unix.RLIMIT_NPROC, unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE, unix.RLIMIT_MEMLOCK,
		unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_AS, unix.RLIMIT_DATA, unix.RLIMIT_NOFILE,
	} {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) == nil {
			l.Cur = l.Max
			_ = unix.Setrlimit(resource, &l) // a hard limit is there for it
		}
	}
}
