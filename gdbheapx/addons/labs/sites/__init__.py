"""Call sites of malloc in the code of a program, by disassembly (the extra `sites`)."""
