"""The schedulers that `decode.py` compares: each as a preset, as plain C++, and as a class of TVM's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WORKERS = 132
#: The most that an extent may be at run time where an index has 32 bits.
MOST = {"M": 4096, "N": 1024, "K": 64, "B": 256, "H": 64, "Q": 8192}


@dataclass(frozen=True)
class Scheduler:
    """`extents` are names that the three texts share. `plain` computes the coordinates of `unsigned i`."""

    preset: str
    given: str  # to the preset
    coords: tuple[str, ...]
    plain: str
    items: str
    tvm: str  # the class of TVM's and its arguments; empty where there is none
    dispatch: str = f"static: {{workers: {WORKERS}}}"
    fixed: str = ""  # constants of the plain text
    inputs: tuple[str, ...] = ()  # parameters that are never static
    cutlass: bool = False
    index: str = "unsigned"  # its type; of 64 bits where the extents may be anything


_GROUP_MAJOR = """\
    const unsigned band = i / (G * N), x = i % (G * N), rows = M - band * G < G ? M - band * G : G;
    const unsigned m = band * G + x % rows, n = x / rows;"""
_CLUSTER = "num_m_tiles: {M}, num_n_tiles: {N}, num_clusters: 132, l2_group_size: 8"

SCHEDULERS = {
    "cluster_persistent_2d": Scheduler(
        "cluster_persistent_2d", _CLUSTER, ("m", "n"), _GROUP_MAJOR, "M * N",
        'ClusterPersistentScheduler2D("s", M, N, 132, 8)', fixed="G = 8", cutlass=True,
    ),
    "serpentine": Scheduler(
        "cluster_persistent_2d", _CLUSTER + ", serpentine: true", ("m", "n"), """\
    const unsigned down = M / S, right = N / S, full = down * right * S * S;
    unsigned m, n;
    if (i < full) {
      const unsigned block = i / (S * S), x = i % (S * S), column = block / down, row = block % down;
      m = (column % 2 ? down - 1 - row : row) * S + x / S, n = column * S + x % S;
    } else if (i - full < M * (N % S)) {
      m = (i - full) / (N % S), n = right * S + (i - full) % (N % S);
    } else {
      const unsigned x = i - full - M * (N % S);
      m = down * S + x % (M % S), n = x / (M % S);
    }""", "M * N", 'ClusterPersistentScheduler2D("s", M, N, 132, 8, serpentine=True)', fixed="S = 8",
    ),
    "group_major_3d": Scheduler(
        "group_major_3d", "m_tiles: {M}, n_tiles: {N}, k_tiles: {K}, group_rows: 8, step: 132", ("m", "n", "k"), """\
    const unsigned band = i / (G * N * K), x = i % (G * N * K), rows = M - band * G < G ? M - band * G : G;
    const unsigned m = band * G + x % rows, n = x / rows % N, k = x / (rows * N);""", "M * N * K",
        'GroupMajor3D("s", M, N, K, 8, 132)', fixed="G = 8",
    ),
    "group_major_3d, 64-bit index": Scheduler(  # which TVM does not have
        "group_major_3d", "m_tiles: {M}, n_tiles: {N}, k_tiles: {K}, group_rows: 8, step: 132", ("m", "n", "k"), """\
    const unsigned long long band = i / (1ull * G * N * K), x = i % (1ull * G * N * K);
    const unsigned long long rows = M - band * G < G ? M - band * G : G;
    const unsigned long long m = band * G + x % rows, n = x / rows % N, k = x / (rows * N);""", "M * N * K", "",
        fixed="G = 8", index="unsigned long long",
    ),
    "rank_aware_group_major": Scheduler(
        "rank_aware_group_major", "m_clusters: {M}, n_clusters: {N}, group_size: 8, world_size: 4", ("m", "n"), """\
    const unsigned local = M / 4, remote = M - local;
    unsigned m, n;
    if (i < remote * N) {
      const unsigned band = i / (G * N), x = i % (G * N), rows = remote - band * G < G ? remote - band * G : G;
      m = band * G + x % rows, n = x / rows;
    } else {
      m = remote + (i - remote * N) % local, n = (i - remote * N) / local;
    }
    m = (m + (rank + 1) * M / 4) % M;""", "M * N", 'RankAwareGroupMajorTileScheduler("s", M, N, 8, 4)', fixed="G = 8",
        inputs=("rank",),
    ),
    "indexed_triple": Scheduler(
        "indexed_triple",
        "b_indices: [0, 0, 0, 1, 1, 2, 2], h_indices: [0, 0, 1, 0, 1, 0, 1], q_indices: [0, 1, 0, 0, 0, 0, 0], "
        "tiles_indptr: [0, 7, 7]", ("b", "h", "q"), "", "", "IndexedTripleTileScheduler", dispatch="",
    ),
    "flash_attention_linear": Scheduler(
        "flash_attention_linear", "num_batches: {B}, num_heads: {H}, num_m_blocks: {Q}, num_ctas: 132",
        ("batch", "head", "m_block"),
        "    const unsigned batch = i / (H * Q), head = i % (H * Q) / Q, m_block = i % Q;", "B * H * Q",
        'FlashAttentionLinearScheduler("s", B, H, Q, 132)',
    ),
    "flash_attention_lpt": Scheduler(
        "flash_attention_lpt", "num_batches: {B}, num_heads: {H}, num_m_blocks: {Q}, l2_swizzle: 8, num_ctas: 132",
        ("batch", "head", "m_block"), """\
    const unsigned group = i / (S * Q), x = i % (S * Q), rest = B * H % S;
    const unsigned width = group < B * H / S ? S : rest > 1 ? rest : 1, hb = group * S + x % width;
    const unsigned batch = hb / H, head = hb % H, m_block = Q - 1 - x / width;""", "B * H * Q",
        'FlashAttentionLPTScheduler("s", B, H, Q, 8, 132)', fixed="S = 8",
    ),
    "cluster_launch_control": Scheduler(  # what is answered is any index: the decode alone
        "cluster_launch_control", "num_m_tiles: {M}, num_n_tiles: {N}, l2_group_size: 8", ("m", "n"), _GROUP_MAJOR,
        "M * N", 'ClusterPersistentScheduler2D("s", M, N, 132, 8)', fixed="G = 8",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A scheduler of certain extents; those in `runtime` are known at launch."""

    scheduler: str
    extents: Mapping[str, int]
    runtime: tuple[str, ...] = ()

    @property
    def of(self) -> Scheduler:
        return SCHEDULERS[self.scheduler]

    @property
    def name(self) -> str:
        shape = "x".join(str(v) for v in self.extents.values())
        return f"{self.scheduler} {shape}{' run-time ' if self.runtime else ''}{','.join(self.runtime)}".strip()

    @property
    def tables(self) -> bool:
        return self.scheduler == "indexed_triple"

    @property
    def queued(self) -> bool:
        """Whether the next index may be any."""
        return self.scheduler == "cluster_launch_control"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of what is passed at launch."""
        return (*self.runtime, *self.of.inputs)

    @property
    def items(self) -> int:
        return int(eval(self.of.items, dict(self.extents))) if self.of.items else 7

    def spec(self) -> str:
        """The spec in YAML."""
        names = {k: k if k in self.runtime else v for k, v in self.extents.items()}
        most = {name: MOST[name] if self.of.index == "unsigned" else 2**20 for name in self.runtime}
        params = "".join(f"  {name}: {{min: 1, max: {most[name]}}}\n" for name in self.runtime)
        params = f"params:\n{params}" if params else ""
        dispatch = f"dispatch: {{{self.of.dispatch}}}\n" if self.of.dispatch else ""
        given = self.of.given.format(**names)
        return f"version: 1\nname: decoded\n{params}uses: {self.of.preset}\nwith: {{{given}}}\n{dispatch}"


CASES = [
    Case("cluster_persistent_2d", {"M": 64, "N": 32}),
    Case("cluster_persistent_2d", {"M": 61, "N": 30}),
    Case("cluster_persistent_2d", {"M": 61, "N": 30}, ("M",)),
    Case("serpentine", {"M": 64, "N": 32}),
    Case("serpentine", {"M": 61, "N": 30}),
    Case("serpentine", {"M": 61, "N": 30}, ("M",)),
    Case("group_major_3d", {"M": 64, "N": 32, "K": 4}),
    Case("group_major_3d", {"M": 61, "N": 30, "K": 4}),
    Case("group_major_3d", {"M": 61, "N": 30, "K": 4}, ("M", "N", "K")),
    Case("group_major_3d, 64-bit index", {"M": 61, "N": 30, "K": 4}, ("M", "N", "K")),
    Case("rank_aware_group_major", {"M": 64, "N": 16}),
    Case("rank_aware_group_major", {"M": 60, "N": 30}),
    Case("indexed_triple", {}),
    Case("flash_attention_linear", {"B": 4, "H": 16, "Q": 32}),
    Case("flash_attention_linear", {"B": 5, "H": 12, "Q": 30}),
    Case("flash_attention_linear", {"B": 5, "H": 12, "Q": 30}, ("B", "H", "Q")),
    Case("flash_attention_lpt", {"B": 4, "H": 16, "Q": 32}),
    Case("flash_attention_lpt", {"B": 5, "H": 12, "Q": 30}),
    Case("flash_attention_lpt", {"B": 5, "H": 12, "Q": 30}, ("B", "H", "Q")),
    Case("cluster_launch_control", {"M": 64, "N": 32}),
    Case("cluster_launch_control", {"M": 61, "N": 30}),
    Case("cluster_launch_control", {"M": 61, "N": 30}, ("M",)),
]
