// Pk-sweep removes unused session directories.
package main

import "os"

var version string // set by the linker

func main() { os.Exit(Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
