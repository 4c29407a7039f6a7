"""Constants of NCCL's own tuning model, kept as starting values and as a baseline to beat; never as a result.

NVIDIA/nccl src/graph/tuning.cc at 5067397c (v2.30.7, Apache-2.0).
"""

# treeCorrectionFactor: the share of a tree's bandwidth that is reached, one value per doubling from 64 bytes on.
NCCL_TREE_CORRECTION = {
    "first_size_bytes": 64,
    "protocols": ("LL", "LL128", "Simple"),
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    "Simple": (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9,
        0.9, 0.9,
    ),
}  # fmt: skip

# Orders of magnitude with which a sweep is planned before anything is known of a machine: launch and hop latencies are
# from the table of the same file (Simple and LL, rounded), bytes at 25 GB/s, a 200 Gbit/s NIC.
NOMINAL = {"base_us": 8.0, "alpha_us": 8.0, "alpha_intra_us": 1.0, "alpha_inter_us": 5.0, "alpha_node_us": 8.0,
           "alpha_rank_us": 2.8, "latency_us": 30.0, "beta_us_per_byte": 4e-5, "beta_intra_us_per_byte": 5e-6,
           "beta_inter_us_per_byte": 4e-5}  # fmt: skip
