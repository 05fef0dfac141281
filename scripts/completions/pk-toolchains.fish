# Completion of pk-toolchains for fish. It runs nothing: the words are fixed.
complete -c pk-toolchains -f
complete -c pk-toolchains -n __fish_is_first_arg -a readable -d 'shown read-only'
complete -c pk-toolchains -n __fish_is_first_arg -a overlay -d 'caches that tools write to'
complete -c pk-toolchains -n __fish_is_first_arg -a masks -d 'what must be hidden'
complete -c pk-toolchains -n __fish_is_first_arg -a hosts -d 'what tools are configured to reach'
complete -c pk-toolchains -x -l tool -a 'system mise asdf rbenv pyenv nvm rustup cargo go-dl go debian-alternatives ld.so-cache debian-openjdk-conf debian-maven-conf debian-php-conf dpkg nix nixos guix homebrew user-bin rvm ruby-install nodenv fnm volta npm-prefix sdkman jenv goenv ghcup ghcup-xdg stack cabal opam juliaup conda micromamba micromamba-v1 pixi uv pipx pipx-legacy python-user-site poetry pnpm bun deno dotnet phpenv composer-global mix perlbrew local-lib plenv R swiftly android-sdk tfenv nimble espressif dart-pub maven gradle ivy pip npm npx nuget sccache ccache ccache-legacy gopls golangci-lint maven-wrapper maven-build-cache sbt coursier kotlin-native clojure-gitlibs jbang bazel bazelisk pdm pre-commit rattler node-gyp corepack yarn-classic yarn-berry playwright puppeteer cypress electron electron-builder prisma composer composer-legacy rubygems rubygems-legacy bundler hex mix-install rebar3 cabal-xdg julia renv flutter-fvm swiftpm zig cpan cpanm shards conan vcpkg terraform helm huggingface torch-hub apt git' -d 'only this tool'
complete -c pk-toolchains -l absent -d 'the rows that show nothing, and why'
complete -c pk-toolchains -l check -d 'credentials that would be seen'
complete -c pk-toolchains -l project -d 'hosts that the project names too'
complete -c pk-toolchains -s z -l zero -d 'records end in NUL'
complete -c pk-toolchains -l json -d 'JSON lines'
complete -c pk-toolchains -s h -l help -d 'show help'
complete -c pk-toolchains -l version -d 'show the version'
