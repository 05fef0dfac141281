package workspace

// Capabilities are the guarantees of a Workspace on its medium. The zero value promises
// nothing.
type Capabilities struct {
	// AtomicRename: Rename happens as a whole or not at all, and no reader sees it half done.
	AtomicRename bool

	// ReadAfterWrite: the next Read, List, Exists and Stat of the same client see the effects
	// of Write and Append.
	ReadAfterWrite bool

	// DurableOnWrite: the effects of Write and Append are on stable storage when these
	// return.
	DurableOnWrite bool

	// Distributed: the same workspace can be opened by several hosts.
	Distributed bool

	// AtomicWrite: Write replaces a file in one step, like AtomicWrite.
	AtomicWrite bool

	// RenameDir: Rename moves directories too.
	RenameDir bool
}

// CapabilityReporter is a Workspace that reports its Capabilities.
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
