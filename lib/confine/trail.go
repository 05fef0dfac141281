package confine

// Trail returns the places that name, relative to the working directory, leads
// through: each link on the way, and at last what it names, resolved. Whoever
// can change none of them cannot make name another thing.
func Trail(name string) ([]string, error) {
	start, err := absolute(name)
	if err != nil {
		return nil, err
	}
	var trail []string
	w := walker{rest: start, missing: -1, visit: func(s stop) {
		if s.target != "" {
			trail = append(trail, s.place)
		}
	}}
	where, err := w.walk()
	if err != nil {
		return nil, err
	}
	return append(trail, where), nil
}
