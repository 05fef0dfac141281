package cli

import (
	"strings"
)

// normalize rewrites args, as typed, into the one form that is handed to
// urfave/cli: `--name` and `--name=value`, then `--`, then the operands.
//
// urfave/cli v2 has no notion of `-Cdir` or `-qz`, takes `-readable` for
// `--readable`, and reports an unknown option with one dash and without saying
// what to type. Doing the split here gives the rules of getopt_long(3) with
// POSIXLY_CORRECT set, and messages that quote what was typed: options end at
// the first operand (with Verb, at the second) or at `--`, which is dropped.
func (c *Command) normalize(args []string) ([]string, error) {
	var options, operands []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			operands = append(operands, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			operands = append(operands, arg)
			if c.Interspersed || c.Verb && len(operands) == 1 {
				continue
			}
			operands = append(operands, args[i+1:]...)
			break
		}
		expand := c.expandShort
		if strings.HasPrefix(arg, "--") {
			expand = c.expandLong
		}
		expanded, used, err := expand(arg, args[i+1:])
		if err != nil {
			return nil, err
		}
		options = append(options, expanded...)
		i += used
	}
	return append(append(options, "--"), operands...), nil
}

// expandLong handles --name, --name=value and --name value.
func (c *Command) expandLong(arg string, rest []string) ([]string, int, error) {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	o, ok := c.option(func(o Option) bool { return o.Long == name })
	switch {
	case !ok:
		return nil, 0, c.unknown("--" + name)
	case !o.Value && hasValue:
		return nil, 0, Usage("option %q takes no value", "--"+name)
	case !o.Value:
		return []string{"--" + name}, 0, nil
	case hasValue:
		return []string{"--" + name + "=" + value}, 0, nil
	case len(rest) == 0:
		return nil, 0, Usage("option %q needs a value", "--"+name)
	}
	return []string{"--" + name + "=" + rest[0]}, 1, nil
}

// expandShort handles -q, -qz, -Cdir and -C dir.
func (c *Command) expandShort(arg string, rest []string) ([]string, int, error) {
	var out []string
	for i := 1; i < len(arg); i++ {
		short := arg[i : i+1]
		o, ok := c.option(func(o Option) bool { return o.Short == short })
		switch {
		case !ok && len(arg) > 2:
			return nil, 0, c.unknown(arg)
		case !ok:
			return nil, 0, c.unknown("-" + short)
		case !o.Value:
			out = append(out, "--"+o.Long)
		case i+1 < len(arg):
			return append(out, "--"+o.Long+"="+arg[i+1:]), 0, nil
		case len(rest) == 0:
			return nil, 0, Usage("option %q needs a value", "-"+short)
		default:
			return append(out, "--"+o.Long+"="+rest[0]), 1, nil
		}
	}
	return out, 0, nil
}

func (c *Command) option(is func(Option) bool) (Option, bool) {
	for _, o := range c.allOptions() {
		if is(o) {
			return o, true
		}
	}
	return Option{}, false
}

// unknown names the typo, and the option that was probably meant.
func (c *Command) unknown(typed string) error {
	err := Usage("unknown option %q", typed)
	bare := strings.TrimLeft(typed, "-")
	for _, o := range c.allOptions() {
		if len(bare) > 1 && (strings.HasPrefix(o.Long, bare) || strings.HasPrefix(bare, o.Long)) {
			return WithHint(err, "did you mean --%s?", o.Long)
		}
	}
	return err
}
