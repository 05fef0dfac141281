package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli"
)

// Both programs get the file of --audit.
func TestAuditIsHandedOn(t *testing.T) {
	o := new(options)
	c := o.command()
	c.Action = func(*cli.Context) error { return nil }
	c.Run([]string{"--audit", "/x/audit"}, new(bytes.Buffer), io.Discard, io.Discard)
	assert.Equal(t, []string{"--audit=/x/audit"}, o.shell)
	assert.Equal(t, []string{"--audit=/x/audit"}, o.files)
}
