"""Tables of runs: the language of their filters, their columns, and what an address asks of them. Reads nothing but the models' names;
`selectors.run_table` reads the rows."""
