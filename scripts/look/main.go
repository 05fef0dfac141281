// Look counts what a command can reach of the machine around its fence, for the
// table that scripts/compare makes.
//
//	look plant DIR    make targets in DIR and wait for the end of standard input
//	look DIR/targets  print how many of them are in reach, from inside a fence
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// homeFiles hold credentials or private text in the homes of developers.
var homeFiles = []string{
	".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".azure/msal_token_cache.json", ".config/gcloud/credentials.db",
	".kube/config", ".docker/config.json", ".config/gh/hosts.yml", ".config/glab-cli/config.yml", ".git-credentials", ".netrc",
	".npmrc", ".pypirc", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gnupg/private-keys-v1.d/key",
	".password-store/mail.gpg", ".mozilla/firefox/logins.json", ".config/google-chrome/Default/Cookies", ".bash_history",
	".psql_history", ".pgpass", ".my.cnf", ".vault-token", ".claude/.credentials.json", ".codex/auth.json",
}

// systemFiles are the machine's.
var systemFiles = []string{"/etc/shadow", "/proc/kcore"}

// targets tells the program inside where to look.
type targets struct {
	Files     []string
	Sockets   []string
	Processes []string // number, name and start time of each
	Addresses []string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "look: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "plant":
		return plant(args[1])
	case len(args) == 1:
		return look(args[0])
	}
	return fmt.Errorf("usage: look plant DIR | look FILE")
}

// plant makes DIR/home and the sockets, and notes them, and the processes that it
// descends from, in DIR/targets.
func plant(dir string) error {
	t := targets{Files: systemFiles, Sockets: []string{filepath.Join(dir, "home/agent.sock"), filepath.Join(dir, "bus.sock"), "@" + dir}}
	for _, name := range homeFiles {
		path := filepath.Join(dir, "home", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
			return err
		}
		t.Files = append(t.Files, path)
	}
	for _, path := range t.Sockets {
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		defer l.Close()
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.IsLinkLocalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		if err != nil {
			return err
		}
		defer l.Close()
		t.Addresses = append(t.Addresses, l.Addr().String())
	}
	for pid := os.Getpid(); pid > 0; pid = parentOf(pid) { // these live as long as this one
		t.Processes = append(t.Processes, process(pid))
	}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "targets"), text, 0o644); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// look prints four numbers: files that can be read, sockets that answer, processes
// that are seen, addresses that answer; each with how many there are.
func look(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var t targets
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	for _, c := range []struct {
		of    []string
		reach func(string) bool
	}{
		{t.Files, readable},
		{t.Sockets, func(path string) bool { return answers("unix", path) }},
		{t.Processes, seen},
		{t.Addresses, func(address string) bool { return answers("tcp", address) }},
	} {
		n := 0
		for _, target := range c.of {
			if c.reach(target) {
				n++
			}
		}
		fmt.Printf("%d/%d ", n, len(c.of))
	}
	fmt.Println()
	return nil
}

func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := f.Read(make([]byte, 1))
	return n == 1
}

func answers(network, address string) bool {
	c, err := net.Dial(network, address)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// seen reports whether /proc shows the same process under the same number.
func seen(p string) bool {
	number, _, _ := strings.Cut(p, " ")
	pid, err := strconv.Atoi(number)
	return err == nil && process(pid) == p
}

// process returns number, name and start time of a process, "" if /proc has none.
func process(pid int) string {
	name, fields := stat(pid)
	if fields == nil {
		return ""
	}
	const start = 19
	return fmt.Sprint(pid, " ", name, " ", fields[start])
}

// parentOf returns 0 for the first process.
func parentOf(pid int) int {
	_, fields := stat(pid)
	if fields == nil {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// stat returns the name of a process and the fields behind it, from its state on.
func stat(pid int) (string, []string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", nil
	}
	_, rest, _ := strings.Cut(string(text), " (")
	name, behind, _ := strings.Cut(rest, ") ")
	fields := strings.Fields(behind)
	if len(fields) < 20 {
		return "", nil
	}
	return name, fields
}
