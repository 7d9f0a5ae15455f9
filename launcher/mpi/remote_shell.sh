#!/bin/sh
# poprun-emu-remote-shell: what mpirun runs to start its daemon on another host, as it would run ssh:
#
#   poprun-emu-remote-shell [options] HOST command...
#
# Runs the real remote shell and has the daemon read the job's secrets from standard input, inside of
# what ssh encrypts, into the environment that the replicas there inherit. Nothing is written to a
# file, and no command line shows them.
set -f
IFS=' '
# Also for the real remote shell. Who signals all processes of a job means the launcher, which ends them.
trap '' TERM INT HUP USR1 USR2

# As mpirun does: the first program there is of "ssh : rsh", with its own options.
found=
left=${POPRUN_EMU_REMOTE_SHELL:-ssh}:
while [ -n "$left" ] && [ -z "$found" ]; do
  for program in ${left%%:*}; do
    command -v "$program" >/dev/null && found=${left%%:*}
    break
  done
  left=${left#*:}
done
if [ -z "$found" ]; then
  echo "poprun-emu: none of these remote shells is here: ${POPRUN_EMU_REMOTE_SHELL:-ssh}" >&2
  exit 127
fi

# What runs on HOST. It contains no apostrophes or line breaks, which not every login shell takes. First
# the secrets, read by name in the order in which they are written below.
secrets='for name in POPRUN_EMU_TOKEN POPRUN_EMU_TLS; do IFS= read -r value || { echo "poprun-emu: on $(uname -n) nothing came on standard input; the remote shell must hand it on, since the secrets of the job come that way" >&2; exit 127; }; export "$name=$value"; done'
# Then a folder of the job on that host (collectives/session/session.h), locked by the daemon, and
# removed by a process that waits for the lock. The daemon itself is what the remote shell waits for:
# mpirun has to see its connection break before its shell ends, or does not name the host. That of the launcher may have come along in TMPDIR or, by
# mpirun, in an argument: ours is beside it.
base='prefix=poprun-emu.$(id -u).; base=${TMPDIR:-${TEMP:-${TMP:-/tmp}}}; for word do [ "$last" != orte_tmpdir_base ] || base=$word; last=$word; done; case ${base##*/} in "$prefix"*) base=${base%/*} ;; esac'
folder='command -v flock >/dev/null || { echo "poprun-emu: $(uname -n) has no program flock; install util-linux" >&2; exit 127; }; mkdir -p "$base"; while folder=$(mktemp -d "$base/${prefix}XXXXXX") || exit 127; exec 9<"$folder"; flock -n 9; [ $? = 1 ] || ! [ -d "$folder" ]; do :; done; export TMPDIR="$folder"; for word do shift; [ "$last" != orte_tmpdir_base ] || word=$folder; last=$word; set -- "$@" "$word"; done'
# Blocked, because the daemon installs handlers; before coreutils 8.31 env cannot do that.
shield='shield=; env --block-signal=TERM true 2>/dev/null && shield="env --block-signal=TERM,INT,HUP,USR1,USR2"'
reader="exec sh -c 'trap \"\" TERM INT HUP USR1 USR2; $secrets; $base; $folder; (exec 9<&- </dev/null >/dev/null 2>&1; exec flock \"\$folder\" rmdir \"\$folder\") & $shield; exec \$shield \"\$@\"' sh"

# The daemon is the word `orted`, which may come behind settings of paths and in a folder.
wrapped=
for word do
  shift
  case $word in
  orted | *[\ /]orted)
    if [ -z "$wrapped" ]; then
      wrapped=yes
      daemon=${word##* }
      word="${word%"$daemon"}$reader $daemon"
    fi
    ;;
  \"*/poprun-emu-remote-shell\")
    word="\"${POPRUN_EMU_REMOTE_SHELL:-ssh}\""  # The daemon looks for it, and may have none of us.
    ;;
  esac
  # With plm_rsh_no_tree_spawn mpirun would let go of the remote shell. As long as it runs, mpirun
  # sees at once when a host is gone.
  [ "$word" = --daemonize ] || set -- "$@" "$word"
done
if [ -z "$wrapped" ]; then
  echo "poprun-emu: mpirun starts no orted here: $*" >&2
  exit 127
fi

for program in $found; do break; done
case $program in
ssh | */ssh) found="$found -x" ;;  # mpirun's own choice for ssh: no X11.
esac
exec $found "$@" <<END
$POPRUN_EMU_TOKEN
$POPRUN_EMU_TLS
END
