# bash completion for pk-diff. It never runs the command.

_pk_diff() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	--session) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '
			--session --name-only --stat --patch --json --all --links -z --zero
			--no-pager -h --help --version
		' -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -F _pk_diff pk-diff
