package trial

// State is what a path stood for.
type State struct{}
