package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"pikuri/lib/gitdir"
)

// gitFile lists the layers over git directories, as JSON.
const gitFile = "git-layers.json"

// SaveGit notes the layers over git directories of a command, beside those that are
// noted already.
func SaveGit(overlays string, layers []*gitdir.Layer) error {
	known, err := Git(overlays)
	if err != nil {
		return err
	}
	for _, l := range layers {
		at := slices.IndexFunc(known, func(o *gitdir.Layer) bool { return o.GitDir == l.GitDir })
		if at < 0 {
			known = append(known, l)
		} else {
			known[at] = l
		}
	}
	text, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return replace(filepath.Join(overlays, gitFile), text)
}

// Git lists the layers over git directories of a trial, which are not open.
func Git(overlays string) ([]*gitdir.Layer, error) {
	text, err := os.ReadFile(filepath.Join(overlays, gitFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []*gitdir.Layer
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	return list, err
}
