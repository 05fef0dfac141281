package main

import (
	"testing"

	"pikuri/lib/cli/clitest"
)

func TestOptionsAreTheSameEverywhere(t *testing.T) { clitest.Consistent(t, command()) }
