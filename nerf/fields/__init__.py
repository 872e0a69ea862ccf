"""The radiance fields, one file each, and the table that finds them by name."""
