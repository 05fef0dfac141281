package quarantine

import (
	"fmt"
	"strings"

	"pikuri/lib/internal/lazy"
)

// maxAlike bounds the lines of one kind: a command may have deleted a thousand branches.
const maxAlike = 20

// names are the parts in which lines of one kind differ: quoted text, and object IDs.
var names = lazy.Regexp(`"(?:[^"\\]|\\.)*"|\b[0-9a-f]{7,}\b`)

// Few leaves out lines of a Report of which there are many of one kind, and says last how many.
func Few(lines []string) []string {
	var kept []string
	count := map[string]int{}
	var order []string
	for _, line := range lines {
		kind := names().ReplaceAllString(line, "...")
		for _, advice := range []string{";", " until: "} { // names without quotes follow
			kind, _, _ = strings.Cut(kind, advice)
		}
		if count[kind]++; count[kind] <= maxAlike {
			kept = append(kept, line)
		} else if count[kind] == maxAlike+1 {
			order = append(order, kind)
		}
	}
	for _, kind := range order {
		kept = append(kept, fmt.Sprintf("%d more of these: %s", count[kind]-maxAlike, kind))
	}
	return kept
}
