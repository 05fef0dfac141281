// Pk-bwrap runs a command in a sandbox that shows a workspace and little else.
package main

import (
	"os"

	"pikuri/lib/monitor"
)

var version string // set by the linker

func main() {
	monitor.DefaultSignals()
	os.Exit(Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
