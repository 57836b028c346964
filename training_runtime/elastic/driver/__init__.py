"""The driver of a run: its entry point (`main`), the loop that runs the workers of one train() (`coordinator`), the members of the next
generation (`membership`), the detection of workers that hang (`hang_detector`), fail (`failures`) or keep a slot too long (`release`), and
the journal (`recorder`)."""
