package sandboxflags

import (
	"fmt"
	"path/filepath"

	"pikuri/lib/audit"
	"pikuri/lib/cli"
)

// refuseShown refuses an audit file that the command could read or change.
func (f *Fence) refuseShown(log *audit.Log) error {
	if log == nil {
		return nil
	}
	err := log.CheckOutside(f.Opened.Roots())
	if rule, shown := f.Plan.Shows(log.Place()); err == nil && shown {
		err = log.Within(fmt.Sprintf("what the sandbox shows (%s)", rule))
	}
	return cli.Invalid(err)
}

// Record returns a record with the facts about the sandbox; f is nil before there is one.
func (o *Options) Record(event audit.Event, f *Fence) audit.Record {
	r := audit.Record{Event: event, Session: o.SessionName()}
	if f == nil {
		if project, err := filepath.Abs(o.Project()); err == nil {
			r.SetProject(project)
		}
		return r
	}
	r.SetProject(f.ProjectRoot())
	r.RunAs, r.Guarantees = f.RunAs, f.Plan.Holding()
	return r
}
