package main

import (
	"testing"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/cli/sandboxflags"
)

func TestOptionsAreTheSameEverywhere(t *testing.T) { clitest.Consistent(t, command()) }

func TestPolicyPage(t *testing.T) { clitest.PolicyPage(t, new(sandboxflags.Options).Lasting()) }
