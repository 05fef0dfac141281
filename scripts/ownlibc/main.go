// Ownlibc, copied to DIR/NAME, starts DIR/root/usr/bin/NAME on the C library
// that is unpacked below DIR/root, where the machine's own is too old for it.
//
// It is no shell script, because a shell leaves traces in its children: dash
// an open descriptor of the script, bash variables in the environment. A test
// would find both inside a sandbox, and report them as leaks.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// init keeps main on the first thread: the signal that the kernel sends when the
// parent dies is a thread's, and lasts in the program that this thread becomes.
func init() { runtime.LockOSThread() }

func main() {
	fmt.Fprintf(os.Stderr, "ownlibc: %v\n", start(os.Args[1:]))
	os.Exit(127)
}

// start returns only if it fails.
func start(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, name := filepath.Split(self)
	root := filepath.Join(dir, "root")
	loaders, _ := filepath.Glob(root + "/usr/lib/*/ld-linux*.so.*")
	if len(loaders) == 0 {
		// Before Debian 13, packages kept it in /lib.
		loaders, _ = filepath.Glob(root + "/lib/*/ld-linux*.so.*")
	}
	if len(loaders) == 0 {
		return fmt.Errorf("no dynamic loader below %q", root)
	}
	triplet := filepath.Base(filepath.Dir(loaders[0]))
	libs := root + "/lib/" + triplet + ":" + root + "/usr/lib/" + triplet
	argv := append([]string{loaders[0], "--library-path", libs, root + "/usr/bin/" + name}, args...)
	if err := syscall.Exec(loaders[0], argv, environ(dir, root)); err != nil {
		return fmt.Errorf("cannot execute %q: %w", loaders[0], err)
	}
	return nil
}

// environ is the caller's own, except for groff: groff consists of many programs and
// directories, and needs their new paths.
func environ(dir, root string) []string {
	share := root + "/usr/share/groff/current"
	if _, err := os.Stat(share); err != nil {
		return os.Environ()
	}
	return append(os.Environ(),
		"GROFF_BIN_PATH="+dir,
		"GROFF_FONT_PATH="+share+"/font",
		"GROFF_TMAC_PATH="+share+"/tmac:"+root+"/etc/groff")
}
