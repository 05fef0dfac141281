package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/gitdir/gittest"
)

// A gitAttack changes a repository so that the host's git runs, follows or loses
// something. None succeeds. Afterwards the test uses git all over the project: no
// program that the command made may run, and no file outside may change.
type gitAttack struct {
	name string
	// before runs on the host, in the project.
	before string
	// root is the project root, below PROJECT.
	root string
	// earlier is a command that has ended before the others begin.
	earlier string
	// meanwhile runs at the same time, in the same session: the commands start when it
	// has made the file "started", and when they have ended it finds the file "go".
	meanwhile string
	// during says that the user's git is used before the file "go" is there.
	during bool
	// killed says that pk-bash is killed when the command has made the file "started".
	killed   bool
	options  []string
	commands []string
	// refused says that pk may refuse a command.
	refused bool
	// hidden says that the name "in-secret" must not be seen inside.
	hidden bool
	// next and after run on the host, in the project, and may fail: next before git is used
	// all over the project.
	next   string
	after  string
	asRoot bool // the attack needs another user
}

const (
	// poison makes the repository in the working directory run a program.
	poison = `
		git config core.fsmonitor EVIL; git config core.hooksPath PROJECT/tools/evilhooks; git config diff.external EVIL
		git config core.editor EVIL; git config core.sshCommand EVIL; git config gpg.program EVIL; git config commit.gpgSign true
		git config filter.e.clean EVIL; git config filter.e.smudge EVIL; git config core.pager EVIL; git config core.gitProxy EVIL; `
	// hooks puts the program where git looks for hooks, below $d.
	hooks = `
		mkdir -p $d/hooks; for h in pre-commit post-checkout post-commit post-index-change reference-transaction pre-auto-gc post-rewrite commit-msg prepare-commit-msg pre-rebase post-merge; do cp EVIL $d/hooks/$h; done; `
	evilConfig = `printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = EVIL\n\thooksPath = PROJECT/tools/evilhooks\n[diff]\n\texternal = EVIL\n[alias]\n\tst = !EVIL\n' `
	setEvil    = `d=PROJECT/tools/evil; mkdir -p PROJECT/tools/evilhooks; for h in pre-commit post-checkout post-index-change reference-transaction post-commit; do cp EVIL PROJECT/tools/evilhooks/$h; done; `
	// bare makes the working directory look like a bare repository that has files.
	bare   = `mkdir -p objects refs/heads; echo 'ref: refs/heads/main' >HEAD; printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = EVIL\n' >config; `
	late   = `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),late; mkdir late; git commit -qm late`
	deep   = `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),a/b/c/d/late; mkdir -p a/b/c/d/late; git commit -qm late`
	inLate = `git init -q late; cd late; git commit -q --allow-empty -m x; ` + poison
	wait   = `touch PROJECT/started; n=0; while [ ! -e PROJECT/go ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done; `
	// trackedHooks has the project track its hooks, and evilHooks makes the commit $evil with others.
	trackedHooks = `mkdir .githooks; printf '#!/bin/sh\n' >.githooks/post-checkout; cp .githooks/post-checkout .githooks/post-commit; chmod +x .githooks/*; git add .githooks; git commit -qm hooks; git -C wt merge -q main; git config core.hooksPath .githooks; `
	evilHooks    = `b=$(git hash-object -w EVIL); t=$(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --cacheinfo 100755,$b,.githooks/post-checkout --cacheinfo 100755,$b,.githooks/post-commit; git write-tree); evil=$(git commit-tree -p HEAD -m x $t); `
	// back goes to the branches that HEAD was on before, which the log of HEAD names.
	back       = `git checkout -q -; git checkout -q @{-2}; git checkout -q @{-3}; git checkout -q -f main; ` + useHooks
	ownRemote  = `git config remote.o.url https://example.com/o; `
	remoteEvil = `git update-ref refs/remotes/o/evil $evil; git symbolic-ref refs/remotes/o/HEAD refs/remotes/o/evil`
	// renamedHook makes the commit $e, which changes a file that was a hook before $r gave it another name.
	renamedHook = `r=$(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git rm -rq --cached .githooks; git update-index --add --cacheinfo 100755,$(git rev-parse HEAD:.githooks/post-commit),tools/post-commit; git commit-tree -p HEAD -m r $(git write-tree)); e=$(export GIT_INDEX_FILE=/tmp/ix; git read-tree $r; git update-index --cacheinfo 100755,$(git hash-object -w EVIL),tools/post-commit; git commit-tree -p $r -m e $(git write-tree)); `
	editEach    = `git reset -q --hard; git commit -q --allow-empty -m x; echo y >y; git add y; git commit -qm y; GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i HEAD~1; `
	pickTwo     = `git reset -q --hard; git commit -q --allow-empty -m x; git checkout -q -b z; echo z >a; git add a; git commit -qm z; echo z >zz; git add zz; git commit -qm zz; git checkout -q main; echo m >a; git add a; git commit -qm m; git cherry-pick z~1 z; `
	// moduleHooks has a submodule track its hooks, and evilModule makes its commit $c with another.
	moduleHooks = `cd mod; mkdir hooks; printf '#!/bin/sh\n' >hooks/post-checkout; chmod +x hooks/*; git add hooks; git commit -qm hooks; git config core.hooksPath hooks; cd ..; git commit -qam hooks; `
	evilModule  = `c=$(export GIT_DIR=.git/modules/mod GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --cacheinfo 100755,$(git hash-object -w EVIL),hooks/post-checkout; c=$(git commit-tree -p HEAD -m x $(git write-tree)); git tag v2 $c; echo $c); `
	useHooks    = `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; git checkout -q --detach; git checkout -q main`
	// lease keeps a write lease on the files that it is given, until "go".
	lease = `perl -MFcntl -e '$SIG{IO} = "IGNORE"; for (@ARGV) { open my $f, "<", $_ or next; fcntl $f, 1024, 1; push @f, $f } open S, ">", "PROJECT/started"; for (1 .. 500) { last if -e "PROJECT/go"; select undef, undef, undef, 0.02 }' `
)

var gitAttacks = []gitAttack{
	// Repositories that a command makes.
	{name: "gitlink in the index to a repository five levels down", commands: []string{setEvil + `mkdir -p a/b/c/d/sub; cd a/b/c/d/sub; git init -q; git commit -q --allow-empty -m x; ` + poison + `h=$(git rev-parse HEAD); cd PROJECT; git update-index --add --cacheinfo 160000,$h,a/b/c/d/sub`}},
	{name: "gitlink that is committed", commands: []string{setEvil + `mkdir -p deep/n; git init -q deep/n; git -C deep/n commit -q --allow-empty -m x; git add deep/n; git commit -qm link; cd deep/n; ` + poison}},
	{name: "gitlink whose repository is made by a later command", commands: []string{
		setEvil + `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),later/sub; mkdir -p later/sub`,
		`git init -q later/sub; cd later/sub; ` + poison}},
	{name: "gitlink to a .git file that leads to a directory of the project", commands: []string{setEvil + `git init -q --separate-git-dir=PROJECT/sub/store PROJECT/sub/linked; cd sub/linked; git commit -q --allow-empty -m x; ` + poison + `cd PROJECT; git update-index --add --cacheinfo 160000,$(git -C sub/linked rev-parse HEAD),sub/linked`}},
	{name: "gitlink in the index of a worktree", commands: []string{setEvil + `mkdir -p wt/x; git init -q wt/x; git -C wt/x commit -q --allow-empty -m x; (cd wt/x; ` + poison + `); cd wt; git update-index --add --cacheinfo 160000,$(git -C x rev-parse HEAD),x`}},
	{name: "gitlink in the index of a submodule", commands: []string{setEvil + `mkdir -p mod/x; git init -q mod/x; git -C mod/x commit -q --allow-empty -m x; (cd mod/x; ` + poison + `); cd mod; git update-index --add --cacheinfo 160000,$(git -C x rev-parse HEAD),x`}},
	{name: "directory of tracked files becomes a repository", commands: []string{setEvil + `cd sub/dir; git init -q; git commit -q --allow-empty -m x; ` + poison}},
	{name: "directory of tracked files becomes a link to a repository", commands: []string{setEvil + `git init -q other; git -C other commit -q --allow-empty -m x; (cd other; ` + poison + `); rm -r sub/dir; ln -s ../other sub/dir`}},
	{name: "repository in a root that has none", before: `rm -rf .git wt mod`, commands: []string{setEvil + `git init -q; git add a.txt; git commit -qm x; ` + poison + `d=.git; ` + hooks}},
	{name: "repository in a root that has none, moved into place", before: `rm -rf .git wt mod`, commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git .git`}},
	{name: "repository in a root that has none, and pk-bash is killed", before: `rm -rf .git wt mod`, killed: true, commands: []string{setEvil + `git init -q; git commit -q --allow-empty -m x; ` + poison + wait, `true`}},
	{name: ".git file in a root that has no repository", before: `rm -rf .git wt mod`, commands: []string{setEvil + `git init -q --separate-git-dir=sub/store .; git commit -q --allow-empty -m x; ` + poison}},
	{name: ".git link in a root that has no repository", before: `rm -rf .git wt mod`, commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git store; ln -s store .git`}},
	{name: "bare repository at the top of a root that has none", before: `rm -rf .git wt mod`, commands: []string{setEvil + bare}},
	{name: "repository in a root below another repository", root: "sub", before: `mkdir -p sub`, commands: []string{setEvil + `git init -q; git commit -q --allow-empty -m x; ` + poison}},
	{name: "bare repository in a directory below", commands: []string{setEvil + `mkdir -p x/y; cd x/y; ` + bare}},
	{name: "bare repository with a link for HEAD", commands: []string{setEvil + `mkdir -p x/y; cd x/y; ` + bare + `rm HEAD; ln -s refs/heads/main HEAD`}},
	{name: "bare repository through commondir", commands: []string{setEvil + `mkdir -p x/y x/common; (cd x/common; ` + bare + `); cd x/y; echo ../common >commondir; cp ../common/HEAD HEAD`}},
	{name: "worktree whose main repository the command made", commands: []string{setEvil + `git init -q m; cd m; git commit -q --allow-empty -m x; ` + poison + `git worktree add -q PROJECT/sub/wt2`}},

	// Submodules that are not populated: git status enters one as soon as it has a .git.
	{name: "repository in an unpopulated submodule while the command runs", before: late, during: true, meanwhile: setEvil + inLate + wait},
	{name: "repository in an unpopulated submodule, and pk-bash is killed", before: late, killed: true, commands: []string{setEvil + inLate + wait}},
	{name: "repository in an unpopulated submodule, then other commands", before: late, commands: []string{setEvil + inLate, `true`, `cd late; ` + poison}},
	{name: ".git file in an unpopulated submodule while the command runs", before: late, during: true, meanwhile: setEvil + `git init -q --separate-git-dir=PROJECT/sub/store other; rm -r other; echo "gitdir: ../sub/store" >late/.git; cd late; git commit -q --allow-empty -m x; ` + poison + wait},
	{name: "repository of one command is in the index when the next one runs", killed: true, commands: []string{setEvil + `cd n; ` + poison + wait}, earlier: setEvil + `git init -q n; cd n; git commit -q --allow-empty -m x; ` + poison + `cd ..; git add n 2>/dev/null`},
	{name: "repository of one command is in the index while the next one runs", during: true, earlier: setEvil + `git init -q n; cd n; git commit -q --allow-empty -m x; ` + poison + `cd ..; git add n 2>/dev/null`, meanwhile: `cd n; ` + poison + wait},
	{name: ".git file of one command is in the index while the next one runs", during: true, earlier: setEvil + `git init -q --separate-git-dir=PROJECT/sub/store n; cd n; git commit -q --allow-empty -m x; ` + poison + `cd ..; git add n 2>/dev/null`, meanwhile: wait},
	{name: "unpopulated submodule five levels down", before: deep, during: true, meanwhile: setEvil + `git init -q a/b/c/d/late; cd a/b/c/d/late; git commit -q --allow-empty -m x; ` + poison + `cd PROJECT; mv a z; mkdir -p a/b/c/d; mv z/b/c/d/late a/b/c/d/late; ` + wait},
	{name: "unpopulated submodule that is missing", before: deep + `; rm -r a`, during: true, meanwhile: setEvil + `mkdir -p a/b/c/d/late; cd a/b/c/d/late; git init -q; git commit -q --allow-empty -m x; ` + poison + wait},
	{name: "unpopulated submodule of a submodule", before: `cd mod; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),late; mkdir late; git commit -qm late`, during: true, meanwhile: setEvil + `cd mod/late; git init -q; git commit -q --allow-empty -m x; ` + poison + wait},
	{name: "unpopulated submodule of a worktree", before: `cd wt; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),late; mkdir late; git commit -qm late`, during: true, meanwhile: setEvil + `cd wt/late; git init -q; git commit -q --allow-empty -m x; ` + poison + `git -C PROJECT/wt status; ` + wait},
	{name: "unpopulated submodule moved away", before: late, during: true, meanwhile: setEvil + `mv late early || rmdir late; ` + inLate + wait},
	{name: "new gitlink has landed, then a repository is moved there", during: true, meanwhile: setEvil + `git init -q n; cd n; git commit -q --allow-empty -m x; ` + poison + `cd ..; mkdir -p x; git update-index --add --cacheinfo 160000,$(git -C n rev-parse HEAD),x/y; sleep 1.3; mv n x/y; ` + wait},
	{name: "new gitlink of another command, then a repository is moved there", during: true, meanwhile: setEvil + `git init -q n; cd n; git commit -q --allow-empty -m x; ` + poison + `cd ..; touch started; n=0; while [ ! -e ready ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done; sleep 0.5; mkdir -p x; mv n x/y; ` + wait, commands: []string{`git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x/y; touch ready`, `sleep 1`}},

	// The git directory itself.
	{name: "HEAD moved away, bare repository at the top", commands: []string{setEvil + `mv .git/HEAD .git/H; ` + bare}},
	{name: "objects moved away, bare repository at the top", commands: []string{setEvil + `mv .git/objects .git/o; ` + bare}},
	{name: "git directory put in the place of the old one", commands: []string{setEvil + `mv .git old; git init -q; git commit -q --allow-empty -m x; ` + poison}},
	{name: "git directory removed and made anew", commands: []string{setEvil + `rm -rf .git; git init -q; git commit -q --allow-empty -m x; ` + poison}},
	{name: "git directory replaced by a .git file", commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git store; mv .git old || rm -rf .git; echo "gitdir: store" >.git`}},
	{name: "configuration and hooks", commands: []string{setEvil + poison + `d=.git; ` + hooks + `git config --add include.path OUT/identity; git config alias.st '!EVIL'`}, after: `git st`},
	{name: "configuration as a whole file", commands: []string{setEvil + evilConfig + `>.git/config`}},
	{name: "configuration that is renamed into place", commands: []string{setEvil + evilConfig + `>.git/c; mv .git/c .git/config`}},
	{name: "configuration as a link", commands: []string{setEvil + evilConfig + `>tools/c; ln -sf ../tools/c .git/config`}},
	{name: "configuration of a worktree", commands: []string{setEvil + `git config extensions.worktreeConfig true; ` + evilConfig + `>.git/config.worktree; cp .git/config.worktree .git/worktrees/wt/config.worktree`}},
	{name: "configuration and hooks of a submodule", commands: []string{setEvil + `cd mod; ` + poison + `d=PROJECT/.git/modules/mod; ` + hooks + `git config core.worktree ../../../..`}},
	{name: "submodule that never was", commands: []string{setEvil + `git init -q --separate-git-dir=.git/modules/new new; cd new; git commit -q --allow-empty -m x; ` + poison + `cd ..; git update-index --add --cacheinfo 160000,$(git -C new rev-parse HEAD),new; git config submodule.new.url ./x; git config submodule.new.update '!EVIL'; git config -f .gitmodules submodule.new.path new; git config -f .gitmodules submodule.new.url ./x; git config -f .gitmodules submodule.new.update '!EVIL'`}},
	{name: "attributes, excludes and grafts", commands: []string{`mkdir -p .git/info; echo '* filter=e diff=e' >.git/info/attributes; echo '*' >.git/info/exclude; git rev-parse HEAD >.git/info/grafts; git config filter.e.clean EVIL; git config diff.e.textconv EVIL`}},
	{name: "attributes in the tree with a filter in the layer", commands: []string{`echo '* filter=e diff=e merge=e' >.gitattributes; git config filter.e.clean EVIL; git config filter.e.smudge EVIL; git config merge.e.driver EVIL; git config diff.e.command EVIL`}},
	{name: "commondir", commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git store; echo ../store >.git/commondir`}},
	{name: "commondir in a directory without write permission", commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git store; echo ../store >.git/commondir; chmod 555 .git`, `true`}},
	{name: "hooks in a directory without any permission", commands: []string{setEvil + `d=.git; ` + hooks + `chmod 0 .git/hooks; chmod 0 .git`, `true`}},
	{name: "hooks below a denied name", options: []string{"--deny", ".git/hooks/x"}, commands: []string{setEvil + `d=.git; ` + hooks + `chmod 0 .git`, `true`}},
	{name: "nested repository without write permission", commands: []string{setEvil + `git init -q v/x; cd v/x; git commit -q --allow-empty -m x; ` + poison + `d=.git; ` + hooks + `chmod 555 .git . ..`, `true`}},
	{name: "nested repository without any permission", commands: []string{setEvil + `git init -q v/x; cd v/x; git commit -q --allow-empty -m x; ` + poison + `d=.git; ` + hooks + `chmod 0 . ..`, `true`}, refused: true},
	{name: "git directory that others may write to", commands: []string{`chmod -R 0777 .git; chmod 0777 .`}},
	{name: "worktree pointers", commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); echo PROJECT/n/.git >.git/worktrees/wt/commondir; echo OUT/repo/.git >.git/worktrees/wt/gitdir; mkdir .git/worktrees/evil; echo OUT/canary >.git/worktrees/evil/gitdir; echo ../../../n/.git >.git/worktrees/evil/commondir; cp .git/HEAD .git/worktrees/evil/HEAD`}, after: `git worktree list; git worktree prune --expire=now; git worktree repair`},
	{name: ".git file of a worktree", commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); rm -f wt/.git; echo "gitdir: PROJECT/n/.git" >wt/.git`}},
	{name: ".git file of a submodule", commands: []string{setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); rm -f mod/.git; echo "gitdir: ../n/.git" >mod/.git`}},
	{name: "submodule moved aside, a repository in its place", commands: []string{setEvil + `mv mod aside; git init -q mod; cd mod; git commit -q --allow-empty -m x; ` + poison}},
	{name: "worktree moved aside, a repository in its place", commands: []string{setEvil + `mv wt aside; git init -q wt; cd wt; git commit -q --allow-empty -m x; ` + poison}},
	{name: "root that is a linked worktree, its .git file replaced", root: "wt", commands: []string{setEvil + `mkdir n; git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv .git old || rm -f .git; echo "gitdir: n/.git" >.git`}},
	{name: "root that is a linked worktree, its main repository's hooks", root: "wt", commands: []string{setEvil + poison + `d=$(git rev-parse --git-common-dir); ` + hooks}},

	// Links and special files where git writes or reads.
	{name: "reflog that is a link to a start-up file", commands: []string{`rm -f .git/logs/HEAD; ln -s HOME/.bashrc .git/logs/HEAD; git branch '$(EVIL)'; git branch 'x;EVIL'`}, after: `git checkout -q '$(EVIL)'; git checkout -q main; bash -c '. HOME/.bashrc'`},
	{name: "message of a commit is a link", commands: []string{`ln -sf OUT/canary .git/COMMIT_EDITMSG; ln -sf OUT/canary .git/MERGE_MSG; ln -sf OUT/canary .git/SQUASH_MSG`}, after: `git commit -q --amend --no-edit`},
	{name: "heads and locks are links", commands: []string{`for f in FETCH_HEAD ORIG_HEAD MERGE_HEAD AUTO_MERGE gc.log gc.pid shallow packed-refs index.lock HEAD.lock config.lock description; do ln -sf OUT/canary .git/$f; done`}},
	{name: "index is a link", commands: []string{`cp .git/index tools/i; ln -sf OUT/canary .git/index`}},
	{name: "HEAD is a link", commands: []string{`rm .git/HEAD; ln -s OUT/repo/.git/HEAD .git/HEAD`}},
	{name: "refs and their logs are links", commands: []string{`mkdir -p .git/logs/refs/heads; for n in topic x; do ln -sf OUT/canary .git/logs/refs/heads/$n; ln -sf OUT/canary .git/refs/heads/$n; done; ln -s OUT/repo/.git/refs/heads .git/refs/heads/other; ln -s OUT .git/logs/refs/heads/other; mkdir -p .git/refs/remotes; ln -s OUT/repo/.git/refs/heads .git/refs/remotes/o`}},
	{name: "objects are links", commands: []string{`ln -s OUT/repo/.git/objects .git/objects/aa.d; mv .git/objects/pack .git/objects/p; ln -s OUT/repo/.git/objects .git/objects/pack; for d in .git/objects/[0-9]*; do mv $d $d.old; ln -s OUT/repo/.git/objects $d; done; ls .git/objects >/dev/null`}},
	{name: "objects directory is a link", commands: []string{`mv .git/objects .git/o; ln -s OUT/repo/.git/objects .git/objects`}},
	{name: "hard links to files of the project", commands: []string{`echo x >tools/h; ln -f tools/h .git/COMMIT_EDITMSG; ln tools/h .git/refs/heads/h; git rev-parse HEAD >tools/h2; ln tools/h2 .git/refs/heads/h2`, `printf 'ref: ../../../out/canary\n' >tools/h2`}},
	{name: "FIFOs where git reads", commands: []string{`for f in index HEAD packed-refs COMMIT_EDITMSG FETCH_HEAD shallow refs/heads/fifo logs/HEAD refs/heads/topic objects/info/alternates info/exclude config commondir; do mkdir -p .git/$(dirname $f); rm -f .git/$f; mkfifo .git/$f; done; true`}},
	{name: "FIFOs as files of the work tree that git reads", commands: []string{`mkdir -p a/b/c/d; for d in . sub a/b/c/d; do for f in .gitignore .gitattributes .mailmap .gitmodules; do rm -f $d/$f; mkfifo $d/$f; done; done 2>/dev/null; ln -s ../sub/x sub/dir/.gitmodules; mkfifo sub/x`}},
	{name: "directories where git has files", commands: []string{`for f in index packed-refs COMMIT_EDITMSG FETCH_HEAD shallow refs/heads/topic logs/HEAD config HEAD; do rm -f .git/$f; mkdir -p .git/$f/x; done`}},
	{name: "sockets and sparse giants", commands: []string{`for f in index packed-refs FETCH_HEAD refs/heads/big ORIG_HEAD; do rm -f .git/$f; truncate -s 1G .git/$f 2>/dev/null; done; rm -f .git/HEAD; perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(".git/HEAD"))'`}},

	// The index.
	{name: "index with a hook among its paths", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-hook .git/index`}},
	{name: "index with the configuration among its paths", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-config .git/index`}},
	{name: "index with a hook in another case", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-case .git/index`}},
	{name: "index with the git directory of a subdirectory", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-deep .git/index`}},
	{name: "index that leads out of the project", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-up .git/index`}},
	{name: "index that leads out from a subdirectory", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-inner .git/index`}},
	{name: "index with an absolute path", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-root .git/index`}},
	{name: "index with a file below a link", commands: []string{`git hash-object -w EVIL >/dev/null; printf ../out | git hash-object -w --stdin >/dev/null; cp tools/index-link .git/index`}},
	{name: "index split in two", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-split .git/index; f=.git/sharedindex.` + "SHARED" + `; cp tools/index-hook $f`}},
	{name: "index of a worktree that leads out", commands: []string{`git hash-object -w EVIL >/dev/null; cp tools/index-out .git/worktrees/wt/index`}, after: `git -C wt checkout -- .; git -C wt checkout-index -a -f`},
	{name: "index of a submodule that leads out", commands: []string{`git -C mod hash-object -w EVIL >/dev/null; cp tools/index-out .git/modules/mod/index`}, after: `git -C mod checkout -- .; git -C mod checkout-index -a -f; git submodule update --force`},
	{name: "index replaced while another command lands", meanwhile: `git hash-object -w EVIL >/dev/null; cp .git/index tools/good; touch PROJECT/started; n=0; while [ ! -e PROJECT/go ] && [ $n -lt 3000 ]; do cp tools/index-hook .git/i; mv .git/i .git/index; cp tools/good .git/i; mv .git/i .git/index; n=$((n+1)); done; cp tools/good .git/index`, commands: []string{`true`, `true`, `true`}},

	{name: "hooks of the project's in the index", before: trackedHooks, commands: []string{`git update-index --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-checkout --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-commit`}, after: `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; cd wt; git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x`},
	{name: "hooks of the project's in a commit", before: trackedHooks, commands: []string{`git update-index --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-checkout --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-commit; git commit -qm x; git reset -q --soft HEAD`}, after: `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; cd wt; git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x`},
	{name: "hooks of the project's on another branch", before: trackedHooks, commands: []string{`git update-index --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-checkout --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-commit; c=$(git commit-tree -m x -p HEAD $(git write-tree)); git update-ref refs/heads/evil $c; git symbolic-ref HEAD refs/heads/evil`}, after: `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; cd wt; git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x`},
	{name: "hooks of the project's at a detached HEAD", before: trackedHooks, commands: []string{`git update-index --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-checkout --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-commit; c=$(git commit-tree -m x -p HEAD $(git write-tree)); git update-ref --no-deref HEAD $c`}, after: `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; cd wt; git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x`},
	{name: "hooks of the project's in a work tree", before: trackedHooks, commands: []string{`git update-index --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-checkout --cacheinfo 100755,$(git hash-object -w EVIL),.githooks/post-commit; c=$(git commit-tree -m x -p HEAD $(git write-tree)); git update-ref refs/heads/wtbranch $c; git reset -q`}, after: `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; cd wt; git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x`},
	{name: "directory of hooks replaced in the index", before: trackedHooks, commands: []string{`git rm -rq --cached .githooks; git update-index --add --cacheinfo 120000,$(printf tools | git hash-object -w --stdin),.githooks; cp EVIL tools/post-checkout; chmod +x tools/post-checkout; cp tools/post-checkout tools/post-commit`}, after: `git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x; cd wt; git checkout -q .; git stash -q; git reset -q --hard; git commit -q --allow-empty -m x`},
	{name: "hooks of the project's in a rebase to be continued", before: trackedHooks, commands: []string{evilHooks + editEach + `echo "pick $evil x" >.git/rebase-merge/git-rebase-todo`}, next: `GIT_EDITOR=true git rebase --continue; git rebase --abort; ` + useHooks},
	{name: "hooks of the project's where a rebase is aborted to", before: trackedHooks, commands: []string{evilHooks + editEach + `echo $evil >.git/rebase-merge/orig-head`}, next: `git rebase --abort; ` + useHooks},
	{name: "hooks of the project's in a list of picks, by a short ID", before: trackedHooks, commands: []string{evilHooks + pickTwo + `echo "pick $(git rev-parse --short $evil) x" >>.git/sequencer/todo; echo r >a; git add a`}, next: `GIT_EDITOR=true git cherry-pick --continue; git cherry-pick --abort; ` + useHooks},
	{name: "hooks of the project's by a rename, in a list of picks", before: trackedHooks, commands: []string{renamedHook + pickTwo + `echo "pick $e x" >>.git/sequencer/todo; echo r >a; git add a`}, next: `GIT_EDITOR=true git cherry-pick --continue; git cherry-pick --abort; ` + useHooks},
	{name: "hooks of the project's by a rename, in the stash", before: trackedHooks + `echo mine >>a; git stash -q`, commands: []string{renamedHook + `i=$(git commit-tree -p $r -m index $r^{tree}); git stash drop -q; git stash store -m x $(git commit-tree -p $r -p $i -m x $e^{tree})`}, next: `git stash pop; git reset -q; git commit -q --allow-empty -m x; ` + useHooks},
	{name: "hooks of the project's by a rename, in a branch to be merged", before: trackedHooks, commands: []string{renamedHook + `git update-ref refs/heads/main $(git commit-tree -p $r -m back HEAD^{tree}); git update-ref refs/heads/evil $e`}, next: `git merge -q --no-edit evil; ` + useHooks},
	{name: "hooks of the project's by a rename, in a branch to be pulled", before: trackedHooks, commands: []string{renamedHook + `git update-ref refs/heads/main $(git commit-tree -p $r -m back HEAD^{tree}); git update-ref refs/heads/evil $e; git config branch.main.remote .; git config branch.main.merge refs/heads/evil`}, next: `git pull -q --no-rebase --no-edit; ` + useHooks},
	{name: "hooks of the project's in a list of picks, by a short ID that a tag has", before: trackedHooks, commands: []string{evilHooks + pickTwo + `s=$(git rev-parse --short z); git tag $s $evil; echo "pick $s x" >>.git/sequencer/todo; echo r >a; git add a`}, next: `GIT_EDITOR=true git cherry-pick --continue; git cherry-pick --abort; ` + useHooks},
	{name: "hooks of the project's in a list of picks, by a tag that comes later", before: trackedHooks, commands: []string{pickTwo + `echo "pick $(git rev-parse --short z) x" >>.git/sequencer/todo; echo r >a; git add a`, evilHooks + `git tag $(git rev-parse --short z) $evil`}, next: `GIT_EDITOR=true git cherry-pick --continue; git cherry-pick --abort; ` + useHooks},
	{name: "hooks of a submodule that gets another path", before: moduleHooks, commands: []string{evilModule + `git config -f .gitmodules submodule.mod.path mod2; git update-index --add .gitmodules --force-remove mod; git update-index --add --cacheinfo 160000,$c,mod2; git commit -qm x`}, next: `git checkout -q .; git submodule --quiet update`},
	{name: "hooks where .gitmodules in the work tree has a submodule", before: moduleHooks, commands: []string{`git update-index --add --cacheinfo 160000,$(git -C mod rev-parse HEAD),mod2; git commit -qm x; mkdir -p mod2/hooks; cp EVIL mod2/hooks/post-checkout; git config -f .gitmodules submodule.mod.path mod2`}, next: `git submodule --quiet update; git submodule --quiet update mod2`},
	{name: "hooks of a submodule that the host does not use", before: moduleHooks + `git submodule --quiet deinit -f mod`, commands: []string{evilModule + `git update-index --add --cacheinfo 160000,$c,mod; git commit -qm x`}, after: `git submodule --quiet update --init`},
	{name: "hooks of a submodule's branch, then in a submodule that the host does not use", before: moduleHooks + `git submodule --quiet deinit -f mod`, commands: []string{evilModule + `git --git-dir=.git/modules/mod update-ref refs/heads/x $c`, evilModule + `git update-index --add --cacheinfo 160000,$c,mod; git commit -qm x`}, after: `git submodule --quiet update --init`},
	{name: "hooks that another command has planted, in a commit", before: `git config core.hooksPath .husky/_`, meanwhile: `mkdir -p .husky/_; cp EVIL .husky/_/post-commit; cp EVIL .husky/_/post-checkout; ` + wait, commands: []string{`git add -f .husky; git commit -qm x`}, next: useHooks},
	{name: "hooks of the project's where picks are aborted to", before: trackedHooks, commands: []string{evilHooks + pickTwo + `echo $evil >.git/sequencer/head`}, next: `git cherry-pick --abort; ` + useHooks},
	{name: "hooks of the project's where a bisect began", before: trackedHooks, commands: []string{evilHooks + `git update-ref refs/remotes/x/side $evil; git commit -q --allow-empty -m x; git bisect start -q; git bisect bad main; git bisect good main~2; echo x/side >.git/BISECT_START`}, next: `git bisect reset; ` + useHooks},
	{name: "hooks of the project's in a patch to be applied", before: trackedHooks, commands: []string{evilHooks + `git reset -q --hard; git format-patch -q -1 -o /tmp/o $evil; echo z >z; git add z; git commit -qm z; git format-patch -q -1 -o /tmp/p; git reset -q --hard HEAD~1; echo x >z; git add z; git commit -qm x; git am -3 /tmp/p/* /tmp/o/*; echo r >z; git add z`}, next: `git am --continue; git am --abort; ` + useHooks},
	{name: "hooks of the project's below the commit of a branch", before: trackedHooks, commands: []string{evilHooks + `git update-ref refs/heads/main $(git commit-tree -p $evil -m x HEAD^{tree})`, `git reset -q --soft HEAD~1`}, next: useHooks},
	{name: "hooks of the project's on a branch that HEAD seems to leave", before: trackedHooks, commands: []string{evilHooks + `git checkout -q -b other; echo 1111111111111111111111111111111111111111 >.git/refs/heads/other; echo $evil >.git/refs/heads/main`}, next: useHooks},
	{name: "hooks of the project's on the branch of a bisect", before: trackedHooks + `git commit -q --allow-empty -m x; git commit -q --allow-empty -m y; git bisect start -q; git bisect bad main; git bisect good main~2`, commands: []string{`git checkout -q main 2>/dev/null; ` + evilHooks + `git checkout -q --detach main~1; git update-ref refs/heads/main $evil`}, after: `git bisect reset; ` + useHooks},
	{name: "hooks of the project's in the stash", before: trackedHooks + `echo mine >>a; git stash -q`, commands: []string{evilHooks + `i=$(git commit-tree -p HEAD -m index HEAD^{tree}); git stash drop -q; git stash store -m x $(git commit-tree -p HEAD -p $i -m x $evil^{tree})`}, next: `git stash pop; git reset -q; git commit -q --allow-empty -m x; ` + useHooks},
	{name: "hooks of the project's on the branch before", before: trackedHooks + `git checkout -q -b dev; git checkout -q main`, commands: []string{evilHooks + `h=$(git rev-parse HEAD); git update-ref refs/heads/Dev $evil; git update-ref refs/remotes/x/side $evil; for b in Dev x/side $evil; do echo "$h $h u <u@x> $(date +%s) +0000	checkout: moving from $b to main" >>.git/logs/HEAD; done; git commit -q --allow-empty -m x`}, next: `git checkout -q -; git checkout -q -; git checkout -q @{-2}; git checkout -q main; ` + useHooks},
	{name: "hooks of the project's by checkout -, in a reference of pk's", before: trackedHooks, commands: []string{`for b in command attack; do git checkout -q -b pk/$b/heads/evil; done; git checkout -q -b t2`, `git branch -q -D pk/command/heads/evil pk/attack/heads/evil; ` + evilHooks + `git update-ref refs/heads/evil $evil`}, next: back},
	{name: "hooks of the project's by checkout -, in the HEAD of a remote", before: trackedHooks + ownRemote, commands: []string{`git checkout -q -b o; git checkout -q -b t2`, `git branch -q -D o; ` + evilHooks + remoteEvil}, next: back},
	{name: "hooks of the project's by checkout -, in a remote branch", before: trackedHooks + ownRemote, commands: []string{`git checkout -q -b remotes/o/evil; git checkout -q -b t2`, `git branch -q -D remotes/o/evil; ` + evilHooks + remoteEvil}, next: back},
	{name: "hooks of the project's by checkout -, in what was fetched", before: trackedHooks, commands: []string{`git checkout -q -b main-worktree/FETCH_HEAD; git checkout -q -b worktrees/wt/FETCH_HEAD; git checkout -q -b t2`, `git branch -q -D main-worktree/FETCH_HEAD worktrees/wt/FETCH_HEAD; ` + evilHooks + `for f in .git .git/worktrees/wt; do printf "%s\t\tbranch main of x\n" $evil >$f/FETCH_HEAD; done`}, next: back},
	{name: "hooks of the project's by checkout -, in a message and a log", before: trackedHooks + ownRemote, commands: []string{`git checkout -q -b MERGE_MSG; git checkout -q -b logs/refs/remotes/o/evil; git checkout -q -b t2`, `git branch -q -D MERGE_MSG logs/refs/remotes/o/evil; ` + evilHooks + `git update-ref refs/remotes/o/evil $evil; echo $evil >.git/MERGE_MSG; git rev-parse main >.git/MERGE_HEAD`, `git update-ref refs/remotes/o/evil HEAD`}, next: back},
	{name: "hooks of the project's by checkout -, in the place of a branch of the user's", before: trackedHooks + ownRemote + `git checkout -q -b o; git checkout -q -b remotes/o/evil; git checkout -q -b t2`, commands: []string{`git branch -q -D o remotes/o/evil; git commit -q --allow-empty -m x`, evilHooks + remoteEvil}, next: back},
	{name: "hooks of a submodule's in a commit for it", before: `mkdir mod/hooks; printf '#!/bin/sh\n' >mod/hooks/post-checkout; chmod +x mod/hooks/*; git -C mod add hooks; git -C mod commit -qm hooks; git -C mod config core.hooksPath hooks; git commit -qam mod`, commands: []string{`cd mod; b=$(git hash-object -w EVIL); t=$(export GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --cacheinfo 100755,$b,hooks/post-checkout; git write-tree); evil=$(git commit-tree -p HEAD -m x $t); git update-ref refs/heads/side $evil; cd ..; git update-index --cacheinfo 160000,$evil,mod; git commit -qm x`}, next: `git submodule update; git -c submodule.recurse=true reset -q --hard; git -C mod checkout -q --detach`},
	{name: "hooks of a submodule's as files of the superproject", before: `mkdir mod/hooks; printf '#!/bin/sh\n' >mod/hooks/post-index-change; chmod +x mod/hooks/*; git -C mod add hooks; git -C mod commit -qm hooks; git -C mod config core.hooksPath hooks; git commit -qam mod`, commands: []string{`git rm -q --cached mod; git update-index --add --cacheinfo 100755,$(git hash-object -w EVIL),mod/hooks/post-index-change; git commit -qm x`}, next: `git checkout -q .; git stash -q; git reset -q --hard; git -C mod add -A`},
	{name: "git directory by index and commit", commands: []string{`n=$(git hash-object -w --stdin </dev/null); git update-index --add --cacheinfo 100644,$(printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = EVIL\n' | git hash-object -w --stdin),t/config --cacheinfo 100644,$(echo 'ref: refs/heads/main' | git hash-object -w --stdin),t/HEAD --cacheinfo 100644,$n,t/objects/x --cacheinfo 100644,$n,t/refs/x; git commit -qm x`}, next: `git checkout -q .; git stash -q; git reset -q --hard; cd t && git status`},
	{name: "HEAD of a git directory by the index", commands: []string{`mkdir -p t/objects t/refs; touch t/objects/x t/refs/x; printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = EVIL\n' >t/config; git update-index --add --cacheinfo 100644,$(echo 'ref: refs/heads/main' | git hash-object -w --stdin),t/HEAD`}, next: `git checkout -q .; cd t && git status`},
	{name: "hooks of a submodule outside of the root", root: "wt", before: `mkdir mod/hooks; printf '#!/bin/sh\n' >mod/hooks/post-checkout; chmod +x mod/hooks/*; git -C mod add hooks; git -C mod commit -qm hooks; git -C mod config core.hooksPath hooks; git commit -qam mod; git -C mod tag evil $(git -C mod hash-object -w EVIL)`, commands: []string{`cd $(git rev-parse --git-common-dir)/modules/mod; export GIT_DIR=$PWD GIT_WORK_TREE=/tmp GIT_INDEX_FILE=/tmp/ix; git read-tree HEAD; git update-index --cacheinfo 100755,$(git rev-parse evil),hooks/post-checkout; e=$(git commit-tree -p HEAD -m x $(git write-tree)); git update-ref refs/heads/side $e; export GIT_DIR=$(dirname $(dirname $PWD)); git read-tree main; git update-index --cacheinfo 160000,$e,mod; git update-ref refs/heads/main $(git commit-tree -p main -m x $(git write-tree))`}, next: `git -c submodule.recurse=true reset -q --hard; git submodule update; git -C mod checkout -q --detach`},
	{name: "hooks of the main work tree as files of a linked one", before: `mkdir real; printf '#!/bin/sh\n' >real/post-checkout; cp real/post-checkout real/post-commit; chmod +x real/*; git add real; git commit -qm hooks; git -C wt merge -q main; git config core.hooksPath PROJECT/real`, commands: []string{`cd wt; cp EVIL real/post-checkout; cp EVIL real/post-commit; git add real; git commit -qm x; git update-ref refs/heads/main HEAD`}, next: useHooks},
	{name: "git directory by the index in two steps", commands: []string{`git update-index --add --cacheinfo 100644,$(printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = EVIL\n' | git hash-object -w --stdin),t/config --cacheinfo 100644,$(echo 'ref: refs/heads/main' | git hash-object -w --stdin),t/HEAD`, `mkdir -p t/objects t/refs; touch t/objects/x t/refs/x`}, next: `git checkout -q .; cd t && git status`},
	{name: "hooks of the main work tree, outside of the root", root: "wt", before: trackedHooks + `git config core.hooksPath PROJECT/.githooks; git tag evil $(git hash-object -w EVIL)`, commands: []string{`b=$(git rev-parse evil); t=$(export GIT_INDEX_FILE=/tmp/ix; git read-tree main; git update-index --cacheinfo 100755,$b,.githooks/post-checkout --cacheinfo 100755,$b,.githooks/post-commit; git write-tree); git update-ref refs/heads/main $(git commit-tree -p main -m x $t)`}, next: useHooks},

	// Objects and refs.
	{name: "alternates to another repository", commands: []string{`mkdir -p .git/objects/info; echo OUT/repo/.git/objects >.git/objects/info/alternates; echo http://127.0.0.1:1/ >.git/objects/info/http-alternates`}},
	{name: "objects whose content is another", commands: []string{`for f in .git/objects/[0-9a-f][0-9a-f]/*; do rm -f $f; echo x | git hash-object --stdin >/dev/null; printf 'x\234garbage' >$f; done`}},
	{name: "objects cut short", commands: []string{`for f in .git/objects/[0-9a-f][0-9a-f]/*; do chmod u+w $f; : >$f; done`}},
	{name: "pack whose index lies", before: `git repack -adq`, commands: []string{`echo x >n; git add n; git commit -qm n; git repack -dq; for f in .git/objects/pack/*.idx; do chmod u+w $f; printf 'junkjunk' | dd of=$f bs=1 seek=1100 conv=notrunc 2>/dev/null; done`}},
	{name: "pack cut short under a name of the host's", before: `git repack -adq`, commands: []string{`for f in .git/objects/pack/*; do chmod u+w $f; truncate -s 100 $f; done`}},
	{name: "refs that lead nowhere", commands: []string{`for r in heads/nowhere heads/main tags/t remotes/o/x notes/commits stash replace/1234567890123456789012345678901234567890; do mkdir -p .git/refs/$(dirname $r); echo deadbeefdeadbeefdeadbeefdeadbeefdeadbeef >.git/refs/$r; done`}},
	{name: "refs with names that git does not allow", commands: []string{`cd .git/refs/heads; h=$(git rev-parse HEAD); for r in -x --upload-pack=EVIL 'a b' 'a..b' '~' 'x.lock' '@{u}' '\' '*' '.h' 'e.' "$(printf 'n\nl')" "$(printf 'c\033[31m')"; do mkdir -p "$(dirname "./$r")"; echo $h >"./$r"; done; cd PROJECT; cp .git/HEAD .git/refs/outer; mkdir -p .git/refs/../x; echo $h >.git/BAD_HEAD`}},
	{name: "refs whose content is none", commands: []string{`cd .git/refs/heads; echo 'ref: ../../../out/canary' >a; echo 'ref: HEAD' >b; echo 'ref: refs/heads/c' >c; echo 'ref: config' >d; printf 'zzz' >e; head -c 2000000 /dev/zero | tr '\0' a >f; : >g`}},
	{name: "HEAD that leads out", commands: []string{`echo 'ref: refs/heads/../../../out/canary' >.git/HEAD`}},
	{name: "HEAD that leads to the configuration", commands: []string{`echo 'ref: config' >.git/HEAD`}},
	{name: "packed refs out of order, with bad names", commands: []string{`{ echo '# pack-refs with: peeled fully-peeled sorted'; h=$(git rev-parse HEAD); echo "$h refs/heads/z"; echo "$h refs/heads/../../config"; echo "$h refs/heads/a"; echo "^$h"; echo "$h HEAD"; echo "$h -x"; echo "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef refs/heads/topic"; echo garbage; } >.git/packed-refs`}},
	{name: "reflogs of the command's own", commands: []string{`mkdir -p .git/logs/refs/heads; printf 'x\ny z\n%s\n' 'deadbeefdeadbeefdeadbeefdeadbeefdeadbeef deadbeefdeadbeefdeadbeefdeadbeefdeadbeef $(EVIL) <a> 1 +0000	$(EVIL)' >.git/logs/HEAD; cp .git/logs/HEAD .git/logs/refs/heads/main; rm -rf .git/logs/refs/heads/topic`}},
	{name: "shallow file that cuts the history", commands: []string{`git rev-parse HEAD~1 >.git/shallow; git gc -q --prune=now`}, after: `git gc -q --prune=now`},
	{name: "replacement of every commit", commands: []string{`for c in $(git rev-list HEAD~1); do git replace -f $c $(git rev-parse HEAD) 2>/dev/null; done`}},

	// Work under way.
	{name: "rebase whose list of steps runs a program", commands: []string{`mkdir -p .git/rebase-merge; cd .git/rebase-merge; echo refs/heads/main >head-name; git rev-parse HEAD~1 >onto; git rev-parse HEAD >orig-head; : >interactive; echo 1 >msgnum; echo 1 >end; printf 'exec EVIL\nx EVIL\n' >git-rebase-todo; cp git-rebase-todo git-rebase-todo.backup; : >done`}, after: `git rebase --continue; git rebase --abort`},
	{name: "rebase with a strategy of the command's own", commands: []string{`mkdir -p .git/rebase-merge; cd .git/rebase-merge; echo refs/heads/main >head-name; git rev-parse HEAD~2 >onto; git rev-parse HEAD >orig-head; : >interactive; echo 1 >msgnum; echo 1 >end; echo "pick $(git rev-parse HEAD~1) x" >git-rebase-todo; echo EVIL >strategy; printf -- "--upload-pack=EVIL" >strategy_opts; printf -- "-SEVIL" >gpg_sign_opt; : >done`}, after: `git rebase --continue; git rebase --abort`},
	{name: "steps of a cherry-pick with options", commands: []string{`mkdir -p .git/sequencer; git rev-parse HEAD >.git/sequencer/head; echo "exec EVIL" >.git/sequencer/todo; printf '[options]\n\tgpg-sign = EVIL\n\tstrategy = ../../tools/evil\n' >.git/sequencer/opts; git rev-parse HEAD >.git/CHERRY_PICK_HEAD`}, after: `git cherry-pick --continue; git cherry-pick --abort`},
	{name: "patches to be applied", commands: []string{`mkdir -p .git/rebase-apply; cd .git/rebase-apply; echo 1 >next; echo 1 >last; : >applying; : >rebasing; printf "'EVIL'" >apply-opt; printf "GIT_AUTHOR_NAME='\$(EVIL)'" >author-script`}, after: `git am --continue; git am --abort`},
	{name: "bisect with a program", commands: []string{`git rev-parse HEAD >.git/BISECT_START; echo "git bisect start; EVIL" >.git/BISECT_LOG; echo EVIL >.git/BISECT_RUN; printf 'EVIL\nEVIL\n' >.git/BISECT_TERMS; echo '$(EVIL)' >.git/BISECT_NAMES`}, after: `git bisect next; git bisect replay .git/BISECT_LOG; git bisect reset`},

	// The plan reads files that a command wrote.
	{name: "include of a file outside, read by the next plan", commands: []string{`git config include.path OUT/identity`, `env; git config --list; git var GIT_AUTHOR_IDENT`}, hidden: true},
	{name: "condition that asks about another configuration", commands: []string{`git config include.path OUT/repo/.git/config; git config "includeIf.hasconfig:remote.*.url:https://*/**.path" OUT/identity`, `env; git config --list; git var GIT_AUTHOR_IDENT`}, hidden: true},
	{name: ".git file of an archive that names another repository", before: `mkdir ar; echo "gitdir: OUT/repo/.git" >ar/.git`, commands: []string{`cat OUT/repo/.git/config; cd ar; git config --list; git log -p; git checkout -q -b evil; git commit -q --allow-empty -m evil`}, hidden: true},
	{name: "objects that an archive borrows from anywhere", before: `git init -q --template= ar; mkdir -p ar/.git/objects/info; echo OUT >ar/.git/objects/info/alternates; echo HOME >>ar/.git/objects/info/alternates`, commands: []string{`cat OUT/identity OUT/repo/.git/config HOME/.gitconfig.secret 2>&1`}, hidden: true},
	{name: "closed directory around a repository", commands: []string{`mkdir -p un/in; chmod 311 un`, setEvil + `git init -q un/in/r; cd un/in/r; git commit -q --allow-empty -m x; ` + poison, `chmod 755 un; mv un/in/r r`, `true`}},
	{name: "more errors than anybody reads", commands: []string{setEvil + `git init -q zz; (cd zz; git commit -q --allow-empty -m x; ` + poison + `); d=$(printf 'd%.0s' $(seq 240)); for c in $(seq -w 1 16); do (mkdir a$c; cd a$c; for i in $(seq 18); do mkdir $d; cd $d; done); done`, `true`}},
	{name: "repository of another user above the project", asRoot: true, before: `cd ..; git init -q --template= .; cp out/identity .git/config; chown -R 54321 .git; cd project; rm -rf .git wt mod`, commands: []string{`env; git var GIT_AUTHOR_IDENT`}, hidden: true},
	{name: "more aliases than anybody has, hooks in the tree", before: `i=0; while [ $i -lt 3000 ]; do echo "[alias \"a$i\"]"; echo "	x = status"; i=$((i+1)); done >>HOME/.gitconfig; mkdir githooks; cp tools/hook githooks/pre-commit; git config core.hooksPath githooks`, commands: []string{`cp EVIL githooks/pre-commit; cp EVIL githooks/post-checkout; mv githooks g; mkdir githooks; cp EVIL githooks/pre-commit`}},
	{name: "configuration of two megabytes, hooks in the tree", before: `i=0; { while [ $i -lt 30000 ]; do echo "# 0123456789012345678901234567890123456789012345678901234567890123456789"; i=$((i+1)); done; } >>HOME/.gitconfig; mkdir githooks; git config core.hooksPath githooks`, commands: []string{`cp EVIL githooks/pre-commit`}, refused: true},

	// Programs of the project that the host's configuration names.
	{name: "hooks directory in the tree", before: `mkdir -p .husky/_; cp tools/hook .husky/_/pre-commit; git config core.hooksPath .husky/_`, commands: []string{`cp EVIL .husky/_/pre-commit; cp EVIL .husky/_/post-checkout; mv .husky h; mkdir -p .husky/_; cp EVIL .husky/_/post-checkout`}},
	{name: "hooks directory of a git directory outside that does not point back", before: `git rm -qf mod; git commit -qm mod; rm -rf wt; git worktree prune; mkdir githooks; cp tools/hook githooks/pre-commit; git config core.hooksPath githooks; mv .git ../gd; ln -s ../gd .git`, commands: []string{`cp EVIL githooks/pre-commit; cp EVIL githooks/post-checkout; mv githooks h; mkdir githooks; cp EVIL githooks/pre-commit`, `true`}},
	{name: "hooks directory of a bare repository", before: `mkdir githooks; cp tools/hook githooks/update; git init -q --bare mirror.git; git -C mirror.git config core.hooksPath PROJECT/githooks`, commands: []string{`cp EVIL githooks/update; cp EVIL githooks/post-receive`, `true`}, after: `git push -q mirror.git HEAD:refs/heads/x`},
	{name: "the user's configuration, beside a bare repository", before: `rm -rf .git wt mod; git init -q --bare m.git; printf '[core]\n' >inc; git config --global include.path PROJECT/inc`, commands: []string{setEvil + evilConfig + `>inc`}, after: `git init -q ../n; cd ../n; git status; git commit --allow-empty -m x`},
	{name: "hooks directory that is not there yet", before: `git config core.hooksPath .husky/_`, commands: []string{`mkdir -p .husky/_; cp EVIL .husky/_/pre-commit; cp EVIL .husky/_/post-checkout`, `true`}},
	{name: "missing parent of the hooks directory made a link", before: `git config core.hooksPath .husky/_`, commands: []string{`mkdir -p x/_; cp EVIL x/_/pre-commit; cp EVIL x/_/post-checkout; ln -s x .husky; chmod 555 x`, `true`}},
	{name: "hooks that are a link into the tree", before: `mkdir tools/h; cp tools/hook tools/h/pre-commit; rmdir .git/hooks; ln -s ../tools/h .git/hooks`, commands: []string{`cp EVIL tools/h/pre-commit; cp EVIL tools/h/post-checkout; rm .git/hooks; ln -s ../tools/evilhooks .git/hooks`}},
	{name: "configuration that is a link into the tree", before: `mv .git/config tools/c; ln -s ../tools/c .git/config`, commands: []string{setEvil + poison + evilConfig + `>tools/c; rm tools/c; ` + evilConfig + `>tools/c`}},
	{name: "git directory that is a link", before: `mv .git ../store; ln -s ../store .git; rm -rf wt`, commands: []string{setEvil + poison + `rm .git; git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git .git`}},
	{name: "included file of the tree", before: `echo '[core]' >tools/c; git config include.path ../tools/c`, commands: []string{setEvil + evilConfig + `>tools/c; mv tools t; mkdir tools; ` + evilConfig + `>tools/c`}},
	{name: "included file of the tree that is not there yet", before: `git config include.path ../conf/c`, commands: []string{setEvil + `mkdir conf; ` + evilConfig + `>conf/c`, `true`}},
	{name: "included file that is a link", before: `echo '[core]' >conf.real; ln -s conf.real conf; git config include.path ../conf`, commands: []string{setEvil + `rm conf; ` + evilConfig + `>c; ln -s c conf; ` + evilConfig + `>conf.real`, `true`}},
	{name: "lease on an included file", before: `mkdir githooks; cp tools/hook githooks/pre-commit; printf '[core]\n\thooksPath = githooks\n' >tools/c; git config include.path ../tools/c`, meanwhile: lease + `tools/c .git/config`, commands: []string{`cp EVIL githooks/pre-commit; cp EVIL githooks/post-checkout`}, refused: true},
	{name: "lease on the .git file of a submodule", meanwhile: lease + `mod/.git .git/HEAD .git/modules/mod/HEAD`, commands: []string{setEvil + `cd mod; ` + poison + `d=PROJECT/.git/modules/mod; ` + hooks}, refused: true},
	{name: "hook that has another name in the tree", before: `cp tools/hook .git/hooks/pre-commit; ln -f .git/hooks/pre-commit tools/hook`, commands: []string{`cat EVIL >tools/hook`}},
	{name: "filter that is a program of the tree", before: `cp tools/hook tools/x; git config filter.x.clean "sh -c 'tools/x;true' %f"; git config filter.x.smudge 'tools/x|cat'; echo '*.txt filter=x' >.git/info/attributes`, commands: []string{`cp EVIL tools/x; echo y >>a.txt`}},
	{name: "aliases and monitors that are programs of the tree", before: `cp tools/hook tools/x; git config alias.up '!cd tools && ./x'; git config core.fsmonitor '$(git rev-parse --show-toplevel)/tools/x'; git config diff.external tools/x`, commands: []string{`cp EVIL tools/x; mv tools/x tools/y; cp EVIL tools/x`}, after: `git up; git diff`},
	{name: "programs of the tree in another PATH", before: `cp tools/hook tools/x; git config alias.up '!env -u LC_ALL PATH=tools:/usr/bin:/bin x'; git config core.fsmonitor 'env -i PATH=tools:/usr/bin:/bin x'`, commands: []string{`cp EVIL tools/x; mv tools/x tools/y; cp EVIL tools/x`}, after: `git up`},
	{name: "remote that is a repository of the tree", before: `git init -q --bare --template= tools/mirrors/a.git; git remote add origin ./tools/mirrors/a.git; git push -q origin main`, commands: []string{`d=tools/mirrors/a.git; ` + hooks + `cp EVIL $d/hooks/pre-receive; cp EVIL $d/hooks/update; git -C $d config core.fsmonitor EVIL; git -C $d config receive.procReceiveRefs refs`}, after: `git push origin HEAD:refs/heads/probe; git fetch origin`},
	{name: "bare repository of the user's in the tree", before: `git init -q --bare --template= mirror.git; git push -q ./mirror.git main`, commands: []string{
		`mv mirror.git/HEAD mirror.git/H`,
		setEvil + `mv mirror.git/H mirror.git/HEAD; cd mirror.git; ` + poison + `git config core.bare false; git config core.worktree ..; d=.; ` + hooks}, refused: true},

	// Two commands at once.
	{name: "submodule hidden while another command starts", meanwhile: `mv .git/modules/mod/HEAD .git/modules/mod/H; ` + wait + `mv .git/modules/mod/H .git/modules/mod/HEAD`, commands: []string{setEvil + evilConfig + `>.git/modules/mod/config; d=.git/modules/mod; ` + hooks}},
	{name: "bare repository hidden while another command starts", before: `git init -q --bare --template= mirror.git; git push -q ./mirror.git main`, meanwhile: `mv mirror.git/HEAD mirror.git/H; ` + wait + `mv mirror.git/H mirror.git/HEAD`, commands: []string{setEvil + `d=mirror.git; ` + hooks + evilConfig + `>mirror.git/config; printf '\tworktree = ..\n' >>mirror.git/config`}, refused: true},
	{name: "commondir while another command starts", meanwhile: setEvil + `git init -q n; mv n/.git store; echo ../store >.git/commondir; ` + wait + `rm -f .git/commondir`, commands: []string{evilConfig + `>.git/config; d=.git; ` + hooks}, refused: true},
	{name: "repository without permission while another command starts", before: `mkdir vendor; git init -q --template= vendor/x; git -C vendor/x commit -q --allow-empty -m x`, meanwhile: `chmod 0 vendor/x; ` + wait + `chmod 755 vendor/x`, commands: []string{setEvil + `chmod 755 vendor/x; cd vendor/x; ` + poison + `d=.git; ` + hooks}, refused: true},
	{name: "repository without permission, then another command", before: `mkdir vendor; git init -q --template= vendor/x; git -C vendor/x commit -q --allow-empty -m x`, commands: []string{`chmod 0 vendor/x`, setEvil + `chmod 755 vendor/x; cd vendor/x; ` + poison + `d=.git; ` + hooks, `chmod 755 vendor/x`}, refused: true},
	{name: "hooks and configuration while the command runs", during: true, meanwhile: setEvil + poison + `d=.git; ` + hooks + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); mv n/.git store; echo ../store >.git/commondir; ` + wait},
	{name: "gitlink in the index while the command runs", during: true, meanwhile: setEvil + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); git add n 2>/dev/null; sleep 1.2; ` + wait},
	{name: "index that leads out while the command runs", during: true, meanwhile: `git hash-object -w EVIL >/dev/null; cp tools/index-up .git/index; git commit -q --allow-empty -m x; git branch moved; sleep 1.2; ` + wait},
	{name: "git directory replaced while another command starts", meanwhile: setEvil + `mv .git old; git init -q; git commit -q --allow-empty -m x; ` + poison + wait, commands: []string{`git status; git commit -q --allow-empty -m y`}},
	{name: "hooks planted before pk-bash is killed", killed: true, commands: []string{setEvil + poison + `d=.git; ` + hooks + `git init -q n; (cd n; git commit -q --allow-empty -m x; ` + poison + `); git add n 2>/dev/null; ` + wait, `true`}},
	{name: "hooks directory planted before pk-bash is killed", before: `git config core.hooksPath .husky/_`, killed: true, commands: []string{`mkdir -p .husky/_; cp EVIL .husky/_/pre-commit; cp EVIL .husky/_/post-checkout; ` + wait, `true`}},
}

// gitProbe is a user's everyday git in a directory. Each line may fail, if there is no
// repository that the host's git accepts; none may run a program.
const gitProbe = `
	git status; git diff HEAD || git diff --cached`

// gitRootProbe goes on in the repository itself.
const gitRootProbe = `
	git log --oneline -2; git commit -q --allow-empty -m probe || echo FAILED commit
	git checkout -q -- . ; git checkout-index -a -f -q; git branch -f probed; git checkout -q probed; git checkout -q main
	echo probe >>sub/dir/f; git stash -q && git stash pop -q
	git submodule --quiet update
	git for-each-ref >/dev/null || echo FAILED refs; git reflog >/dev/null || echo FAILED reflog
	git gc -q || echo FAILED gc
	git fsck --full 2>&1 | grep -v '^dangling' | sed 's/^/FSCK /'`

func TestGitAttacks(t *testing.T) {
	b, template := newGitBox(t, clitest.NewBoxInEveryRow(t))
	rounds, _ := strconv.Atoi(os.Getenv("PK_ROUNDS"))
	for i, a := range gitAttacks {
		if !clitest.Turn(i) && !a.asRoot {
			continue
		}
		for round := range max(rounds, 1) {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				if a.asRoot && os.Getuid() != 0 {
					return
				}
				attackGit(t, newGround(t, b, template), a, (i/4+round)%2 == 0)
			})
		}
	}
}

func attackGit(t *testing.T, g *gitGround, a gitAttack, session bool) {
	if a.before != "" {
		g.host(t, g.Project, g.fill(a.before))
	}
	repository := exists(g.Project + "/.git")
	var before map[string]string
	var commits []string
	if repository {
		before, commits = gittest.Lasting(t, realGitDir(t, g)), g.commits(t, g.Project)
	}
	outside := gittest.Tree(t, g.out) + gittest.Tree(t, g.Home+"/.bashrc") + gittest.Tree(t, g.Home+"/.gitconfig")

	shown := g.attack(t, a, session)
	if a.hidden {
		assert.NotContains(t, shown, "in-secret", "it was read inside")
	}

	_ = g.hostCommand(g.Project, "rm -f started go").Run()
	if a.next != "" {
		_ = g.patient(t, g.Project, g.fill(a.next))
	}
	if repository {
		if assert.True(t, exists(g.Project+"/.git/HEAD"), "the git directory is gone") {
			after := gittest.Lasting(t, realGitDir(t, g))
			if a.during { // the host's gc writes it
				delete(after, "info/refs")
			}
			assert.Empty(t, gittest.Differences(before, after), "the git directory holds something else")
			assert.Subset(t, g.commits(t, g.Project), commits, "commits were lost")
		}
	}
	g.probe(t, repository)
	if a.after != "" {
		_ = g.patient(t, g.Project, g.fill(a.after))
	}
	ran, _ := os.ReadFile(g.witness + "/ran")
	assert.Empty(t, string(ran), "the host ran a program of the command's making")
	assert.Equal(t, outside, gittest.Tree(t, g.out)+gittest.Tree(t, g.Home+"/.bashrc")+gittest.Tree(t, g.Home+"/.gitconfig"), "something outside changed")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func realGitDir(t *testing.T, g *gitGround) string {
	dir, err := filepath.EvalSymlinks(g.Project + "/.git")
	require.NoError(t, err)
	return dir
}

// attack runs the commands and returns all that they printed.
func (g *gitGround) attack(t *testing.T, a gitAttack, session bool) string {
	t.Helper()
	options := []string{"-y", "--raw", "-C", filepath.Join(g.Project, a.root)}
	for _, o := range a.options {
		options = append(options, g.fill(o))
	}
	if session || a.meanwhile != "" {
		options = append(options, "--session", "attack")
	}
	prepare := func(script string) string {
		script = strings.ReplaceAll(script, "SHARED", fmt.Sprintf("%x", gittest.BlobID("#!/bin/sh\n"+evilBody(g))))
		return g.fill(script)
	}
	var shown strings.Builder
	finished := make(chan clitest.Outcome, 1)
	if a.earlier != "" {
		got := g.finishSoon(t, g.Command("pk-bash", append(options, "--", prepare(a.earlier))...))
		assert.NotEqual(t, 125, got.Status, got.Stderr)
		fmt.Fprintln(&shown, got.Stdout, got.Stderr)
	}
	if a.meanwhile != "" {
		cmd := g.Command("pk-bash", append(options, "--", prepare(a.meanwhile))...)
		go func() { finished <- clitest.Finish(t, cmd) }()
		g.awaitStart(t, finished)
	}
	for i, command := range a.commands {
		cmd := g.Command("pk-bash", append(options, "--", prepare(command))...)
		if a.killed && i == 0 {
			require.NoError(t, cmd.Start())
			g.awaitStart(t, nil)
			require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
			_ = cmd.Wait()
			g.AwaitOrphans(t)
			g.probe(t, false)
			continue
		}
		got := g.finishSoon(t, cmd)
		if !a.refused {
			assert.NotEqual(t, 125, got.Status, got.Stderr)
		}
		assert.NotContains(t, got.Stderr, "internal error")
		fmt.Fprintln(&shown, got.Stdout, got.Stderr)
	}
	if a.during {
		g.patient(t, g.Project, gitProbe+gitRootProbe+"\ngit -C wt status")
	}
	if a.meanwhile != "" {
		g.Write(t, g.Project+"/go", "")
		got := <-finished
		assert.NotEqual(t, 125, got.Status, got.Stderr)
	}
	t.Log(shown.String())
	return shown.String()
}

// finishSoon runs one command to its end, which must come.
func (g *gitGround) finishSoon(t *testing.T, cmd *exec.Cmd) clitest.Outcome {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	got := clitest.Finish(t, cmd)
	require.True(t, timer.Stop(), "pk-bash hangs")
	return got
}

// awaitStart waits for the file "started".
func (g *gitGround) awaitStart(t *testing.T, finished chan clitest.Outcome) {
	t.Helper()
	for range 4000 {
		if exists(g.Project + "/started") {
			return
		}
		select {
		case got := <-finished:
			finished <- got
			t.Fatalf("it ended: %+v", got)
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.Fatal("it did not start")
}

// probe uses git in the root, a subdirectory, worktrees and submodules, and wherever
// there is something that git may take for a repository.
func (g *gitGround) probe(t *testing.T, repository bool) {
	t.Helper()
	dirs := []string{g.Project + "/sub"}
	err := filepath.WalkDir(g.Project, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return filepath.SkipDir
		case d.Name() == ".git" || d.Name() == "HEAD":
			dirs = append(dirs, filepath.Dir(path))
			if d.IsDir() {
				return filepath.SkipDir
			}
		case strings.HasPrefix(path, realPath(g.Project+"/.git")+"/"):
			return filepath.SkipDir
		}
		return nil
	})
	require.NoError(t, err)
	var script strings.Builder
	for _, dir := range dirs {
		fmt.Fprintf(&script, "cd '%s' && {%s\n}\n", dir, gitProbe)
	}
	g.patient(t, g.Project, script.String())
	if !repository {
		return
	}
	said := g.patient(t, g.Project, gitRootProbe)
	assert.NotContains(t, said, "FAILED")
	assert.NotContains(t, said, "FSCK")
	if exists(g.Project + "/wt") {
		g.patient(t, g.Project, "cd wt && { git status; git commit -q --allow-empty -m probe; git checkout -q -- .; }")
	}
}

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
