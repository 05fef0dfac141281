package confine

import (
	"path"
	"slices"
	"sync"
)

// deniedRoots are the tops of the system. To be a project root or a writable
// root, a directory has to be below one of them; being one is a slip of the
// finger. This is a guard for the user, not a wall against an attacker.
var deniedRoots = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64",
	"/libx32", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin",
	"/srv", "/sys", "/tmp", "/usr", "/var",
}

// homes is where the home directories are.
const homes = "/home"

// DeniedRoot tells whether path, which is resolved, must not be a writable
// root: it is the top of a system directory, holds all homes, or is a home.
// home is $HOME, "" if unknown.
func DeniedRoot(path, home string) bool {
	return slices.Contains(deniedPlaces(), path) || isHome(path, home)
}

// deniedPlaces are the denied roots and where they really are: on most systems
// /bin is a link to /usr/bin, and on some /home is one to /var/home.
var deniedPlaces = sync.OnceValue(func() []string {
	places := slices.Clone(deniedRoots)
	for _, root := range deniedRoots {
		places = append(places, bothNames(root)...)
	}
	return places
})

func isHome(dir, home string) bool {
	if home != "" && home[0] == '/' && slices.Contains(bothNames(home), dir) {
		return true
	}
	return slices.Contains(bothNames(homes), path.Dir(dir))
}

// bothNames returns the names of one directory: the clean one and, when it can be
// told, the resolved one.
func bothNames(dir string) []string {
	places := []string{path.Clean(dir)}
	if resolved, err := walk(dir); err == nil {
		places = append(places, resolved)
	}
	return places
}
