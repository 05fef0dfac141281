# bash completion for pk-mcp. It never runs the command.

_pk_mcp() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	--project-root | -C | --writable | --temp | --overlay)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--readable | --readable-from | --writable-from | --overlay-from | --allow-host-from | --bwrap | --policy | --audit)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--confirm-command)
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		return
		;;
	--net)
		mapfile -t COMPREPLY < <(compgen -W 'host none allow' -- "$cur")
		return
		;;
	--state)
		mapfile -t COMPREPLY < <(compgen -W 'none cwd env' -- "$cur")
		return
		;;
	--session | --pass-env | --setenv | --allow-host | --publish | --connect | --deny | --deny-read | --allow-write | --require | --memory | --pids | --cpu-time | --file-size) return ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W '
		--ask --confirm-command -y --yes --no-keep-background --state
		-C --project-root --readable --writable --readable-from --writable-from
		--session --temp --overlay --overlay-from --trial --no-toolchains
		--net --allow-host --allow-host-from --publish --connect
		--env-inherit --pass-env --setenv --no-protect --require
		--allow-nested --trace --memory --pids --cpu-time --file-size --bwrap --audit
		--policy --deny --deny-read --allow-write -z
		--zero -h --help --version --json
	' -- "$cur")
}

complete -F _pk_mcp pk-mcp
