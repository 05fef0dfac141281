package workspace_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/workspace"
)

func init() { children["mounts"] = crossMounts }

// A mount in a workspace belongs to it unless WithOneFileSystem is set, and RemoveAll never
// removes its files.
func TestMounts(t *testing.T) {
	base := confinetest.Tree(t, "w/d/here/", "w/file", "other/keep", "other/f")
	cmd := child(t, "mounts", base)
	cmd.SysProcAttr = ownMounts()
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "all refused\n", string(out))
	assert.FileExists(t, base+"/other/keep")
}

func crossMounts(args []string) error {
	base := args[0]
	for _, mount := range [][2]string{{base + "/other", base + "/w/d/here"}, {base + "/other/f", base + "/w/file"}} {
		if err := unix.Mount(mount[0], mount[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
	}
	for _, openat2 := range []bool{true, false} {
		open, err := workspace.NewLocalWorkspace(base + "/w")
		if err != nil {
			return err
		}
		strict, err := workspace.NewLocalWorkspace(base+"/w", workspace.WithOneFileSystem())
		if err != nil {
			return err
		}
		if !openat2 {
			workspace.WithoutOpenat2(open)
			workspace.WithoutOpenat2(strict)
		}
		if _, err := open.Read(ctx, "d/here/keep"); err != nil {
			return fmt.Errorf("without the option: %w", err)
		}
		if err := open.RemoveAll(ctx, "d"); err == nil {
			return fmt.Errorf("a mount was removed")
		}
		for _, path := range []string{"d/here/keep", "d/here", "file"} {
			for what, err := range reads(strict, path) {
				if matches(err, workspace.ErrIsDir) || matches(err, workspace.ErrNotDir) {
					continue // its kind is no secret
				}
				if !matches(err, workspace.ErrPathTraversal) {
					return fmt.Errorf("%s %s: %w", what, path, err)
				}
			}
			for _, err := range []error{strict.Write(ctx, path, nil), strict.Append(ctx, path, nil)} {
				if !matches(err, workspace.ErrPathTraversal) && !matches(err, workspace.ErrIsDir) {
					return fmt.Errorf("writing %s: %w", path, err)
				}
			}
		}
		if data, err := os.ReadFile(base + "/other/f"); err != nil || len(data) == 0 {
			return fmt.Errorf("%q, %w", data, err)
		}
	}
	fmt.Println("all refused")
	return nil
}
