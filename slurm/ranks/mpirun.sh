# Open MPI's mpirun takes the nodes from Slurm and starts its daemons by srun, each with all cores of its node.
start_ranks() {
  local cpus=$((RANKS_PER_NODE * CPUS_PER_RANK)) pid
  SLURM_CPUS_PER_TASK=$cpus SRUN_CPUS_PER_TASK=$cpus \
    mpirun -n "$((NODES * RANKS_PER_NODE))" --map-by "ppr:$RANKS_PER_NODE:node:PE=$CPUS_PER_RANK" \
    "${EXPORT[@]}" "${MPIRUN[@]}" "$@" &
  pid=$!
  trap 'kill -TERM "$pid"' TERM # the time limit comes; mpirun tells its ranks
  wait "$pid" || wait "$pid"    # a trap ends the first
}
