package fence

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"pikuri/lib/gate"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/monitor"
	"pikuri/lib/setup"
	"pikuri/lib/trace"
)

// network returns the network of the sandbox, or nil if bwrap makes it: the host's, or
// an unshared loopback. The commands of a session share their loopback.
func (f *Fence) network() *gate.Config {
	switch {
	case !f.NoNet:
		return nil
	case f.Gate != nil:
		return f.Gate
	case f.Session != nil || f.Reserved != nil && f.Reserved.Named():
		return &gate.Config{}
	}
	return nil
}

// openReport makes the file in which the gate's records are.
func (f *Fence) openReport(c *monitor.Config) error {
	if f.Plan.Gate == nil {
		return nil
	}
	var err error
	if f.report, err = memfd("connections"); err != nil {
		return err
	}
	c.Report = f.report
	if f.Session != nil {
		c.Session = f.Session.Locked()
	}
	return nil
}

// Connections returns the gate's records of the time in which the command ran, in a
// session those of the commands beside it as well. Call it once the command has ended.
func (f *Fence) Connections() []gate.Record {
	return records[gate.Record](f.report)
}

// Left returns the files of the command in directories that are gone with it
// (Plan.Vanishing). Call it once the command has ended.
func (f *Fence) Left() []setup.Entry { return records[setup.Entry](f.told) }

// Failed returns the system calls of the command that failed, the latest first, if Trace
// asks for them.
func (f *Fence) Failed() []trace.Failure {
	if f.failed == nil {
		return nil
	}
	return trace.Read(f.failed)
}

// memfd makes a file for the set-up program.
func memfd(name string) (*os.File, error) {
	fd, err := fsat.Memfd("pk-"+name, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// records reads a file that the set-up program has written.
func records[T any](file *os.File) (list []T) {
	if file == nil {
		return nil
	}
	for lines := json.NewDecoder(io.NewSectionReader(file, 0, math.MaxInt64)); ; {
		var r T
		if lines.Decode(&r) != nil {
			return list
		}
		list = append(list, r)
	}
}
