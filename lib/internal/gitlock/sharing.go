package gitlock

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Sharing is core.sharedRepository of a repository: the permissions that all of its files have, or get in addition to
// those that the umask leaves. Without a value, a new file is shared as its directory, which git has marked with the
// set-group-ID bit: another configuration may have the setting.
type Sharing struct {
	perm        fs.FileMode
	known, only bool
}

// ParseSharing reads a value as git's git_config_perm does. isTrue is the value as a boolean.
func ParseSharing(value string, isTrue bool) Sharing {
	switch value {
	case "umask":
		return Sharing{known: true}
	case "group":
		return Sharing{perm: 0o660, known: true}
	case "all", "world", "everybody":
		return Sharing{perm: 0o664, known: true}
	}
	perm, err := strconv.ParseUint(value, 8, 32)
	switch {
	case err != nil && isTrue, err == nil && perm == 1:
		return Sharing{perm: 0o660, known: true}
	case err == nil && perm == 2:
		return Sharing{perm: 0o664, known: true}
	case err == nil && perm&0o600 == 0o600: // git refuses others
		return Sharing{perm: fs.FileMode(perm) & 0o666, known: true, only: true}
	}
	return Sharing{known: true}
}

// Mode returns the mode that git gives a new file or directory whose mode is as the umask has it.
func (s Sharing) Mode(mode fs.FileMode) fs.FileMode {
	if s.perm == 0 {
		return mode
	}
	perm := s.perm
	if mode&0o200 == 0 {
		perm &^= 0o222
	}
	if mode&0o100 != 0 {
		perm |= (perm & 0o444) >> 2
	}
	if s.only {
		mode &^= fs.ModePerm
	}
	if mode |= perm; mode.IsDir() {
		if mode |= (mode & 0o444) >> 2; mode&0o060 != 0 {
			mode |= fs.ModeSetgid
		}
	}
	return mode
}

// Share gives a new file, or directory, its permissions.
func (s Sharing) Share(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	want := s.Mode(info.Mode())
	if !s.known {
		dir, err := os.Stat(filepath.Dir(f.Name()))
		if err != nil || dir.Mode()&fs.ModeSetgid == 0 {
			return err
		}
		if want |= dir.Mode().Perm() & 0o066; info.IsDir() {
			want |= dir.Mode()&0o077 | fs.ModeSetgid
		}
	}
	if want == info.Mode() {
		return nil
	}
	return f.Chmod(want)
}
