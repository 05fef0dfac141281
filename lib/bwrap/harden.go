package bwrap

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"pikuri/lib/keyring"
	"pikuri/lib/landlock"
)

// harden gives up, for the calling thread and what it starts from then on, what
// no namespace takes away: the caller's session keyring, abstract sockets that
// were made outside, and signals to anybody outside. The caller has locked its
// goroutine to the thread, and starts bwrap from there or becomes it.
//
// A keyring that cannot be had (a user may own 200 of them) is no failure: the
// filter refuses the calls with which a command would use its own. A kernel
// before 6.12 cannot close abstract sockets; whoever depends on that says so with
// --require.
func (p *Plan) harden() error {
	if err := keyring.JoinAnonymousSession(); err != nil && p.Filter == nil {
		return fmt.Errorf("cannot leave the caller's session keyring: %w", err)
	}
	if err := landlock.ScopeThread(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("cannot close abstract sockets: %w", err)
	}
	return nil
}

// Start starts what Command prepared, from a thread that has given up what no
// namespace takes away. Call release when the command has ended: the thread has
// to live as long, since bwrap dies with it.
func (p *Plan) Start(cmd *exec.Cmd) (release func(), err error) {
	ended, started := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := p.harden()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		<-ended
	}()
	if err := <-started; err != nil {
		close(ended)
		return nil, err
	}
	return func() { close(ended) }, nil
}
