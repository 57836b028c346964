"""What lies in the folders of EDT_HOME: uploads and their checks (`zipcheck`, `tarcheck`), stores by content, runs' folders, and what
removes them (`pruning`, `retention`)."""
