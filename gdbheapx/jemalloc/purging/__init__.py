"""Who gives unused pages back, and when: decay, tickers, background threads."""
