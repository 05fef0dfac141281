# bash completion for pk-bash. It never runs the command.

_pk_bash() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	case $prev in
	--project-root | -C | --writable | --temp | --overlay)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--readable | --protect | --readable-from | --writable-from | --overlay-from | --allow-host-from | --bwrap | --policy | --audit | --audit-check | --log)
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
	--command | -c | --timeout | --kill-after | --description | --status-fd | --wrap | --head | --tail | --session | --pass-env | --setenv | \
		--allow-host | --publish | --connect | \
		--deny | --deny-read | --allow-write | --pass-fd | --require | --memory | --pids | --cpu-time | --file-size) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '
			-c --command --timeout --kill-after --description -y --yes -n --no
			--confirm-command --no-sandbox --wrap --loop --state --keep-background --describe --json --raw --status-fd --head
			--tail --log --no-log --follow --no-follow -C --project-root
			--readable --writable --readable-from --writable-from --session --temp
			--no-alias-tmp -z --zero --overlay --overlay-from --trial --no-toolchains --net
			--allow-host --allow-host-from --publish --connect
			--env-inherit --pass-env --setenv --protect --no-protect --require
			--pass-fd --allow-nested --trace --memory --pids --cpu-time --file-size --bwrap --audit --audit-check
			-h --help --version --policy --deny --deny-read --allow-write
		' -- "$cur")
		return
	fi
	mapfile -t COMPREPLY < <(compgen -c -- "$cur")
}

complete -F _pk_bash pk-bash
