"""What pages are sent: what is said after a commit (`notify`), through the channel layer, to their WebSockets (`consumers`)."""
