package main

import (
	"testing"

	"pikuri/lib/cli/clitest"
)

func TestConsistent(t *testing.T) { clitest.Consistent(t, command(), verbNames()...) }

func TestPolicyPage(t *testing.T) { clitest.PolicyPage(t, new(options).policyOptions()) }

func TestScripts(t *testing.T) { clitest.Scripts(t) }
