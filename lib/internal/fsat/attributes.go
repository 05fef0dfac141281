package fsat

import (
	"strings"

	"golang.org/x/sys/unix"
)

const aclName = "system.posix_acl_access"

// CopyAttributes gives an open file the ACL and the user's attributes (xattr(7)) of a file, as far as the
// file system has them. Others belong to the kernel, or to the content. It reports whether the ACL is
// that of the file, which may have none.
func CopyAttributes(from string, to int) (acl bool) {
	names, err := sized(func(to []byte) (int, error) { return unix.Llistxattr(from, to) })
	if err != nil {
		return err == unix.EOPNOTSUPP
	}
	acl = true
	for name := range strings.SplitSeq(string(names), "\x00") {
		if name != aclName && !strings.HasPrefix(name, "user.") {
			continue
		}
		value, err := sized(func(to []byte) (int, error) { return unix.Lgetxattr(from, name, to) })
		if err == nil {
			err = unix.Fsetxattr(to, name, value, 0)
		}
		if err != nil && name == aclName {
			acl = false
		}
	}
	return acl
}

// sized calls a function that returns the size it needs for no space.
func sized(read func(to []byte) (int, error)) ([]byte, error) {
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	value := make([]byte, n)
	n, err = read(value)
	return value[:max(n, 0)], err
}
