package limits

import "errors"

// Support is whether one limit can be enforced here.
type Support struct {
	Name Name
	No   *Refusal // why not, and the line that would make it so; nil: it can
}

// Check tells for each limit whether it can be enforced here. It changes
// nothing, and may ask systemd whether it is there.
func Check() []Support { return thisHost().support(canAsk) }

func (h host) support(ask func() error) []Support {
	return []Support{
		{Memory, h.without("memory", ask)},
		{Pids, h.without("pids", ask)},
		{Name: CPUTime},
		{Name: FileSize},
	}
}

// without returns what keeps a controller from being used.
func (h host) without(controller string, ask func() error) *Refusal {
	controllers := []string{controller}
	here, err := h.reach(controllers)
	if err == nil {
		if _, err = h.find(here, controllers); err == nil {
			return nil
		}
		if _, lost := h.scopeLike(here); lost != nil {
			err = lost
		} else if e := ask(); e != nil {
			err = besides(err, e)
		} else {
			return nil
		}
	}
	if no, ok := errors.AsType[*Refusal](err); ok {
		return no
	}
	return &Refusal{Reason: err.Error()}
}
