package confinetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Case is one path, the tree it is looked up in, and the accepted outcomes.
// Names are relative to the tree; bytes that are not UTF-8 come as base64.
type Case struct {
	Name, Category     string
	Setup              []Op
	Project            string
	Readable, Writable []string
	Cwd, Mode          string
	Input              string
	InputBytes         []byte `json:"input_b64"`
	Expect             Expect
	Canonical          string
	CanonicalBytes     []byte            `json:"canonical_b64"`
	Accept             []Expect          // other outcomes that are safe
	Args               []string          // further arguments
	Env                map[string]string // on top of the environment
	Alias              string            `json:"tmp_alias"` // the scratch directory, "" for none
	RunAs              string            `json:"run_as"`    // "nobody", or ""
	Requires           []string
	Via                string // "stdin-line": the path comes on standard input
}

// Op is one step in making the tree.
type Op struct {
	Op, Path, Target, Content, Mode string
	PathBytes                       []byte `json:"path_b64"`
	Prefix, Name, Link              string
	Count                           int
	Major, Minor                    uint32
}

// Expect is an outcome: "allow", "deny", or a canonical path.
type Expect string

// UnmarshalJSON takes a word or {"canonical": PATH}.
func (e *Expect) UnmarshalJSON(text []byte) error {
	var object struct{ Canonical string }
	if text[0] == '"' {
		return json.Unmarshal(text, (*string)(e))
	}
	err := json.Unmarshal(text, &object)
	*e = Expect(object.Canonical)
	return err
}

const deny = Expect("deny")

// Load reads the corpus.
func Load(t testing.TB, file string) []Case {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	var cases []Case
	check(t, json.Unmarshal(text, &cases))
	return cases
}

// Build makes the case's tree and returns its base.
func (c Case) Build(t testing.TB) string {
	t.Helper()
	base := Dir(t)
	for _, op := range c.Setup {
		err := op.apply(t, base)
		if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
			t.Skipf("only root can make this tree: %v", err)
		}
		check(t, err)
	}
	return base
}

// Path returns the path to be resolved.
func (c Case) Path(base string) string {
	if c.InputBytes != nil {
		return string(c.InputBytes)
	}
	return strings.ReplaceAll(c.Input, "{base}", base)
}

// Root returns the text of a root as a caller gives it: below the tree, or the part
// after "rel:" or "abs:".
func Root(base, name string) string {
	if rest, ok := strings.CutPrefix(name, "rel:"); ok {
		return rest
	}
	if rest, ok := strings.CutPrefix(name, "abs:"); ok {
		return rest
	}
	return below(base, name)
}

// Roots is Root for a list.
func Roots(base string, names []string) []string {
	var roots []string
	for _, name := range names {
		roots = append(roots, Root(base, name))
	}
	return roots
}

// below makes name absolute; no name stays no name.
func below(base, name string) string {
	if name == "" || name[0] == '/' {
		return name
	}
	return base + "/" + name
}

// Dir returns the working directory of the case.
func (c Case) Dir(base string) string { return below(base, c.Cwd) }

// Temp returns the scratch directory of the case, "" for none.
func (c Case) Temp(base string) string { return below(base, c.Alias) }

// Zero tells whether records end in NUL.
func (c Case) Zero() bool { return slices.Contains(c.Args, "-z") }

// Judge tells whether an outcome is right or at least safe; where is the answer
// if there was one.
func (c Case) Judge(base, where string, allowed bool) error {
	got := deny
	if allowed {
		got = Expect(where)
	}
	want := deny
	if c.Expect != deny {
		want = Expect(below(base, c.canonical()))
	}
	accepted := []Expect{want}
	for _, e := range c.Accept {
		if e != deny {
			e = Expect(below(base, string(e)))
		}
		accepted = append(accepted, e)
	}
	if slices.Contains(accepted, got) {
		return nil
	}
	return fmt.Errorf("got %q, want %q", got, accepted)
}

func (c Case) canonical() string {
	if c.CanonicalBytes != nil {
		return string(c.CanonicalBytes)
	}
	return c.Canonical
}

// apply takes one step.
func (op Op) apply(t testing.TB, base string) error {
	path := base + "/" + op.Path
	if op.PathBytes != nil {
		path = base + "/" + string(op.PathBytes)
	}
	switch op.Op {
	case "mkdir":
		return os.MkdirAll(path, 0o755)
	case "file":
		return os.WriteFile(path, []byte(op.Content), 0o644)
	case "symlink":
		return os.Symlink(strings.ReplaceAll(op.Target, "{base}", base), path)
	case "hardlink":
		return os.Link(base+"/"+op.Target, path)
	case "fifo":
		return unix.Mkfifo(path, 0o644)
	case "socket":
		return listen(t, path)
	case "chmod":
		mode, err := strconv.ParseUint(op.Mode, 8, 32)
		t.Cleanup(func() { os.Chmod(path, 0o755) })
		return errors.Join(err, os.Chmod(path, os.FileMode(mode)))
	case "mknod_char":
		return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(op.Major, op.Minor)))
	case "chain":
		return op.chain(base + "/" + op.Prefix)
	case "deep":
		return op.deep(path)
	case "mkdir_abs":
		return nil // a home is refused by its name: none needs to be made
	}
	return fmt.Errorf("internal error: unknown step %q", op.Op)
}

func listen(t testing.TB, path string) error {
	l, err := net.Listen("unix", path)
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return err
}

// chain makes prefix1 a link to the target and prefixN one to prefixN-1.
func (op Op) chain(prefix string) error {
	target := op.Target
	for i := range op.Count {
		link := prefix + strconv.Itoa(i+1)
		if err := os.Symlink(target, link); err != nil {
			return err
		}
		target = filepath.Base(link)
	}
	return nil
}

// deep makes nested directories, too deep to be named, and a link in the last.
func (op Op) deep(path string) error {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; err == nil && i < op.Count; i++ {
		err = unix.Mkdirat(fd, op.Name, 0o755)
		next, openErr := unix.Openat(fd, op.Name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		fd, err = next, errors.Join(err, openErr)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Symlinkat(op.Target, fd, op.Link)
}
