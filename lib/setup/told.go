package setup

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pikuri/lib/internal/fsat"
)

// maxTold bounds the names of one directory: a command may have made a million.
const maxTold = 200

// Entry is a file in a directory of Job.Told.
type Entry struct {
	Path string `json:"path"` // bytes that are not UTF-8 are replaced
	Dir  bool   `json:"dir,omitempty"`
}

// tell writes the names of the files in the directories of Job.Told, one JSON object
// a line. All its processes have ended. No symbolic link of theirs is followed, and no
// file is opened.
func (r *run) tell() {
	var text []byte
	for _, dir := range r.job.Told {
		for _, e := range r.entries(dir) {
			line, err := json.Marshal(e)
			if err != nil {
				return
			}
			text = append(append(text, line...), '\n')
		}
	}
	if len(text) > 0 {
		_ = fsat.Fill(r.job.FDs.Told, text)
	}
}

func (r *run) entries(dir string) (list []Entry) {
	fd, err := fsat.Kernel().Open(r.tree, below(dir), unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	_ = fsat.Each(fd, func(e fsat.Entry) error {
		if list = append(list, Entry{Path: filepath.Join(dir, e.Name), Dir: e.Type == unix.DT_DIR}); len(list) == maxTold {
			return errEnough
		}
		return nil
	})
	return list
}

var errEnough = errors.New("enough")
