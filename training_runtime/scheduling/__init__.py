"""Who gets which slots: pure functions over small frozen records. Standard library only."""
