package state

import (
	"errors"
	"fmt"
	"strings"
)

// maxWalk bounds the commits that are visited when a repository becomes deeper.
const maxWalk = 1 << 20

// shallow checks the commits that git treats as parentless. Commits that the host had may
// not be added: git gc would treat their history as unreachable. One may be removed if
// the history below it exists.
func shallow(l *lander, data, old []byte) error {
	if data != nil && len(data) == 0 {
		return errors.New("it is empty") // to git a shallow repository without end
	}
	had, now := map[string]bool{}, map[string]bool{}
	for id := range strings.FieldsSeq(string(old)) {
		had[id] = true
	}
	err := eachLine(data, func(id string) error {
		now[id] = true
		if err := l.object(id, "commit"); err != nil {
			return err
		}
		if !had[id] && (l.IsNew == nil || !l.IsNew(id)) {
			return fmt.Errorf("it would hide history of the host below %s", id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var open []string
	for id := range had {
		if !now[id] {
			open = append(open, id)
		}
	}
	return l.complete(open, now)
}

// complete walks from commits down to those that stay shallow, or that the host had:
// all must exist.
func (l *lander) complete(open []string, shallow map[string]bool) error {
	if len(open) > 0 && (l.Parents == nil || l.IsNew == nil) {
		return errors.New("no history is known")
	}
	seen := map[string]bool{}
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		parents, err := l.Parents(id)
		if err != nil {
			return fmt.Errorf("commit %s: %w", id, err)
		}
		for _, parent := range parents {
			if seen[parent] {
				continue
			}
			seen[parent] = true
			if err := l.object(parent, "commit"); err != nil {
				return fmt.Errorf("the history of %s is not complete: %w", id, err)
			}
			if !shallow[parent] && l.IsNew(parent) {
				open = append(open, parent)
			}
		}
		if len(seen) > maxWalk {
			return errors.New("the history is too long to be checked")
		}
	}
	return nil
}
