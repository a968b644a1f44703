"""What outlives a training run: scaled targets, saved models, training states that resume."""

from fisher8_jax._internal.files import write_atomically as write_atomically
from fisher8_jax.artifacts._json import ArtifactError as ArtifactError
from fisher8_jax.artifacts._safetensors import Artifact as Artifact
from fisher8_jax.artifacts._safetensors import load_artifact as load_artifact
from fisher8_jax.artifacts._safetensors import save_artifact as save_artifact
from fisher8_jax.artifacts._target_scaler import TargetScaler as TargetScaler
from fisher8_jax.artifacts._training_state import TrainingCheckpoints as TrainingCheckpoints
