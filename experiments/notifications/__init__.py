"""What people are told (`notices`), and how it gets out: `deliveries` and the `webhook_client`."""
