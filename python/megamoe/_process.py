"""What belongs to the process that made it, since it names memory of the library there."""


class OfThisProcess:
    """Copies are the same object, as those of a copied model; pickles would name what isn't there, and are refused."""

    def __copy__(self):
        return self

    def __deepcopy__(self, _):
        return self

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} of megamoe belongs to its process and can't be pickled: save the "
                        "state_dict() of modules, and make contexts and layers again where it is loaded")
