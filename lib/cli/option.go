package cli

import (
	"flag"
	"fmt"
	"strconv"
)

// Option is one command-line option: a long name, at most one short name, and a
// function that takes its value.
//
// Options are set in the order of the command line, so two options that append
// to one list keep the order in which they were typed.
type Option struct {
	Long  string // without the dashes
	Short string // one letter, or ""
	Value bool   // takes a value

	set      func(string) error
	path     pathUse
	tightens func(string) bool // nil: each value of a tightening option does
}

// pathUse tells how a policy reads a relative value.
type pathUse int

const (
	notPath    pathUse = iota // a word: taken as it is
	isPath                    // begins at the policy's directory
	isPathOrIn                // the same, but "-" is standard input
)

// Path marks an option whose value names a file or a directory.
func (o Option) Path() Option { o.path = isPath; return o }

// PathOrStdin marks one whose value may also be "-", for standard input.
func (o Option) PathOrStdin() Option { o.path = isPathOrIn; return o }

// Tightens sets tells, which reports whether a value of a tightening option takes permissions
// away, or a value of a neutral one allows no more than before; see Classes.
func (o Option) Tightens(tells func(value string) bool) Option { o.tightens = tells; return o }

// Narrower tells whether a value of a tightening or neutral option allows no more now.
func (o Option) Narrower(value string) bool { return o.tightens == nil || o.tightens(value) }

// FromInput marks a neutral option that names a file to read, which can be any: it allows no
// more if that is standard input.
func (o Option) FromInput() Option { return o.Tightens(func(v string) bool { return v == "-" }) }

// Noted has note called when the option was given, and its value taken.
func (o Option) Noted(note func()) Option {
	set := o.set
	o.set = func(v string) error {
		if err := set(v); err != nil {
			return err
		}
		note()
		return nil
	}
	return o
}

// Switch is an option without a value. It can be turned on only: an option
// that turns something off has a name of its own (--no-x).
func Switch(dst *bool, long, short string) Option {
	return Option{Long: long, Short: short, set: func(string) error { *dst = true; return nil }}
}

// Text is an option with one value; the last one given wins.
func Text(dst *string, long, short string) Option {
	return Func(func(v string) error { *dst = v; return nil }, long, short)
}

// List is an option that may be repeated. Its values are never split or
// trimmed: a comma or a blank belongs to the value.
func List(dst *[]string, long, short string) Option {
	return Func(func(v string) error { *dst = append(*dst, v); return nil }, long, short)
}

// Int is an option whose value is a whole number from least to most.
func Int(dst *int, least, most int, long, short string) Option {
	return Func(func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		if n < least || n > most {
			return fmt.Errorf("%q is not between %d and %d", v, least, most)
		}
		*dst = n
		return nil
	}, long, short)
}

// Func is an option whose value is handed to set as it was typed. An error of
// set becomes a usage error that names the option.
func Func(set func(string) error, long, short string) Option {
	return Option{Long: long, Short: short, Value: true, set: set}
}

// The rest makes an Option a flag of urfave/cli, and the value of that flag.
//
// The flags of urfave/cli itself are not used. They compute their names with regular
// expressions at each use, and urfave/cli uses all names for each one: for the options
// of pk-bash that took a millisecond in v2.27.7.

// Apply registers the option under both of its names.
func (o Option) Apply(s *flag.FlagSet) error {
	s.Var(o, o.Long, "")
	if o.Short != "" {
		s.Var(o, o.Short, "")
	}
	return nil
}

// Names is empty. To find the flags with an action, urfave/cli would look each
// name up among those of all flags, and none has one.
func (o Option) Names() []string { return nil }

// IsSet is always false: the destination of the option tells.
func (o Option) IsSet() bool { return false }

// Set takes the value; a switch ignores it.
func (o Option) Set(v string) error { return o.set(v) }

// Get returns the option itself.
func (o Option) Get() any { return o }

// String is empty: urfave/cli would parse it as the value of --help.
func (o Option) String() string { return "" }
