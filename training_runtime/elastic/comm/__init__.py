"""What the workers of a machine share: the segment, the semaphores, and the gradients that are added up in it (`all_reduce`). What crosses
machines is in `elastic.multinode`."""
