package monitor

import "sync"

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

// Done says that the work is done.
func (a *After) Done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.programs {
		p.dismiss()
		go p.wait()
	}
	a.programs = nil
}
