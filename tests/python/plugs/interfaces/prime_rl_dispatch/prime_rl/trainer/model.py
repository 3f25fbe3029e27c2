"""That prime-rl's model set-up has imported configure_moe_runtime by its name."""

from prime_rl.trainer.moe_runtime import configure_moe_runtime


def setup_model(model, config, parallel_dims):
    configure_moe_runtime(model, config, parallel_dims)
    return model
