"""The datasets, one file per dataset; the table of them is ``falconcal.data.DATASETS``."""
