"""People's passwords, sign-in, tokens, and what is encrypted or signed with keys of the studio's own."""
