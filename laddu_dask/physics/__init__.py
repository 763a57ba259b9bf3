"""Physics of amplitude models: vectors, frames, angles, line shapes. It only ever builds `Expr`.

A formula is a small pure function in a file of its own kind, with its convention, range and source.
Momenta and masses are in GeV by habit, angles in radians.
"""

from laddu_dask.physics.backgrounds import bernstein, chebyshev, exponential, legendre
from laddu_dask.physics.barriers import (
    BarrierKind,
    barrier_squared,
    blatt_weisskopf,
    blatt_weisskopf_custom,
)
from laddu_dask.physics.breakup import Sheet, kallen, q, q_squared, rho
from laddu_dask.physics.channel import Channel
from laddu_dask.physics.chew_mandelstam import chew_mandelstam
from laddu_dask.physics.clebsch_gordan import (
    clebsch_gordan,
    clebsch_gordan_signed_square,
    wigner_3j,
)
from laddu_dask.physics.flatte import flatte
from laddu_dask.physics.frames import (
    Angles,
    Mandelstam,
    adair_angles,
    angles,
    canonical_angles,
    gottfried_jackson_angles,
    helicity_angles,
    mandelstam,
    production_angles,
    production_normal,
    to_rest_frame,
)
from laddu_dask.physics.gounaris_sakurai import gounaris_sakurai
from laddu_dask.physics.kmatrix import (
    blatt_weisskopf_barriers,
    f_vector,
    k_matrix,
    p_vector,
)
from laddu_dask.physics.kmatrix_tables import KMatrixTable, kopf_k_matrix
from laddu_dask.physics.lass import lass
from laddu_dask.physics.line_shapes import (
    breit_wigner,
    relativistic_breit_wigner,
    relativistic_breit_wigner_custom,
)
from laddu_dask.physics.partial_waves import (
    PartialWave,
    coupled_waves,
    helicity_amplitudes,
    helicity_couplings,
)
from laddu_dask.physics.particle import Particle
from laddu_dask.physics.piecewise import piecewise_constant, piecewise_linear
from laddu_dask.physics.polarization import (
    linearly_polarized_intensity,
    production_plane_angle,
    zlm,
)
from laddu_dask.physics.quantum_numbers import Isospin, Parity, Statistics
from laddu_dask.physics.selection_rules import SelectionRules
from laddu_dask.physics.spherical import spherical_harmonic
from laddu_dask.physics.splines import cubic_spline
from laddu_dask.physics.topology import Edge, Vertex
from laddu_dask.physics.vectors import Vec3, Vec4
from laddu_dask.physics.vertex_frame import MandelstamChannel, VertexFrame
from laddu_dask.physics.wigner import WignerD

__all__ = [
    "Angles",
    "BarrierKind",
    "Channel",
    "Edge",
    "Isospin",
    "KMatrixTable",
    "Mandelstam",
    "MandelstamChannel",
    "Parity",
    "PartialWave",
    "Particle",
    "SelectionRules",
    "Sheet",
    "Statistics",
    "Vec3",
    "Vec4",
    "Vertex",
    "VertexFrame",
    "WignerD",
    "adair_angles",
    "angles",
    "barrier_squared",
    "bernstein",
    "blatt_weisskopf",
    "blatt_weisskopf_barriers",
    "blatt_weisskopf_custom",
    "breit_wigner",
    "canonical_angles",
    "chebyshev",
    "chew_mandelstam",
    "clebsch_gordan",
    "clebsch_gordan_signed_square",
    "coupled_waves",
    "cubic_spline",
    "exponential",
    "f_vector",
    "flatte",
    "gottfried_jackson_angles",
    "gounaris_sakurai",
    "helicity_amplitudes",
    "helicity_angles",
    "helicity_couplings",
    "k_matrix",
    "kallen",
    "kopf_k_matrix",
    "lass",
    "legendre",
    "linearly_polarized_intensity",
    "mandelstam",
    "p_vector",
    "piecewise_constant",
    "piecewise_linear",
    "production_angles",
    "production_normal",
    "production_plane_angle",
    "q",
    "q_squared",
    "relativistic_breit_wigner",
    "relativistic_breit_wigner_custom",
    "rho",
    "spherical_harmonic",
    "to_rest_frame",
    "wigner_3j",
    "zlm",
]
