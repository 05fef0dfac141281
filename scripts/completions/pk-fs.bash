# bash completion for pk-fs. It never runs the command.

_pk_fs() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word verb='' skip=
	local verbs='cat read ls walk glob grep stat exists write edit patch append cp mv rm mkdir git-clone git-pull git-head git-adopt'
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		[[ $word == -- ]] && prev=-- # operands from here on
		if [[ -n $skip ]]; then
			skip=
			continue
		fi
		case $word in
		-C | --project-root | --readable | --writable | --readable-from | --writable-from | --session | --temp | --deny | \
			--deny-read | --allow-write | --policy | --violations | --audit | --if-unchanged | --old | --new | \
			--old-from | --new-from | --from | --lines | --head | --tail | \
			-B | --before | -A | --after | --context | --glob | --limit | --protocol | --pass-env | --timeout) skip=1 ;;
		-*) ;;
		*) verb=${verb:-$word} ;;
		esac
	done
	case $prev in
	--project-root | -C | --writable | --temp)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--readable | --readable-from | --writable-from | --policy | --violations | --audit | --old-from | --new-from | --from | --)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--protocol)
		mapfile -t COMPREPLY < <(compgen -W 'https http ssh git file' -- "$cur")
		return
		;;
	--pass-env)
		mapfile -t COMPREPLY < <(compgen -e -- "$cur")
		return
		;;
	--session | --deny | --deny-read | --allow-write | --if-unchanged | --old | --new | --lines | --head | --tail | -B | --before | -A | --after | --context | \
		--glob | --limit | --timeout) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '
			-C --project-root --readable --writable --readable-from --writable-from
			--session --temp --no-alias-tmp --no-protect --deny --deny-read --allow-write
			--policy --violations --audit --atomic --exclusive --if-unchanged --old --new
			--old-from --new-from --all --from --dry-run --lines --head --tail -n --number
			-i --ignore-case -F --fixed -B --before -A --after --context -l --files-only --glob --limit --sync
			-r --recursive -f --force --json -z --zero --protocol --pass-env --timeout
			--loop -h --help --version
		' -- "$cur")
		return
	fi
	if [[ -z $verb ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -F _pk_fs pk-fs
