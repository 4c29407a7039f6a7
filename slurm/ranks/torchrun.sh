# srun starts one torchrun on each node, and that the ranks. SLURM_NODEID is known on the node, not here.
start_ranks() {
  export NODES RANKS_PER_NODE
  srun --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 \
    --cpus-per-task="$((RANKS_PER_NODE * CPUS_PER_RANK))" --kill-on-bad-exit=1 \
    "${SRUN[@]}" "${CONTAINER[@]}" bash -c 'exec torchrun --nnodes="$NODES" --nproc-per-node="$RANKS_PER_NODE" \
      --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"' \
    torchrun "${TORCHRUN[@]}" --no-python "$@"
}
