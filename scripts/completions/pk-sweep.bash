# Completion of pk-sweep for bash. It runs nothing: the words are fixed.
_pk_sweep() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	--older-than) mapfile -t COMPREPLY < <(compgen -W '1h 12h 1d 3d 7d 2w' -- "$cur") ;;
	--base) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	--session) ;;
	*) mapfile -t COMPREPLY < <(compgen -W '--older-than --all --session --background --discard --base --dry-run -n --verbose -v --json --help -h --version' -- "$cur") ;;
	esac
}
complete -F _pk_sweep pk-sweep
