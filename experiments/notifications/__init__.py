"""What people are told (`rules`), and how it gets out: `deliveries` and the `webhook_client`."""
