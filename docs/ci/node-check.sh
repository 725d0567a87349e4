#!/usr/bin/env bash
# The last run of this node against an earlier one, in one line for whatever watches nodes:
#   node-check.sh monitor OLD NEW      node-problem-detector: 0 fine, 1 slower, 2 could not tell
#   node-check.sh gate OLD NEW         NHC or a prolog of Slurm: 2 becomes 0 and a line in the log, since neither may
#                                      drain a node of which nothing is known
# OLD and NEW, and options behind them, are those of `roofline compare`.
set -uo pipefail
mode=${1:?expected monitor or gate}
shift
output=$(roofline compare "$@" 2>&1)
status=$?
line=${output##*$'\n'}
if [ "$mode" = gate ] && [ "$status" != 0 ] && [ "$status" != 1 ]; then
  logger -t roofline "could not tell: $line" 2>/dev/null || echo "roofline: could not tell: $line" >&2
  status=0
fi
printf '%s\n' "$line"
exit "$status"
