"""The exact elastic engine: one driver, one fork server and W workers compute the V engines of a global batch, and W may change at any
step.

`driver`: where a run begins, and its watch over the workers. `processes`: how they are forked. `worker`: the training itself, step by step.
`comm`: gradients added up in shared memory, in the one tree (`tree`). `state`: all that is trained, taken, handed over, written, compared.
`data`: which samples, and loading them. `multinode`: several machines. `torchrun`: scripts that bring their own process group. `keras`: its
models as torch's. `script_logs`: what a script logs of its own. `job` is what train() was told, `verify` whether it can be believed.
"""
