#compdef pk-bash
# zsh completion for pk-bash. It never runs the command.

_arguments -s -S -A '-*' \
	'(-c --command)'{-c,--command}'[the command to run]:value: ' \
	'--timeout[seconds that it may take]:value: ' \
	'--kill-after[seconds from SIGTERM to SIGKILL]:value: ' \
	'--description[a label, shown when asking]:value: ' \
	'(-y --yes)'{-y,--yes}'[do not ask, run]' \
	'(-n --no)'{-n,--no}'[do not ask, decline]' \
	'--confirm-command[have a program answer]:program:_command_names -e' \
	'--wrap[run behind another program]:prefix: ' \
	'--loop[answer requests from standard input]' \
	'--state[what a command hands on to the next]:state:(none cwd env)' \
	'--keep-background[keep what a command leaves running]' \
	'--describe[print what holds for a command, for a model]' \
	'--no-sandbox[run without a sandbox]' \
	'--json[print one JSON object]' \
	'--raw[pass the bytes on as they come]' \
	'--status-fd[write the JSON object to a descriptor]:value: ' \
	'--head[bytes to keep of the beginning]:value: ' \
	'--tail[bytes to keep of the end]:value: ' \
	'--log[write all output to a file]:file:_files' \
	'--no-log[keep no log]' \
	'--follow[show the output as it comes]' \
	'--no-follow[do not show it]' \
	'(-C --project-root)'{-C,--project-root}'[where the command starts]:directory:_files -/' \
	'*--readable[a further root, not writable]:path:_files' \
	'*--writable[a further root, writable]:directory:_files -/' \
	'*--readable-from[readable roots from a list]:path:_files' \
	'*--writable-from[writable roots from a list]:path:_files' \
	'--session[join a session]:value: ' \
	'--temp[use a directory as the session tmp]:directory:_files -/' \
	'--audit[append records to a file]:file:_files' \
	'--audit-check[find what was changed in records]:file:_files' \
	'*--policy[take options from a file]:file:_files' \
	'*--deny[neither read nor write what matches]:value: ' \
	'*--deny-read[do not read what matches]:value: ' \
	'*--allow-write[write only what matches]:value: ' \
	'--no-alias-tmp[/tmp keeps its meaning]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'*--overlay[a root that looks writable]:directory:_files -/' \
	'*--overlay-from[overlay roots from a list]:path:_files' \
	'--trial[keep changes of writable roots in the session]' \
	'--no-toolchains[do not show the tool chains]' \
	'--net[the network]:network:(host none allow)' \
	'*--allow-host[a host that --net allow lets through]:value: ' \
	'*--allow-host-from[such hosts from a list]:path:_files' \
	'*--publish[open a port of the sandbox on the host]:value: ' \
	'*--connect[open a port of the host inside]:value: ' \
	'--env-inherit[pass the whole environment]' \
	'*--pass-env[pass a variable]:value: ' \
	'*--setenv[set a variable]:value: ' \
	'*--protect[keep a path from being written]:path:_files' \
	'--no-protect[protect nothing by default]' \
	'*--require[fail unless a guarantee holds]:value: ' \
	'*--pass-fd[hand on a descriptor]:value: ' \
	'--allow-nested[allow user namespaces inside]' \
	'--trace[find refusals by failed system calls too]' \
	'--memory[most memory it may use]:value: ' \
	'--pids[most processes it may have]:value: ' \
	'--cpu-time[most processor time of each process]:value: ' \
	'--file-size[largest file it may write]:value: ' \
	'--bwrap[the bwrap to use]:path:_files' \
	'(-h --help)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'1:command:_command_names -e'
