#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Records scheduler events as `traceana record --run` does, on machines without Python.
# Needs a POSIX shell with the usual tools, root, and one of trace-cmd, perf and tracefs.

usage() {
	cat <<'END'
usage: record.sh [-n] [-f] [-t TOOL] [-q QUESTION] [-s SECONDS] [-c CLOCK] [-b KIB] [-o CAPTURE] [COMMAND...]

Records all CPUs while COMMAND runs, or for SECONDS, and stores beside the capture
CAPTURE.topology.tar (for --topology) and CAPTURE.state.tar (raw text of /proc and /sys).

  -n           print the recording command, do nothing
  -f           overwrite
  -t TOOL      trace-cmd, perf or tracefs (default: the first that is there)
  -q QUESTION  latency, placement, rules, race or all (default: all)
  -s SECONDS   without COMMAND (default: 10)
  -c CLOCK     mono (default) or local
  -b KIB       buffer of one CPU, a power of two (default: 8192; tracefs: 65536)
  -o CAPTURE   default: trace.dat, perf.data or trace.txt

Exit status: 0 recorded; 2 usage; 3 cannot record here; 5 the kernel lacks the events.
END
}

fail() {
	status=$1
	shift
	printf 'record.sh: %s\n' "$*" >&2
	exit "$status"
}

root=${TRACEANA_SYSROOT:-} # a copy of /sys and /proc, for tests of what is stored
print=0 force=0 tool='' question=all seconds=10 clock=mono buffer='' capture=''
while getopts nft:q:s:c:b:o:h option; do
	case $option in
	n) print=1 ;;
	f) force=1 ;;
	t) tool=$OPTARG ;;
	q) question=$OPTARG ;;
	s) seconds=$OPTARG ;;
	c) clock=$OPTARG ;;
	b) buffer=$OPTARG ;;
	o) capture=$OPTARG ;;
	h) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
done
shift $((OPTIND - 1))

case $clock in mono | local) ;; *) fail 2 "-c $clock: mono or local" ;; esac
case $seconds in '' | *[!0-9.]*) fail 2 "-s $seconds: a number of seconds" ;; esac
case $buffer in *[!0-9]*) fail 2 "-b $buffer: KiB of one CPU" ;; esac

# The same lists as traceana/record.py (a test compares them).
needed='sched:sched_switch sched:sched_waking sched:sched_wakeup'
events="$needed sched:sched_wakeup_new sched:sched_migrate_task sched:sched_process_fork
sched:sched_process_exec sched:sched_process_exit task:task_rename"
case $question in
latency) events="$events sched:sched_pi_setprio" ;;
placement) events="$events power:cpu_idle sched:sched_wake_idle_without_ipi" ;;
rules) events="$events sched:sched_pi_setprio sched:sched_stat_runtime" ;;
race) events="$events power:cpu_idle sched:sched_wake_idle_without_ipi ipi:ipi_send_cpu" ;;
all)
	events="$events sched:sched_pi_setprio sched:sched_stat_runtime power:cpu_idle
	sched:sched_wake_idle_without_ipi ipi:ipi_send_cpu"
	;;
*) fail 2 "-q $question: latency, placement, rules, race or all" ;;
esac

tracefs=''
for place in /sys/kernel/tracing /sys/kernel/debug/tracing; do
	if [ -z "$tracefs" ] && [ -r "$place/available_events" ]; then
		tracefs=$place
	fi
done
# A locked-down kernel refuses to write even the value that is there; trace-cmd has to.
trace_cmd_works() {
	command -v trace-cmd >/dev/null 2>&1 || return 1
	[ "$print" = 1 ] && return 0
	switch=/proc/sys/kernel/ftrace_enabled
	[ -e "$switch" ] || return 0
	value=$(cat "$switch")
	(echo "$value" >"$switch") 2>/dev/null
}
if [ -z "$tool" ]; then
	if trace_cmd_works; then
		tool=trace-cmd
	elif command -v perf >/dev/null 2>&1; then
		tool=perf
	elif [ -n "$tracefs" ]; then
		tool=tracefs
	else
		fail 3 'no trace-cmd, no perf, and no tracefs that can be read (root? mounted?)'
	fi
fi
case $tool in
trace-cmd | perf)
	command -v "$tool" >/dev/null 2>&1 || fail 3 "$tool is not installed"
	;;
tracefs)
	[ -n "$tracefs" ] || fail 3 'no tracefs that can be read (root? mount -t tracefs nodev /sys/kernel/tracing)'
	;;
*) fail 2 "-t $tool: trace-cmd, perf or tracefs" ;;
esac
if [ "$print" = 0 ] && [ "$(id -u)" != 0 ] && [ "$tool" != perf ]; then
	fail 3 "$tool needs root"
fi

case $tool in
trace-cmd) default=trace.dat kib=8192 ;;
perf) default=perf.data kib=8192 ;;
tracefs) default=trace.txt kib=65536 ;;
esac
capture=${capture:-$default}
case $capture in -*) capture=./$capture ;; esac
buffer=${buffer:-$kib}

# What this kernel does not have is left out, but for what is needed.
known=''
for event in $events; do
	if [ -n "$tracefs" ] && ! [ -e "$tracefs/events/${event%%:*}/${event#*:}" ]; then
		case " $needed " in
		*" $event "*) fail 5 "this kernel does not have $event" ;;
		esac
		printf 'record.sh: this kernel does not have %s\n' "$event" >&2
		continue
	fi
	known="$known $event"
done

[ $# -gt 0 ] || set -- sleep "$seconds"
if [ "$tool" != tracefs ]; then
	[ "$tool" = trace-cmd ] || set -- -- "$@"
	for event in $known; do set -- -e "$event" "$@"; done
fi
case $tool in
trace-cmd) set -- trace-cmd record -C "$clock" -b "$buffer" -o "$capture" "$@" ;;
perf)
	[ "$clock" = local ] || set -- -k "$clock" "$@"
	set -- perf record -a -c 1 -m "${buffer}K" -o "$capture" "$@"
	;;
esac

if [ "$print" = 1 ]; then
	if [ "$tool" = tracefs ]; then
		printf '# instance of %s: clock %s, %s KiB a CPU, events:%s\n# while this runs:' \
			"$tracefs" "$clock" "$buffer" "$known"
		printf ' %s' "$@"
	else
		printf '%s' "$1"
		shift
		printf ' %s' "$@"
	fi
	printf '\n'
	exit 0
fi
for file in "$capture" "$capture.topology.tar" "$capture.state.tar"; do
	if [ "$force" = 0 ] && [ -e "$file" ]; then
		fail 2 "$file exists; use -f to overwrite"
	fi
done

work=$(mktemp -d "${TMPDIR:-/tmp}/traceana.XXXXXX") || fail 3 'no room for temporary files'
instance=''
# shellcheck disable=SC2317 # the trap calls it
# shellcheck disable=SC2329  # the traps call it
clean() {
	rm -rf "$work"
	if [ -n "$instance" ]; then
		echo 0 >"$instance/tracing_on"
		rmdir "$instance"
	fi
}
trap clean EXIT
trap : INT # ends the recording, not this script
trap 'exit 143' TERM HUP

# Copies of the files named on stdin; sysfs lies about sizes, so tar cannot take them itself.
copy() {
	while IFS= read -r file; do
		if ! [ -f "$root$file" ] || ! [ -r "$root$file" ]; then
			continue
		fi
		mkdir -p "$work/$1/${file%/*}"
		cat "$root$file" >"$work/$1$file" 2>/dev/null || rm -f "$work/$1$file"
	done
}
# Names of files below the root, of the patterns given.
names() {
	for pattern in "$@"; do
		# shellcheck disable=SC2086 # the pattern is to be expanded
		printf '%s\n' "$root"$pattern
	done | sed "s|^$root||"
}

store_state() {
	mkdir -p "$work/state/proc"
	# All threads with few processes started: one grep, split by awk.
	names '/proc/[0-9]*/task/[0-9]*' >"$work/threads"
	sed "s|^|$work/state|" "$work/threads" | xargs mkdir -p
	sed -e "s|^|$root|" -e 's|$|/sched|' "$work/threads" | xargs grep -s '' /dev/null |
		awk -v skip="${#root}" -v to="$work/state" '{
			at = index($0, "/sched:")
			file = to substr($0, skip + 1, at + 5 - skip)
			if (file != last) { if (last != "") close(last); last = file }
			print substr($0, at + 7) > file
		}'
	grep -s -e '^now at' -e '^jiffies: ' "$root/proc/timer_list" | head -n 2 \
		>"$work/state/proc/timer_list"
	{
		names '/proc/sys/kernel/osrelease' '/proc/version' '/proc/cmdline' '/proc/config.gz' \
			'/proc/sys/kernel/sched_*' '/proc/sys/kernel/numa_balancing' \
			'/sys/kernel/debug/sched/*' '/sys/kernel/debug/sched_features' \
			'/sys/fs/cgroup/cgroup.controllers' \
			'/sys/devices/system/clocksource/clocksource0/current_clocksource'
		printf '/boot/config-%s\n' "$(uname -r)"
		find "$root/sys/fs/cgroup" \( -name cpu.max -o -name cpu.cfs_quota_us \) \
			-exec grep -s '^[0-9]' /dev/null {} + 2>/dev/null |
			sed -e "s|^$root||" -e 's|:[^:]*$||' -e 'p' -e 's|quota_us$|period_us|'
	} | sort -u | copy state
	tar -C "$work/state" -cf "$capture.state.tar" .
}
store_topology() {
	names '/sys/devices/system/cpu/online' '/sys/devices/system/cpu/possible' \
		'/sys/devices/system/cpu/present' '/sys/devices/system/cpu/isolated' \
		'/sys/devices/system/cpu/smt/active' \
		'/sys/devices/system/cpu/cpu[0-9]*/online' \
		'/sys/devices/system/cpu/cpu[0-9]*/cpu_capacity' \
		'/sys/devices/system/cpu/cpu[0-9]*/topology/*' \
		'/sys/devices/system/cpu/cpu[0-9]*/cache/index*/level' \
		'/sys/devices/system/cpu/cpu[0-9]*/cache/index*/type' \
		'/sys/devices/system/cpu/cpu[0-9]*/cache/index*/size' \
		'/sys/devices/system/cpu/cpu[0-9]*/cache/index*/id' \
		'/sys/devices/system/cpu/cpu[0-9]*/cache/index*/shared_cpu_list' \
		'/sys/devices/system/node/node*/cpulist' '/sys/devices/system/node/node*/distance' \
		'/sys/devices/system/node/online' | copy topology
	tar -C "$work/topology" -cf "$capture.topology.tar" sys
}
record_tracefs() {
	mkdir "$tracefs/instances/traceana" || return 1
	instance=$tracefs/instances/traceana
	echo 0 >"$instance/tracing_on"
	echo "$clock" >"$instance/trace_clock" || return 1
	echo "$buffer" >"$instance/buffer_size_kb" || return 1
	for event in $known; do
		echo 1 >"$instance/events/${event%%:*}/${event#*:}/enable" || return 1
	done
	echo 1 >"$instance/tracing_on" || return 1
	"$@" || printf 'record.sh: the command ended with status %s\n' $? >&2
	echo 0 >"$instance/tracing_on"
	cat "$instance/trace" >"$capture"
}

store_topology
store_state # last before the recording: it ages
: >"$work/begin"
if [ "$tool" = tracefs ]; then
	record_tracefs "$@"
else
	"$@"
fi
status=$?
if ! [ -s "$capture" ] || [ -n "$(find "$work/begin" -newer "$capture")" ]; then
	rm -f "$capture.topology.tar" "$capture.state.tar"
	fail 3 "nothing was recorded: $tool ended with status $status (another -t may do)"
fi
[ "$status" = 0 ] || printf 'record.sh: %s ended with status %s\n' "$tool" "$status" >&2
printf 'record.sh: wrote %s; next: traceana report --topology %s.topology.tar %s\n' \
	"$capture" "$capture" "$capture" >&2
exit 0
