"""train() in a notebook: it packs what it was given, has it trained in the studio or by a process of its own, and shows how that goes.

`packing` is what travels, `arrival` what the other end does with it, `remote` and `local` are the two ways, `cell` is what one sees,
`session` leads, `training` is what it returns. A notebook's own process never forks and never trains.
"""
