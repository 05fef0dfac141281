package gitdir

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pikuri/lib/gitdir/objects"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/internal/gitplace"
	"pikuri/lib/overlay"
)

// Store is what git directories of the host keep in places that no layer on them covers:
// objects, references and logs. A git directory may be one of an unpacked archive, which
// names any place.
type Store struct {
	Borrowed []string // object databases from which they borrow, absolute
	Links    []string // symbolic links among their objects, references and logs
	Shared   []Shared // files with several hard links
}

// Shared is a file of a git directory that has several hard links.
type Shared struct {
	Path  string // absolute
	lock  string // the file that git locks when it writes this one; "": it never does
	at    [2]uint64
	ctime int64
}

// StoreOf reads the names in git directories, and asks the kernel for the links of each
// file: a hard link that is made elsewhere changes no directory here. It leaves out what
// cannot be read, which git cannot read either. own are the numbers of pk's links to inodes, by
// device and inode.
func StoreOf(gitDirs []string, own map[[2]uint64]uint64) *Store {
	s := storeReader{seen: map[[2]uint64]bool{}, own: own}
	for _, dir := range gitDirs {
		s.gitDir = dir
		s.names(dir, nil)
		s.gitDir = ""
		s.objects(path.Join(dir, "objects"), 0)
	}
	// References can be many. A copy by hard links shares objects and the description too,
	// which git never writes again.
	copied := len(s.Shared) > 0
	for _, dir := range gitDirs {
		s.gitDir = dir
		for _, name := range []string{"refs", "logs"} {
			s.names(path.Join(dir, name), func(string) bool { return copied })
		}
	}
	s.gitDir = ""
	for dir := range strings.SplitSeq(os.Getenv("GIT_ALTERNATE_OBJECT_DIRECTORIES"), ":") {
		s.borrow(dir, 1)
	}
	return &s.Store
}

type storeReader struct {
	Store
	gitDir string // "": objects, of which git changes none
	seen   map[[2]uint64]bool
	own    map[[2]uint64]uint64
}

// objects reads an object database and those from which it borrows.
func (s *storeReader) objects(dir string, depth int) {
	if !s.names(dir, func(name string) bool { return len(name) == 2 || name == "pack" || name == "info" }) || depth == objects.MaxAlternates {
		return
	}
	text, _, _ := overlay.ReadFile(unix.AT_FDCWD, dir+"/info/alternates", 0, gitplace.MaxPointer)
	for _, other := range objects.Alternates(dir, text) {
		s.borrow(other, depth+1)
	}
}

func (s *storeReader) borrow(dir string, depth int) {
	if filepath.IsAbs(dir) {
		s.Borrowed = append(s.Borrowed, dir)
		s.objects(dir, depth)
	}
}

// names reads a directory, and those in it that into accepts: nil accepts none. It reports
// whether the directory is there and was not read before.
func (s *storeReader) names(dir string, into func(name string) bool) bool {
	return s.namesAt(unix.AT_FDCWD, dir, dir, into)
}

func (s *storeReader) namesAt(in int, base, dir string, into func(name string) bool) bool {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	if s.gitDir != "" {
		flags |= unix.O_NOFOLLOW // refs might lead to a large tree
	}
	fd, err := fsat.Openat(in, base, flags, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if into != nil {
		if unix.Fstat(fd, &st) != nil || s.seen[[2]uint64{st.Dev, st.Ino}] {
			return false
		}
		s.seen[[2]uint64{st.Dev, st.Ino}] = true
	}
	_ = fsat.Each(fd, func(e fsat.Entry) error {
		kind := uint32(e.Type) << 12
		if e.Type != unix.DT_DIR {
			if unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				return nil
			}
			kind = st.Mode & unix.S_IFMT
		}
		switch {
		case kind == unix.S_IFLNK:
			s.Links = append(s.Links, dir+"/"+e.Name)
		case kind == unix.S_IFREG && st.Nlink > 1 && uint64(st.Nlink) > 1+s.own[[2]uint64{st.Dev, st.Ino}]:
			s.shared(dir+"/"+e.Name, &st)
		}
		// A fan-out directory may be a link, and have links in it.
		if (kind == unix.S_IFDIR || kind == unix.S_IFLNK && s.gitDir == "") && into != nil && into(e.Name) {
			below := into
			if s.gitDir == "" {
				below = nil
			}
			s.namesAt(fd, e.Name, dir+"/"+e.Name, below)
		}
		return nil
	})
	return true
}

// shared adds a file. Those of the configuration are watched while a command runs.
func (s *storeReader) shared(name string, st *unix.Stat_t) {
	f := Shared{Path: name, at: [2]uint64{st.Dev, st.Ino}, ctime: st.Ctim.Nano()}
	if s.gitDir != "" {
		rel := strings.TrimPrefix(name, s.gitDir+"/")
		if rel == "config" || rel == "config.worktree" {
			return
		}
		f.lock = s.gitDir + "/" + strings.TrimPrefix(rel, "logs/")
	}
	s.Shared = append(s.Shared, f)
}
