package workspace

import "io/fs"

// Option changes the workspaces of NewLocalWorkspace and NewMemWorkspace. Options about a
// medium have no effect in memory.
type Option func(*config)

// config is the result of the options.
type config struct {
	maxFileSize int64 // 0: none
	maxRead     int64
	maxEntries  int
	maxDepth    int // 0: none

	filePerm, dirPerm fs.FileMode

	sync         bool
	atomicWrites bool
	hardLinks    bool
	noLinks      bool
	oneDevice    bool
	gitDirs      bool
}

const (
	// defaultMaxRead bounds the memory that Read uses. An agent can make a file of any size
	// at no cost, and the host must survive it.
	defaultMaxRead = 256 << 20

	// defaultMaxEntries bounds the memory that List uses, some 100 MiB.
	defaultMaxEntries = 1_000_000
)

func newConfig(opts []Option) config {
	c := config{maxRead: defaultMaxRead, maxEntries: defaultMaxEntries, filePerm: 0o644, dirPerm: 0o755}
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// WithMaxFileSize refuses to read, and to write, files of more than n bytes: ErrTooLarge.
// Without it, Read refuses files of more than 256 MiB; Open and the writing operations
// have no limit. Numbers below 1 change nothing.
func WithMaxFileSize(n int64) Option {
	return func(c *config) {
		if n > 0 {
			c.maxFileSize, c.maxRead = n, n
		}
	}
}

// WithMaxEntries refuses to List directories of more than n entries: ErrTooMany.
// The default is a million; numbers below 1 change nothing. Entries has no limit.
func WithMaxEntries(n int) Option {
	return func(c *config) {
		if n > 0 {
			c.maxEntries = n
		}
	}
}

// WithMaxDepth refuses paths of more than n names: ErrTooMany. That bounds Walk and Glob.
// RemoveAll removes deeper entries too.
func WithMaxDepth(n int) Option {
	return func(c *config) { c.maxDepth = n }
}

// WithPerm sets the permissions of new files and new directories, less the
// umask. The default is 0644 and 0755.
func WithPerm(file, dir fs.FileMode) Option {
	return func(c *config) { c.filePerm, c.dirPerm = file.Perm(), dir.Perm() }
}

// WithSync makes all writing operations sync their effects before they return.
func WithSync() Option {
	return func(c *config) { c.sync = true }
}

// WithAtomicWrites makes Write put the whole file in place in one step, as AtomicWrite
// does.
func WithAtomicWrites() Option {
	return func(c *config) { c.atomicWrites = true }
}

// WithHardLinks allows writing files with several names in place. Without it, such a
// write is ErrAccessDenied, as another name may lie outside. Replacing a file in one step
// leaves its other names alone, and is always allowed.
func WithHardLinks() Option {
	return func(c *config) { c.hardLinks = true }
}

// WithoutSymlinks refuses paths with symbolic links in them, even if these stay inside:
// ErrPathTraversal. Rename, Delete and RemoveAll still act on links.
func WithoutSymlinks() Option {
	return func(c *config) { c.noLinks = true }
}

// WithGitDirs allows writing git directories. Without it, making, writing, moving or
// removing a .git, a file below one, or a file of a directory that is a git directory by
// its contents is ErrAccessDenied: git on the host runs and follows these files. A
// directory with a .git somewhere in it can be moved and removed as a whole.
func WithGitDirs() Option {
	return func(c *config) { c.gitDirs = true }
}

// WithOneFileSystem refuses paths that lead through a mount point below the
// root: ErrPathTraversal. RemoveAll never crosses one.
func WithOneFileSystem() Option {
	return func(c *config) { c.oneDevice = true }
}
