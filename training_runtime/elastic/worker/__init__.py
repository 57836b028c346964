"""A worker: one process on one slot. `main` trains and `loop` is a training whose steps are in the script; `stepping` is one step,
`compute` one engine's part of it, `lifecycle` its way from generation to generation."""
