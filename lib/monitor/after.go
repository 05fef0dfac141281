package monitor

import (
	"sync"
	"time"
)

// After is the work of a process after the end of its sandboxes. Until that is done, the set-up
// programs stay: if the process is killed, they do the part that Ahead.Orphaned stands for.
type After struct {
	gone     sync.WaitGroup
	mu       sync.Mutex
	programs []*program
}

// add returns a function to call when the mounts of a sandbox are gone.
func (a *After) add(s *Sandbox) (gone func()) {
	if a == nil {
		return func() {
			if !s.kept {
				s.dismiss()
				_, _ = s.wait()
			}
		}
	}
	a.gone.Add(1)
	if !s.kept { // by an Ahead
		a.mu.Lock()
		a.programs = append(a.programs, s.program)
		a.mu.Unlock()
	}
	return a.gone.Done
}

// AwaitMounts returns once the kernel has taken away the mounts of the sandboxes, which can be
// after their last event.
func (a *After) AwaitMounts() { a.gone.Wait() }

// Done says that the work is done, and waits for the end of the set-up programs.
func (a *After) Done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.programs {
		p.dismiss()
		ended := make(chan struct{})
		go func() {
			_, _ = p.wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(dismissTime): // it was stopped
		}
	}
	a.programs = nil
}

// dismissTime bounds the wait for a set-up program that has nothing more to do.
const dismissTime = time.Second
