#compdef pk-bwrap
# zsh completion for pk-bwrap. It never runs the command.

_arguments -s -S -A '-*' \
	'(-C --project-root)'{-C,--project-root}'[where the command starts]:directory:_files -/' \
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
	'--no-alias-tmp[/tmp keeps its meaning]' \
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
	'--print[print a command line that makes the sandbox]' \
	'--explain[tell what is shown at a path, and why]' \
	'*--host[with --explain: which rule decides about a host]:value: ' \
	'--check[attack a sandbox, and tell what holds]' \
	'--trust-project[have the policy of the project read]' \
	'(-z --zero)'{-z,--zero}'[records end in NUL]' \
	'(-h --help)'{-h,--help}'[print a summary]' \
	'--version[print the version]' \
	'--json[with --print, --explain, --check or --version: as JSON]' \
	'*:::command: _normal'
