package shell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Root that became another user keeps its terminal from that user's processes.
func TestAskProgramApart(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ask")
	leads := "#!/bin/sh\nread -r _ _ _ _ _ session _ </proc/$$/stat; [ \"$session\" = $$ ]\n"
	require.NoError(t, os.WriteFile(program, []byte(leads), 0o700))
	for _, apart := range []bool{true, false} {
		yes, _, err := AskProgram(program, Question{Command: "true"}, apart, nil)
		require.NoError(t, err)
		assert.Equal(t, apart, yes, "it leads a session of its own")
	}
}
