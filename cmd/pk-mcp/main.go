// Pk-mcp offers the fenced shell of pk-bash and the files of pk-fs to agents that
// speak the Model Context Protocol.
package main

import "os"

var version string // set by the linker

func main() { os.Exit(Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
