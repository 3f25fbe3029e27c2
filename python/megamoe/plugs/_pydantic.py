"""One more choice for a field of pydantic models, in all models that hold it."""

from typing import Union, get_args

from pydantic import BaseModel


def widen(model, field, choice):
    """Lets `field` of `model` and of the classes derived from it also be a `choice`, wherever the model is used."""
    for each in (model, *derived(model)):
        info = each.model_fields[field]
        info.annotation = Union[info.annotation, choice]
    rebuild(model.__module__.partition(".")[0])


def derived(model):
    """All classes derived from a model, directly or not."""
    return {each for child in model.__subclasses__() for each in (child, *derived(child))}


def rebuild(package):
    """Builds the validators of a package's models again, those of fields before those that hold them."""
    done = set()

    def visit(model):
        if model in done:
            return
        done.add(model)
        for info in model.model_fields.values():
            for used in models_in(info.annotation):
                visit(used)
        model.model_rebuild(force=True)

    for model in derived(BaseModel):
        if model.__module__.partition(".")[0] == package:
            visit(model)


def models_in(annotation):
    """The models that an annotation names."""
    annotation = getattr(annotation, "__value__", annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in get_args(annotation) for model in models_in(part)}
