package probe

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"
)

// neighbours: services of the machine that have no path.
var neighbours = []Attack{
	{Name: "connect to an abstract socket of the host", Guarantee: "abstract-sockets",
		try: func(t *Targets) error { return connect("unix", t.Abstract) }},
	{Name: "connect to a service on the loopback address", Guarantee: "network",
		try: func(t *Targets) error { return connect("tcp", t.TCP) }},
	{Name: "connect to a service that no rule names", Guarantee: "net-allow",
		try: func(t *Targets) error { return connect("tcp", t.TCP) }},
}

// kept: files in writable directories that must stay as they are. In a git directory
// the command may write: its files are the host's only if they have landed.
var kept = []Attack{
	{Name: "write a git hook", Guarantee: "protect",
		try: func(t *Targets) error { return write(t.hook()) },
		got: func(s *Scene) bool { return exists(s.hook()) }},
	{Name: "change git's configuration", Guarantee: "protect",
		try: func(t *Targets) error { return os.WriteFile(t.gitConfig(), []byte(evilConfig), 0o644) },
		got: func(s *Scene) bool {
			now, err := os.ReadFile(s.gitConfig())
			return err != nil || string(now) != gitConfig
		}},
	{Name: "rename the directory of the hooks' directory", Guarantee: "protect", try: renameParent},
	{Name: "make a repository for git on the host", Guarantee: "protect", try: makeRepository,
		got: func(s *Scene) bool { return exists(s.planted() + "/.git/HEAD") }},
	{Name: "change a task of an editor", Guarantee: "protect",
		try: func(t *Targets) error { return openToWrite(t.task()) }},
	{Name: "have a mount point made behind a planted link", Guarantee: "litter",
		try: inTheMaking,
		got: func(s *Scene) bool {
			entries, err := os.ReadDir(s.victim())
			return err != nil || len(entries) > 0
		}},
	{Name: "leave something in the project or the home", Guarantee: "litter",
		try: inTheMaking, got: (*Scene).littered},
	{Name: "poison a cache of the host", Guarantee: "overlay", try: poison,
		got: func(s *Scene) bool { return exists(s.cache() + "/poison") }},
}

// patience bounds a connection without an answer.
const patience = 2 * time.Second

func connect(network, address string) error {
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return err
	}
	return conn.Close()
}

func renameParent(t *Targets) error {
	git := filepath.Join(t.Project(), ".git")
	if err := os.Rename(git, git+"2"); err != nil {
		return err
	}
	return os.Rename(git+"2", git)
}

// evilConfig makes git run a program.
const evilConfig = gitConfig + "\tfsmonitor = ./evil\n"

func makeRepository(t *Targets) error {
	dir := t.planted() + "/.git"
	for _, name := range []string{"objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(dir+"/config", []byte(evilConfig), 0o644), os.WriteFile(dir+"/HEAD", []byte(gitHead), 0o644))
}

// inTheMaking is for attacks that have succeeded or failed before the command
// starts.
func inTheMaking(*Targets) error { return nil }

func poison(t *Targets) error {
	if !exists(t.cache()) {
		return absent("no cache is shown")
	}
	return write(t.cache() + "/poison")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
