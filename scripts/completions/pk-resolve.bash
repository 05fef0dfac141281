# bash completion for pk-resolve. It never runs the command.

_pk_resolve() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		[[ $word == -- ]] && prev=-- # operands from here on
	done
	case $prev in
	--project-root | -C | --writable | --temp)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--readable | --readable-from | --writable-from | --policy | --)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--session | --deny | --deny-read | --allow-write) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '
			-C --project-root --readable --writable --readable-from --writable-from
			--session --temp --no-alias-tmp --no-protect --deny --deny-read --allow-write
			--policy --allow-all --read --write -e --existing
			-P --physical -q --quiet -v --verbose --explain --json --stdin -z --zero
			-h --help --version
		' -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -F _pk_resolve pk-resolve
