"""The commands, one file each, and what they share. Nothing else imports Hydra."""
