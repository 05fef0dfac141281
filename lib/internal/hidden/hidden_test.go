package hidden

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDispatch(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		self bool // through DispatchSelf; args hold argument zero
		want []string
	}{
		{"a mode", []string{"--pk-a", "x"}, false, []string{"a", "x"}},
		{"a mode without arguments", []string{"--pk-b"}, false, []string{"b"}},
		{"no arguments", nil, false, nil},
		{"another option", []string{"--pk-c"}, false, nil},
		{"the name of a mode in the second place", []string{"x", "--pk-a"}, false, nil},
		{"an abbreviation", []string{"--pk"}, false, nil},
		{"a value", []string{"--pk-a=x"}, false, nil},

		{"started through /proc/self/exe", []string{Self, "--pk-a", "x"}, true, []string{"a", "x"}},
		{"started through a descriptor", []string{"/proc/self/fd/7", "--pk-b"}, true, []string{"b"}},
		{"started by name", []string{"prog", "--pk-a", "x"}, true, nil},
		{"started by path", []string{"/usr/bin/prog", "--pk-a"}, true, nil},
		{"started without argument zero", nil, true, nil},
		{"under a title", []string{"pk-test: x", "--pk-a", "x"}, true, []string{"a", "x"}},
		{"under another title", []string{"pk-other: x", "--pk-a", "x"}, true, nil},
		{"a mode as argument zero", []string{"--pk-a"}, true, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			record := func(name string) Mode {
				return Mode{Name: "--pk-" + name, Title: "pk-test: ", Run: func(args []string) error { got = append([]string{name}, args...); return nil }}
			}
			dispatch := Dispatch
			if row.self {
				dispatch = DispatchSelf
			}
			job := dispatch(row.args, record("a"), record("b"))
			require.Equal(t, row.want != nil, job != nil)
			assert.Empty(t, got, "the job has begun")
			if job != nil {
				require.NoError(t, job())
				assert.Equal(t, row.want, got)
			}
		})
	}
}

func TestErrorsOfAMode(t *testing.T) {
	other := errors.New("other")
	for err, want := range map[error]string{ErrOwnUse: "--pk-e is for pk's own use", other: "other"} {
		job := Dispatch([]string{"--pk-e"}, Mode{Name: "--pk-e", Run: func([]string) error { return err }})
		got := job()
		assert.ErrorIs(t, got, err)
		assert.EqualError(t, got, want)
	}
}

func TestCheck(t *testing.T) {
	const mode = "--pk-checked"
	err := Check(mode)
	require.ErrorIs(t, err, ErrNoDispatch)
	assert.Contains(t, err.Error(), mode)
	Dispatch([]string{"x"}, Mode{Name: mode})
	assert.NoError(t, Check(mode))
	assert.ErrorIs(t, Check(mode+"-other"), ErrNoDispatch)
	DispatchSelf(nil, Mode{Name: mode + "-self"})
	assert.NoError(t, Check(mode+"-self"))
}
