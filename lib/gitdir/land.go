package gitdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/gitdir/state"
	"pikuri/lib/internal/fsat"
)

// lander lands what commands have written to a layer. Whatever it reads there may
// be an attacker's, and changes while it is read.
type lander struct {
	mutex sync.Mutex
	layer *Layer
	base  *os.File // the host's index when the overlay was mounted, or nil
	repos map[string]*repository
}

// repository is one git directory below a layer: the layer's own, or one of its
// submodules'.
type repository struct {
	rel     string // below the layer's git directory; "" for that itself
	host    string
	format  objects.Format
	objects *objects.Database
	lander  *objects.Lander
}

// landed is what one landing has found.
type landed struct {
	*state_
	told []string
	keep []string // paths below the upper layer that stay for the next command
	errs []error
}

func (r *landed) tell(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !slices.Contains(r.told, line) {
		r.told = append(r.told, line)
	}
}

func (r *landed) stays(names ...string) { r.keep = append(r.keep, names...) }
