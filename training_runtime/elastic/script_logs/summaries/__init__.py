"""What an entry of TensorBoard's event files holds, read without its library: scalars, pictures, texts, histograms, hyperparameters."""
