"""Drawing of small tables: how charts look, and the charts that records show of themselves."""
