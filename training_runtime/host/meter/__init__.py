"""What is measured: use of slots and GPUs (`utilization`), of the disk (`disk_watch`), and free space on the disk (`free_space`)."""
