# bash completion for pk-bwrap. It never runs the command.

_pk_bwrap() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	--project-root | -C | --writable | --temp | --overlay)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--readable | --protect | --readable-from | --writable-from | --overlay-from | --allow-host-from | --bwrap | --policy | --audit)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--net)
		mapfile -t COMPREPLY < <(compgen -W 'host none allow' -- "$cur")
		return
		;;
	--session | --pass-env | --setenv | --allow-host | --publish | --connect | --host | --deny | --deny-read | --allow-write | --pass-fd | --require | --memory | --pids | --cpu-time | --file-size) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '
			-C --project-root --readable --writable --readable-from --writable-from
			--session --temp --no-alias-tmp --overlay --overlay-from --trial --no-toolchains
			--net --allow-host --allow-host-from --publish --connect
			--env-inherit --pass-env --setenv --protect --no-protect --require
			--pass-fd --allow-nested --trace --memory --pids --cpu-time --file-size --bwrap --audit
			--print --explain --host --check --trust-project --policy --deny --deny-read
			--allow-write -z --zero -h --help --version --json
		' -- "$cur")
		return
	fi
	mapfile -t COMPREPLY < <(compgen -c -- "$cur")
}

complete -F _pk_bwrap pk-bwrap
