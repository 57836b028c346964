"""The processes of a run: the fork server and the workers that it forks or spawns, the messages between them and the driver (`commands`,
`reports`), and the detection of processes that die (`process_handles`)."""
