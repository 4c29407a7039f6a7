# commbench is in the container only.
mkdir -p "$RUNS"
commbench() {
  srun --nodes=1 --ntasks=1 "${CONTAINER[@]}" commbench "$@"
}
