# srun starts one task for each rank.
start_ranks() {
  srun --nodes="$NODES" --ntasks="$((NODES * RANKS_PER_NODE))" --ntasks-per-node="$RANKS_PER_NODE" \
    --cpus-per-task="$CPUS_PER_RANK" --distribution=block --kill-on-bad-exit=1 \
    "${SRUN[@]}" "${CONTAINER[@]}" "$@"
}
