"""What the plug meets of prime-rl's configs: rebuilt from the public definition of PrimeIntellect-ai/prime-rl after its
pull request 3411 (v0.9), src/prime_rl/configs/trainer.py. Names, types and validators; no code of it.
"""

from typing import Annotated, Literal, TypeAlias, Union

from pydantic import BaseModel, ConfigDict, Field, model_validator


class BaseConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BF16MoEComputeConfig(BaseConfig):
    type: Literal["bf16"] = "bf16"
    backend: Literal["torch", "sonicmoe"] = "torch"


class MXFP8MoEComputeConfig(BaseConfig):
    type: Literal["mxfp8"] = "mxfp8"


MoEComputeConfig: TypeAlias = Annotated[Union[BF16MoEComputeConfig, MXFP8MoEComputeConfig], Field(discriminator="type")]


class TorchMoEDispatchConfig(BaseConfig):
    type: Literal["torch"] = "torch"
    transport: Literal["bf16", "mxfp8"] = "bf16"


class DeepEPMoEDispatchConfig(BaseConfig):
    type: Literal["deepep"] = "deepep"
    num_sms: int = 20


MoEDispatchConfig: TypeAlias = Annotated[Union[TorchMoEDispatchConfig, DeepEPMoEDispatchConfig],
                                         Field(discriminator="type")]


class MoERuntimeConfig(BaseConfig):
    compute: MoEComputeConfig = BF16MoEComputeConfig()
    dispatch: MoEDispatchConfig = TorchMoEDispatchConfig()


class LoRAConfig(BaseConfig):
    target_modules: list[str] = ["q_proj"]


class ModelConfig(BaseConfig):
    seq_len: int = 2048
    ep: int = 1
    moe: MoERuntimeConfig = MoERuntimeConfig()
    lora: LoRAConfig | None = None

    @model_validator(mode="after")
    def validate_moe_runtime(self):
        if self.ep > 1 and not isinstance(self.moe.dispatch, DeepEPMoEDispatchConfig):
            if self.moe.dispatch.transport == "mxfp8" and self.moe.compute.type != "mxfp8":
                raise ValueError("transport mxfp8 needs compute mxfp8")
        return self


class TrainerConfig(BaseConfig):
    model: ModelConfig = ModelConfig()


class SFTModelConfig(ModelConfig):
    pass


class SFTConfig(BaseConfig):
    model: SFTModelConfig = SFTModelConfig()
