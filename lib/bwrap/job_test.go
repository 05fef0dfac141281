package bwrap

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/confine"
	"pikuri/lib/internal/fsat"
	"pikuri/lib/setup"
	"pikuri/lib/toolchain"
)

// steps describes the mounts of a job below base, one a line: operation, place,
// source, access, and "checked" if the set-up program compares the inode.
func steps(j *setup.Job, base string) []string {
	var list []string
	for _, m := range j.Mounts {
		if !strings.HasPrefix(m.At, base+"/") {
			continue
		}
		line := fmt.Sprintf("%s %s", m.Op, m.At)
		if m.From != "" && m.From != m.At {
			line += " from " + m.From
		}
		if m.Session != "" {
			line += " session " + m.Session
		}
		if m.Access != "" {
			line += " " + string(m.Access)
		}
		switch {
		case m.Inode.Ino != 0:
			line += " checked"
		case m.Inode.Path != "":
			line += " through no link"
		}
		list = append(list, strings.ReplaceAll(line, base, ""))
	}
	return list
}

func job(t *testing.T, o Options) (*Plan, *setup.Job) {
	t.Helper()
	p, err := New(o)
	require.NoError(t, err)
	j, err := p.Job(Binary{Path: "/usr/bin/bwrap"}, []string{"true"})
	require.NoError(t, err)
	return p, j
}

func TestJob(t *testing.T) {
	files := []string{"project/.git/hooks/", "project/.git/config", "project/conf/key", "project/sub/", "lib/secret", "lib/out/", "cache/", "home/"}
	for _, test := range []struct {
		name   string
		change func(o *Options, base string)
		want   []string // in order; steps adds those of the project alone
	}{
		{"a project", func(*Options, string) {}, []string{
			"empty /home", "bind /project rw checked"}},
		{"a readable root", func(o *Options, base string) {
			o.Roots = append(o.Roots, confine.Root{Path: base + "/lib", Dir: true})
		}, []string{"empty /home", "bind /lib ro checked", "bind /project rw checked"}},
		{"a writable directory in a readable root is the host's mount", func(o *Options, base string) {
			o.Roots = append(o.Roots, confine.Root{Path: base + "/lib", Dir: true}, confine.Root{Path: base + "/lib/out", Writable: true, Dir: true})
		}, []string{"empty /home", "bind /lib ro checked", "bind /lib/out rw checked", "bind /project rw checked"}},
		{"a protected file stays in the tree, and so do the directories above it", func(o *Options, base string) {
			o.Protect = []Protected{{Path: base + "/project/conf/key"}}
		}, []string{"empty /home", "bind /project rw checked", "keep /project/conf rw checked", "keep /project/conf/key ro checked"}},
		{"git's files", func(o *Options, base string) {
			o.Protect = []Protected{{Path: base + "/project/.git/config", Default: true}, {Path: base + "/project/.git/hooks", Default: true}}
		}, []string{"empty /home", "bind /project rw checked", "keep /project/.git rw checked", "keep /project/.git/config ro checked", "keep /project/.git/hooks ro checked"}},
		{"a credential of a tool chain", func(o *Options, base string) {
			o.Roots = append(o.Roots, confine.Root{Path: base + "/lib", Dir: true})
			o.Masks = []string{base + "/lib/secret"}
		}, []string{"empty /home", "bind /lib ro checked", "blank /lib/secret checked", "bind /project rw checked"}},
		{"an overlay", func(o *Options, base string) {
			o.Overlays = []string{base + "/cache"}
		}, []string{"overlay /cache", "empty /home", "bind /project rw checked"}},
		{"an overlay in a root", func(o *Options, base string) {
			o.Overlays = []string{base + "/project/sub"}
		}, []string{"empty /home", "bind /project rw checked", "overlay /project/sub checked"}},
		{"a small file of a tool chain", func(o *Options, base string) {
			require.NoError(t, os.WriteFile(base+"/home/.toolrc", []byte("x"), 0o644))
			o.Toolchains = []toolchain.Entry{{Kind: toolchain.Readable, Tool: "t", Path: base + "/home/.toolrc"}}
		}, []string{"empty /home", "copy /home/.toolrc", "bind /project rw checked"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := tree(t, files...)
			o := options(base)
			test.change(&o, base)
			_, j := job(t, o)
			assert.Equal(t, test.want, steps(j, base))
		})
	}
}

func TestJobOfASession(t *testing.T) {
	base := tree(t, "project/", "home/", "cache/key", "other/")
	o := options(base)
	o.Overlays = []string{base + "/cache"}
	o.Toolchains = []toolchain.Entry{{Kind: toolchain.Overlay, Tool: "t", Path: base + "/other"}}
	o.Masks = []string{base + "/cache/key"}
	p, err := New(o)
	require.NoError(t, err)
	require.NoError(t, p.Join(Session{Shown: map[string]string{base + "/cache": "/mnt/0"}, Root: "/proc/1/root"}, map[string]string{base + "/other": "no room"}))
	j, err := p.Job(Binary{Path: "/usr/bin/bwrap"}, []string{"true"})
	require.NoError(t, err)
	got := steps(j, base)
	assert.Contains(t, got, "overlay /cache session /mnt/0")
	assert.Contains(t, got, "bind /other ro", "what the session refuses is read-only")
	assert.Contains(t, p.Warnings, fmt.Sprintf("%q is read-only inside: no room", base+"/other"))
}

// bwrap makes the mounts below /proc, since it makes the PID namespace.
func TestOptionsOfBwrap(t *testing.T) {
	base := tree(t, "project/", "home/")
	o := options(base)
	o.Env.Caller = append(o.Env.Caller, "EDITOR=vi", "GIT_PAGER=less")
	o.Env.Set = append(o.Env.Set, "LD_PRELOAD=/x.so")
	p, j := job(t, o)
	for _, m := range j.Mounts {
		assert.False(t, fsat.Within(m.At, "/proc"), m.At)
	}
	at := func(words ...string) int {
		for i := range j.Options {
			if i+len(words) <= len(j.Options) && slices.Equal(j.Options[i:i+len(words)], words) {
				return i
			}
		}
		return -1
	}
	assert.Positive(t, at("--proc", "/proc"))
	assert.Positive(t, at("--cap-drop", "ALL"))
	assert.Positive(t, at("--disable-userns"))
	assert.Positive(t, at("--new-session"))
	assert.Equal(t, -1, at("--share-net"))
	assert.Equal(t, len(j.Options)-2, at("--chdir", base+"/project"))
	assert.False(t, j.WritableRoot)
	if exists("/proc/keys") {
		assert.Greater(t, at("--ro-bind", "/dev/null", "/proc/keys"), at("--proc", "/proc"))
	}
	assert.Positive(t, at("--setenv", "LD_PRELOAD", "/x.so"), "for the command")
	assert.NotContains(t, j.Env, "LD_PRELOAD=/x.so", "not for bwrap")
	assert.Contains(t, j.Env, "EDITOR=vi")
	assert.NotEmpty(t, j.Filter)

	p.Terminal = true
	j, err := p.Job(Binary{Path: "/usr/bin/bwrap"}, nil)
	require.NoError(t, err)
	assert.NotContains(t, j.Options, "--new-session", "bwrap leads the session of its terminal")

	_, err = p.Job(Binary{}, make([]string, maxWords))
	assert.ErrorContains(t, err, "bwrap takes 9000 words at most")
}

// A job loses no field on its way to the set-up program.
func TestJobTravels(t *testing.T) {
	base := tree(t, "project/.git/", "home/", "cache/")
	o := options(base)
	o.Overlays, o.Rlimits = []string{base + "/cache"}, []setup.Rlimit{{Resource: 1, Soft: 2, Hard: 3}}
	_, j := job(t, o)
	text, err := json.Marshal(j)
	require.NoError(t, err)
	var got setup.Job
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, *j, got)
	assert.Equal(t, o.Rlimits, j.Rlimits)
}
