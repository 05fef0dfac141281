# fish completion for pk-apply. It never runs the command.

complete -c pk-apply -l session -x -d 'The trial'
complete -c pk-apply -l from -r -F -d 'Land the paths of a list'
complete -c pk-apply -l all -d 'Land everything, commits and branches too'
complete -c pk-apply -l discard -d 'Drop the changes from the trial'
complete -c pk-apply -l undo -d 'Put back what the last landing replaced'
complete -c pk-apply -l overwrite -d 'Land conflicts too'
complete -c pk-apply -l links -d 'Land links that lead out of the project'
complete -c pk-apply -s n -l dry-run -d 'Print what would land'
complete -c pk-apply -s z -l zero -d 'Records end in NUL'
complete -c pk-apply -l json -d 'One JSON object for each change'
complete -c pk-apply -s h -l help -d 'Print a summary'
complete -c pk-apply -l version -d 'Print the version'
