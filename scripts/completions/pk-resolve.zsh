#compdef pk-resolve
# zsh completion for pk-resolve. It never runs the command.

_arguments -s -S -A '-*' \
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
	'*--policy[take options from a file]:file:_files' \
	'--allow-all[refuse only what cannot be told]' \
	'(--write)--read[paths are to be read]' \
	'(--read)--write[paths are to be written]' \
	'(-e --existing)'{-e,--existing}'[refuse what does not exist]' \
	'(-P --physical)'{-P,--physical}'[take .. as the kernel does]' \
	'(-q --quiet)'{-q,--quiet}'[say nothing about refused paths]' \
	'(-v --verbose)'{-v,--verbose}'[say where refused paths lead]' \
	'--explain[say how each path gets its answer]' \
	'--stdin[read paths from standard input]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'(- *)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'--json[one JSON object for each path]' \
	'*:path:_files'
