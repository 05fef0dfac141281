package gitconfig

import "strings"

// Keys of git-config(1) that a sandbox gets, in lower case; "*" is any subsection. A
// value may be a secret, or name a file or program that is not in the sandbox and make
// git stop there. So the list omits, among others, credential.*, most of http.*, gpg.*
// and signing keys. It omits editors, pagers, hooks, monitors, ssh programs and files by
// path, and the keys of one repository (core.worktree, extensions.*).
var (
	// dataSections are sections whose keys are all data.
	dataSections = `color column advice i18n blame grep log pretty rerere status versionsort author committer`

	dataKeys = `
		user.name user.email user.useconfigonly
		init.defaultbranch init.defaultobjectformat clone.defaultremotename clone.rejectshallow
		core.autocrlf core.eol core.safecrlf core.whitespace core.filemode core.symlinks core.precomposeunicode core.checkroundtripencoding
		core.quotepath core.abbrev core.commentchar core.commentstring core.bigfilethreshold core.compression core.loosecompression
		core.logallrefupdates core.trustctime core.checkstat core.protecthfs core.protectntfs
		safe.directory safe.barerepository protocol.version protocol.allow protocol.*.allow
		merge.conflictstyle merge.ff merge.renames merge.renamelimit merge.directoryrenames merge.renormalize merge.stat merge.autostash
		merge.log merge.branchdesc merge.suppressdest merge.verbosity merge.defaulttoupstream merge.*.name merge.*.recursive
		diff.algorithm diff.autorefreshindex diff.colormoved diff.colormovedws diff.context diff.dirstat diff.dstprefix diff.srcprefix
		diff.ignoresubmodules diff.indentheuristic diff.interhunkcontext diff.mnemonicprefix diff.noprefix diff.relative diff.renamelimit
		diff.renames diff.statgraphwidth diff.statnamewidth diff.submodule diff.suppressblankempty diff.wordregex diff.wserrorhighlight
		diff.*.binary diff.*.xfuncname diff.*.funcname diff.*.wordregex diff.*.algorithm diff.*.cachetextconv
		filter.*.required
		pull.rebase pull.ff pull.octopus
		push.default push.autosetupremote push.followtags push.recursesubmodules push.useforceifincludes remote.pushdefault
		fetch.prune fetch.prunetags fetch.all fetch.fsckobjects fetch.output fetch.parallel fetch.recursesubmodules fetch.showforcedupdates
		receive.fsckobjects transfer.fsckobjects
		rebase.autosquash rebase.autostash rebase.updaterefs rebase.abbreviatecommands rebase.backend rebase.forkpoint rebase.missingcommitscheck
		rebase.rebasemerges rebase.reschedulefailedexec rebase.stat
		branch.autosetupmerge branch.autosetuprebase branch.sort tag.sort checkout.defaultremote checkout.guess checkout.workers
		commit.cleanup commit.status commit.verbose format.pretty format.notes format.numbered format.signoff format.thread
		am.keepcr am.threeway apply.ignorewhitespace apply.whitespace add.ignoreerrors stash.showincludeuntracked stash.showpatch stash.showstat
		help.autocorrect interactive.singlekey index.version index.threads pack.threads pack.windowmemory
		notes.displayref notes.mergestrategy notes.*.mergestrategy notes.rewriteref notes.rewritemode notes.*.amend notes.*.rebase
		trailer.separators trailer.where trailer.ifexists trailer.ifmissing trailer.*.key trailer.*.where trailer.*.ifexists trailer.*.ifmissing
		submodule.recurse submodule.fetchjobs submodule.propagatebranches submodule.alternateerrorstrategy submodule.alternatelocation worktree.guessremote
		http.version http.postbuffer http.lowspeedlimit http.lowspeedtime http.followredirects
		lfs.fetchinclude lfs.fetchexclude lfs.fetchrecentalways lfs.fetchrecentrefsdays lfs.fetchrecentcommitsdays lfs.concurrenttransfers
		lfs.basictransfersonly lfs.allowincompletepush lfs.locksverify lfs.*.locksverify lfs.setlockablereadonly lfs.skipdownloaderrors
		lfs.batch lfs.activitytimeout lfs.dialtimeout lfs.tlstimeout lfs.keepalive lfs.*.maxretries lfs.*.maxretrydelay`

	// programKeys are run by a shell: they are for the sandbox if their program is.
	programKeys = `filter.*.clean filter.*.smudge filter.*.process merge.*.driver diff.*.textconv diff.*.command`

	// urlKeys hold a URL of another machine; urlSubs are named by one.
	urlKeys = `http.proxy lfs.url lfs.pushurl`
	urlSubs = `url.*.insteadof url.*.pushinsteadof`

	// stops are keys of data sections that make git stop or complain if a file or
	// program is missing.
	stops = `blame.ignorerevsfile log.showsignature`
)

// listed reports whether a list has a word. The lists are searched as they are written:
// a map would be made at the start of every command.
func listed(list, word string) bool {
	for at := 0; word != ""; at++ {
		i := strings.Index(list[at:], word)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(word)
		if (at == 0 || isSpace(list[at-1])) && (end == len(list) || isSpace(list[end])) {
			return true
		}
	}
	return false
}

// kind says how the value of a key is judged.
type kind int

const (
	leftOut kind = iota
	isData
	isProgram
	isURL
	isURLSub
	isAlias
)

func kindOf(key string) kind {
	section, _, name, hasSub := splitKey(key)
	pattern := key
	if hasSub {
		pattern = section + ".*." + name
	}
	switch {
	case !isVariable(key), listed(stops, pattern):
		return leftOut
	case section == "alias" && !hasSub:
		return isAlias
	case listed(programKeys, pattern):
		return isProgram
	case listed(urlKeys, pattern):
		return isURL
	case listed(urlSubs, pattern):
		return isURLSub
	case listed(dataSections, section), listed(dataKeys, pattern):
		return isData
	}
	return leftOut
}

// isVariable reports whether a key can be written. A key from the environment may hold
// any bytes, and after a NUL in a file the end of a subsection becomes the name.
func isVariable(key string) bool {
	section, sub, name, _ := splitKey(key)
	for _, c := range []byte(section + name) {
		if !isKey(c) {
			return false
		}
	}
	return section != "" && name != "" && isLetter(name[0]) && !strings.Contains(sub, "\n")
}
