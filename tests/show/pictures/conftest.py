import gc

import pytest


@pytest.fixture(autouse=True, scope="package")
def rare_collections():
    """Look for garbage less often: pictures are made of so many objects that it takes a third."""
    usual = gc.get_threshold()
    gc.freeze()  # what is imported by now stays
    gc.set_threshold(50_000, *usual[1:])
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()
