// Package gitconfig reads git's configuration, and never runs git. It composes the
// user's configuration for the sandbox as data, and carries a command's harmless changes
// over to a repository's configuration.
//
// Nothing here blocks on a FIFO, opens a device, or reads without end. A file system
// that does not answer does block it.
package gitconfig

// Getenv looks up a variable of the caller's environment, as os.LookupEnv does.
type Getenv func(name string) (value string, set bool)

func (get Getenv) value(name string) string {
	value, _ := get(name)
	return value
}
