"""What the library costs: steps, whole runs, communication."""
