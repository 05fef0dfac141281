package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pikuri/lib/cli"
	"pikuri/lib/confine"
)

// tell says on standard error how a path got its answer, in the shape of
// namei(1): its beginning, each name on the way, and the deciding root or rule.
func (a *answerer) tell(o outcome) {
	from := ""
	if o.how.Start != "" {
		from = fmt.Sprintf(", from %q", o.how.Start)
	}
	a.ctx.Say("to %s %q%s:", a.mode(), o.path, from)
	for _, reading := range o.how.Readings {
		if len(o.how.Readings) > 1 || reading.Physical {
			a.ctx.Say("  %s", nameOf(reading))
		}
		a.tellSteps(reading.Steps)
	}
	if o.refusal != nil {
		a.ctx.Report(withOption(o.refusal))
		return
	}
	a.ctx.Say("it is %q, %s", o.where, decidedBy(o.how.Root))
}

func nameOf(reading confine.Reading) string {
	if reading.Physical {
		return `".." as the kernel takes it`
	}
	return `".." taken lexically`
}

// tellSteps leaves out steps outside the roots, unless -v is given.
func (a *answerer) tellSteps(steps []confine.Step) {
	hidden := false
	for _, step := range steps {
		switch {
		case !step.Hidden || a.verbose:
			a.ctx.Say("  %s", a.describe(step))
		case !hidden:
			a.ctx.Say("  %s? ... outside every root", indent(step))
		}
		hidden = step.Hidden
	}
}

func (a *answerer) describe(step confine.Step) string {
	text := fmt.Sprintf("%s%c %s", indent(step), step.Kind, plain(step.Name))
	switch {
	case step.Target == "":
	case step.HiddenTarget && !a.verbose:
		text += " -> ... outside every root"
	default:
		text += " -> " + plain(step.Target)
	}
	switch {
	case step.Root == nil:
	case step.Root.Writable:
		text += "  (a writable root)"
	default:
		text += "  (a readable root)"
	}
	return text
}

// indent shows which names were found in the target of a link.
func indent(step confine.Step) string { return strings.Repeat("  ", step.Depth) }

// plain is a name, quoted unless all of it is visible.
func plain(name string) string {
	quoted := strconv.Quote(name)
	if quoted != `"`+name+`"` || strings.ContainsAny(name, " ()?") {
		return quoted
	}
	return name
}

// withOption adds the option to type when the refusal may not say more.
func withOption(refusal error) error {
	known, ok := errors.AsType[*confine.Refusal](refusal)
	if ok && known.Hint() == "" && known.Where() != "" {
		return cli.WithHint(refusal, "-v says where it leads")
	}
	return refusal
}

func decidedBy(root *confine.Root) string {
	switch {
	case root == nil:
		return "and everything is allowed"
	case root.Writable:
		return fmt.Sprintf("in the writable root %q", root.Path)
	}
	return fmt.Sprintf("in the readable root %q", root.Path)
}
