"""What everything else stands on: settings, names, batches, module state, processes."""
