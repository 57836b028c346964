"""The environments of this machine, how one is built, and how code is fetched by git."""
