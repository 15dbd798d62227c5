#!/bin/sh
# The fleet's rounds: rounds.sh [SETTINGS [APP [CONNECTION]]] starts the run, follows it, and starts it again until its
# last round is done. A server that stops for want of vehicles, or is killed, goes on from its last checkpoint.
#   SETTINGS    the run's, a line each, with num-rounds = 100 and state = "/var/lib/mpt/state" (/etc/mpt/run.toml)
#   APP         a copy of the folder deploy/flower of the repository (/opt/mpt/fleet)
#   CONNECTION  the SuperLink's in $FLWR_HOME/config.toml (mpt)
# MPT_BIN is where mpt, flwr and python are (/opt/mpt/bin), MPT_PAUSE the seconds before another try (60).
set -eu
settings=${1:-/etc/mpt/run.toml}
app=${2:-/opt/mpt/fleet}
connection=${3:-mpt}
bin=${MPT_BIN:-/opt/mpt/bin}
pause=${MPT_PAUSE:-60}

for program in mpt flwr python; do
  [ -x "$bin/$program" ] || { echo "rounds.sh: there is no $bin/$program; MPT_BIN should be where mpt is" >&2 && exit 2; }
done

setting() {
  "$bin/python" -c '
import sys, tomllib
path, name = sys.argv[1:]
try:
    with open(path, "rb") as file:
        value = tomllib.load(file)[name]
except OSError as error:
    sys.exit(f"rounds.sh: {path}: cannot be read ({error.strerror})")
except tomllib.TOMLDecodeError as error:
    sys.exit(f"rounds.sh: {path}: {error}")
except KeyError:
    sys.exit(f"rounds.sh: {path}: has no {name}, should have one")
print(value)' "$settings" "$1" || exit 2
}
finished() { # the last round that is done, 0 where there is none; what is wrong with the state, `check` says
  "$bin/mpt" fleet status "$state" --json 2> /dev/null |
    "$bin/python" -c 'import json, sys; print(json.loads(sys.stdin.read() or "{}").get("round", 0))'
}

last=$(setting num-rounds)
state=$(setting state)
case $last in
  '' | *[!0-9]*) echo "rounds.sh: $settings: num-rounds is '$last', should be a whole number" >&2 && exit 2 ;;
  *) ;;
esac
[ -n "$state" ] || { echo "rounds.sh: $settings: state is empty, should be where the server keeps it" >&2 && exit 2; }
checked=no
check() { # once, before the first run; 3: another server is at it, which may end
  [ $checked = no ] || return 0
  checked=yes
  # PYTHONPATH: files of your own, such as mine.py, lie in the app's folder, where Flower finds them too
  PYTHONPATH="$app${PYTHONPATH:+:$PYTHONPATH}" "$bin/mpt" fleet check -c "$settings" || [ $? -eq 3 ] || exit 2
}

until done_rounds=$(finished) && [ "$done_rounds" -ge "$last" ]; do
  echo "rounds.sh: $done_rounds of $last rounds are done"
  check
  "$bin/flwr" run "$app" "$connection" -c "$settings" --stream || echo "rounds.sh: flwr run has failed, see above"
  sleep "$pause"
done
echo "rounds.sh: $done_rounds of $last rounds are done, the last one too"
