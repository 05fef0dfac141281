#compdef pk-fs
# zsh completion for pk-fs. It never runs the command.

local -a verbs
verbs=(
	'cat:print files'
	'read:print lines of a text'
	'ls:names in a directory'
	'walk:paths of all below a directory'
	'glob:paths of the files that match'
	'grep:lines that match'
	'stat:type, mode, size, time and path'
	'exists:status 1 if one is missing'
	'write:standard input becomes a file'
	'edit:replace a text that is there once'
	'patch:apply a patch'
	'append:standard input is added to a file'
	'cp:copy a file'
	'mv:rename'
	'rm:remove'
	'mkdir:make directories'
	'git-clone:clone a repository'
	'git-pull:go forward to what the branch follows'
	'git-head:print the commit that is checked out'
	'git-adopt:make a repository of a sandbox usable on the host'
)

_arguments -s -S \
	'(-C --project-root)'{-C,--project-root}'[where relative paths begin]:directory:_files -/' \
	'*--readable[a further root, not writable]:path:_files' \
	'*--writable[a further root, writable]:directory:_files -/' \
	'*--readable-from[readable roots from a list]:file:_files' \
	'*--writable-from[writable roots from a list]:file:_files' \
	'--session[join a session]:name:' \
	'--temp[use a directory as the session tmp]:directory:_files -/' \
	'--no-alias-tmp[/tmp keeps its meaning]' \
	'--no-protect[let git directories be written, and files the host runs]' \
	'*--deny[neither read nor write what a pattern covers]:pattern:' \
	'*--deny-read[do not read what a pattern covers]:pattern:' \
	'*--allow-write[write only what a pattern matches]:pattern:' \
	'--audit[append records to a file]:file:_files' \
	'*--policy[take options from a file]:file:_files' \
	'--violations[append what is refused to a file]:file:_files' \
	'--atomic[write, never a part]' \
	'--exclusive[write, fail if it exists]' \
	'--if-unchanged[write or edit, fail unless the content has a SHA-256]:hash:' \
	'--old[edit, what is replaced]:text:' \
	'--new[edit, what takes its place]:text:' \
	'--old-from[edit, what is replaced, from a file]:file:_files' \
	'--new-from[edit, what takes its place, from a file]:file:_files' \
	'--all[edit, replace it wherever it is]' \
	'--from[patch, take it from a file]:file:_files' \
	'--dry-run[patch, check it and write nothing]' \
	'--lines[read, the lines from A to B]:range:' \
	'--head[read, the first lines]:number:' \
	'--tail[read, the last lines]:number:' \
	'(-n --number)'{-n,--number}'[read, each line with its number]' \
	'(-i --ignore-case)'{-i,--ignore-case}'[grep, letters match in either case]' \
	'(-F --fixed)'{-F,--fixed}'[grep, the pattern is a text]' \
	'(-B --before)'{-B,--before}'[grep, lines before each match]:number:' \
	'(-A --after)'{-A,--after}'[grep, lines behind each match]:number:' \
	'--context[grep, lines before and behind]:number:' \
	'(-l --files-only)'{-l,--files-only}'[grep, only paths of files]' \
	'*--glob[grep, only files that match]:pattern:' \
	'--limit[grep, end after so many]:number:' \
	'--sync[return when it is on stable storage]' \
	'(-r --recursive)'{-r,--recursive}'[rm, directories too]' \
	'(-f --force)'{-f,--force}'[rm, what is missing is no failure]' \
	'--json[one JSON object for each answer]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'*--protocol[git, allow a protocol]:protocol:(https http ssh git file)' \
	'*--pass-env[git, let it see a variable]:name:_parameters -g "*export*"' \
	'--timeout[git, seconds]:seconds:' \
	'--loop[answer requests, JSON lines]' \
	'(- *)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'1:verb:{_describe verb verbs}' \
	'*:path:_files'
