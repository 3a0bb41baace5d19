# What test/setup and deploy/image/packages have in common: words to the user, the
# cache, and apt beside the machine's own. To be sourced with set -eu; $self is
# what the script is called.

say() { printf '%s: %s\n' "$self" "$*"; }
fail() {
	printf '%s: %s\n' "$self" "$*" >&2
	exit 1
}

os_release() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" /etc/os-release; }
codename() { os_release VERSION_CODENAME; }

cache=${VMLET_CACHE:-/var/cache/vmlet}

# open_cache makes $work, an empty folder in the cache that goes away at the
# end, and keeps others who want the same out until then.
work=
open_cache() {
	if [ -n "$work" ]; then return; fi
	mkdir -p "$cache" 2>/dev/null || :
	if ! [ -w "$cache" ]; then
		fail "$cache can't be written to: set VMLET_CACHE to a folder of your own"
	fi
	cache=$(cd "$cache" && pwd -P)
	exec 9>"$cache/.lock"
	flock 9
	rm -rf "$cache"/.work.* # of those that were killed
	work=$(mktemp -d "$cache/.work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	chmod 755 "$work"
}

# publish FOLDER NAME moves a finished folder into the cache.
publish() {
	chmod -R a+rX "$1"
	rm -rf "${cache:?}/$2"
	mv -T "$1" "$cache/$2"
}

# link TARGET NAME points a name in the cache to what is now current.
link() {
	ln -s "$1" "$work/link"
	mv -T "$work/link" "$cache/$2"
}

# private_apt COMMAND... runs an apt tool that knows the repositories in
# $work/sources.list only, and leaves the machine's own lists alone.
private_apt() {
	tool=$1
	shift
	mkdir -p "$work/lists/partial" "$work/archives/partial"
	"$tool" -qq -o APT::Sandbox::User=root -o Debug::NoLocking=true \
		-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
		-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" \
		-o Dir::Cache::Archives="$work/archives" "$@"
}

# sources SUITE... prints lines for a sources.list: those of the machine's own
# repositories that have one of the suites. With apt's own answer it doesn't
# matter in which format and file they are written down.
sources() {
	# shellcheck disable=SC2016 # apt expands these, not the shell
	apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		sort -u | while read -r suite component uri; do
		for wanted; do
			if [ "$suite $component" = "$wanted main" ]; then echo "$(signed_deb) $uri $suite main"; fi
		done
	done
}

signed_deb() {
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	if [ -e $keyring ]; then echo "deb [signed-by=$keyring]"; else echo deb; fi
}

# own_sources writes $work/sources.list with the machine's Debian and, with a
# suffix such as -backports, that suite from the same place.
own_sources() {
	release=$(codename)
	sources "$release" "$release-updates" "$release-security" >"$work/sources.list"
	own=$(sources "$release" | head -n 1)
	if [ -z "$own" ]; then
		say "apt knows no repository with Debian $release: run apt-get update as root" >&2
		return 1
	fi
	if [ $# -gt 0 ]; then echo "${own% "$release" main} $release$1 main" >>"$work/sources.list"; fi
}
