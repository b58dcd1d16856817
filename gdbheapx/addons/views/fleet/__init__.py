"""Many cores: a document of each, and one table of many documents."""
