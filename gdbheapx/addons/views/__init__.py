"""Add-on for reading answers elsewhere: pages, the terminal explorer, SQL, files for other tools, fleets of cores, agents."""
