"""The box around user code: `levels` says what it is, `enter` enters it, `probe` finds out what the machine can do; what a run may take of
it is `cgroup`."""
