package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/toolchain"
)

func TestADirectoryOfAFewSmallFilesIsCopied(t *testing.T) {
	base := tree(t, "few/a", "few/b", "deep/d/f", "linked/l => ../few/a", "empty/")
	require.NoError(t, os.MkdirAll(base+"/large", 0o755))
	require.NoError(t, os.WriteFile(base+"/large/f", make([]byte, maxCopy+1), 0o644))
	require.NoError(t, os.MkdirAll(base+"/closed", 0o755))
	require.NoError(t, os.WriteFile(base+"/closed/f", nil, 0o600))
	for i := range maxSmall + 1 {
		require.NoError(t, os.MkdirAll(base+"/many", 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(base, "many", fmt.Sprint(i)), nil, 0o644))
	}
	for _, name := range []string{"deep", "linked", "empty", "large", "closed", "many"} {
		dir := Mount{Op: OpReadOnly, Source: base + "/" + name, Dest: "/etc/" + name}
		assert.Equal(t, []Mount{dir}, small(dir), name)
	}
	var got []string
	for _, m := range small(Mount{Op: OpReadOnly, Source: base + "/few", Dest: "/etc/x"}) {
		got = append(got, string(m.Op)+" "+m.Source+" "+m.Dest)
	}
	assert.Equal(t, []string{"copy " + base + "/few/a /etc/x/a", "copy " + base + "/few/b /etc/x/b"}, got)
}

// Each mount makes bwrap read the table of mounts again.
func TestADevelopersPlanIsSmall(t *testing.T) {
	names := []string{"project/.git/hooks/", "project/.git/config", "project/.git/info/attributes", "home/"}
	var tools []toolchain.Entry
	for i := range 10 {
		kind := []toolchain.Kind{toolchain.Overlay, toolchain.Readable}[i%2]
		name := fmt.Sprintf("home/.tool%d", i)
		names = append(names, name+"/")
		tools = append(tools, toolchain.Entry{Kind: kind, Tool: "t", Path: name})
	}
	base := tree(t, names...)
	o := options(base)
	for _, e := range tools {
		e.Path = base + "/" + e.Path
		o.Toolchains = append(o.Toolchains, e)
	}
	for _, name := range []string{"hooks", "config", "info/attributes"} {
		o.Protect = append(o.Protect, Protected{Path: base + "/project/.git/" + name, Default: true})
	}
	p, err := New(o)
	require.NoError(t, err)
	mounts := 1 // of /dev/shm
	for _, m := range p.Mounts {
		if m.Op != OpCopy && m.Op != OpData && m.Op != OpLink {
			mounts++
		}
	}
	assert.LessOrEqual(t, mounts, 40)
}
