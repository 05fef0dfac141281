package objects

// Added reports whether the host has an object because it landed.
func (l *Lander) Added(id string) bool {
	o, ok := l.format.parseID(id)
	if ok {
		_, ok = l.landed[o]
	}
	return ok
}
