package gitland

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/index"
	"pikuri/lib/gitdir/objects"
	"pikuri/lib/gitdir/refs"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/overlay"
)

// Base is a directory between the host's git directory and the upper layer, with the host's HEADs, the
// branches to which they lead, the indexes, and a merge or the like, as they were when the commands began.
// Alone, an overlay shows some files as they were when a command first looked, and others as they are: a
// commit made of an old index on the host's new branch would take back the user's commits.
func (l *Layer) Base() string { return filepath.Join(l.Dir, baseDir) }

// atCommit are the files that make the next commit a merge or the like. A command finds those of the host's at its
// beginning, even if the user begins or gives up something meanwhile.
var atCommit = []string{"MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG"}

// base is the content that Base is to have, by path: linked, the text of another file, or nil for a
// missing file.
type base map[string]*string

// linked is an index, which is there already.
var linked = new(string)

func (b base) set(name, text string) { b[name] = &text }

// keepBase makes the base anew. No command uses the layer.
//
// The base of an index in the upper layer stays: it is that with which the index began. With a
// newer one, a later change staged by the host would look like a removal by the command. So
// stays the name of an index that has one already: each new name changes the ctime of the index, and
// lists of repositories rely on that.
//
// An index that is not needed any more gets another name, until Started: its removal
// takes a millisecond.
//
// It returns the git directories in which the host may have been committing. before is the record of the
// last time.
func (l *Layer) keepBase(before *record) (torn []string, err error) {
	if err := os.Mkdir(l.Base(), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	all := base{}
	for _, git := range l.gitDirs() {
		left, err := l.leave(git, before)
		copied := false
		if err == nil && !left {
			copied, err = l.hasOwn(git)
		}
		is := copied && slices.Contains(before.Torn, git)
		switch {
		case err != nil:
			return nil, err
		case copied:
			l.keepOld(git, all)
		default:
			delete(before.Trees, cmp.Or(l.rel(git), "."))
			is, err = l.renew(git, all)
		}
		if err != nil {
			return nil, err
		}
		if is {
			torn = append(torn, git)
		}
	}
	if err := l.clear("", all); err != nil {
		return nil, err
	}
	for rel, text := range all {
		err := l.write(rel, text)
		if err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENOTEMPTY) { // a name below that of another work tree's branch
			return nil, err
		}
	}
	return torn, nil
}

// notePacked copies the host's packed-refs, as the commands begin.
func (l *Layer) notePacked() error {
	for _, git := range l.gitDirs() {
		if l.common(git) != git {
			continue
		}
		file, noted := filepath.Join(git, "packed-refs"), l.packedThen(git)
		var is, was unix.Stat_t
		if err := unix.Stat(file, &is); err != nil {
			if err := os.Remove(noted); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			continue
		}
		if unix.Stat(noted, &was) == nil && is.Size == was.Size && is.Mtim == was.Mtim {
			continue
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(noted), 0o755)
		}
		if err == nil {
			err = fsat.WriteFile(noted, data)
		}
		if err == nil {
			err = unix.UtimesNano(noted, []unix.Timespec{is.Mtim, is.Mtim})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// packedThen is the copy of the packed-refs of a git directory.
func (l *Layer) packedThen(git string) string {
	return filepath.Join(l.Dir, packedDir, l.rel(git), "packed-refs")
}

// begunWith lists the HEADs and branches in the base of those of some files that are indexes.
func (l *Layer) begunWith(files []string) (names []string) {
	for _, file := range files {
		if path.Base(file) != indexFile {
			continue
		}
		all := base{}
		l.keepOld(filepath.Join(l.GitDir, path.Dir(file)), all)
		for name, text := range all {
			if text != nil && text != linked {
				names = append(names, name)
			}
		}
	}
	return names
}

// keepOld adds the files that the base has of a git directory.
func (l *Layer) keepOld(git string, all base) {
	rel := l.rel(git)
	add := func(name string) (text string, is bool) {
		file := filepath.Join(l.Base(), name)
		data, err := os.ReadFile(file)
		if text = string(data); err == nil {
			all.set(name, text)
		} else if exists(file) {
			all[name] = nil
		}
		return text, err == nil
	}
	for _, name := range atCommit {
		add(path.Join(rel, name))
	}
	if name := path.Join(rel, indexFile); exists(filepath.Join(l.Base(), name)) {
		all[name] = linked
	}
	text, is := add(path.Join(rel, "HEAD"))
	for n := 0; is && leadsTo(text) != "" && n < maxSymbolic; n++ {
		text, is = add(path.Join(l.rel(l.common(git)), leadsTo(text)))
	}
}

// renew adds the files that the host has of a git directory now. It reports whether the host may be committing.
func (l *Layer) renew(git string, all base) (torn bool, err error) {
	rel := l.rel(git)
	var now base
	for n := 0; ; n++ {
		if err := l.linkBase(git); err != nil {
			return false, err
		}
		now = l.read(git)
		// git locks the index, moves the branch, and replaces the index.
		lock, err := os.Lstat(filepath.Join(git, indexFile+".lock"))
		torn = err == nil || exists(filepath.Join(git, indexFile)) && exists(l.baseIndex(git)) && !l.sameIndex(git)
		if !torn || n >= maxMoments || err == nil && time.Since(lock.ModTime()) > maxMoments*moment { // the user writes the message of a commit
			break
		}
		time.Sleep(moment)
	}
	for name, text := range now {
		if _, known := all[name]; !known {
			all[name] = text
		}
	}
	all[path.Join(rel, indexFile)] = nil
	if exists(l.baseIndex(git)) {
		all[path.Join(rel, indexFile)] = linked
	}
	listed := slices.ContainsFunc([]string{"rebase-merge", "rebase-apply", "sequencer"}, func(name string) bool { return exists(filepath.Join(git, name)) })
	for _, name := range atCommit {
		file := filepath.Join(git, name)
		if !exists(file) {
			all[path.Join(rel, name)] = nil
		} else if text, _, err := overlay.ReadFile(unix.AT_FDCWD, file, unix.O_NOFOLLOW, maxMessage); err == nil && !listed { // the directories are not in the base
			all.set(path.Join(rel, name), string(text))
		}
	}
	return torn, nil
}

// maxMessage bounds the copy of each.
const maxMessage = 1 << 20

// maxMoments bounds how often a host that is just committing is looked at again, after a moment.
const (
	maxMoments = 100
	moment     = 10 * time.Millisecond
)

// sameIndex reports whether the host's index is that of the base.
func (l *Layer) sameIndex(git string) bool {
	host, base := filepath.Join(git, indexFile), l.baseIndex(git)
	if sameFile(host, base) {
		return true
	}
	one, err := os.ReadFile(host)
	other, oerr := os.ReadFile(base)
	return err == nil && oerr == nil && bytes.Equal(one, other)
}

// read reads the host's HEAD and the branches to which it leads, as far as it can.
func (l *Layer) read(git string) base {
	now, common := base{}, l.common(git)
	text, err := readRef(filepath.Join(git, "HEAD"))
	if err != nil {
		return now // a work tree that is gone
	}
	now.set(path.Join(l.rel(git), "HEAD"), text)
	branch := leadsTo(text)
	for n := 0; branch != "" && n < maxSymbolic; n++ {
		if text, err = readRef(filepath.Join(common, branch)); err != nil { // it is packed, or not there yet
			format, _, err := objects.FormatOf(common)
			if err != nil {
				break
			}
			id, _, err := refs.Value(refs.Host{Common: common, Git: git, HexLen: 2 * format.Size()}, branch)
			if err != nil || id == "" {
				break
			}
			text = id + "\n"
		}
		now.set(path.Join(l.rel(common), branch), text)
		branch = leadsTo(text)
	}
	return now
}

// readRef returns the text of a reference, which may be a symbolic link.
func readRef(file string) (string, error) {
	if target, err := os.Readlink(file); err == nil && refs.CheckName(target) == nil {
		return "ref: " + target + "\n", nil
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

// maxSymbolic is how many references git follows.
const maxSymbolic = 5

// leadsTo returns the reference that the text of another one names, or "".
func leadsTo(text string) string {
	name, symbolic := strings.CutPrefix(text, "ref:")
	if name = strings.TrimSpace(name); !symbolic || refs.CheckName(name) != nil {
		return ""
	}
	return name
}

// clear removes the other files below a directory of the base.
func (l *Layer) clear(dir string, all base) error {
	entries, err := os.ReadDir(filepath.Join(l.Base(), dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		file := filepath.Join(l.Base(), name)
		if e.IsDir() {
			if err = l.clear(name, all); err == nil {
				if err = os.Remove(file); errors.Is(err, unix.ENOTEMPTY) {
					err = nil
				}
			}
		} else if _, wanted := all[name]; !wanted {
			err = l.putAway(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putAway removes a file of the base.
func (l *Layer) putAway(name string) error {
	if path.Base(name) == indexFile {
		return os.Rename(filepath.Join(l.Base(), name), filepath.Join(l.Dir, oldIndex+rand.Text()))
	}
	return os.Remove(filepath.Join(l.Base(), name))
}

// write makes a file of the base as it is to be.
func (l *Layer) write(name string, text *string) error {
	file := filepath.Join(l.Base(), name)
	if text == linked {
		return nil
	}
	var st unix.Stat_t
	err := unix.Lstat(file, &st)
	if err == nil && text == nil && overlay.IsWhiteout(&st) {
		return nil
	}
	if err == nil && text != nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		if data, err := os.ReadFile(file); err == nil && string(data) == *text {
			return nil
		}
	}
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if text == nil {
		if err := unix.Mknod(file, unix.S_IFCHR, 0); err != nil {
			return &os.PathError{Op: "mknod", Path: file, Err: err}
		}
		return nil
	}
	return os.WriteFile(file, []byte(*text), 0o644)
}

// rel is the path of a git directory below the layer's.
func (l *Layer) rel(git string) string {
	return strings.TrimPrefix(strings.TrimPrefix(git, l.GitDir), "/")
}

// common is the git directory that has the branches of another one.
func (l *Layer) common(git string) string {
	if filepath.Dir(git) == filepath.Join(l.GitDir, "worktrees") {
		return l.GitDir
	}
	return git
}

// began returns the branch of a HEAD with which the commands began, and its commit. known is false if
// the base does not have the HEAD.
func (l *Layer) began(git string) (branch, id string, known bool) {
	text, err := os.ReadFile(filepath.Join(l.Base(), l.rel(git), "HEAD"))
	branch = leadsTo(string(text))
	known = err == nil
	for n := 0; leadsTo(string(text)) != "" && n < maxSymbolic; n++ {
		text, _ = os.ReadFile(filepath.Join(l.Base(), l.rel(l.common(git)), leadsTo(string(text))))
	}
	return branch, strings.TrimSpace(string(text)), known
}

// values returns the values of the branches in the base of a git directory.
func (l *Layer) values(common string) map[string]string {
	values := map[string]string{}
	dir := filepath.Join(l.Base(), l.rel(common))
	_ = filepath.WalkDir(filepath.Join(dir, "refs"), func(file string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // there may be none
		}
		if data, err := os.ReadFile(file); err == nil {
			text := strings.TrimSpace(string(data))
			values[strings.TrimPrefix(file, dir+"/")] = valueOf(text, leadsTo(text))
		}
		return nil
	})
	return values
}

// moveBase makes HEADs and branches that have landed the beginning of the next command, where it finds others in the
// upper layer, or an index. No command uses the layer. Where the host has moved them too, the base stays.
func (l *Layer) moveBase(out *landed) {
	if len(out.keep) == 0 {
		return
	}
	for _, git := range l.gitDirs() {
		r := l.lander.repos[l.rel(l.common(git))]
		if _, _, known := l.began(git); r == nil || !known || !l.isBegun(r, git, out) {
			continue
		}
		for name, text := range l.read(git) {
			_ = l.write(name, text) // or the next command's work may stay apart
		}
	}
}

// isBegun reports whether the host's HEAD is as the commands began, apart from their own moves that have landed.
func (l *Layer) isBegun(r *repository, git string, out *landed) bool {
	host, rel := r.refs(git), cmp.Or(l.rel(git), ".")
	branch, began, known := l.began(git)
	return !known || leadsTo(r.valueAt(host, rel, out)) == branch && r.beganAt(host, rel, out) == began
}

// meanwhile returns why the commands' changes of a HEAD, or of its branch, must not land because of the
// host's, or "". id is the commit of the host's HEAD before the landing. After an index has
// landed, the base has another one.
func (l *Layer) meanwhile(git, id string, torn []string, landed bool) string {
	branch, began, known := l.began(git)
	switch {
	case !known:
	case began == "" && id != "":
		return "the host has committed meanwhile"
	case landed:
	case began != id && branch != branchOf(git) && l.sameIndex(git), // git switch replaces the index, and then HEAD
		began == id && slices.Contains(torn, git) && !l.sameIndex(git): // git commit moves the branch, and then replaces the index
		return "the host was committing or switching when the command began"
	}
	return ""
}

// branchOf returns the branch to which HEAD leads in a directory, or "".
func branchOf(git string) string {
	text, _ := readRef(filepath.Join(git, "HEAD"))
	return leadsTo(text)
}

// linkBase gives the host's index a name in the base.
func (l *Layer) linkBase(git string) error {
	name := l.baseIndex(git)
	if sameFile(filepath.Join(git, indexFile), name) {
		return nil
	}
	if exists(name) {
		if err := l.putAway(path.Join(l.rel(git), indexFile)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := linkIndex(git, name); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}

// linkIndex gives the host's index another name.
func linkIndex(git, name string) error {
	err := os.Link(filepath.Join(git, indexFile), name)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	data, err := os.ReadFile(filepath.Join(git, indexFile)) // another file system, or another owner
	if err == nil {
		err = os.WriteFile(name, data, 0o644)
	}
	return err
}

// gitDirs lists the git directory and those of its linked worktrees and submodules.
func (l *Layer) gitDirs() []string {
	list := []string{l.GitDir}
	worktrees, _ := os.ReadDir(filepath.Join(l.GitDir, "worktrees"))
	for _, e := range worktrees {
		if !e.IsDir() {
			continue
		}
		list = append(list, filepath.Join(l.GitDir, "worktrees", e.Name()))
	}
	return append(list, Submodules(l.GitDir)...)
}

// Started is called once the sandbox is made.
func (l *Layer) Started() {
	l.Layer.Started()
	go func() {
		entries, _ := os.ReadDir(l.Dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), oldIndex) {
				_ = os.Remove(filepath.Join(l.Dir, e.Name())) // or the next command does
			}
		}
	}()
}

// hasIndex reports whether the upper layer, which no command uses, has an index of a git
// directory, or a whiteout in its place. It removes an index in which no command has
// staged anything if the host's has changed since: the next command sees the host's.
func (l *Layer) hasIndex(git string) (bool, error) {
	rel, err := filepath.Rel(l.GitDir, git)
	if err != nil {
		return false, err
	}
	upper, err := l.openUpper()
	if err != nil {
		return false, err
	}
	defer unix.Close(upper)
	dir, err := fsat.Kernel().Open(upper, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err == nil {
		defer unix.Close(dir)
		_, err = fsat.Lstat(dir, indexFile)
	}
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return false, nil
	case errors.Is(err, unix.EACCES): // the command has closed the directory
		return true, nil
	case err != nil:
		return false, err
	}
	if sameFile(filepath.Join(git, indexFile), l.baseIndex(git)) || hasOperation(dir) || !l.refreshed(dir, git) {
		return true, nil
	}
	return false, unix.Unlinkat(dir, indexFile, 0)
}

// hasOwn reports whether the upper layer has an index of a git directory, a HEAD, work under way, or a value of the
// branch to which the HEAD in the base leads: then the base stays as a whole.
func (l *Layer) hasOwn(git string) (bool, error) {
	branch, _, known := l.began(git)
	if upper, up, shared, host, err := l.openLayer(git); err == nil {
		_, _, head := refs.InLayer(up, host.HexLen, "HEAD")
		_, _, moved := refs.InLayer(shared, host.HexLen, branch)
		// A command may have left a rebase for a branch.
		own := head || branch != "" && moved || hasAny(up, append(slices.Clip(merging), "sequencer")) && !hasAny(up, []string{"rebase-merge", "rebase-apply"})
		closeAll(upper, up, shared)
		if known && own {
			return true, nil
		}
	}
	return l.hasIndex(git)
}

// openLayer opens the upper layer over the layer's git directory, over another one, and over that which has its
// branches.
func (l *Layer) openLayer(git string) (upper, up, shared int, host refs.Host, err error) {
	format, _, err := objects.FormatOf(l.common(git))
	if err != nil {
		return -1, -1, -1, host, err
	}
	host = refs.Host{Common: l.common(git), Git: git, HexLen: 2 * format.Size()}
	if upper, err = l.openUpper(); err != nil {
		return -1, -1, -1, host, err
	}
	up, err = fsat.Kernel().Open(upper, cmp.Or(l.rel(git), "."), unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err == nil {
		if shared, err = fsat.Kernel().Open(upper, cmp.Or(l.rel(host.Common), "."), unix.O_RDONLY|unix.O_DIRECTORY, 0, fsat.Beneath); err != nil {
			unix.Close(up)
		}
	}
	if err != nil {
		unix.Close(upper)
	}
	return upper, up, shared, host, err
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// leave removes a HEAD that waits in the upper layer, with its index, if the host has switched or moved the
// branch meanwhile: on them, the next command would take the host's commits back. Its commit is below refs/pk.
// It reports whether it has.
func (l *Layer) leave(git string, before *record) (left bool, err error) {
	rel, common := l.rel(git), l.rel(l.common(git))
	branch, began, known := l.began(git)
	if len(before.Keep) == 0 || !known {
		return false, nil
	}
	upper, up, shared, host, err := l.openLayer(git)
	if err != nil {
		return false, nil // nothing waits there
	}
	defer closeAll(upper, up, shared)
	if hasOperation(up) {
		return false, nil
	}
	at := l.headSeen(up, shared, host, before.Since)
	if !slices.ContainsFunc([]string{path.Join(rel, "HEAD"), path.Join(common, branch), path.Join(common, at.branch)}, func(name string) bool { return slices.Contains(before.Keep, name) }) {
		return false, nil
	}
	id, now, _ := leads(host)
	left = (now != branch || id != began) && (now != at.branch || id != at.id)
	_, _, changed := refs.InLayer(shared, host.HexLen, at.branch)
	if at.branch != "" && at.branch != branch && !changed {
		value, _, _ := refs.Value(host, at.branch)
		left = left || value != at.id
	}
	is := func(w waiting) bool { return w.Git == cmp.Or(rel, ".") && w.ID == at.id }
	if _, _, own := refs.InLayer(up, host.HexLen, "HEAD"); at.id == "" || !left ||
		(changed || own && at.branch == "") && at.id != began && !slices.ContainsFunc(before.Waits, is) { // it is not on the host, as in a trial
		return false, nil
	}
	names := []string{path.Join(rel, "HEAD"), path.Join(rel, "logs/HEAD"), path.Join(rel, indexFile)}
	if now == branch && branch != "" {
		names = append(names, path.Join(common, branch), path.Join(common, "logs", branch))
	}
	for _, name := range names {
		err := removeIn(upper, name)
		if err == unix.EACCES { // the command has closed a directory
			openUp(upper, maxOpenUp)
			err = removeIn(upper, name)
		}
		if err != nil && err != unix.EISDIR && !fsat.Absent(err) {
			return false, &os.PathError{Op: "remove", Path: filepath.Join(l.Upper(), name), Err: err}
		}
	}
	line := "the host has switched, or moved its branch: HEAD and the index, which waited for a lock, are dropped"
	for _, w := range before.Waits {
		if is(w) {
			line += fmt.Sprintf("; their commit is %q", w.Ref)
		}
	}
	l.lander.told = append(l.lander.told, line)
	return true, nil
}

func removeIn(upper int, name string) error {
	dir, err := fsat.Kernel().Open(upper, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, fsat.Beneath)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Unlinkat(dir, path.Base(name), 0)
}

// hasOperation reports whether a directory of the upper layer has a state that includes its
// index.
func hasOperation(dir int) bool { return hasAny(dir, operations) }

func hasAny(dir int, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, err := fsat.Lstat(dir, name); return err == nil })
}

// refreshed reports whether the index in a directory of the upper layer differs from its
// base only in stat data, and the host's index has changed since.
func (l *Layer) refreshed(dir int, git string) bool {
	format, _, err := objects.FormatOf(l.GitDir)
	if err != nil {
		return false
	}
	text := l.readBase(git)
	base, err := index.ParseHost(text, 2*format.Size())
	if err != nil {
		return false
	}
	if host, err := os.ReadFile(filepath.Join(git, indexFile)); err == nil && bytes.Equal(text, host) || err != nil && !errors.Is(err, os.ErrNotExist) {
		return false
	}
	data, _, err := readIndexOfLayer(dir)
	if err != nil {
		return false
	}
	own, err := index.Parse(data, 2*format.Size(), nil)
	return err == nil && index.SameContent(base, own)
}

// readBase returns nil if there was no index.
func (l *Layer) readBase(git string) []byte {
	data, _ := os.ReadFile(l.baseIndex(git))
	return data
}

// setBase makes an index that has landed the base of later changes that the command stages: the
// host's, whose lock the caller has, or own if the host's has other changes too. Without a base
// pk takes all that the host has for its changes.
func (l *Layer) setBase(git string, own []byte) error {
	next := filepath.Join(l.Dir, nextIndex)
	err := os.MkdirAll(filepath.Dir(l.baseIndex(git)), 0o755)
	if rerr := os.Remove(next); !errors.Is(rerr, os.ErrNotExist) { // of a process that was killed
		err = errors.Join(err, rerr)
	}
	switch {
	case err != nil:
	case own == nil:
		err = linkIndex(git, next)
	default:
		err = os.WriteFile(next, own, 0o644)
	}
	if err == nil {
		err = os.Rename(next, l.baseIndex(git))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(l.baseIndex(git)))
	}
	return err
}

// isBase reports whether the host's index is still its base. The new name of the base
// has changed its ctime.
func (l *Layer) isBase(git string, st *unix.Stat_t, since int64) bool {
	return st.Ctim.Nano() <= since || st.Mtim.Nano() <= since && sameFile(filepath.Join(git, indexFile), l.baseIndex(git))
}

// sameFile reports whether two names are of one inode.
func sameFile(a, b string) bool {
	var one, other unix.Stat_t
	return unix.Lstat(a, &one) == nil && unix.Lstat(b, &other) == nil && fsat.SameInode(&one, &other)
}

func (l *Layer) baseIndex(git string) string {
	return filepath.Join(l.Base(), l.rel(git), indexFile)
}

// IndexLinks counts the links to indexes of the host's in the directories of layers, by device and inode.
func IndexLinks(layers []string) map[[2]uint64]uint64 {
	links := map[[2]uint64]uint64{}
	count := func(name string) {
		var st unix.Stat_t
		if unix.Lstat(name, &st) == nil {
			links[[2]uint64{st.Dev, st.Ino}]++
		}
	}
	for ; len(layers) > 0; layers = layers[1:] {
		entries, _ := os.ReadDir(layers[0])
		for _, e := range entries {
			name := filepath.Join(layers[0], e.Name())
			switch {
			case strings.HasPrefix(e.Name(), onceDir):
				layers = append(layers, name)
			case strings.HasPrefix(e.Name(), oldIndex):
				count(name)
			case e.Name() == baseDir:
				_ = filepath.WalkDir(name, func(name string, e os.DirEntry, err error) error {
					if err == nil && e.Name() == indexFile && !e.IsDir() {
						count(name)
					}
					return nil
				})
			}
		}
	}
	return links
}
