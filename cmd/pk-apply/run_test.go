package main

import (
	"testing"

	"pikuri/lib/cli/clitest"
)

func TestTextsAgree(t *testing.T) { clitest.Consistent(t, command()) }
