# fish completion for pk-diff. It never runs the command.

complete -c pk-diff -l session -x -d 'The trial'
complete -c pk-diff -l name-only -d 'Print the paths alone'
complete -c pk-diff -l stat -d 'Print how many lines each file gains and loses'
complete -c pk-diff -l patch -d 'Print a patch for git apply'
complete -c pk-diff -l json -d 'One JSON object for each change'
complete -c pk-diff -l all -d 'List each file that git ignores'
complete -c pk-diff -l links -d 'Links that lead out of the project can land'
complete -c pk-diff -s z -l zero -d 'Records end in NUL'
complete -c pk-diff -l no-pager -d 'Start no pager'
complete -c pk-diff -s h -l help -d 'Print a summary'
complete -c pk-diff -l version -d 'Print the version'
