"""Pages, watching, fleets, SQL and exports: what is made of answers. Nothing but the shell's entry and the commands imports it."""
