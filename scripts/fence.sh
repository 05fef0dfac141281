# shellcheck shell=bash
# fence.sh, to be sourced: can this machine fence, and if not, which knob is it?

# can_fence BWRAP [PREFIX...] tries a sandbox as small as the real one is made
# of, as the user that PREFIX switches to. On failure it prints the reason.
#
# --unshare-user is never left out: without it root would get a "sandbox" that
# is still root on the host.
can_fence() {
	local bwrap=$1 said
	shift
	if said=$("$@" "$bwrap" --unshare-user --unshare-pid --unshare-ipc --ro-bind / / \
		--proc /proc --dev /dev --tmpfs /tmp -- true 2>&1 </dev/null); then
		return 0
	fi
	why_not "$said"
	return 1
}

# why_not MESSAGE prints which knob made bwrap say MESSAGE.
why_not() {
	case $1 in
	*max_*_namespaces*)
		echo 'user namespaces are off or used up: raise the sysctl user.max_user_namespaces' ;;
	*'uid map: Permission denied'* | *RTM_NEWADDR*)
		echo 'AppArmor keeps programs from using user namespaces: set the sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap a profile that allows them' ;;
	*'Creating new namespace failed'*'does not support'*)
		echo 'the kernel is built without user namespaces (CONFIG_USER_NS)' ;;
	*'No permissions to create'* | *'Creating new namespace failed'* | *'make / slave'*)
		no_permission "$1" ;;
	*'mount proc'*)
		echo 'the container hides parts of /proc, so no new one can be mounted: start it with --security-opt systempaths=unconfined' ;;
	*)
		echo "bubblewrap does not work here: ${1:-it said nothing}" ;;
	esac
}

# no_permission MESSAGE tells a sysctl from a system call filter.
no_permission() {
	if knob_is kernel.unprivileged_userns_clone 0; then
		echo 'ordinary users may not make user namespaces: set the sysctl kernel.unprivileged_userns_clone=1'
	elif knob_is user.max_user_namespaces 0; then
		echo 'user namespaces are off: raise the sysctl user.max_user_namespaces'
	elif grep -q '^Seccomp:[[:space:]]*2' /proc/self/status; then
		echo "the container's seccomp profile forbids user namespaces: start it with --security-opt seccomp=unconfined, or with a profile that allows clone, unshare and mount"
	else
		echo "user namespaces cannot be made here: $1"
	fi
}

# knob_is NAME VALUE compares a sysctl; one that does not exist has no value.
knob_is() {
	local file=/proc/sys/${1//.//}
	[ -r "$file" ] && [ "$(cat "$file")" = "$2" ]
}
