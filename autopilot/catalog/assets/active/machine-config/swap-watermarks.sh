#!/bin/sh
# Has the kernel begin to swap before the kubelet begins to evict.
#
# The kubelet evicts pods when less than E is available (evictionHard, memory.available). The kernel
# swaps from its low watermark on, which is min + managed * vm.watermark_scale_factor / 10000, summed
# over all zones. So that is to be E and a runway above it: 1 % of RAM, and 256 MiB at least.
set -eu
config=${1:-/etc/kubernetes/kubelet.conf}
proc=${2:-/proc}

# E in KiB; 100 MiB is the kubelet's default. A percentage is one of RAM.
total=$(awk '$1 == "MemTotal:" { print $2 }' "$proc/meminfo")
evict=$(sed -n 's/.*"\{0,1\}memory\.available"\{0,1\}: *"\{0,1\}\([0-9.]*[KMG%]\{0,1\}i\{0,1\}\)"\{0,1\}.*/\1/p' "$config" 2>/dev/null | head -n 1)
evict=$(awk -v text="${evict:-100Mi}" -v total="$total" 'BEGIN {
	n = text + 0
	if (text ~ /%$/) n = total * n / 100
	else if (text ~ /Gi$/) n *= 1048576
	else if (text ~ /Mi$/) n *= 1024
	else if (text ~ /Ki$/) n *= 1
	else n /= 1024
	printf "%d", n
}')

factor=$(awk -v evict="$evict" -v total="$total" '
	$1 == "min" { min += $2 }
	$1 == "managed" { managed += $2 }
	END {
		if (managed == 0) { print "zoneinfo has no zones" > "/dev/stderr"; exit 1 }
		page = 4 # KiB
		runway = total / 100
		if (runway < 262144) runway = 262144
		factor = (evict + runway - min * page) * 10000 / (managed * page)
		# 10 is the kernel'"'"'s default; above 1000, a tenth of RAM, it would swap without need.
		if (factor < 10) factor = 10
		if (factor > 1000) factor = 1000
		printf "%d", factor
	}' "$proc/zoneinfo")
echo "$factor" >"$proc/sys/vm/watermark_scale_factor"
