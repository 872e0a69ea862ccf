"""The measuring programs: ablation, operations, quality against seconds, the stages of a step."""
