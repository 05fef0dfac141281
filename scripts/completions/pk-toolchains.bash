# Completion of pk-toolchains for bash. It runs nothing: the words are fixed.
_pk_toolchains() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local tools='system mise asdf rbenv pyenv nvm rustup cargo go-dl go debian-alternatives ld.so-cache debian-openjdk-conf debian-maven-conf debian-php-conf dpkg nix nixos guix homebrew user-bin rvm ruby-install nodenv fnm volta npm-prefix sdkman jenv goenv ghcup ghcup-xdg stack cabal opam juliaup conda micromamba micromamba-v1 pixi uv pipx pipx-legacy python-user-site poetry pnpm bun deno dotnet phpenv composer-global mix perlbrew local-lib plenv R swiftly android-sdk tfenv nimble espressif dart-pub maven gradle ivy pip npm npx nuget sccache ccache ccache-legacy gopls golangci-lint maven-wrapper maven-build-cache sbt coursier kotlin-native clojure-gitlibs jbang bazel bazelisk pdm pre-commit rattler node-gyp corepack yarn-classic yarn-berry playwright puppeteer cypress electron electron-builder prisma composer composer-legacy rubygems rubygems-legacy bundler hex mix-install rebar3 cabal-xdg julia renv flutter-fvm swiftpm zig cpan cpanm shards conan vcpkg terraform helm huggingface torch-hub apt git'
	if [[ $prev == --tool ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$tools" -- "$cur")
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '--tool --absent --check --project --zero -z --json --help -h --version' -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -W 'readable overlay masks hosts' -- "$cur")
	fi
}
complete -F _pk_toolchains pk-toolchains
