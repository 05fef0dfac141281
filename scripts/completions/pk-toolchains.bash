# Completion of pk-toolchains for bash. It runs nothing: the words are fixed.
_pk_toolchains() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local tools='system mise asdf rbenv pyenv nvm rustup cargo go-dl go maven gradle ivy pip uv npm npx pnpm nuget'
	if [[ $prev == --tool ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$tools" -- "$cur")
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '--tool --zero -z --json --help -h --version' -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -W 'readable overlay masks' -- "$cur")
	fi
}
complete -F _pk_toolchains pk-toolchains
