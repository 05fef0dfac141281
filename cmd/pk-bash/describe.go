package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pikuri/lib/bwrap"
	"pikuri/lib/cli/sandboxflags"
	"pikuri/lib/confine"
	"pikuri/lib/limits"
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

// Bounds of the description: a client pays for its words in each conversation.
const (
	maxWords  = 299
	mostNamed = 8 // of the names in one list
)

// describe prints a description of the fence for a model: files, network, state and limits.
func (s *session) describe() error {
	d := described{State: string(s.keep), Timeout: s.timeout, Network: "host"}
	f, err := s.look(&d)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	asking, err := s.describeAsking()
	if err != nil {
		return err
	}
	for most := mostNamed; most >= 0; most-- {
		d.Text = s.describeCommand(d.Project) + asking + s.describeFence(f, &d, most) + s.describeRest()
		if len(strings.Fields(d.Text)) <= maxWords {
			break
		}
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

// look opens the workspace, and notes its roots in d. The fence is nil without a sandbox.
func (s *session) look(d *described) (*sandboxflags.Fence, error) {
	if s.noSandbox || s.wrap != "" {
		s.Scratch, s.Unfenced = false, true
		opened, err := s.WorkspaceFlags.Open(s.ctx)
		if err == nil {
			d.Project = opened.ProjectRoot()
			opened.Close()
		}
		return nil, err
	}
	s.Tell, s.Runs = true, false
	f, err := s.Open(s.ctx)
	if err != nil {
		return nil, err
	}
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
	return f, nil
}

func (s *session) describeCommand(project string) string {
	if s.wrap != "" {
		return fmt.Sprintf("Runs a bash command through %q, and returns its output and exit status.\n", s.wrap)
	}
	return fmt.Sprintf("Runs a bash command in %s, and returns its output and exit status.\n", visible.Text(project))
}

// item formats an item of the description, "" for none.
func item(text string) string {
	if text == "" {
		return ""
	}
	return "- " + text + "\n"
}

func (s *session) describeAsking() (string, error) {
	a, err := s.named(os.Getenv)
	switch {
	case err != nil || a.yes:
		return "", err
	case a.given:
		return item("Every command is declined."), nil
	case a.program != "":
		return item("A program of the user's approves each command first."), nil
	}
	return item("The user approves each command first."), nil
}

// describeFence describes all that a command finds around it. Of each list it names a few.
func (s *session) describeFence(f *sandboxflags.Fence, d *described, most int) string {
	switch {
	case s.wrap != "":
		return item("Files, network and /tmp: those of the place to which this leads.")
	case f == nil:
		return item("Files: no sandbox. The command can read and change all that the user can: be careful outside the project.") +
			item("Network: the user's own, without limits.") + item("/tmp: the machine's own, shared with all programs.")
	}
	return item(s.describeFiles(f, d, most)) + item(s.describeNetwork(f.Plan, d, most)) + item(s.describeTmp(f)) +
		item(describeEnvironment(f.Env, most)) + item(describeSystem(f, most)) + item(describeLimits(f.Limits))
}

func (s *session) describeFiles(f *sandboxflags.Fence, d *described, most int) string {
	text := "Files: a sandbox. Writable: the project" + after(paths(d.Writable), most)
	if rules := f.Rules.AllowWrite; len(rules) > 0 {
		text += ", but only what matches " + listed(patterns(rules), most) + " (new files only where a whole directory does)"
	}
	text += ", /tmp."
	if f.Trial {
		text += " Changes there are a trial: the user lands them later, or not."
	}
	if len(f.Overlays) > 0 {
		text += " Writable, but unchanged outside: " + listed(paths(f.Overlays), most) + "."
	}
	text += " Readable besides: system programs"
	if !f.NoToolchains {
		text += " and tool chains"
	}
	text += after(paths(d.Readable), most) + ". Nothing else is there; writes elsewhere, as in the home, fail or are lost"
	switch kept := protected(f.Protect); {
	case !f.NoProtect:
		text += ", as do those to git hooks and configuration, files that editors and agents run" + after(kept, most)
	case len(kept) > 0:
		text += ", as do those to " + listed(kept, most)
	}
	text += "."
	hidden := append(patterns(f.Rules.Deny), patterns(f.Rules.DenyRead)...)
	hidden = slices.DeleteFunc(hidden, func(p string) bool { return slices.Contains(f.Plan.NotHidden, p) })
	if len(hidden) > 0 {
		text += " Hidden: " + listed(hidden, most) + "."
	}
	return text
}

func (s *session) describeTmp(f *sandboxflags.Fence) string {
	switch {
	case s.Temp != "":
		return "/tmp: a directory that the user has chosen, and that stays."
	case s.loop || f.Opened.Session != nil || f.Opened.Reserved != nil:
		return "/tmp: private, and kept from command to command."
	}
	return "/tmp: empty at first, and gone after the command."
}

func paths(names []string) (all []string) {
	for _, name := range names {
		all = append(all, filepath.Clean(name))
	}
	return all
}

func protected(list []bwrap.Protected) (all []string) {
	for _, p := range list {
		path, err := filepath.Abs(p.Path)
		if err != nil {
			path = p.Path
		}
		all = append(all, path)
	}
	return all
}

func patterns(rules []confine.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.Pattern.String())
	}
	return all
}

func ports(numbers []uint16) (all []string) {
	for _, n := range numbers {
		all = append(all, fmt.Sprint(n))
	}
	return all
}

// listed formats names, at most so many. The first ones may be too long.
func listed(names []string, most int) string {
	if most == 0 {
		return fmt.Sprintf("%d not named here", len(names))
	}
	return strings.TrimPrefix(after(names, most), ", ")
}

// after formats names that follow another one.
func after(names []string, most int) string {
	text := ""
	for i, name := range names {
		if i == most {
			return text + fmt.Sprintf(", and %d more", len(names)-i)
		}
		text += ", " + visible.Text(name)
	}
	return text
}

func (s *session) describeNetwork(p *bwrap.Plan, d *described, most int) (text string) {
	if p.Net {
		return "Network: the machine's own, its servers at 127.0.0.1 included."
	}
	d.Network, text = "none", "Network: none"
	if p.Gate != nil && p.Gate.Allow {
		var hosts []string
		for _, r := range p.Gate.Rules {
			hosts = append(hosts, r.String())
		}
		d.Network, text = "allow", "Network: TCP to these hosts, and nothing else: "+listed(hosts, most)
	}
	if p.Gate != nil && len(p.Gate.Connect) > 0 {
		text += "; at 127.0.0.1 the machine's servers at port " + listed(ports(p.Gate.Connect), max(most, 1))
	}
	if p.Gate != nil && len(p.Gate.Publish) > 0 {
		text += "; the user reaches your servers at port " + listed(ports(p.Gate.Publish), max(most, 1))
	}
	if s.loop || s.SessionName() != "" {
		return text + ". Commands share their loopback, with each other's servers."
	}
	return text + ". Each command has a loopback of its own."
}

// describeEnvironment describes the variables that the options add.
func describeEnvironment(p bwrap.EnvPolicy, most int) string {
	names := p.Pass
	for _, set := range p.Set {
		name, _, _ := strings.Cut(set, "=")
		names = append(names[:len(names):len(names)], name)
	}
	switch {
	case p.Inherit:
		return "Environment: all of the user's, secrets included" + after(names, most) + "."
	case len(names) > 0:
		return "Environment: the user has added " + listed(names, most) + "."
	}
	return ""
}

// describeSystem describes the effects of the options on system calls.
func describeSystem(f *sandboxflags.Fence, most int) string {
	var all []string
	if len(f.PassFDs) > 0 {
		var numbers []string
		for _, n := range f.PassFDs {
			numbers = append(numbers, fmt.Sprint(n))
		}
		all = append(all, "Open descriptors: "+listed(numbers, most)+".")
	}
	if f.AllowNested {
		all = append(all, "User namespaces can be made.")
	}
	if f.Trace {
		all = append(all, "Commands are traced, which is slow; debuggers fail.")
	}
	return strings.Join(all, " ")
}

func describeLimits(l limits.Limits) string {
	var all []string
	for _, one := range []struct {
		set  bool
		text string
	}{
		{l.Memory > 0, "memory " + limits.FormatSize(l.Memory)},
		{l.Pids > 0, fmt.Sprintf("%d processes and threads", l.Pids)},
		{l.CPUTime > 0, fmt.Sprintf("%d s of processor time per process", int64(l.CPUTime/time.Second))},
		{l.FileSize > 0, "files " + limits.FormatSize(l.FileSize)},
	} {
		if one.set {
			all = append(all, one.text)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "Limits: " + strings.Join(all, ", ") + "."
}

// describeRest describes state, processes, time and output.
func (s *session) describeRest() string {
	limit := fmt.Sprintf("Time limit: %d s, or the call's, at most %d; then SIGTERM, after %d s SIGKILL.",
		s.timeout, int(shell.MaxTimeout.Seconds()), s.killAfter)
	output := fmt.Sprintf("Output: standard output and error together; if long, the first %d and last %d bytes", s.head, s.tail)
	switch {
	case s.noLog:
		output += "; the rest is lost"
	case s.log != "":
		output += "; the user has all in " + visible.Text(s.log)
	}
	return item(s.describeState()) + item(s.describeProcesses()) + item(limit) + item(output+".")
}

func (s *session) describeState() string {
	const fresh = "Each command is a new bash: "
	const noInput = " Standard input is empty; there is no terminal."
	switch {
	case s.keep == shell.KeepDir:
		return fresh + "the working directory is kept from one to the next, variables and functions are not."
	case s.keep == shell.KeepEnv:
		return fresh + "the working directory and exported variables are kept from one to the next, functions and aliases are not."
	case s.wrap != "":
		return fresh + "it begins where the wrapper starts it; cd and export do not last." + noInput
	}
	return fresh + "it begins in the project; cd and export do not last." + noInput
}

func (s *session) describeProcesses() string {
	const ends = "Background processes end with their command"
	const unseen = " Commands do not see each other's processes."
	const outlive = "Background processes outlive their command: the result names them and the file of their output. "
	switch {
	case s.wrap != "":
		return "Processes on another machine, or in a container, may outlive their command and its time limit."
	case s.background && s.loop:
		return outlive + "They end with a kill of their job, or the session." + unseen
	case s.background:
		return outlive + "The user ends them." + unseen
	case s.loop && s.noSandbox:
		return ends + ": start a server as a job, and end it as one."
	case s.loop:
		return ends + ": start a server as a job, and end it as one." + unseen
	}
	return ends + ", servers included."
}
