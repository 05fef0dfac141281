// Package gitconfig reads Git repositories on the host and never runs git there.
// What lies in a repository may have been written by a command in a sandbox,
// and git runs what its configuration names: hooks, a pager, a monitor, a
// filter. Reading is harmless, if nothing read is believed further than its
// purpose goes, which is for Identify a name, and for Find the names of files
// to protect.
//
// Nothing here blocks on a FIFO, opens a device, or reads without end. A file
// system that does not answer blocks it like everybody.
package gitconfig

// Getenv looks up a variable of the caller's environment, as os.LookupEnv does.
type Getenv func(name string) (value string, set bool)

func (get Getenv) value(name string) string {
	value, _ := get(name)
	return value
}
