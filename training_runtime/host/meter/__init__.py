"""What is measured: use of slots and GPUs (`busy`), of the disk (`disk_watch`), and whether there is room to write (`free_space`)."""
