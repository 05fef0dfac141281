# bash completion for pk-apply. It never runs the command.

_pk_apply() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	--session) return ;;
	--from | --audit)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '
			--session --from --audit --all --discard --undo --redo --overwrite --links
			-n --dry-run -z --zero --json -h --help --version
		' -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -F _pk_apply pk-apply
