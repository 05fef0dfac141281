#compdef pk-diff
# zsh completion for pk-diff. It never runs the command.

_arguments -s -S \
	'--session[the trial]:name:' \
	'(--stat --patch --json)--name-only[print the paths alone]' \
	'(--name-only --patch --json)--stat[print how many lines each file gains and loses]' \
	'(--name-only --stat --json)--patch[print a patch for git apply]' \
	'(--name-only --stat --patch)--json[one JSON object for each change]' \
	'--all[list each file that git ignores]' \
	'--links[links that lead out of the project can land]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'--no-pager[start no pager]' \
	'(- *)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'*:path:_files'
