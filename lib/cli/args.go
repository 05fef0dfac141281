package cli

import (
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// readOptions sets the options in args and returns the operands. The rules are
// those of getopt_long(3) with POSIXLY_CORRECT set: options end at "--", which
// is dropped, or at the first operand (with Verb, at the second).
//
// The parser of urfave/cli v2 is not used. It reads neither -Cdir nor -qz, takes
// -readable for --readable, accepts --quiet=true for a switch, and its error for
// an unknown option loses how the option was typed.
func (c *Command) readOptions(flags *cli.Context, args []string) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case len(arg) < 2 || arg[0] != '-':
			operands = append(operands, arg)
			if !c.Interspersed && (!c.Verb || len(operands) > 1) {
				return append(operands, args...), nil
			}
		case arg[1] == '-':
			args, err = c.readLong(flags, arg, args)
		default:
			args, err = c.readShort(flags, arg, args)
		}
		if err != nil {
			return nil, err
		}
	}
	return operands, nil
}

// readLong sets --name, --name=value or --name value, and returns the remaining
// words of rest.
func (c *Command) readLong(flags *cli.Context, arg string, rest []string) ([]string, error) {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	o, ok := flags.Value(name).(Option)
	switch {
	case !ok || o.Long != name:
		return nil, c.unknown("--" + name)
	case !o.Value && hasValue:
		return nil, Usage("option %q takes no value", "--"+name)
	case o.Value && !hasValue:
		return c.setNext(flags, o, "--"+name, rest)
	}
	return rest, c.set(flags, o, value)
}

// readShort sets the options in -q, -qz, -Cdir or -C dir.
func (c *Command) readShort(flags *cli.Context, arg string, rest []string) ([]string, error) {
	for i := 1; i < len(arg); i++ {
		short, value := arg[i:i+1], arg[i+1:]
		o, ok := flags.Value(short).(Option)
		switch {
		case !ok:
			return nil, c.unknown(arg)
		case o.Value && value == "":
			return c.setNext(flags, o, "-"+short, rest)
		case o.Value:
			return rest, c.set(flags, o, value)
		}
		if err := c.set(flags, o, ""); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

func (c *Command) setNext(flags *cli.Context, o Option, typed string, rest []string) ([]string, error) {
	if len(rest) == 0 {
		return nil, Usage("option %q needs a value", typed)
	}
	return rest[1:], c.set(flags, o, rest[0])
}

func (c *Command) set(flags *cli.Context, o Option, value string) error {
	var err error
	if c.Workspace != nil {
		err = c.Workspace.permit(users, o, value)
	}
	if err == nil {
		err = flags.Set(o.Long, value)
	}
	if err != nil {
		return Usage("option %q: %w", "--"+o.Long, err)
	}
	return nil
}

// unknown names the typo, and the option that was probably meant.
func (c *Command) unknown(typed string) error {
	err := Usage("unknown option %q", typed)
	if meant := similar(strings.TrimLeft(typed, "-"), c.allOptions()); meant != "" {
		err = WithHint(err, "did you mean --%s?", meant)
	}
	return err
}

// alike is the least similarity of a typo and an option, by Jaro and Winkler: it
// counts letters that differ or changed places. 0.7 and 4 are their own
// numbers for the weight of a common beginning.
const alike = 0.85

// similar returns the long name that begins with typed, or else is most like it;
// "" if none is.
func similar(typed string, options []Option) string {
	meant, most := "", alike
	for _, o := range options {
		likeness := smetrics.JaroWinkler(typed, o.Long, 0.7, 4)
		if strings.HasPrefix(o.Long, typed) {
			likeness = 1
		}
		if len(typed) > 1 && likeness > most {
			meant, most = o.Long, likeness
		}
	}
	return meant
}
