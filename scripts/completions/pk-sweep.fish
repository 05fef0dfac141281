# Completion of pk-sweep for fish. It runs nothing: the words are fixed.
complete -c pk-sweep -f
complete -c pk-sweep -x -l older-than -a '1h 12h 1d 3d 7d 2w' -d 'not used for this long'
complete -c pk-sweep -l all -d 'whatever the age'
complete -c pk-sweep -x -l session -d 'this session, whatever its age'
complete -c pk-sweep -l background -d 'end what its commands have left running'
complete -c pk-sweep -l discard -d 'trials that have changes too'
complete -c pk-sweep -x -l base -a '(__fish_complete_directories)' -d 'look in this directory instead'
complete -c pk-sweep -s n -l dry-run -d 'print what would be removed'
complete -c pk-sweep -s v -l verbose -d 'print what was removed and kept'
complete -c pk-sweep -l json -d 'the same as JSON lines'
complete -c pk-sweep -s h -l help -d 'show help'
complete -c pk-sweep -l version -d 'show the version'
