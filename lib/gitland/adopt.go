package gitland

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitlock"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// Adopted is the result of adopting an inert repository.
type Adopted struct {
	GitDir string   // now one of the host's
	Rest   string   // the inert git directory, with all that Adopt left out
	Told   []string // lines for the user
}

// Adopt makes the inert repository in a directory the host's. It fills a new git
// directory as landing from a layer does: with objects, references, HEAD, the index,
// upstreams and remotes. It leaves out hooks, attributes, other configuration, submodules
// and linked worktrees. state is the directory of Begin. No command may run in a tree
// around dir.
func Adopt(state, dir string) (*Adopted, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	var adopted *Adopted
	err = gitdir.Release(state, dir, func(made, head gitdir.Inert, ready func(string) error) (gitDir string, err error) {
		a := &adoption{state: state, dir: dir, gitDir: dir, record: made, head: head, ready: ready}
		adopted, err = a.run()
		return a.gitDir, err
	})
	return adopted, err
}

// adoption is one repository being adopted.
type adoption struct {
	state  string
	dir    string
	gitDir string // path of the host's new one
	record gitdir.Inert
	head   gitdir.Inert // the record of its HEAD, if that is fenced as well
	ready  func(gitDir string) error
}

// bareNames are the names that git, and pk, make in a bare repository.
var bareNames = append([]string{"config", "description", "hooks", "info", "branches", "worktrees", "modules", "lfs"}, landedNames...)

// otherFile returns a file in a bare repository that git has not made, or "".
func otherFile(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dir
	}
	for _, e := range entries {
		if !slices.Contains(bareNames, e.Name()) && !strings.HasPrefix(e.Name(), "HEAD.fenced") {
			return filepath.Join(dir, e.Name())
		}
	}
	return ""
}

func (a *adoption) run() (*Adopted, error) {
	source := a.dir
	if a.record.Name == ".git" {
		a.gitDir, source = filepath.Join(a.dir, ".git"), filepath.Join(a.dir, a.record.Fenced)
		var st unix.Stat_t
		if err := unix.Lstat(source, &st); err != nil {
			return nil, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || !a.record.Is(&st) {
			return nil, fmt.Errorf("its .git is not a directory: adopt the repository that it leads to, or move it away and type git submodule update --init, or git worktree add; rename %q if you made it yourself", source)
		}
		if _, err := os.Lstat(a.gitDir); !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%q exists", a.gitDir)
		}
	}
	if a.record.Name == "HEAD" { // a bare repository is moved as a whole
		if other := otherFile(a.dir); other != "" {
			return nil, fmt.Errorf("%q is no part of a git directory: move the repository to a directory of its own", other)
		}
	}
	a.sweep()
	work, err := os.MkdirTemp(filepath.Dir(a.gitDir), begun)
	if err != nil {
		return nil, err
	}
	emptied := true
	defer func() {
		if emptied {
			_ = os.RemoveAll(work)
		}
	}()
	git := filepath.Join(work, "git")
	l := &Layer{Layer: overlay.Layer{Dir: work, Elsewhere: source}, GitDir: git, Session: "adopt", GitDirs: []string{git}, adopts: true} // without State, whose lock Release holds
	if a.record.Name == ".git" {
		l.Checkouts = []Checkout{{GitDir: git, WorkTree: a.dir}}
	}
	told, err := a.fill(l)
	others, _ := os.ReadDir(work)
	for _, e := range others { // SIGKILL leaves an empty directory, which git does not show
		if e.Name() != "git" {
			_ = os.RemoveAll(filepath.Join(work, e.Name()))
		}
	}
	gitlock.Step("filled")
	switch {
	case err != nil:
	case a.record.Name == ".git":
		if err = gitdir.NoteAdopted(a.state, git, a.gitDir, a.dir); err == nil {
			err = a.ready(git)
		}
		gitlock.Step("ready")
		if err == nil {
			err = os.Rename(git, a.gitDir)
		}
	default:
		if err = unix.Renameat2(unix.AT_FDCWD, git, unix.AT_FDCWD, a.gitDir, unix.RENAME_EXCHANGE); err == nil {
			source, err = a.keep(git)
			emptied = err == nil
		}
	}
	gitlock.Step("adopted")
	if err != nil {
		return nil, err
	}
	return &Adopted{a.gitDir, source, told}, nil
}

// begun begins the name of a directory in which a repository is adopted.
const begun = ".pk-adopt-"

// sweep removes the directories of adoptions that were killed.
func (a *adoption) sweep() {
	in := filepath.Dir(a.gitDir)
	entries, _ := os.ReadDir(in)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), begun) {
			_ = os.RemoveAll(filepath.Join(in, e.Name()))
		}
	}
}

// keep moves the inert directory beside the new one.
func (a *adoption) keep(source string) (string, error) {
	parent, err := fsat.Openat(unix.AT_FDCWD, filepath.Dir(a.gitDir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return source, err
	}
	defer unix.Close(parent)
	name := gitdir.FreeName(parent, filepath.Base(a.gitDir))
	if err := fsat.RenameFresh(unix.AT_FDCWD, source, parent, name); err != nil {
		return source, err
	}
	return filepath.Join(filepath.Dir(a.gitDir), name), nil
}

// fill makes the new git directory and lands in it.
func (a *adoption) fill(l *Layer) (told []string, err error) {
	source, err := fsat.Openat(unix.AT_FDCWD, l.Upper(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(source)
	config, err := a.config(source)
	if err != nil {
		return nil, err
	}
	head, commit, err := a.readHead(source)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(l.GitDir, name), 0o777); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{"config": string(config), "HEAD": head} {
		if err := os.WriteFile(filepath.Join(l.GitDir, name), []byte(text), 0o666); err != nil {
			return nil, err
		}
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	defer l.CloseLock()
	if err := l.save(record{Since: refs.Now().UnixNano(), Base: config}); err != nil {
		return nil, err
	}
	if err := l.land(true, false); err != nil {
		return nil, err
	}
	if commit != "" {
		if r := l.lander.repos[""]; r == nil || !r.objects.Has(commit) {
			return nil, fmt.Errorf("its HEAD is %q, which it does not have", commit)
		}
		err = os.WriteFile(filepath.Join(l.GitDir, "HEAD"), []byte(commit+"\n"), 0o666)
	}
	return l.lander.told, err
}

// readHead returns the initial HEAD, and the commit if it is detached. Landing does not
// find HEAD, since it has another name.
func (a *adoption) readHead(source int) (text, commit string, err error) {
	value, removed := a.head.Removed()
	if !removed {
		head, err := readSmall(source, a.head.Fenced, unix.O_NOFOLLOW)
		if err != nil {
			return "", "", fmt.Errorf("cannot read its HEAD: %w", err)
		}
		value = string(head)
	}
	value = strings.TrimSpace(value)
	if ref, ok := strings.CutPrefix(value, "ref:"); ok {
		ref = strings.TrimSpace(ref)
		return "ref: " + ref + "\n", "", checkBranch(ref)
	}
	if n := len(value); n != 40 && n != 64 || strings.Trim(value, "0123456789abcdef") != "" {
		return "", "", fmt.Errorf("its HEAD is no branch and no commit: %q", value)
	}
	branch := "refs/heads/main"
	if start, err := readSmall(source, bisectStart, unix.O_NOFOLLOW); err == nil { // a bisect goes back there
		if ref := "refs/heads/" + strings.TrimSpace(string(start)); checkBranch(ref) == nil {
			branch = ref
		}
	}
	return "ref: " + branch + "\n", value, nil
}

const bisectStart = "BISECT_START"

// checkBranch refuses a HEAD that git on the host may misread.
func checkBranch(ref string) error {
	if !strings.HasPrefix(ref, "refs/heads/") {
		return fmt.Errorf("its HEAD is no branch: %q", ref)
	}
	if short := strings.TrimPrefix(ref, "refs/heads/"); !gitplace.IsPlain(ref) || pseudo(short) || mayBeShort(strings.ToLower(short)) {
		return fmt.Errorf("the name of its branch may be taken for another thing, or run by a prompt: %q", ref)
	}
	return refs.CheckName(ref)
}

// config is the part of a configuration that describes the repository itself.
func (a *adoption) config(source int) ([]byte, error) {
	text, _, err := overlay.ReadFile(source, "config", unix.O_NOFOLLOW, objects.MaxConfig)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read its config: %w", err)
	}
	entries, err := gitconfig.Parse("config", text)
	if err != nil {
		return nil, err
	}
	set := func(key, value string) gitconfig.Entry { return gitconfig.Entry{Key: key, Value: value} }
	bare := a.record.Name == "HEAD"
	version, format := "0", []gitconfig.Entry(nil)
	core := []gitconfig.Entry{set("core.filemode", "true"), set("core.bare", strconv.FormatBool(bare))}
	if !bare {
		core = append(core, set("core.logallrefupdates", "true"))
	}
	for _, e := range entries {
		switch value := strings.ToLower(e.Value); {
		case (e.Key == "core.ignorecase" || e.Key == "core.symlinks") && (value == "true" || value == "false"):
			core = append(core, set(e.Key, value))
		case e.Key == "extensions.objectformat" && value == "sha256":
			version, format = "1", []gitconfig.Entry{set(e.Key, value)}
		case e.Key == "extensions.refstorage" && value != "files", e.Key == "extensions.partialclone", strings.HasPrefix(e.Key, "remote.") && strings.HasSuffix(e.Key, ".promisor"):
			return nil, fmt.Errorf("it has %s, which pk cannot carry over", e.Key)
		}
	}
	return gitconfig.Format(slices.Concat([]gitconfig.Entry{set("core.repositoryformatversion", version)}, core, format)), nil
}
