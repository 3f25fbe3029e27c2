"""What the plug meets of prime-rl's configs: rebuilt from the public definition of PrimeIntellect-ai/prime-rl at 559b44772
(v0.8.1.dev67), packages/prime-rl-configs/src/prime_rl/configs/trainer.py. Names, types and validators; no code of it.
"""

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, model_validator

EPCommBackend: TypeAlias = Literal["torch", "deepep"]


class BaseConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FP8Config(BaseConfig):
    type: Literal["fp8"] = "fp8"
    enable_grouped_gemm: bool = True


class ModelConfig(BaseConfig):
    seq_len: int = 2048
    ep: int = 1
    ep_comm_backend: EPCommBackend = "torch"
    quantization: FP8Config | None = None

    @model_validator(mode="after")
    def validate_ep_comm_backend(self):
        if self.ep_comm_backend != "torch" and self.ep <= 1:
            raise ValueError(f"model.ep_comm_backend='{self.ep_comm_backend}' requires model.ep > 1.")
        return self


class TrainerConfig(BaseConfig):
    model: ModelConfig = ModelConfig()
