package fence

import (
	"fmt"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli"
	"pikuri/lib/session"
)

// Join gives the plan the overlays of its session, in which what is written
// stays for the session's next command. A plan without a session, or without
// overlays, is left as it is. Call it when all that can be refused has been:
// from here on a keeper may run.
func (f *Fence) Join(ctx *cli.Context) error {
	lowers := f.Plan.Overlays()
	if f.Session == nil || len(lowers) == 0 {
		return nil
	}
	nsenter := bwrap.Nsenter()
	if nsenter == "" {
		ctx.Warn("what is written to caches is lost with the command: nsenter (util-linux) is missing")
		return nil
	}
	joined, err := session.Join(f.Session, lowers, session.JoinOptions{Nsenter: nsenter})
	if err != nil {
		return err
	}
	f.joined = joined
	agrees := joined.Agrees(f.Plan.Table())
	for _, path := range f.Plan.Hosts() {
		if !agrees && !joined.Same(path) {
			return cli.WithHint(fmt.Errorf("cannot show %q: it was mounted after the session began", path),
				"wait until no command of the session runs, then end it with pk-sweep --session")
		}
	}
	known := len(f.Plan.Warnings)
	err = f.Plan.Join(&bwrap.Joined{
		User: joined.User, Mount: joined.Mount, Keeper: joined.Pid, Lock: joined.Lock, Shown: joined.Shown, Root: joined.Root(),
		Enter: func(user, mnt int) []string { return session.Line(nsenter, user, mnt) },
	}, joined.Refused)
	for _, w := range f.Plan.Warnings[known:] {
		ctx.Warn("%s", w)
	}
	if len(joined.Memory) > 0 {
		ctx.Warn("kept in memory, and no longer than commands of the session follow each other: %q", joined.Memory)
	}
	if err != nil {
		return err
	}
	return f.Plan.Require(f.require) // "overlay" may not hold any more
}
