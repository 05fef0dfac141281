// Package gittest helps to test changes of a git directory: it lists the content that
// must last, and writes files that git would not write.
package gittest

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Names in a git directory, or in one of a worktree or submodule, that a command may
// change: objects, refs, the index, and the state of work under way.
var landing = regexp.MustCompile(`(?s)^(` + strings.Join([]string{
	`objects(/[0-9a-f]{2}(/([0-9a-f]{38}|[0-9a-f]{62}))?|/pack(/pack-([0-9a-f]{40}|[0-9a-f]{64})\.(pack|idx|rev|bitmap|mtimes)|/multi-pack-index)?|/info(/packs|/commit-graph)?)?`,
	`(refs|logs)(/.*)?`,
	`lfs(/objects(/[0-9a-f]{2}(/[0-9a-f]{2}(/[0-9a-f]{64})?)?)?)?`,
	`HEAD|index|packed-refs|shallow|[A-Z_]+_HEAD|AUTO_MERGE|(MERGE|SQUASH|COMMIT|TAG|NOTES)_[A-Z]+|BISECT_(LOG|NAMES|START|TERMS|ANCESTORS_OK)`,
	`(rebase-merge|rebase-apply|sequencer)(/.*)?`,
}, "|") + `)$`)

// Names among them whose content can carry a command, or an option of one.
var carrier = regexp.MustCompile(`(^|/)(git-rebase-todo|git-rebase-todo.backup|done|todo|opts|strategy|strategy_opts|gpg_sign_opt|BISECT_RUN)$`)

// option is a file that must be empty: git reads it as options of a program.
var option = regexp.MustCompile(`(opts?|strategy|BISECT_RUN)$`)

var execLine = regexp.MustCompile(`(?m)^\s*(x|exec)\b`)

// gitDirOf splits a name below .git into the git directory it lies in and the rest.
var gitDirOf = regexp.MustCompile(`(?s)^((?:modules/[^/]+/|worktrees/[^/]+/)*)(.*)$`)

// Lasting lists the content of a git directory without the names that may land. Two lists
// are equal if a command changed nothing else. Of the names that may land it lists those
// that are not plain files or directories, or can carry a command.
func Lasting(t testing.TB, gitDir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(gitDir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, gitDir+"/")
		if err != nil {
			found[name] = err.Error()
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		short := gitDirOf.FindStringSubmatch(name)[2]
		switch mode := info.Mode(); {
		case path == gitDir:
			found["."] = mode.String()
		case mode.IsDir():
			if !landing.MatchString(short) {
				found[name] = mode.String()
			}
		case !mode.IsRegular():
			target, _ := os.Readlink(path)
			found[name] = mode.String() + " " + target
		case short == "config":
			found[name] = mode.String() + " " + settings(path)
		default:
			text := content(path)
			if !landing.MatchString(short) {
				found[name] = mode.String() + " " + string(text)
			} else if carrier.MatchString(short) && (execLine.Match(text) || option.MatchString(short) && len(text) > 0) {
				found[name] = string(text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Differences names the entries that are in only one of two lists, or differ.
func Differences(before, after map[string]string) []string {
	var names []string
	for name, was := range before {
		if is, there := after[name]; !there {
			names = append(names, "gone: "+name)
		} else if is != was {
			names = append(names, fmt.Sprintf("changed: %s: %.200q, was %.200q", name, is, was))
		}
	}
	for name, is := range after {
		if _, there := before[name]; !there {
			names = append(names, fmt.Sprintf("new: %s: %.200q", name, is))
		}
	}
	slices.Sort(names)
	return names
}

// content is the beginning of a file, or the reason why it cannot be read.
func content(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return []byte(err.Error())
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// settings is a configuration without the settings that may land: upstreams and remotes.
func settings(path string) string {
	out, err := exec.Command("git", "config", "--file", path, "--list").CombinedOutput()
	if err != nil {
		return string(out)
	}
	lands := regexp.MustCompile(`^(branch\..*\.(remote|merge|rebase)|remote\..*\.(url|fetch))=(.*)`)
	danger := regexp.MustCompile(`^(ext::|-|file:|/|\.)`)
	var kept []string
	for line := range strings.Lines(string(out)) {
		if m := lands.FindStringSubmatch(line); m == nil || strings.HasSuffix(m[1], ".url") && danger.MatchString(m[4]) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// Tree lists all entries below dir, without following links.
func Tree(t testing.TB, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprint(&list, path, " ", info.Mode(), " ")
		switch {
		case info.Mode().IsRegular():
			fmt.Fprintf(&list, "%d %x", info.Size(), sha1.Sum(content(path)))
		case info.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			list.WriteString(target)
		}
		list.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// An IndexEntry is one path of an index that git would not write.
type IndexEntry struct {
	Path string
	Mode uint32
	ID   [20]byte
}

// MakeIndex writes an index of version 2, with extensions put behind its entries.
func MakeIndex(entries []IndexEntry, extensions ...byte) []byte {
	slices.SortFunc(entries, func(a, b IndexEntry) int { return strings.Compare(a.Path, b.Path) })
	data := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(len(entries)))
	for _, e := range entries {
		start := len(data)
		data = append(data, make([]byte, 24)...)
		data = binary.BigEndian.AppendUint32(data, e.Mode)
		data = append(data, make([]byte, 12)...)
		data = append(data, e.ID[:]...)
		data = binary.BigEndian.AppendUint16(data, uint16(min(len(e.Path), 0xfff)))
		data = append(data, e.Path...)
		data = append(data, make([]byte, 8-(len(data)-start)%8)...)
	}
	data = append(data, extensions...)
	sum := sha1.Sum(data)
	return append(data, sum[:]...)
}

// BlobID is the name of a blob.
func BlobID(text string) [20]byte {
	return sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text))
}
