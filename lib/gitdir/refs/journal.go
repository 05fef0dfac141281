package refs

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/gitlock"
)

// A journal names the files that one Apply locks. If the process is killed, the next
// Apply removes these locks. Until then the journal has an flock(2) on it. git does not
// read it: its name begins with a dot.
const journalPrefix = ".pk-locks-"

func (h Host) journals() string { return filepath.Join(h.Common, "refs") }

// begin makes the journal.
func (t *transaction) begin() (err error) {
	if t.journal, err = os.CreateTemp(t.journals(), journalPrefix+"*"); err == nil {
		_ = unix.Flock(int(t.journal.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return err
}

func (t *transaction) end() {
	os.Remove(t.journal.Name())
	t.journal.Close()
}

// Sweep removes the locks of killed processes of pk.
func (h Host) Sweep() {
	entries, err := os.ReadDir(h.journals())
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), journalPrefix) {
			sweepJournal(filepath.Join(h.journals(), e.Name()))
		}
	}
}

func sweepJournal(name string) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // its process lives
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		if file, whole := strings.CutSuffix(line, "\n"); whole {
			gitlock.Sweep(file)
		}
	}
	os.Remove(name)
}
