// Pk-fs reads and writes files of a workspace. A process that renames files
// meanwhile cannot lead it outside.
package main

import "os"

var version string // set by the linker

func main() { os.Exit(Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
