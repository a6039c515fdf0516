"""What all other rooms use: settings, names, batches, module state, processes."""
