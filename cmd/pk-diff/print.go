package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/cli"
	"pikuri/lib/cli/trialflags"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitpatch"
	"pikuri/lib/overlay"
	"pikuri/lib/trial"
	"pikuri/lib/visible"
	"pikuri/lib/workspace"
)

// printer prints a selection in the form that was asked for.
type printer struct {
	*options
	ctx      *cli.Context
	trial    *trial.Trial
	out      *bufio.Writer
	terminal bool
	colours  cli.Palette

	printed bool // the name of a change
	trouble bool // something was not printed, and was reported
}

// pager returns standard output, or on a terminal the user's pager. done waits for the
// pager.
func (p *printer) pager() (out io.Writer, done func() error) {
	ctx, nothing := p.ctx, func() error { return nil }
	if !p.terminal || p.noPager {
		return ctx.Stdout, nothing
	}
	pager := os.Getenv("PAGER")
	if pager == "" {
		pager = "less"
	}
	if pager == "cat" {
		return ctx.Stdout, nothing
	}
	cmd := exec.Command("/bin/sh", "-c", pager)
	cmd.Stdout, cmd.Stderr = ctx.Stdout, ctx.Stderr
	if _, set := os.LookupEnv("LESS"); !set {
		cmd.Env = append(os.Environ(), "LESS=FRX")
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return ctx.Stdout, nothing
	}
	return unbroken{in}, func() error {
		in.Close()
		_ = cmd.Wait() // the user has left it as they like
		return nil
	}
}

// unbroken goes on when the pager has ended.
type unbroken struct{ io.Writer }

func (w unbroken) Write(p []byte) (int, error) {
	_, _ = w.Writer.Write(p)
	return len(p), nil
}

// line is one record of the list.
type line struct {
	letter, name, remark string
	item                 *trial.Item
}

// lines prints the list.
func (p *printer) lines(s *trialflags.Selection) error {
	for _, r := range s.Refs {
		if err := p.record(line{letter: "G", name: r.Name, remark: r.Arrow()}); err != nil {
			return err
		}
	}
	lines := make([]line, 0, len(s.Items))
	for n := range s.Items {
		i := &s.Items[n]
		l := line{letter: trialflags.Letter(*i), name: p.trial.Name(*i), remark: trialflags.Remark(*i), item: i}
		if l.remark == "" {
			l.remark = modes(*i)
		}
		if i.New.IsDir() || i.Op == overlay.Removed && i.Old.IsDir() {
			l.name = strings.TrimSuffix(l.name, "/") + "/"
		}
		if i.Err != nil {
			l.letter = "!"
		}
		lines = append(lines, l)
	}
	if !p.all {
		lines = p.gather(lines)
	}
	for _, l := range lines {
		if err := p.record(l); err != nil {
			return err
		}
	}
	return nil
}

// name prints the path of an item alone.
func (p *printer) name(i trial.Item) error {
	p.printed = true
	return p.record(line{name: p.trial.Name(i)})
}

// modes formats changed permissions, or new ones that let others write.
func modes(i trial.Item) string {
	const perm, othersWrite = 0o7777, 0o022
	switch {
	case i.New.Mode == 0 || i.New.Mode&unix.S_IFMT == unix.S_IFLNK:
	case i.Op == overlay.Modified && i.Old.Mode&perm != i.New.Mode&perm:
		return fmt.Sprintf("%04o -> %04o", i.Old.Mode&perm, i.New.Mode&perm)
	case i.Op != overlay.Modified && i.New.Mode&othersWrite != 0:
		return fmt.Sprintf("%04o", i.New.Mode&perm)
	}
	return ""
}

// colourOf is the colour of a letter.
var colourOf = map[string]cli.Colour{"A": cli.Good, "M": cli.Apart, "P": cli.Apart, "D": cli.Bad, "T": cli.Open, "!": cli.Bad, "G": cli.Title}

func (p *printer) record(l line) error {
	text := l.name
	if l.letter != "" {
		text = l.letter + "\t" + l.name
	}
	if l.remark != "" {
		text += "\t" + l.remark
	}
	if p.cannotList(l.name, l.letter != "") {
		return nil
	}
	if !p.colours || l.letter == "" {
		return cli.WriteRecord(p.out, text, p.zero, p.terminal)
	}
	var plain strings.Builder
	if err := cli.WriteRecord(&plain, text, p.zero, true); err != nil {
		return err
	}
	rest := strings.TrimPrefix(plain.String(), l.letter)
	_, err := p.out.WriteString(p.colours.Paint(colourOf[l.letter], l.letter) + rest)
	return err
}

// cannotList reports a name that would look like two, or with other columns behind it like
// a remark.
func (p *printer) cannotList(name string, columns bool) bool {
	reason := ""
	switch {
	case strings.Contains(name, "\n") && !p.zero:
		reason = "a newline: with -z records end in NUL"
	case strings.Contains(name, "\t") && columns:
		reason = "a tab: --name-only or --json lists it"
	default:
		return false
	}
	p.ctx.ReportLine(fmt.Errorf("%q holds %s", name, reason))
	p.trouble = true
	return true
}

// object is a line of --json.
type object struct {
	Change      string `json:"change"` // A, M, P, D, T, or G
	Path        string `json:"path,omitempty"`
	PathBytes   []byte `json:"path_base64,omitempty"`
	Type        string `json:"type,omitempty"`  // file, directory, link, other
	Mode        string `json:"mode,omitempty"`  // octal
	Modes       string `json:"modes,omitempty"` // st_mode before and after, octal, for pk-apply
	OldMode     string `json:"old_mode,omitempty"`
	Size        *int64 `json:"size,omitempty"`
	Before      string `json:"before,omitempty"` // SHA-256, or "link:" and the target
	After       string `json:"after,omitempty"`
	BeforeBytes []byte `json:"before_base64,omitempty"`
	AfterBytes  []byte `json:"after_base64,omitempty"`
	Repository  bool   `json:"repository,omitempty"`
	Conflict    string `json:"conflict,omitempty"`
	Refused     string `json:"refused,omitempty"`
	Error       string `json:"error,omitempty"`
	GitDir      string `json:"git_dir,omitempty"`
	GitDirBytes []byte `json:"git_dir_base64,omitempty"`
	Ref         string `json:"ref,omitempty"`
	RefBytes    []byte `json:"ref_base64,omitempty"`
	Stashes     string `json:"stashes,omitempty"` // SHA-256, for pk-apply
}

func (p *printer) objects(s *trialflags.Selection) error {
	lines := cli.JSON(p.out)
	for _, r := range s.Refs {
		o := object{Change: "G", Stashes: r.Stashes()}
		o.GitDir, o.GitDirBytes = cli.TextOrBytes(r.GitDir)
		o.Ref, o.RefBytes = cli.TextOrBytes(r.Name)
		o.Before, o.BeforeBytes = cli.TextOrBytes(r.Old + r.OldTarget)
		o.After, o.AfterBytes = cli.TextOrBytes(r.New + r.Target)
		if err := lines.Encode(o); err != nil {
			return err
		}
	}
	for _, i := range s.Items {
		if err := lines.Encode(p.object(i)); err != nil {
			return err
		}
		if err := p.out.Flush(); err != nil { // the next file may be large
			return err
		}
	}
	return nil
}

func (p *printer) object(i trial.Item) object {
	o := object{Change: trialflags.Letter(i), Repository: i.Repository, Modes: i.Modes(), Conflict: i.Conflict, Refused: i.Refused}
	o.Path, o.PathBytes = cli.TextOrBytes(p.trial.Name(i))
	if i.New.Mode != 0 {
		o.Type, o.Mode = typeOf(i.New.Mode), fmt.Sprintf("%04o", i.New.Mode&0o7777)
		if o.Type == "file" {
			o.Size = &i.New.Size
		}
	} else {
		o.Type = typeOf(i.Old.Mode)
	}
	if i.Old.Mode != 0 {
		o.OldMode = fmt.Sprintf("%04o", i.Old.Mode&0o7777)
	}
	if i.Err != nil {
		o.Error = i.Err.Error()
		return o
	}
	if i.Unread {
		return o
	}
	before, err := i.Before()
	if err == nil {
		var after workspace.Entry
		after, err = i.After()
		o.Before, o.BeforeBytes = cli.TextOrBytes(trial.Digest(before))
		o.After, o.AfterBytes = cli.TextOrBytes(trial.Digest(after))
	}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

func typeOf(mode uint32) string {
	switch mode & 0o170000 {
	case 0o100000:
		return "file"
	case 0o040000:
		return "directory"
	case 0o120000:
		return "link"
	}
	return "other"
}

// sides are the path of an item before and after, for a patch. ok is false for a
// directory or a special file.
func sides(i trial.Item) (old, next gitpatch.Side, ok bool) {
	if i.Err != nil || i.Repository {
		return old, next, false
	}
	if i.Op != overlay.Added && !i.Old.IsDir() {
		old = gitpatch.Side{Mode: gitpatch.Mode(i.Old.Mode), Size: i.Old.Size, Open: i.OpenBefore}
	}
	if i.New.Mode != 0 && !i.New.IsDir() {
		next = gitpatch.Side{Mode: gitpatch.Mode(i.New.Mode), Size: i.New.Size, Open: i.OpenAfter}
	}
	return old, next, old.Mode != 0 || next.Mode != 0
}

// patches prints the changes of files and links of the project root. Others have no place
// in a patch.
func (p *printer) patches(s *trialflags.Selection) error {
	format := p.format()
	umask := uint32(unix.Umask(0o077))
	unix.Umask(int(umask))
	for _, i := range s.Items {
		if i.Root.Path != p.trial.Project() {
			continue
		}
		if lost := lostModes(i, umask); lost != "" && i.Refused == "" && i.Conflict == "" {
			p.ctx.Warn("the patch leaves the permissions of %q out: %s", p.trial.Name(i), lost)
		}
		old, next, ok := sides(i)
		if !ok {
			continue
		}
		if i.Refused != "" || i.Conflict != "" { // git apply would land it all the same
			p.ctx.Warn("the patch leaves %q out: %s", p.trial.Name(i), i.Refused+i.Conflict)
			continue
		}
		var text strings.Builder
		complete, err := gitpatch.Write(&text, format, i.Path, old, next)
		if err != nil {
			return err
		}
		if !complete {
			p.ctx.Warn("the patch says only that %q differs: git apply --exclude=%q takes the rest", i.Path, i.Path)
		}
		if _, err := p.out.WriteString(p.painted(text.String())); err != nil {
			return err
		}
		if err := p.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// lostModes formats the permissions of an entry that a patch does not carry: of a file it
// says only whether its owner can execute it, of a directory nothing. git apply gives the
// others by the umask.
func lostModes(i trial.Item, umask uint32) string {
	const perm = 0o777
	was, is := i.Old.Mode&perm, i.New.Mode&perm
	said, given := uint32(0o755), uint32(0o777)
	if i.New.Mode&unix.S_IXUSR == 0 && !i.New.IsDir() {
		said, given = 0o644, 0o666
	}
	carried := i.Op != overlay.Modified || gitpatch.Mode(i.Old.Mode) != gitpatch.Mode(i.New.Mode)
	switch t := i.New.Mode & unix.S_IFMT; {
	case t != unix.S_IFREG && t != unix.S_IFDIR:
		return ""
	case i.Op == overlay.Modified && was == is, carried && (is == said || is == given&^umask):
		return ""
	case i.Op == overlay.Modified:
		return fmt.Sprintf("%04o -> %04o", was, is)
	}
	return fmt.Sprintf("%04o", is)
}

// painted is a patch for a terminal: in colours, as git has them, if the user wants them, and
// with hidden characters visible. A pipe gets the patch as it is.
func (p *printer) painted(patch string) string {
	if !p.terminal {
		return patch
	}
	var out strings.Builder
	for l := range strings.Lines(patch) {
		text, end := strings.TrimSuffix(l, "\n"), l[len(strings.TrimSuffix(l, "\n")):]
		var c cli.Colour
		switch {
		case strings.HasPrefix(l, "+++"), strings.HasPrefix(l, "---"), strings.HasPrefix(l, "diff "), strings.HasPrefix(l, "index "):
			c = cli.Title
		case strings.HasPrefix(l, "+"):
			c = cli.Good
		case strings.HasPrefix(l, "-"):
			c = "\x1b[31m"
		case strings.HasPrefix(l, "@@"):
			c = cli.Apart
		}
		out.WriteString(p.colours.Paint(c, visible.Text(text)) + end)
	}
	return out.String()
}

// stats prints how many lines each file gains and loses, and permissions as in the list.
func (p *printer) stats(s *trialflags.Selection) error {
	files, gained, lost := 0, 0, 0
	format := p.format()
	for _, i := range s.Items {
		old, next, ok := sides(i)
		name, change, remark := p.trial.Name(i), "", modes(i)
		switch {
		case ok:
			plus, minus, binary, err := count(i, format, old, next)
			if err != nil {
				return err
			}
			if change = fmt.Sprintf("+%d\t-%d", plus, minus); binary {
				change = fmt.Sprintf("%d -> %d bytes\t", old.Size, next.Size)
			}
			files, gained, lost = files+1, gained+plus, lost+minus
		case i.New.IsDir() && remark != "":
			name, change = strings.TrimSuffix(name, "/")+"/", "+0\t-0"
		default:
			continue
		}
		text := change + "\t" + name
		if remark != "" {
			text += "\t" + remark
		}
		if !p.cannotList(name, true) {
			if err := cli.WriteRecord(p.out, text, p.zero, p.terminal); err != nil {
				return err
			}
		}
		if err := p.out.Flush(); err != nil {
			return err
		}
	}
	if p.zero {
		return nil
	}
	_, err := fmt.Fprintf(p.out, "%s, +%d -%d\n", cli.Count(files, "file", "files"), gained, lost)
	return err
}

// count counts the lines that a file gains and loses.
func count(i trial.Item, format objects.Format, old, next gitpatch.Side) (plus, minus int, binary bool, err error) {
	if i.Unread {
		return 0, 0, true, nil
	}
	var text strings.Builder
	if _, err := gitpatch.Write(&text, format, i.Path, old, next); err != nil {
		return 0, 0, false, err
	}
	plus, minus, binary = countLines(text.String())
	return plus, minus, binary, nil
}

// countLines counts the lines that a patch adds and removes.
func countLines(patch string) (plus, minus int, binary bool) {
	hunk := false
	for l := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(l, "diff --git "):
			hunk = false
		case strings.HasPrefix(l, "@@"):
			hunk = true
		case !hunk:
			binary = binary || strings.HasPrefix(l, "GIT binary patch") || strings.HasPrefix(l, "Binary files")
		case l[0] == '+':
			plus++
		case l[0] == '-':
			minus++
		}
	}
	return plus, minus, binary
}
