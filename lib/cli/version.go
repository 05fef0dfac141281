package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// build describes the binary: the version, the commit ("" when unknown)
// and the Go release.
type build struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// printVersion answers --version, and --version --json.
func (c *Command) printVersion(ctx *Context) error {
	b := c.build()
	if *c.JSON {
		return json.NewEncoder(ctx.Stdout).Encode(b)
	}
	text := b.Name + " " + b.Version
	if b.Commit != "" {
		text += " (" + b.Commit + ")"
	}
	_, err := fmt.Fprintf(ctx.Stdout, "%s %s\n", text, b.Go)
	return err
}

// VersionOf returns the version that --version prints, for a command whose link flag is
// version.
func VersionOf(version string) string { return (&Command{Version: version}).build().Version }

func (c *Command) build() build {
	b := build{Name: c.Name, Version: c.Version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}
