"""The driver of a run: where it begins (`main`), its watch over the workers of one train() (`coordinator`), who is in the next generation
(`membership`), which worker hangs (`hang_detector`) or failed and why (`failures`), who keeps a slot too long (`release`), and the journal
that comes of it all (`recorder`)."""
