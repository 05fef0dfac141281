#compdef pk-sweep
# Completion of pk-sweep for zsh. It runs nothing: the words are fixed.
_arguments \
	'(--all --session)--older-than[not used for this long]:age:(1h 12h 1d 3d 7d 2w)' \
	'(--older-than --session)--all[whatever the age]' \
	'(--older-than --all)*--session[this session, whatever its age]:session name:' \
	'--background[end what its commands have left running]' \
	'--discard[trials that have changes too]' \
	'*--base[look in this directory instead]:directory:_directories' \
	'(-n --dry-run)'{-n,--dry-run}'[print what would be removed, change nothing]' \
	'(-v --verbose)'{-v,--verbose}'[print what was removed and kept]' \
	'--json[the same as JSON lines]' \
	'(-h --help)'{-h,--help}'[show help]' \
	'--version[show the version]'
