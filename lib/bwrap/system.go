package bwrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pikuri/lib/gate"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/passwd"
)

// systemLinks are links into /usr on a system with a merged /usr, and directories on
// others.
var systemLinks = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// etcAllowed are the entries of /etc that everyday tools need: names, addresses, time,
// trusted certificates, the links of update-alternatives, and the parts of packages that
// live outside /usr. No other entry is shown: not shadow, no keys, no configuration of
// services. testdata/etc.tsv has the reason for each entry.
var etcAllowed = []string{
	"ImageMagick-*", "OpenCL", "R", "alternatives", "bazel/bazelrc", "ca-certificates", "ca-certificates.conf", "chromium", "chromium.d",
	"crypto-policies", "dpkg/origins", "fonts", "gai.conf", "ghostscript", "glvnd", "groff", "groovy", "gtk-3.0", "host.conf", "hosts",
	"inputrc", "java", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libpaper.d",
	"locale.alias", "locale.conf", "localtime", "magic", "manpath.config",
	"maven", "mecabrc", "mime.types", "nim", "nsswitch.conf", "openmpi", "os-release", "papersize", "perl", "pki/ca-trust",
	"pki/java", "pki/tls/certs", "pki/tls/cert.pem", "protocols", "python3*",
	"resolv.conf", "services", "ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf",
	"terminfo", "texmf", "timezone", "vulkan", "xml",
}

// maxCopy is the largest file that is copied in rather than mounted. A copy costs its
// bytes twice; a mount costs more than a small copy.
const maxCopy = 64 << 10

// copyable reports whether a file can be copied in. The process that copies it has the
// caller's limit on the size of files.
func copyable(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && uint64(st.Size) <= copyLimit()
}

var copyLimit = sync.OnceValue(func() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) != nil {
		return 0
	}
	return min(maxCopy, limit.Cur)
})

// systemMounts shows /usr and the directories that belong to it.
func systemMounts() []Mount {
	mounts := []Mount{{Op: OpReadOnly, Source: "/usr", Dest: "/usr", Rule: "default: system root"}}
	for _, dir := range systemLinks {
		if m, ok := linkOrBind(dir, "default: system root"); ok {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// maxEtc is the number of names of /etc that are read, which is some ten times those of a
// machine with much installed.
const maxEtc = 4096

// etcMounts shows the allowed part of /etc.
func etcMounts(links resolver) []Mount {
	var mounts []Mount
	add := func(name string) {
		if m, ok := etcMount("/etc/"+name, links); ok {
			mounts = append(mounts, small(m)...)
		}
	}
	there, err := namesIn("/etc", maxEtc) // once for all patterns
	for _, pattern := range etcAllowed {
		if strings.Contains(pattern, "*") {
			for _, name := range there {
				if ok, _ := filepath.Match(pattern, name); ok {
					add(name)
				}
			}
			continue
		}
		top, _, _ := strings.Cut(pattern, "/")
		if _, found := slices.BinarySearch(there, top); found || err != nil || len(there) > maxEtc {
			add(pattern)
		}
	}
	return mounts
}

// etcMount shows one entry of /etc. A link that ends in /usr stays a link, as it resolves
// inside too. Another link (usually resolv.conf into /run) is replaced by its target. A
// file that other users may not read is left out: as root, pk would show it.
func etcMount(path string, links resolver) (Mount, bool) {
	const rule = "default: /etc allowlist"
	target, err := links.real(path)
	if err != nil {
		return Mount{}, false
	}
	if target != path && fsat.Within(target, "/usr") {
		if link, err := os.Readlink(path); err == nil {
			return Mount{Op: OpLink, Source: link, Dest: path, Rule: rule}, true
		}
	}
	var st unix.Stat_t
	if unix.Stat(target, &st) != nil || st.Mode&0o004 == 0 {
		return Mount{}, false
	}
	if copyable(&st) {
		return Mount{Op: OpCopy, Source: target, Dest: path, Perms: "0444", Rule: rule}, true
	}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFDIR || kind == unix.S_IFREG {
		return Mount{Op: OpReadOnly, Source: target, Dest: path, Rule: rule}, true
	}
	return Mount{}, false
}

// A tree that is copied in holds at most maxSmall files, and maxNamed names in all: a
// copy costs less than a mount, but some time, and a directory may be large.
const (
	maxSmall = 8
	maxNamed = 32
)

// smallDirectory is the size of a directory of one block, in which most file systems keep
// that many names. A larger one is not read.
const smallDirectory = 4096

// small replaces the mount of a tree of a few small files and links by copies, which need
// no mount. Anything else in the tree makes it stay a mount, and so does an empty
// directory, which copies would lose.
func small(tree Mount) []Mount {
	left := &copyBudget{files: maxSmall, names: maxNamed}
	if tree.Op == OpReadOnly {
		if parts, ok := left.copies(tree); ok {
			return parts
		}
	}
	return []Mount{tree}
}

// copyBudget is the number of files and names that may still be copied.
type copyBudget struct{ files, names int }

func (r *copyBudget) copies(dir Mount) ([]Mount, bool) {
	var st unix.Stat_t
	if unix.Stat(dir.Source, &st) != nil || st.Size > smallDirectory {
		return nil, false
	}
	names, err := namesIn(dir.Source, r.names)
	if err != nil || len(names) == 0 || len(names) > r.names {
		return nil, false
	}
	r.names -= len(names)
	var parts []Mount
	for _, name := range names {
		part := Mount{Op: OpReadOnly, Source: filepath.Join(dir.Source, name), Dest: filepath.Join(dir.Dest, name), Rule: dir.Rule}
		some, ok := r.copy(part)
		if !ok {
			return nil, false
		}
		parts = append(parts, some...)
	}
	return parts, true
}

// copy copies one part of a tree. A link stays a link, as in a mount: its target need not
// be shown.
func (r *copyBudget) copy(part Mount) ([]Mount, bool) {
	var st unix.Stat_t
	if unix.Lstat(part.Source, &st) != nil {
		return nil, false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return r.copies(part)
	case unix.S_IFLNK:
		link, err := os.Readlink(part.Source)
		part.Op, part.Source = OpLink, link
		return []Mount{part}, err == nil
	}
	r.files--
	part.Op, part.Perms = OpCopy, fmt.Sprintf("%04o", st.Mode&0o555)
	return []Mount{part}, r.files >= 0 && copyable(&st) && st.Mode&0o004 != 0
}

// namesIn lists a directory, sorted, with at most one name beyond most.
func namesIn(dir string, most int) ([]string, error) {
	d, err := fsat.Openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	var names []string
	err = fsat.Each(d, func(e fsat.Entry) error {
		if names = append(names, e.Name); len(names) > most {
			return errMore
		}
		return nil
	})
	slices.Sort(names)
	if err == errMore {
		err = nil
	}
	return names, err
}

var errMore = errors.New("there are more names")

// linkOrBind shows a link as a link, and binds a directory. It never does both: bwrap
// 0.12 refuses a destination that is a link.
func linkOrBind(path, rule string) (Mount, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return Mount{}, false
	}
	if info.Mode()&os.ModeSymlink != 0 {
		link, err := os.Readlink(path)
		return Mount{Op: OpLink, Source: link, Dest: path, Rule: rule}, err == nil
	}
	return Mount{Op: OpReadOnly, Source: path, Dest: path, Rule: rule}, info.IsDir()
}

// nameMounts are the files by which programs look up names, for a sandbox in which a gate
// answers names. The gate would refuse addresses of the host's /etc/hosts, and services
// in the host's nsswitch.conf are missing.
func nameMounts() []Mount {
	const rule = "option --net allow: names are answered by the gate"
	hosts := "127.0.0.1 localhost"
	if name, err := os.Hostname(); err == nil && !strings.ContainsAny(name, " \t\n#") {
		hosts += " " + name
	}
	file := func(path, text string) Mount {
		return Mount{Op: OpData, Dest: path, Data: []byte(text), Perms: "0444", Rule: rule}
	}
	return []Mount{
		file("/etc/resolv.conf", fmt.Sprintf("nameserver %s\n", gate.Resolver)),
		file("/etc/hosts", hosts+"\n::1 localhost ip6-localhost ip6-loopback\n"),
		file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
	}
}

// accountMounts shows an /etc/passwd and an /etc/group of three entries each. Without
// them ssh refuses to start, Java has no home directory and ~user does not expand; the
// host's own would show every account.
func accountMounts(u user) []Mount {
	const rule = "default: synthetic accounts"
	users := fmt.Sprintf("root:x:0:0:root:%s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", rootHome(u))
	groups := "root:x:0:\nnogroup:x:65534:\n"
	if u.uid != 0 && u.uid != 65534 {
		users += fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/bash\n", u.name, u.uid, u.gid, u.name, u.home)
	}
	if u.gid != 0 && u.gid != 65534 {
		groups += fmt.Sprintf("%s:x:%d:\n", u.group, u.gid)
	}
	return []Mount{
		{Op: OpData, Dest: passwd.Users, Data: []byte(users), Perms: "0444", Rule: rule},
		{Op: OpData, Dest: passwd.Groups, Data: []byte(groups), Perms: "0444", Rule: rule},
	}
}

func rootHome(u user) string {
	if u.uid == 0 {
		return u.home
	}
	return "/root"
}

// user is the user of the sandbox: the caller.
type user struct {
	uid, gid    int
	name, group string
	home        string // absolute, clean
}

// isAccountName reports whether a name can stand in a passwd file unchanged, and be a word and a
// part of a path. Not only useradd's names do: directory services have "Ada.L" and "DOM\\ada".
func isAccountName(s string) bool {
	const longest = 256
	bad := func(r rune) bool { return r == ':' || r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	return s != "" && len(s) <= longest && utf8.ValidString(s) && !strings.ContainsFunc(s, bad) &&
		!strings.ContainsAny(s[:1], "-+~") && strings.Trim(s, "0123456789") != "" && s != "." && s != ".."
}

// currentUser describes the caller. An account without an entry in /etc/passwd (a
// container's, or one of a directory service) has the name of $USER, or is called "user". $USER names
// nobody else: a file's owner is a uid.
func currentUser(home, name string) user {
	u := user{uid: os.Geteuid(), gid: os.Getegid(), home: filepath.Clean(home)}
	entry := passwd.Find(passwd.Users, u.uid)
	switch {
	case u.uid == 0:
		name = "root" // as in accountMounts
	case u.uid == 65534:
		name = "nobody"
	case isAccountName(entry.Name):
		name = entry.Name
	case !isAccountName(name) || name == "root" || name == "nobody":
		name = "user"
	}
	u.name, u.group = name, name
	if g := passwd.Find(passwd.Groups, u.gid); isAccountName(g.Name) {
		u.group = g.Name
	}
	if !filepath.IsAbs(home) || strings.ContainsAny(home, ":\n") {
		u.home = entry.Home
	}
	if !filepath.IsAbs(u.home) || u.home == "/" || strings.ContainsAny(u.home, ":\n") || fsat.Within(u.home, "/proc") || fsat.Within(u.home, "/dev") {
		u.home = "/home/" + u.name
	}
	return u
}
