#compdef pk-mcp
# zsh completion for pk-mcp. It never runs the command.

_arguments -s -S \
	'(-y --yes --confirm-command)--ask[ask through the client before each command]' \
	'(-y --yes --ask)--confirm-command[have a program answer]:program:_command_names -e' \
	'(--ask --confirm-command)'{-y,--yes}'[do not ask]' \
	'--no-keep-background[end what a command leaves running]' \
	'--state[what lasts from command to command]:state:(none cwd env)' \
	'(-C --project-root)'{-C,--project-root}'[the project root]:directory:_files -/' \
	'*--readable[a further root, not writable]:path:_files' \
	'*--writable[a further root, writable]:directory:_files -/' \
	'*--readable-from[readable roots from a list]:path:_files' \
	'*--writable-from[writable roots from a list]:path:_files' \
	'--session[join a session]:value: ' \
	'--temp[use a directory as the session tmp]:directory:_files -/' \
	'--audit[append records to a file]:file:_files' \
	'*--policy[take options from a file]:file:_files' \
	'*--deny[neither read nor write what matches]:value: ' \
	'*--deny-read[do not read what matches]:value: ' \
	'*--allow-write[write only what matches]:value: ' \
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
	'--no-protect[protect nothing by default]' \
	'*--require[fail unless a guarantee holds]:value: ' \
	'--allow-nested[allow user namespaces inside]' \
	'--trace[find refusals by failed system calls too]' \
	'--memory[most memory it may use]:value: ' \
	'--pids[most processes it may have]:value: ' \
	'--cpu-time[most processor time of each process]:value: ' \
	'--file-size[largest file it may write]:value: ' \
	'--bwrap[the bwrap to use]:path:_files' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'(-h --help)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'--json[with --version: as JSON]'
