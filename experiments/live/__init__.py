"""Live updates of pages: messages are sent after a commit (`notify`), through the channel layer, to WebSockets (`consumers`)."""
