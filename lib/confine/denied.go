package confine

import (
	"path"
	"slices"
	"sync"
)

// A project root that is a system directory is a typing mistake. These lists guard
// against that; they are no defence against an attacker.
var (
	// systemRoots and all directories directly in them, such as /usr/share and
	// /var/tmp, belong to the system. Projects lie deeper: /usr/src/app,
	// /var/www/html.
	systemRoots = []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32",
		"/proc", "/run", "/sbin", "/sys", "/usr", "/var",
	}

	// sharedRoots hold projects directly, or disks, or homes.
	sharedRoots = []string{"/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp"}
)

// homes is where the home directories are.
const homes = "/home"

// DeniedRoot reports whether dir, which is resolved, must not be a writable
// root: it belongs to the system, holds all homes, or is a home. home is $HOME, ""
// if unknown.
func DeniedRoot(dir, home string) bool {
	return SystemTop(dir, home) || slices.Contains(systemPlaces(), path.Dir(dir))
}

// SystemTop reports whether dir, which is resolved, is a system directory as a
// whole, holds all homes, or is a home.
func SystemTop(dir, home string) bool {
	return slices.Contains(systemPlaces(), dir) || slices.Contains(sharedPlaces(), dir) || isHome(dir, home)
}

// Where the directories really are counts too: on most systems /bin is a link to
// /usr/bin, and on some /home is one to /var/home.
var (
	systemPlaces = sync.OnceValue(func() []string { return allNames(systemRoots) })
	sharedPlaces = sync.OnceValue(func() []string { return allNames(sharedRoots) })
)

func allNames(dirs []string) (places []string) {
	for _, dir := range dirs {
		places = append(places, bothNames(dir)...)
	}
	return places
}

func isHome(dir, home string) bool {
	if home != "" && home[0] == '/' && slices.Contains(bothNames(home), dir) {
		return true
	}
	return slices.Contains(bothNames(homes), path.Dir(dir))
}

// bothNames returns the names of one directory: the clean one and, if it can be
// determined, the resolved one.
func bothNames(dir string) []string {
	places := []string{path.Clean(dir)}
	if resolved, err := (view{}).walk(dir); err == nil {
		places = append(places, resolved)
	}
	return places
}
