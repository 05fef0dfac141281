#compdef pk-toolchains
# Completion of pk-toolchains for zsh. It runs nothing: the words are fixed.
_arguments \
	'*--tool[only this tool]:tool:(system mise asdf rbenv pyenv nvm rustup cargo go-dl go maven gradle ivy pip uv npm npx pnpm nuget)' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'(-z --zero)'--json'[JSON lines]' \
	'(-h --help)'{-h,--help}'[show help]' \
	'--version[show the version]' \
	'1:kind:((readable\:"shown read-only" overlay\:"caches that tools write to" masks\:"what must be hidden"))'
