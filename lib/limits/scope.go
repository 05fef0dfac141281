package limits

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	systemdName      = "org.freedesktop.systemd1"
	systemdPath      = "/org/freedesktop/systemd1"
	systemdInterface = "org.freedesktop.systemd1.Manager"
)

// busSocket is the socket of this user's systemd; for root, of the one that
// manages the machine.
func busSocket() string {
	if os.Geteuid() == 0 {
		return "/run/dbus/system_bus_socket"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "bus")
	}
	return fmt.Sprintf("/run/user/%d/bus", os.Geteuid())
}

// granted is the scope that systemd has made for this process, as a directory.
// A user's systemd leaves no mark on it.
var granted string

// newScope has systemd move this process into a new scope, which this process
// may divide. systemd removes it, with all below it, when the last process is
// gone.
func newScope(like scopeLike) error {
	b, err := dialBus(busSocket())
	if err != nil {
		return fmt.Errorf("cannot reach systemd: %w", err)
	}
	defer b.close()
	if err := b.scope("pk-"+rand.Text()+".scope", like); err != nil {
		return err
	}
	here, err := thisHost().where()
	granted = here.dir()
	return err
}

// scope asks for the scope and waits until this process is in it.
func (b *bus) scope(name string, like scopeLike) error {
	var match encoder
	match.str("type='signal',interface='" + systemdInterface + "',member='JobRemoved'")
	const self = "org.freedesktop.DBus"
	if _, err := b.call(self, "/org/freedesktop/DBus", self, "AddMatch", "s", match); err != nil {
		return fmt.Errorf("cannot listen to systemd: %w", err)
	}
	answer, err := b.call(systemdName, systemdPath, systemdInterface, "StartTransientUnit", "ssa(sv)a(sa(sv))", scopeRequest(name, like))
	if err != nil {
		return fmt.Errorf("systemd does not give a scope: %w", err)
	}
	d := decoder{data: answer.body, order: answer.order}
	job := d.str()
	for {
		m, err := b.read()
		if err != nil {
			return fmt.Errorf("systemd does not say whether there is a scope: %w", err)
		}
		if m.kind != broadcast || m.member != "JobRemoved" {
			continue
		}
		d := decoder{data: m.body, order: m.order} // id, job, unit, result
		d.u32()
		if d.str() != job {
			continue
		}
		if d.str(); d.str() != "done" || d.short {
			return errors.New("systemd could not make a scope")
		}
		return nil
	}
}

// scopeRequest is the body of the call. Process ID 0 stands for the caller,
// which systemd knows from the socket: in another PID namespace a number would
// name another process.
func scopeRequest(name string, like scopeLike) encoder {
	var e encoder
	e.str(name)
	e.str("fail")
	e.array(8, func() {
		property := func(name, kind string, value func()) {
			e.align(8)
			e.str(name)
			e.signature(kind)
			value()
		}
		property("Description", "s", func() { e.str("one command, limited by pk") })
		property("PIDs", "au", func() { e.array(4, func() { e.u32(0) }) })
		property("Delegate", "b", func() { e.u32(1) })
		property("CollectMode", "s", func() { e.str("inactive-or-failed") })
		if like.slice != "" {
			property("Slice", "s", func() { e.str(like.slice) })
		}
		if like.tasks != 0 {
			property("TasksMax", "t", func() { e.u64(like.tasks) })
		}
	})
	e.array(8, func() {})
	return e
}
