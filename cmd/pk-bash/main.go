// Pk-bash asks, runs one shell command under a time limit and reports the
// result.
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
