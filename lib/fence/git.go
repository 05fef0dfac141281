package fence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pikuri/lib/bwrap"
	"pikuri/lib/gitconfig"
	"pikuri/lib/gitdir"
	"pikuri/lib/session"
	"pikuri/lib/setup"
)

// git finds the git directories that a writable root has to do with, and lists the
// files beside them that decide which repository is used.
func (f *Fence) git(root string) ([]bwrap.Protected, error) {
	repos, err := gitdir.Find(root, nil)
	if err != nil {
		return nil, &bwrap.Refusal{Reason: fmt.Sprintf("cannot find the git directories of %q: %v", root, err), Advice: gitAdvice(err)}
	}
	var list []bwrap.Protected
	for _, file := range gitconfig.UserFiles(os.LookupEnv) {
		if strings.HasPrefix(file, root+"/") {
			list = append(list, bwrap.Protected{Path: file, Rule: "default: git: the user's configuration", Default: true})
		}
	}
	for _, r := range repos {
		if r.File {
			list = append(list, bwrap.Protected{Path: r.DotGit, Rule: "default: git: it decides which repository this is", Default: true})
		}
	}
	for _, dir := range gitdir.Layers(repos) {
		if !slices.Contains(f.gitDirs, dir) {
			f.gitDirs = append(f.gitDirs, dir)
		}
	}
	return list, nil
}

// gitAdvice never proposes to go without protection: a command may have made the
// tree so that the search fails.
func gitAdvice(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrPermission) {
		return fmt.Sprintf("make it readable: chmod u+rwx %q", path.Path)
	}
	return "name a narrower root"
}

// openLayers opens a layer over each git directory: the session's, or one of the
// command's own.
func (f *Fence) openLayers() error {
	for _, dir := range f.gitDirs {
		l, err := f.openLayer(dir)
		if err != nil {
			return err
		}
		f.layers = append(f.layers, l)
		layer := setup.Layer{Upper: l.Upper(), Work: l.Work(), Fresh: l.Fresh()}
		at := ""
		if f.joined != nil {
			layer.Source, at = f.Session.Marker(), l.Merged()
		}
		f.Plan.Lay(dir, layer, at)
	}
	return nil
}

func (f *Fence) openLayer(gitDir string) (*gitdir.Layer, error) {
	if f.joined != nil {
		return gitdir.OpenShared(f.joined.Overlays, gitDir, strings.TrimPrefix(f.Session.Name(), session.Prefix))
	}
	base, err := session.Base(os.Getenv)
	if err == nil {
		err = session.MakeBase(base)
	}
	if err == nil {
		base, err = filepath.EvalSymlinks(base)
	}
	if err != nil {
		return nil, err
	}
	return gitdir.OpenOwn(filepath.Join(base, session.GitDir), gitDir)
}

// landEvery is how often the work of a command that runs lands.
const landEvery = time.Second

// started lands the command's work while it runs.
func (f *Fence) started() {
	for _, l := range f.layers {
		l.Started()
	}
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		tick := time.NewTicker(landEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				for _, l := range f.layers {
					l.Land()
				}
			}
		}
	}()
	f.stop = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
}
