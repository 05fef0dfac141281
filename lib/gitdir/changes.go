package gitdir

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/refs"
)

// RefChanges lists the changes of the git directory's references, HEAD first, that would
// land from a layer which is not open. Those of its submodules are not in it.
func (l *Layer) RefChanges() ([]refs.Change, error) {
	if _, err := os.Stat(l.GitDir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	upper, err := l.openUpper()
	if err != nil {
		return nil, err
	}
	defer unix.Close(upper)
	s, err := l.load()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l.lander.layer, l.lander.repos = l, map[string]*repository{}
	r, err := l.lander.open("")
	if err != nil {
		return nil, err
	}
	defer r.objects.Close()
	held := map[string]time.Time{}
	for name, since := range s.Held {
		held[name] = time.Unix(0, since)
	}
	landed := s.Refs[""]
	if landed == nil {
		landed = map[string]string{}
	}
	o := refs.Options{
		Session: l.Session, Since: time.Unix(0, s.Since), Held: held, Landed: landed,
		Kind: func(string) (string, error) { return "commit", nil }, // its objects have not landed
	}
	changes, _, err := refs.Changes(refs.Host{Common: r.host, Git: r.host, HexLen: r.hexLen()}, upper, o)
	return changes, err
}

// Drop removes all that a layer holds, of which no command uses any: nothing of it lands.
func (l *Layer) Drop() error {
	if err := l.OpenLock(); err != nil {
		return err
	}
	defer l.CloseLock()
	if err := l.Alone(); err != nil {
		return err
	}
	if err := l.empty(); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(l.Dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
