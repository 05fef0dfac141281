package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"pikuri/lib/bwrap"
	"pikuri/lib/shell"
	"pikuri/lib/visible"
)

// described is the description of the tool for a model.
type described struct {
	Text     string   `json:"description"`
	Project  string   `json:"project"`
	Sandbox  bool     `json:"sandbox"`
	Writable []string `json:"writable,omitempty"` // roots besides the project
	Readable []string `json:"readable,omitempty"`
	Network  string   `json:"network"`
	State    string   `json:"state"`
	Timeout  int      `json:"timeout"`
}

// describe prints a description of the fence for a model: files, network, state and limits.
func (s *session) describe() error {
	d := described{State: string(s.keep), Timeout: s.timeout, Network: "host"}
	files, network, tmp, err := s.surroundings(&d)
	if err != nil {
		return err
	}
	d.Text = fmt.Sprintf("Runs a bash command in %s, and returns its output and exit status.\n", d.Project)
	for _, lines := range []string{
		files, network, tmp, s.describeState(), s.describeProcesses(),
		fmt.Sprintf("Time limit: %d s, unless the call names another, at most %d.", s.timeout, int(shell.MaxTimeout.Seconds())),
		fmt.Sprintf("Output: standard output and error together; of a long one the first %d and the last %d bytes.", s.head, s.tail),
	} {
		d.Text += "- " + lines + "\n"
	}
	if s.json {
		line, err := shell.Object(d)
		if err == nil {
			_, err = s.ctx.Stdout.Write(line)
		}
		return err
	}
	_, err = fmt.Fprint(s.ctx.Stdout, d.Text)
	return err
}

// surroundings describes the files and the network that a command sees, and adds them to d.
func (s *session) surroundings(d *described) (files, network, tmp string, err error) {
	if s.noSandbox || s.wrap != "" {
		s.Scratch, s.Unfenced = false, true
		opened, err := s.WorkspaceFlags.Open(s.ctx)
		if err != nil {
			return "", "", "", err
		}
		defer opened.Close()
		d.Project = opened.ProjectRoot()
		if s.wrap != "" {
			return "Files: those of the place to which the wrapper leads.", "Network: that of this place.", "/tmp: that of this place.", nil
		}
		return "Files: no sandbox. The command can read and change all that the user can: be careful outside the project.",
			"Network: the user's own, without limits.", "/tmp: the machine's own, shared with all programs.", nil
	}
	s.Tell, s.Runs = true, false
	f, err := s.Open(s.ctx)
	if err != nil {
		return "", "", "", err
	}
	defer f.Close()
	d.Project, d.Sandbox = f.ProjectRoot(), true
	for _, r := range f.Opened.Roots() {
		switch {
		case r.Path == d.Project || r.Path == f.Temp():
		case r.Writable:
			d.Writable = append(d.Writable, r.Path)
		default:
			d.Readable = append(d.Readable, r.Path)
		}
	}
	files = "Files: a sandbox. Writable: the project" + listed(d.Writable) + ", /tmp."
	if f.Trial {
		files += " Changes there are a trial: the user lands them later, or not."
	}
	files += " Readable besides: system programs and tool chains" + listed(d.Readable) +
		". The rest of the machine is not there; what is written elsewhere, the home directory included, fails or is lost."
	if !f.Fence.NoProtect {
		files += " Some of the project is kept from you: git hooks and configuration, files that editors and agents run."
	}
	tmp = "/tmp: empty at first, and gone after the command."
	if s.loop || f.Opened.Session != nil || f.Opened.Reserved != nil || s.Temp != "" {
		tmp = "/tmp: private, and kept from command to command."
	}
	return files, s.describeNetwork(f.Plan, d), tmp, nil
}

// mostNamed bounds the roots and hosts that the description names.
const mostNamed = 8

// listed formats names that follow another one in a sentence.
func listed(names []string) string {
	text := ""
	for i, name := range names {
		if i == mostNamed {
			return text + fmt.Sprintf(", and %d more", len(names)-i)
		}
		text += ", " + visible.Text(filepath.Clean(name))
	}
	return text
}

func (s *session) describeNetwork(p *bwrap.Plan, d *described) (text string) {
	if p.Net {
		return "Network: the machine's own, its servers at 127.0.0.1 included."
	}
	d.Network, text = "none", "Network: none"
	if p.Gate != nil && p.Gate.Allow {
		var hosts []string
		for _, r := range p.Gate.Rules {
			hosts = append(hosts, r.String())
		}
		d.Network, text = "allow", "Network: TCP to these hosts, and nothing else: "+strings.TrimPrefix(listed(hosts), ", ")
	}
	if p.Gate != nil && len(p.Gate.Connect) > 0 {
		text += fmt.Sprintf("; of the machine's servers those at the ports %v of 127.0.0.1", p.Gate.Connect)
	}
	if s.loop || s.SessionName() != "" {
		return text + ". Commands share their loopback: one reaches the servers of another at 127.0.0.1."
	}
	return text + ". Each command has a loopback of its own."
}

func (s *session) describeState() string {
	const fresh = "Each command is a new bash: "
	switch {
	case s.keep == shell.KeepDir:
		return fresh + "the working directory is kept from one to the next, variables and functions are not."
	case s.keep == shell.KeepEnv:
		return fresh + "the working directory and exported variables are kept from one to the next, functions and aliases are not."
	}
	return fresh + "it begins in the project, and cd and export do not last. Standard input is empty, and there is no terminal."
}

func (s *session) describeProcesses() string {
	const ends = "Processes in the background end with their command"
	const unseen = " Commands do not see each other's processes."
	const outlive = "Processes in the background outlive their command: the result names them and the file of their further output. "
	switch {
	case s.background && s.loop:
		return outlive + "A kill of the job that left them ends them, and the end of the session does." + unseen
	case s.background:
		return outlive + "The user ends them." + unseen
	case s.loop:
		return ends + ": start a server as a job, and end it as one." + unseen
	}
	return ends + ", servers included."
}
