#!/bin/sh
# mpirun runs this script, poprun-emu-remote-shell, as it would run ssh, to start its daemon on another host:
#
#   poprun-emu-remote-shell [options] HOST command...
#
# The script runs the real remote shell (ssh, or srun in a Slurm job). On the host, the job's secrets are read from
# standard input into the daemon's environment, which the replicas there inherit. No file and no command line contains
# the secrets, nor does the environment of srun, which would send them in plain text.
#
# The script writes these lines to standard error, which the launcher reads (launcher/mpi/tagged_lines.cc):
#
#   poprun-emu: host HOST says: LINE           a line of the remote shell or from the host
#   poprun-emu: no start on host HOST: REASON  the daemon cannot start there
set -f
IFS=' '
# The real remote shell inherits this setting. Only the launcher handles signals; it ends the other processes.
trap '' TERM INT HUP USR1 USR2

token=$POPRUN_EMU_TOKEN
tls=$POPRUN_EMU_TLS
unset POPRUN_EMU_TOKEN POPRUN_EMU_TLS

# Chooses, as mpirun does, the first program that exists in a list such as "ssh : rsh", with its options.
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
  echo "poprun-emu: none of these remote shells is installed on this host: ${POPRUN_EMU_REMOTE_SHELL:-ssh}" >&2
  exit 127
fi

# The next lines compose the command that runs on HOST. The command contains no apostrophes or line breaks, because not
# every login shell accepts them. The command first reads the secrets, in the order in which the end of this script
# writes them.
fail='fail() { echo "poprun-emu: $*" >&2; exit 127; }'
secrets='for name in POPRUN_EMU_TOKEN POPRUN_EMU_TLS; do IFS= read -r value || fail "nothing arrived on standard input, which carries the secrets of the job: the remote shell must pass it on, and no startup file there, such as ~/.bashrc, may read it"; export "$name=$value"; done'
tools='command -v "$1" >/dev/null || fail "there is no Open MPI in the PATH of non-interactive shells ($PATH); install the same version on all hosts, on Debian: apt install openmpi-bin"; for tool in id mktemp mkdir rmdir flock; do command -v $tool >/dev/null || fail "there is no program $tool in the PATH of non-interactive shells ($PATH); install coreutils and util-linux, or set PATH where such shells read it"; done'
# The command then creates a folder for the job on HOST (collectives/session/session.h). The daemon holds a lock on the
# folder; a background process waits for the lock and then removes the folder. The remote shell waits for the daemon,
# but not for that process, because mpirun names the host only if it sees the daemon's connection break before the shell
# ends. If TMPDIR, or an argument from mpirun, names the launcher's folder, our folder is created beside it.
base='prefix=poprun-emu.$(id -u).; base=${TMPDIR:-${TEMP:-${TMP:-/tmp}}}; for word do [ "$last" != orte_tmpdir_base ] || base=$word; last=$word; done; case ${base##*/} in "$prefix"*) base=${base%/*} ;; esac'
folder='mkdir -p "$base"; while folder=$(mktemp -d "$base/${prefix}XXXXXX") || fail "no folder can be created in $base"; ! { command exec 9<"$folder"; } 2>/dev/null || { flock -n 9; [ $? = 1 ]; } || ! [ -d "$folder" ]; do :; done; export TMPDIR="$folder"; for word do shift; [ "$last" != orte_tmpdir_base ] || word=$folder; last=$word; set -- "$@" "$word"; done'
# The daemon and its replicas listen only in the job's subnet, if the user gave one (launcher/mpi/listen_here.cc).
listens=true
[ -z "$POPRUN_EMU_LISTEN_LIBRARY" ] || listens="if [ -r \"$POPRUN_EMU_LISTEN_LIBRARY\" ]; then export LD_PRELOAD=\"$POPRUN_EMU_LISTEN_LIBRARY\" POPRUN_EMU_LISTEN=$POPRUN_EMU_LISTEN; fi"
# Signals are blocked, because the daemon installs handlers for them. env before coreutils 8.31 cannot block signals.
shield='shield=; env --block-signal=TERM true 2>/dev/null && shield="env --block-signal=TERM,INT,HUP,USR1,USR2"'
reader="sh -c 'trap \"\" TERM INT HUP USR1 USR2; $fail; $secrets; $tools; $base; $folder; $listens; echo \"poprun-emu starts the daemon\" >&2; (exec 9<&- </dev/null >/dev/null 2>&1; exec flock \"\$folder\" rmdir \"\$folder\") & $shield; exec \$shield \"\$@\"' sh"

# The daemon is the word `orted` after HOST. A folder may precede it, and settings of paths may precede both.
host=
last=
for word do
  shift
  case $word in
  prted | *[\ /]prted)
    [ -n "$host" ] || echo "poprun-emu: no start on host $last: mpirun is from Open MPI 5 (it starts prted), but poprun-emu needs Open MPI 4.1; put that version's folder first in PATH, on Debian: apt install openmpi-bin" >&2
    exit 127
    ;;
  orted | *[\ /]orted)
    if [ -z "$host" ]; then
      host=$last
      daemon=${word##* }
      word="${word%"$daemon"}$reader $daemon"
    fi
    ;;
  \"*poprun-emu-remote-shell\")
    word="\"${POPRUN_EMU_REMOTE_SHELL:-ssh}\""  # The daemon would look for our script on a host that may not have it.
    ;;
  esac
  last=$word
  # With plm_rsh_no_tree_spawn, mpirun would detach the remote shell. We prevent this, because mpirun notices
  # immediately that a host is gone only while the shell is running.
  [ "$word" = --daemonize ] || set -- "$@" "$word"
done
if [ -z "$host" ]; then
  echo "poprun-emu: mpirun's command contains no orted: $*" >&2
  exit 127
fi

for program in $found; do break; done
case $program in
ssh | */ssh) found="$found -x" ;;  # mpirun also runs ssh without X11.
srun | */srun)
  while [ "$1" != "$host" ]; do shift; done
  shift
  set -- "$host" sh -c "$*"
  # srun would apply these options of the job to the step, which must be one process with all of the job's resources.
  unset SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_SOCKET \
    SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_TRES SLURM_CPUS_PER_TASK SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU \
    SLURM_MEM_PER_NODE SLURM_EXACT SLURM_EXCLUSIVE SLURM_HINT SLURM_HOSTFILE SLURM_DISTRIBUTION SLURM_EXPORT_ENV
  export SLURM_OVERLAP=1
  ;;
esac

# Reports the lines of the remote shell and the host. If the shell ended by itself, also reports that it had not started
# the daemon, or that it broke off later (ssh's code 255, or a signal), in which case the host may be lost. A daemon
# that fails can also end with 255, but then it has printed the reason. If mpirun killed this script and the shell
# because a different host failed, nothing writes $ended, because this host is not to blame.
ended="poprun-emu: the remote shell ended"
listen() {
  started=
  said=
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    "$ended "*)
      status=${line##* }
      if [ -z "$started" ]; then
        echo "poprun-emu: no start on host $host: the remote shell ($program) ended before it started Open MPI's daemon: ${said:-it printed nothing; a startup file there, such as ~/.bashrc, may end or replace the shell}"
      elif [ "$started" = yes ] && [ "$status" -gt 128 ] && { [ "$status" = 255 ] || [ "$status" -lt 160 ]; }; then
        echo "poprun-emu: no start on host $host: the remote shell ($program) ended with code $status after it started Open MPI's daemon: ${said:-it printed nothing}"
      fi
      break
      ;;
    "poprun-emu starts the daemon") started=yes ;;
    "poprun-emu: "*) started=no; echo "poprun-emu: no start on host $host: ${line#poprun-emu: }" ;;
    *)
      case $line in *ORTE_ERROR_LOG*) started=no ;; esac
      said=$line
      echo "poprun-emu: host $host says: $line"
      ;;
    esac
  done
}
listener=
pipe=${TMPDIR:-/tmp}/poprun-emu-remote-shell.$$
if mkfifo "$pipe" 2>/dev/null; then
  { exec <"$pipe"; rm -f "$pipe"; listen >&2; } </dev/null >/dev/null &
  listener=$!
  exec 2>"$pipe"
fi
# mpirun kills this process when it no longer needs the remote shell, which must then die, too.
with_us=
setpriv --pdeathsig KILL true 2>/dev/null && with_us="setpriv --pdeathsig KILL"
$with_us $found "$@" <<END &
$token
$tls
END
wait "$!"
status=$?
# The listener reports why the shell ended before mpirun sees this process exit.
[ -z "$listener" ] || { echo "$ended $status" >&2; wait "$listener"; }
exit "$status"
