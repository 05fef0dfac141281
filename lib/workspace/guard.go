package workspace

// Access is what an operation is about to do, and where it really does it.
type Access struct {
	// Path is the place that the operation has come to, every link followed,
	// relative to the root of the workspace; "." for the root.
	Path  string
	Write bool   // it is to be written or removed; otherwise to be read
	Links uint64 // how many names the file has; 0 if it is missing or no file
}

// Guard decides about an access. An error of it ends the operation, before it
// has told or changed anything, and matches what the operation returns.
type Guard func(Access) error

// Guarder is a Workspace that knows where its paths really lead, and can ask.
// A workspace without links needs none: its paths lead where they say.
type Guarder interface {
	// Guarded returns a view of the workspace that asks guard about each place
	// before it touches it, in addition to whom it asks already. Entries of a
	// directory that guard does not let be read are left out of lists. An
	// operation on a whole tree asks about all of the tree first.
	Guarded(guard Guard) Workspace
}
