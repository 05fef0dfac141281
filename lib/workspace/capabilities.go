package workspace

// Capabilities are what a Workspace promises of the medium that it is on. The
// zero value promises nothing.
type Capabilities struct {
	// AtomicRename: Rename happens as a whole or not at all, and nobody sees it
	// half done.
	AtomicRename bool

	// ReadAfterWrite: what Write and Append have done is seen by the next Read,
	// List, Exists and Stat of the same client.
	ReadAfterWrite bool

	// DurableOnWrite: what Write and Append have done is on stable storage when
	// they return.
	DurableOnWrite bool

	// Distributed: the same workspace can be opened by several hosts.
	Distributed bool

	// AtomicWrite: Write replaces a file in one step, like AtomicWrite.
	AtomicWrite bool

	// RenameDir: Rename moves directories too.
	RenameDir bool
}

// CapabilityReporter is a Workspace that knows its Capabilities.
type CapabilityReporter interface {
	Capabilities() Capabilities
}

// CapabilitiesOf returns the capabilities of ws, or none if it does not report
// any or is nil.
func CapabilitiesOf(ws Workspace) Capabilities {
	if r, ok := ws.(CapabilityReporter); ok && !isNil(ws) {
		return r.Capabilities()
	}
	return Capabilities{}
}
