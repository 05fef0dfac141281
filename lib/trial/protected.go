package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// protectedFile has the absolute paths that callers have protected by name, with the
// rule: a JSON object.
const protectedFile = "protected.json"

// SaveProtected notes paths that a caller protects by name, beside those that are noted
// already.
func SaveProtected(overlays string, named map[string]string) error {
	if len(named) == 0 {
		return nil
	}
	known, err := readProtected(overlays)
	if err != nil {
		return err
	}
	maps.Copy(known, named)
	text, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return replace(filepath.Join(overlays, protectedFile), text)
}

func readProtected(overlays string) (map[string]string, error) {
	known := map[string]string{}
	text, err := os.ReadFile(filepath.Join(overlays, protectedFile))
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	return known, err
}

// Protected lists the paths that callers have protected by name, with the rule.
func (t *Trial) Protected() (map[string]string, error) { return readProtected(t.overlays()) }
