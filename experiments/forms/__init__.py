"""What browsers send, parsed at the edge. Forms check shape; that the facts are right is the business of services."""
