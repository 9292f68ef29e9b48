// C = A * B^T in bf16 with CuTe: A is M x K, B is N x K, C is M x N, row-major; any M and N, K a multiple of 8.
//
// Everything below the loop over tiles is CuTe's as its own examples write it; the loop is the schedule's.
#include <cute/tensor.hpp>

#include <sched/gemm.cuh>

using namespace cute;
using bf16 = cute::bfloat16_t;

constexpr int THREADS = 128, STAGES = 3;
using BM = _128;
using BN = _128;
using BK = _64;

// Two by two warps, each with instructions of 16 x 8 x 16; B twice along n, so that `ldmatrix` gets four matrices.
using Mma = decltype(make_tiled_mma(
    MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>{}, Layout<Shape<_2, _2>>{}, Tile<_32, _32, _16>{}));
// Rows of 128 bytes whose chunks of 16 are permuted, so that nothing meets bank conflicts.
using Swizzled = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));
using SharedA = decltype(tile_to_shape(Swizzled{}, Shape<BM, BK, Int<STAGES>>{}));
using SharedB = decltype(tile_to_shape(Swizzled{}, Shape<BN, BK, Int<STAGES>>{}));
using CopyAtom = Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>, bf16>;
using GlobalToShared = decltype(make_tiled_copy(
    CopyAtom{}, Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using SharedToRegisters = Copy_Atom<SM75_U32x4_LDSM_N, bf16>;

// This thread's part of one step of one operand; zeros where the coordinates are outside `extents`.
template <class Coordinates, class Source, class Target, class Extents>
__device__ __forceinline__ void copy_inside(
    Coordinates const& at, Source const& from, Target&& to, Extents const& extents) {
  CUTE_UNROLL
  for (int r = 0; r < size<1>(from); ++r) {
    CUTE_UNROLL
    for (int k = 0; k < size<2>(from); ++k) {
      copy(CopyAtom{}.with(elem_less(at(0, r, k), extents)), from(_, r, k), to(_, r, k));
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
bf16_gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, sched::gemm::Arguments tiles) {
  extern __shared__ __align__(128) unsigned char shared[];
  const auto s_a = make_tensor(make_smem_ptr((bf16*)shared), SharedA{});
  const auto s_b = make_tensor(make_smem_ptr((bf16*)shared + cosize_v<SharedA>), SharedB{});
  const auto g_a = make_tensor(make_gmem_ptr(A), make_shape(M, K), make_stride((int64_t)K, _1{}));
  const auto g_b = make_tensor(make_gmem_ptr(B), make_shape(N, K), make_stride((int64_t)K, _1{}));
  const auto g_c = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride((int64_t)N, _1{}));
  const int steps = ceil_div(K, BK{});

  const auto copies = GlobalToShared{}.get_slice(threadIdx.x);
  const auto to_a = copies.partition_D(s_a);  // (8, rows, chunks, STAGES)
  const auto to_b = copies.partition_D(s_b);

  const Mma mma;
  const auto products = mma.get_slice(threadIdx.x);
  auto r_a = products.partition_fragment_A(s_a(_, _, 0));  // (values, rows, steps of 16)
  auto r_b = products.partition_fragment_B(s_b(_, _, 0));
  const auto load_a = make_tiled_copy_A(SharedToRegisters{}, mma);
  const auto load_b = make_tiled_copy_B(SharedToRegisters{}, mma);
  const auto from_a = load_a.get_slice(threadIdx.x).partition_S(s_a);
  const auto from_b = load_b.get_slice(threadIdx.x).partition_S(s_b);
  auto into_a = load_a.get_slice(threadIdx.x).retile_D(r_a);
  auto into_b = load_b.get_slice(threadIdx.x).retile_D(r_b);

  for (sched::gemm s(tiles); s.valid(); s.next()) {
    const auto tile = s.tile();
    const auto rows = make_coord(tile.m, _), columns = make_coord(tile.n, _);
    const auto fetch_a = copies.partition_S(local_tile(g_a, Shape<BM, BK>{}, rows));  // (8, rows, chunks, steps)
    const auto fetch_b = copies.partition_S(local_tile(g_b, Shape<BN, BK>{}, columns));
    const auto at_a = copies.partition_S(local_tile(make_identity_tensor(shape(g_a)), Shape<BM, BK>{}, rows));
    const auto at_b = copies.partition_S(local_tile(make_identity_tensor(shape(g_b)), Shape<BN, BK>{}, columns));
    const auto fetch = [&](int step) {
      if (step < steps) {
        const int stage = step % STAGES;
        copy_inside(at_a(_, _, _, step), fetch_a(_, _, _, step), to_a(_, _, _, stage), shape(g_a));
        copy_inside(at_b(_, _, _, step), fetch_b(_, _, _, step), to_b(_, _, _, stage), shape(g_b));
      }
      cp_async_fence();
    };

    auto sums = partition_fragment_C(mma, Shape<BM, BN>{});
    clear(sums);
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();
      fetch(step + STAGES - 1);
      CUTE_UNROLL
      for (int k = 0; k < size<2>(r_a); ++k) {
        copy(load_a, from_a(_, _, k, step % STAGES), into_a(_, _, k));
        copy(load_b, from_b(_, _, k, step % STAGES), into_b(_, _, k));
        cute::gemm(mma, r_a(_, _, k), r_b(_, _, k), sums);
      }
    }
    cp_async_wait<0>();
    __syncthreads();  // the next tile's copies go where this one's were read

    const auto place = make_coord(tile.m, tile.n);
    auto out = products.partition_C(local_tile(g_c, Shape<BM, BN>{}, place));
    const auto at = products.partition_C(local_tile(make_identity_tensor(shape(g_c)), Shape<BM, BN>{}, place));
    CUTE_UNROLL
    for (int i = 0; i < size(sums); ++i) {
      if (elem_less(at(i), shape(g_c))) out(i) = bf16(sums(i));
    }
  }
}
