#compdef pk-toolchains
# Completion of pk-toolchains for zsh. It runs nothing: the words are fixed.
_arguments \
	'*--tool[only this tool]:tool:(system mise asdf rbenv pyenv nvm rustup cargo go-dl go debian-alternatives ld.so-cache debian-openjdk-conf debian-maven-conf debian-php-conf dpkg nix nixos guix homebrew user-bin rvm ruby-install nodenv fnm volta npm-prefix sdkman jenv goenv ghcup ghcup-xdg stack cabal opam juliaup conda micromamba micromamba-v1 pixi uv pipx pipx-legacy python-user-site poetry pnpm bun deno dotnet phpenv composer-global mix perlbrew local-lib plenv R swiftly android-sdk tfenv nimble espressif dart-pub maven gradle ivy pip npm npx nuget sccache ccache ccache-legacy gopls golangci-lint maven-wrapper maven-build-cache sbt coursier kotlin-native clojure-gitlibs jbang bazel bazelisk pdm pre-commit rattler node-gyp corepack yarn-classic yarn-berry playwright puppeteer cypress electron electron-builder prisma composer composer-legacy rubygems rubygems-legacy bundler hex mix-install rebar3 cabal-xdg julia renv flutter-fvm swiftpm zig cpan cpanm shards conan vcpkg terraform helm huggingface torch-hub apt git)' \
	'(--check)--absent[the rows that show nothing, and why]' \
	'(--absent)--check[credentials that would be seen]' \
	'--project[hosts that the project names too]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'(-z --zero)'--json'[JSON lines]' \
	'(-h --help)'{-h,--help}'[show help]' \
	'--version[show the version]' \
	'1:kind:((readable\:"shown read-only" overlay\:"caches that tools write to" masks\:"what must be hidden" hosts\:"what tools are configured to reach"))'
