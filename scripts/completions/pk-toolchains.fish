# Completion of pk-toolchains for fish. It runs nothing: the words are fixed.
complete -c pk-toolchains -f
complete -c pk-toolchains -n __fish_is_first_arg -a readable -d 'shown read-only'
complete -c pk-toolchains -n __fish_is_first_arg -a overlay -d 'caches that tools write to'
complete -c pk-toolchains -n __fish_is_first_arg -a masks -d 'what must be hidden'
complete -c pk-toolchains -x -l tool -a 'system mise asdf rbenv pyenv nvm rustup cargo go-dl go maven gradle ivy pip uv npm npx pnpm nuget' -d 'only this tool'
complete -c pk-toolchains -s z -l zero -d 'records end in NUL'
complete -c pk-toolchains -l json -d 'JSON lines'
complete -c pk-toolchains -s h -l help -d 'show help'
complete -c pk-toolchains -l version -d 'show the version'
