#compdef pk-apply
# zsh completion for pk-apply. It never runs the command.

_arguments -s -S \
	'--session[the trial]:name:' \
	'(--all --undo *)--from[land the paths of a list]:file:_files' \
	'(--from --undo *)--all[land everything, commits and branches too]' \
	'(--undo --overwrite)--discard[drop the changes from the trial]' \
	'(--from --all --discard --overwrite *)--undo[put back what the last landing replaced]' \
	'(--from --all --discard --overwrite --undo *)--redo[land again what --undo has put back]' \
	'(--discard --undo --redo)--overwrite[land conflicts too]' \
	'--audit[append records to a file]:file:_files' \
	'--links[land links that lead out of the project]' \
	'(-n --dry-run)'{-n,--dry-run}'[print what would land]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'--json[one JSON object for each change]' \
	'(- *)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'*:path:_files'
