"""A project as an archive, and a project of an archive (docs/decisions/transfer.md): `format` is what stands in it, `exporting` writes one,
`reading` believes nothing of one, `making` makes rows of it, `importing` is the work behind an upload."""
