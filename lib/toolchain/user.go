package toolchain

import (
	"fmt"
	"slices"

	"pikuri/lib/internal/usertable"
)

// UserFile is the path of the user's own rows, or "" if the home is unknown.
func UserFile(h Host) string { return usertable.Path(h.Home, h.Getenv, "toolchains.tsv") }

// LoadFor returns the built-in table with the rows of UserFile: a row replaces
// the built-in row of the same kind and path, other rows follow. It refuses a
// file that another user could have written, and a row that shows credentials, or a
// whole system directory or home.
func LoadFor(h Host) (Table, error) {
	t, err := Load()
	if err != nil {
		return Table{}, fmt.Errorf("internal error: %w", err)
	}
	file := UserFile(h)
	text, err := usertable.Read(file)
	if err != nil || text == "" {
		return t, err
	}
	own, err := Parse(fmt.Sprintf("%q", file), text)
	if err != nil {
		return Table{}, err
	}
	for _, r := range own.rows {
		r.File, r.user = file, true
		if pattern, missing := spell(r.Path, h); missing == "" {
			if why := newDenylist(t, h).danger(pattern, false); why != "" {
				return Table{}, fmt.Errorf("%q: line %d: cannot show %q: %s", file, r.Line, r.Path, why)
			}
		}
		t.put(r)
	}
	return t, nil
}

// put adds a row, or puts it in the place of another.
func (t *Table) put(r Row) {
	i := slices.IndexFunc(t.rows, func(o Row) bool { return o.Kind == r.Kind && o.Path == r.Path })
	if i < 0 {
		t.rows = append(t.rows, r)
		return
	}
	t.replaced = append(t.replaced, t.rows[i])
	t.rows[i] = r
}

// known are all rows with credentials, also those that the user has replaced.
func (t Table) known() []Row { return append(slices.Clip(t.rows), t.replaced...) }
