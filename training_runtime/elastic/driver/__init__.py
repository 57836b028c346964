"""The driver of a run: its entry point (`main`), the loop that runs the workers of one train() (`coordinator`), the members of the next
generation (`membership`), slots that are asked back (`reclaim`), the detection of workers that hang (`hang_detector`) or fail (`failures`),
and the journal (`recorder`)."""
