package bwrap

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheckUmask(t *testing.T) {
	for mask, good := range map[string]bool{"0000": true, "0022": true, "0077": true, "0777": false, "0100": false, "": true} {
		assert.Equal(t, good, checkUmask("Name:\tpk\nUmask:\t"+mask+"\nState:\tR\n") == nil, mask)
	}
	assert.ErrorContains(t, checkUmask("\nUmask:\t0777\n"), "the umask 0777")
}
