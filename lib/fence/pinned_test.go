package fence

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPinned(t *testing.T) {
	for _, row := range []struct{ home, value, want string }{
		{"/home/u", "/home/u/go", "/home/u/go"},
		{"/home/u", "/home/u/go:/srv/go", "/home/u/go:/srv/go"}, // the table takes the first
		{"/home/u", "/srv/go:/home/u/go", ""},
		{"/home/u", "/home/u/../v", ""},
		{"/home/u", "/home/user", ""},
		{"/home/u", "1.2", "1.2"},
		{"/", "/srv/go", ""}, // the home of a system account
		{"", "/srv/go", ""},  // no account
	} {
		t.Setenv("PK_TEST_MOVES", row.value)
		assert.Equal(t, row.want, pinned(row.home).Getenv("PK_TEST_MOVES"), "%q in %q", row.value, row.home)
	}
	t.Setenv("PATH", "/srv/bin")
	assert.Equal(t, "/srv/bin", pinned("/home/u").Getenv("PATH"))
}
