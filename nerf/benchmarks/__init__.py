"""The benchmarks: ablation, single operations, quality against training time, the stages of a step."""
