"""Is the native module there, and made for these files?"""

# As in src/lib.rs: one more there and here with each change of what the native module offers.
INTERFACE = 5

try:
    from . import _native
except ImportError as error:
    raise ImportError(
        f"superpages: its native module cannot be loaded ({error}): install the package, as by `pip install ./python` in a checkout of superpage"
    ) from error

if getattr(_native, "INTERFACE", None) != INTERFACE:
    raise ImportError(
        f"superpages: {_native.__file__} is of another version than the Python files beside it: reinstall the package, as by "
        "`pip install --force-reinstall --no-deps ./python` in a checkout of superpage, or of the wheel that `make wheel` makes"
    )
