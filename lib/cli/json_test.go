package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJSONDrivesNoTerminal(t *testing.T) {
	const text = "plain <é 漢> \x1b[2J \x7f \u009b2J \u202e \U000e0041"
	var out bytes.Buffer
	require.NoError(t, JSON(&out).Encode(text))
	assert.Equal(t, `"plain <é 漢> \u001b[2J \u007f \u009b2J \u202e \udb40\udc41"`+"\n", out.String())
	var back string
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	assert.Equal(t, text, back)
}
