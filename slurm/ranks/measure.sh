# measure WHAT...: `commbench run WHAT` on all ranks. A job that was requeued goes on with what its run lacks.
measure() {
  local hosts run
  if ! type commbench >/dev/null 2>&1; then
    echo "commbench is not on the PATH of $HOSTNAME; set venv, modules or setup in the site file to where it is" >&2
    exit 3
  fi
  # Rank 0 is on the first node, and all others meet it there. There is no fallback to localhost: with it each node
  # would be a world of its own.
  if ! hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || [ -z "$hosts" ]; then
    echo "scontrol cannot name the nodes of SLURM_JOB_NODELIST='$SLURM_JOB_NODELIST'; run this by sbatch" >&2
    exit 3
  fi
  export MASTER_ADDR=${hosts%%$'\n'*}
  export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) # below the ephemeral ports, another for each job on a node
  run=("$@" --ranks "$((NODES * RANKS_PER_NODE))" --backend "$BACKEND" --out "$RUN" "${FLAGS[@]}")
  if [ -e "$RUN/plan.json" ]; then run=(--resume "$RUN"); fi
  start_ranks commbench run "${run[@]}" "${IFACE[@]}" --no-report
  # Across nodes MPI forms one world for each start, so every further launch gets a start of its own.
  while [[ $BACKEND == *mpi* && -e $RUN/plan.json ]] && commbench status "$RUN" --goes-on; do
    start_ranks commbench run --resume "$RUN" "${IFACE[@]}" --no-report
  done
}
