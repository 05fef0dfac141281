package fence

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"pikuri/lib/gate"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/monitor"
)

// network returns the network of the sandbox, or nil where bwrap makes it: the host's,
// or a loopback that nobody shares. The commands of a session share their loopback.
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

// reportName is the file of a session directory in which its gate tells of connections.
const reportName = ".connections"

// maxReport bounds what is read of a report, and the file that a session keeps.
const maxReport = 8 << 20

// openReport opens the file in which the gate tells of connections: one in memory or,
// for a gate that the commands of a session share, one in the session directory.
func (f *Fence) openReport(c *monitor.Config) error {
	if f.Plan.Gate == nil {
		return nil
	}
	if f.Session == nil {
		fd, err := fsat.Memfd("pk-connections", nil)
		if err != nil {
			return fmt.Errorf("cannot make a file: %w", err)
		}
		f.report = os.NewFile(uintptr(fd), "connections")
		c.Report = f.report
		return nil
	}
	dir := f.Session.Locked()
	fd, err := unix.Openat(int(dir.Fd()), reportName, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open %q in the session directory: %w", reportName, err)
	}
	f.report = os.NewFile(uintptr(fd), reportName)
	info, err := f.report.Stat()
	if err != nil {
		return err
	}
	if f.reported = info.Size(); f.reported > maxReport {
		f.reported = 0
		err = f.report.Truncate(0)
	}
	c.Session, c.Report = dir, f.report
	return err
}

// Connections returns what the gate has told while the command ran, in a session also
// of the commands beside it. Call it once the command has ended.
func (f *Fence) Connections() []gate.Record {
	if f.report == nil {
		return nil
	}
	var list []gate.Record
	lines := bufio.NewScanner(io.NewSectionReader(f.report, f.reported, maxReport))
	for lines.Scan() {
		var r gate.Record
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			list = append(list, r)
		}
	}
	return list
}
