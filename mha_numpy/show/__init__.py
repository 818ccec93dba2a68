"""What people look at: pictures and films, the interactive page, the walk, the notebooks.

Only this room imports matplotlib. Begin with ``mha_numpy.show.pictures``.
"""
